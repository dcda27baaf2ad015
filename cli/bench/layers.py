"""The layers of ResNet-18, batch 1: shapes, programs, random data with the results that they must give, lower bounds.

Convolutions are named as in Table 1 of the VTA paper, C2.1, C2.2 and so on where a shape occurs several times; C3
is in the paper but not in the network. Values are int8. With the extension `requant` every layer is requantised per
channel by its store; without, convolutions have the epilogue `EPILOGUE`, and sums are halved.

Where a configuration has the extensions, three kinds of layers are lowered as a network's operators, not from a
schedule: the first convolution reads an image that the host has laid out (compiler/kernels/conv.py), and the
multiplier array sorts what the maximum compares (compiler/kernels/pool.py) and computes sums
(compiler/kernels/elementwise.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...compiler import cost
from ...compiler import graph as g
from ...compiler.accelerator.first_images import cheapest_layout
from ...compiler.api import build, build_into
from ...compiler.conv_shape import ConvShape
from ...compiler.graph.elementwise import ADD_SHIFT
from ...compiler.kernels import language, table
from ...compiler.kernels.conv import host_step
from ...compiler.kernels.elementwise import weighted_sum
from ...compiler.kernels.pool import max_pool_sorted
from ...compiler.kernels.recording import Recording, packed_shape
from ...compiler.schedule.conv2d import conv2d_of
from ...compiler.schedule.dense import dense_of
from ...compiler.schedule.elementwise import elementwise
from ...compiler.schedule.pool import pool_of
from ...compiler.schedule.tiling import Work
from ...compiler.tir.placement import Placement
from ...compiler.tvm_compat import Schedule
from ...hw.config import Config
from ...hw.rounding import quantize_multiplier, requantise
from ...runtime import layout
from ...runtime.buffer import Buffer
from ...runtime.hostops.elementwise import add
from ...runtime.hostops.pooling import max_pool
from ...runtime.program import Program
from ...sim.dram import ZYNQ_HP, Dram

Data = tuple[dict[str, np.ndarray], np.ndarray]  # inputs of a program, and the output that it must give; packed

EPILOGUE = (("shr", 8), ("add", "b"), ("max", 0), ("min", 127))
# Milliseconds on the PYNQ-Z1 at 100 MHz, post-operations included: VTA's TopHub log v0.10 (tlc-pack/tophub).
VTA_MS = {"C2": 5.699, "C4": 2.966, "C5": 1.349, "C6": 5.183, "C7": 2.669}
VTA_MS |= {"C8": 1.029, "C9": 4.934, "C10": 3.994, "C11": 1.081, "C12": 7.348}
_RESNET18 = """
C1 224 3 64 7 2
C2 56 64 64 3 1
C3 56 64 64 1 1
C4 56 64 128 3 2
C5 56 64 128 1 2
C6 28 128 128 3 1
C7 28 128 256 3 2
C8 28 128 256 1 2
C9 14 256 256 3 1
C10 14 256 512 3 2
C11 14 256 512 1 2
C12 7 512 512 3 1
"""
_BLOCKS = """
C1 maxpool
C2.1 C2.2 add2.1 C2.3 C2.4 add2.2
C4 C6.1 C5 add3.1 C6.2 C6.3 add3.2
C7 C9.1 C8 add4.1 C9.2 C9.3 add4.2
C10 C12.1 C11 add5.1 C12.2 C12.3 add5.2
fc
"""
EXTRA = "C3"
_SUMS = {"2": (56, 64), "3": (28, 128), "4": (14, 256), "5": (7, 512)}  # size, channels
_SCALES, _ZERO_POINTS = (0.05, 0.04, 0.07), (-3, 5, -10)  # of the operands of a sum, and of the sum


@dataclass(frozen=True)
class BenchLayer:
    """One layer: `op` is conv2d, dense, max_pool or add, whose shape has one group per channel."""

    name: str
    op: str
    shape: ConvShape

    @property
    def shape_name(self) -> str:
        """The name without the number of the occurrence."""
        return self.name.split(".")[0]

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates: spatial padding counts, padded channels do not."""
        return self.shape.macs if self.op in ("conv2d", "dense") else 0

    @property
    def offloaded(self) -> bool:
        """True for the 19 convolutions that VTA runs: all but the first."""
        return self.op == "conv2d" and self.name not in ("C1", EXTRA)


def square(size: int, c: int, o: int, kernel: int, stride: int, groups: int = 1) -> ConvShape:
    """The shape of one image of `size` rows and columns with "same" padding."""
    pad = kernel // 2
    return ConvShape(1, c, size, size, o, (kernel, kernel), (stride, stride), (pad, pad, pad, pad), groups=groups)


_SHAPES = {name: square(*map(int, sizes)) for name, *sizes in map(str.split, _RESNET18.strip().splitlines())}
CONVOLUTIONS = {name: shape for name, shape in _SHAPES.items() if name != "C1"}  # those that VTA offloads


def layers() -> list[BenchLayer]:
    """The layers in the order in which the network runs them, and the paper's C3 at the end."""
    return [_layer(name) for name in [*_BLOCKS.split(), EXTRA]]


def _layer(name: str) -> BenchLayer:
    if name == "maxpool":
        return BenchLayer(name, "max_pool", square(112, 64, 64, 3, 2, groups=64))
    if name == "fc":
        return BenchLayer(name, "dense", ConvShape(1, 512, 1, 1, 1000))
    if name.startswith("add"):
        size, channels = _SUMS[name[3]]
        return BenchLayer(name, "add", square(size, channels, channels, 1, 1, groups=channels))
    return BenchLayer(name, "conv2d", _SHAPES[name.split(".")[0]])


def least_bytes(layer: BenchLayer, cfg: Config) -> tuple[int, int]:
    """(loaded, stored): every tensor moved once, in packed layout, parameters included."""
    shape = layer.shape
    (oy, ox), ib, ob = shape.output, -(-shape.c // cfg.block_in), -(-shape.o // cfg.block_out)
    stored = ob * oy * ox * cfg.out_entry_bytes
    if layer.op == "add":
        return 2 * stored, stored
    if layer.op == "max_pool":
        return ob * shape.h * shape.w * cfg.out_entry_bytes, stored
    rows = shape.h if shape.kernel[0] > 1 else oy  # a kernel of one row skips the rows between strides
    weights = ib * ob * shape.taps * cfg.wgt_entry_bytes
    parameters = ob * cfg.par_entry_bytes if "requant" in cfg.extensions else ob * cfg.acc_entry_bytes
    return ib * rows * shape.w * cfg.inp_entry_bytes + weights + parameters, stored


def bounds(layer: BenchLayer, cfg: Config, dram: Dram = ZYNQ_HP) -> dict[str, float]:
    """Cycles that no schedule can undercut, by what bounds them: see `cost.bounds`."""
    return cost.bounds(cfg, layer.macs, *least_bytes(layer, cfg), dram)


def work_of(layer: BenchLayer, cfg: Config) -> Work:
    """The `Work` of a convolution or dense layer, for the tile search."""
    plain = "requant" not in cfg.extensions
    return replace(Work.of(layer.shape, cfg), operands=int(plain), alu_ops=len(EPILOGUE) * plain)


def has_tiles(layer: BenchLayer, cfg: Config) -> bool:
    """True where a layer's program comes from a schedule whose tiles are searched."""
    return layer.op in ("conv2d", "dense") and not is_operator(layer, cfg)


def program(layer: BenchLayer, cfg: Config, **tiling: Any) -> Program:
    """The program of a layer; `tiling` are `tile`, `vthreads` and `search` of the schedule's function.

    Inputs are `x` and, of sums, `y`, and the parameters `w` and `q` (or `b`) of a schedule; the output is `out`.
    """
    if is_operator(layer, cfg):
        return _operator_program(layer, cfg)
    return build(_schedule(layer, cfg, **tiling), cfg, name=layer.name)


def plain_convolution(name: str, cfg: Config) -> Program:
    """The program of a convolution with `EPILOGUE`, whatever the extensions: inputs `x`, `w`, `b`, output `out`."""
    return build(conv2d_of(cfg, CONVOLUTIONS[name], epilogue=EPILOGUE), cfg, name=name)


def plain_data(name: str, cfg: Config) -> Data:
    """Random inputs of `plain_convolution`, and its output."""
    return conv_data(CONVOLUTIONS[name], cfg, np.random.default_rng(0), plain=True)


def _schedule(layer: BenchLayer, cfg: Config, **tiling: Any) -> Schedule:
    shape = layer.shape
    if layer.op == "max_pool":
        value = -128 if "pad_value" in cfg.extensions else 0  # the pooled values are not negative
        return pool_of(cfg, shape, pad_value=value, **tiling)
    if layer.op == "add":
        entries = -(-shape.o // cfg.block_out) * shape.h * shape.w
        return elementwise(cfg, entries, [("add", "y"), ("shr", 1)], dtype="int8", **tiling)
    epilogue = [("requant", "q")] if "requant" in cfg.extensions else EPILOGUE
    return (dense_of if layer.op == "dense" else conv2d_of)(cfg, shape, epilogue=epilogue, **tiling)


def data(layer: BenchLayer, cfg: Config, seed: int = 0) -> Data:
    """Random inputs of the layer's `program`, and its output."""
    rng = np.random.default_rng(seed)
    if is_operator(layer, cfg):
        return _operator_data(layer, cfg, rng)
    make: dict[str, Callable] = {"conv2d": conv_data, "dense": conv_data, "add": _sum_data, "max_pool": _pool_data}
    return make[layer.op](layer.shape, cfg, rng)


def _random(rng: np.random.Generator, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    """Signed numbers of so many bits."""
    return rng.integers(-(1 << bits - 1), 1 << bits - 1, shape, np.int8)


def conv_data(
    shape: ConvShape, cfg: Config, rng: np.random.Generator, image: np.ndarray | None = None, plain: bool = False
) -> Data:
    """Random inputs of a convolution or dense layer, or with the given `image`, and its output.

    Where the configuration has the extension, it is requantised unless `plain`; otherwise `EPILOGUE` is behind it.
    """
    x = _random(rng, cfg.inp_bits, (1, shape.c, *shape.size)) if image is None else image
    w = _random(rng, cfg.wgt_bits, (shape.o, shape.c, *shape.kernel))
    acc = accumulators(x[0], w, shape)
    if "requant" in cfg.extensions and not plain:
        deviation = np.sqrt(shape.c * shape.taps) * 5000
        pairs = [quantize_multiplier(s) for s in rng.uniform(30, 60, shape.o) / deviation]
        multiplier, exponent = np.array(pairs, np.int64).T
        bias = rng.integers(-(1 << 18), 1 << 18, shape.o)
        facts = {"zero_point": -5, "low": -128, "high": 127, "contract": "double"}
        q = layout.pack_par(cfg, bias=bias, multiplier=multiplier, exponent=exponent, **facts)
        out = requantise(acc + bias[:, None], multiplier[:, None], exponent[:, None], -5)
        inputs = {"q": q}
    else:
        bias = rng.integers(-100, 100, shape.o, np.int32)
        out, inputs = post_processed(acc, bias), {"b": layout.pack_bias(bias, cfg)}
    if shape.size == (1, 1):
        inputs |= {"x": layout.pack_dense_activations(x.reshape(1, -1), cfg)}
        inputs |= {"w": layout.pack_dense_weights(w.reshape(shape.o, shape.c), cfg)}
        return inputs, layout.pack_dense_activations(out.reshape(1, -1), cfg, block=cfg.block_out)
    inputs |= {"x": layout.pack_activations(x, cfg), "w": layout.pack_weights(w, cfg)}
    return inputs, _packed(out.reshape(1, shape.o, *shape.output), cfg)


def _packed(values: np.ndarray, cfg: Config) -> np.ndarray:
    return layout.pack_activations(values, cfg, block=cfg.block_out)


def accumulators(x: np.ndarray, w: np.ndarray, shape: ConvShape) -> np.ndarray:
    """int64 (o, output rows * columns) sums of products of an image `x` (c, h, w) and weights `w`."""
    (oy, ox), (sy, sx), (top, left, bottom, right) = shape.output, shape.strides, shape.pads
    acc = np.zeros((shape.o, oy * ox))
    wide = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right)))  # float64 sums below 2**53 are exact
    for ky, kx in np.ndindex(*shape.kernel):
        window = wide[:, ky : ky + sy * (oy - 1) + 1 : sy, kx : kx + sx * (ox - 1) + 1 : sx]
        acc += w[:, :, ky, kx].astype(np.float64) @ window.reshape(shape.c, -1)
    return acc.astype(np.int64)


def post_processed(acc: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """`EPILOGUE` of accumulators (co, ...), int8."""
    return np.clip((acc >> 8) + bias[:, None], 0, 127).astype(np.int8)


def _pool_data(shape: ConvShape, cfg: Config, rng: np.random.Generator) -> Data:
    x = _random(rng, 8, (1, shape.c, *shape.size))
    if "pad_value" not in cfg.extensions:
        x = np.maximum(x, 0)
    return {"x": _packed(x, cfg)}, _packed(
        max_pool(x, kernel=shape.kernel, strides=shape.strides, pads=shape.pads), cfg
    )


def _sum_data(shape: ConvShape, cfg: Config, rng: np.random.Generator) -> Data:
    entries = -(-shape.o // cfg.block_out) * shape.h * shape.w
    x, y = (_random(rng, 8, (entries, cfg.batch, cfg.block_out)) for _ in range(2))
    return {"x": x, "y": y}, ((x.astype(int) + y) >> 1).astype(np.int8)


def convolutions(cfg: Config, **tiling: Any) -> Program:
    """The 19 offloaded convolutions as one program, each reading the output of another, as in the network without sums.

    Inputs are `C2.1.x` and the parameters of each, `NAME.w` and `NAME.q` (or `NAME.b`), outputs `NAME.out`.
    """
    program, placement = Program(cfg, "convolutions"), Placement(cfg)
    outputs: dict[str, Buffer] = {}
    for layer, source in _chain():
        given = {"x": outputs[source]} if source else {}
        found = build_into(program, _schedule(layer, cfg, **tiling), given, placement, name=layer.name)
        outputs[layer.name] = found["out"]
    return program


def _chain() -> list[tuple[BenchLayer, str | None]]:
    """(offloaded convolution, the one whose output it reads)."""
    pairs: list[tuple[BenchLayer, str | None]] = []
    block = last = None
    for layer in layers():
        if layer.op == "add":
            block = last  # where the next block begins
        if layer.offloaded:
            shortcut = layer.shape.taps == 1  # reads what the block's first convolution reads
            pairs.append((layer, block if shortcut else last))
            last = last if shortcut else layer.name
    return pairs


def convolutions_data(cfg: Config, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(random inputs of `convolutions`, the outputs that it must give), packed."""
    inputs: dict[str, np.ndarray] = {}
    images: dict[str | None, np.ndarray] = {}
    outputs = {}
    for k, (layer, source) in enumerate(_chain()):
        rng = np.random.default_rng(seed + k)
        found, outputs[f"{layer.name}.out"] = conv_data(layer.shape, cfg, rng, images.get(source))
        x = found.pop("x")
        images[layer.name] = layout.unpack_activations(outputs[f"{layer.name}.out"], layer.shape.o, cfg)
        inputs |= {f"{layer.name}.{name}": array for name, array in found.items()}
        inputs |= {} if source else {f"{layer.name}.x": x}
    return inputs, outputs


@lru_cache(maxsize=16)
def _operator(layer: BenchLayer) -> g.Add | g.MaxPool | g.QConv2d:
    """A network's operator that does the layer: sums have operands of different scales, outputs fill int8."""
    shape = layer.shape
    if layer.op == "add":
        x, y, out = (
            g.Tensor(name, (1, shape.o, *shape.size), scale=scale, zero_point=zero)
            for name, scale, zero in zip(("x", "y", "out"), _SCALES, _ZERO_POINTS)
        )
        return g.Add(layer.name, (x, y), out)
    x, size = g.Tensor("x", (1, shape.c, *shape.size)), (1, shape.o, *shape.output)
    if layer.op == "max_pool":
        return g.MaxPool(layer.name, (x,), g.Tensor("out", size), shape.kernel, shape.strides, shape.pads)
    rng = np.random.default_rng(shape.o)
    weight = rng.integers(-128, 128, (shape.o, shape.c, *shape.kernel), np.int8)
    scale = (rng.uniform(30, 60, shape.o) / (5000 * np.sqrt(weight[0].size))).astype(np.float32)
    bias = rng.integers(-(1 << 18), 1 << 18, shape.o, np.int32)
    facts = {"strides": shape.strides, "pads": shape.pads}
    return g.QConv2d(layer.name, (x,), g.Tensor("out", size, zero_point=-5), weight, scale, bias, **facts)


def is_operator(layer: BenchLayer, cfg: Config) -> bool:
    """True for a layer that is lowered as a network's operator."""
    if layer.op == "dense" or layer.op == "conv2d" and layer.shape.c >= cfg.block_in:
        return False
    op = _operator(layer)
    if isinstance(op, g.Add):
        return table.chosen(op, cfg) is weighted_sum
    if isinstance(op, g.MaxPool):
        return not language.why_not(max_pool_sorted, op, cfg)
    return cheapest_layout(op, cfg, nhwc=False) is not None


def _operator_program(layer: BenchLayer, cfg: Config) -> Program:
    rec, op = Recording(cfg, "double", layer.name), _operator(layer)
    shape = packed_shape(op.output.shape, cfg)
    rec.activations["out"] = rec.program.buffer("out", shape, cfg.out_bits, kind="output")
    if isinstance(op, g.QConv2d):
        fold = cheapest_layout(op, cfg, nhwc=False)
        assert fold is not None
        rec.folded[op.name] = fold, rec.program.buffer("x", host_step(op, fold, cfg)[1], cfg.inp_bits)
    else:
        for t in op.inputs:
            rec.activations[t.name] = rec.program.buffer(t.name, packed_shape(t.shape, cfg), cfg.inp_bits)
    table.lower(rec, op)
    return rec.program


def _operator_data(layer: BenchLayer, cfg: Config, rng: np.random.Generator) -> Data:
    op = _operator(layer)
    values = {t.name: rng.integers(-128, 128, t.shape, np.int8) for t in op.inputs}
    inputs, x = {name: layout.pack_activations(array, cfg) for name, array in values.items()}, values["x"]
    if isinstance(op, g.Add):
        multipliers, exponents = zip(*op.multipliers)
        scales = {"multipliers": multipliers, "exponents": exponents, "low": -128, "high": 127}
        out = add(x, values["y"], **scales, zero_points=_ZERO_POINTS, sign=1, shift=ADD_SHIFT)
    elif isinstance(op, g.MaxPool):
        out = max_pool(x, kernel=op.kernel, strides=op.strides, pads=op.pads)
    else:
        fold = cheapest_layout(op, cfg, nhwc=False)
        assert fold is not None
        acc = accumulators(x[0], op.weight, layer.shape) + op.bias[:, None]
        multiplier, exponent = (each[:, None] for each in op.multipliers)
        out = requantise(acc, multiplier, exponent, op.output.zero_point).reshape(op.output.shape)
        inputs = {"x": layout.fold_windows(x, **host_step(op, fold, cfg)[0])}
    return inputs, _packed(out, cfg)
