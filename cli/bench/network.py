"""All of ResNet-18, batch 1, layer by layer: schedules, synthetic data and lower bounds, to measure with.

Convolutions are named as in Table 1 of the VTA paper, C2.1, C2.2 and so on where a shape occurs several times; C3
is in the paper but not in the network. Values are int8. With the extension `requant` every layer is requantised per
channel by its store; without, convolutions have the epilogue of layers.py, and sums are halved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...compiler import cost
from ...compiler.api import build, build_into
from ...compiler.conv_shape import ConvShape
from ...compiler.schedule.conv2d import conv2d_of
from ...compiler.schedule.dense import dense_of
from ...compiler.schedule.elementwise import elementwise
from ...compiler.schedule.pool import pool_of
from ...compiler.schedule.tiling import Work
from ...compiler.tir.placement import Placement
from ...compiler.tvm_compat import Schedule
from ...hw.config import Config
from ...runtime import layout
from ...runtime.buffer import Buffer
from ...runtime.hostops.pooling import max_pool
from ...runtime.program import Program
from ...sim.dram import ZYNQ_HP, Dram
from . import operators
from .layers import EPILOGUE, LAYERS, BenchLayer, conv_data, random_values, square

# Milliseconds on the PYNQ-Z1 at 100 MHz, post-operations included: VTA's TopHub log v0.10 (tlc-pack/tophub).
VTA_MS = {"C2": 5.699, "C4": 2.966, "C5": 1.349, "C6": 5.183, "C7": 2.669}
VTA_MS |= {"C8": 1.029, "C9": 4.934, "C10": 3.994, "C11": 1.081, "C12": 7.348}
_BLOCKS = """
C1 maxpool
C2.1 C2.2 add2.1 C2.3 C2.4 add2.2
C4 C6.1 C5 add3.1 C6.2 C6.3 add3.2
C7 C9.1 C8 add4.1 C9.2 C9.3 add4.2
C10 C12.1 C11 add5.1 C12.2 C12.3 add5.2
fc
"""
EXTRA = "C3"
_SHAPES = {"2": (56, 64), "3": (28, 128), "4": (14, 256), "5": (7, 512)}  # of the sums: size, channels


def is_offloaded(layer: BenchLayer) -> bool:
    """True for the 19 convolutions that VTA runs: all but the first."""
    return layer.op == "conv2d" and layer.name not in ("C1", EXTRA)


def layers() -> list[BenchLayer]:
    """The layers in the order in which the network runs them, and the paper's C3 at the end."""
    return [_layer(name) for name in [*_BLOCKS.split(), EXTRA]]


def _layer(name: str) -> BenchLayer:
    if name == "maxpool":
        return BenchLayer(name, "max_pool", square(112, 64, 64, 3, 2, groups=64))
    if name == "fc":
        return BenchLayer(name, "dense", ConvShape(1, 512, 1, 1, 1000))
    if name.startswith("add"):
        size, channels = _SHAPES[name[3]]
        return BenchLayer(name, "add", square(size, channels, channels, 1, 1, groups=channels))
    return BenchLayer(name, "conv2d", LAYERS[name.split(".")[0]])


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
    return layer.op in ("conv2d", "dense") and not operators.goes_this_way(layer, cfg)


def program(layer: BenchLayer, cfg: Config, **tiling: Any) -> Program:
    """The program of a layer; `tiling` are `tile`, `vthreads` and `search` of the schedule's function."""
    if operators.goes_this_way(layer, cfg):
        return operators.program(layer, cfg)
    return build(schedule(layer, cfg, **tiling), cfg, name=layer.name)


def schedule(layer: BenchLayer, cfg: Config, **tiling: Any) -> Schedule:
    """The `Schedule` of a layer that `operators` does not build."""
    shape = layer.shape
    if layer.op == "max_pool":
        value = -128 if "pad_value" in cfg.extensions else 0  # the pooled values are not negative
        return pool_of(cfg, shape, pad_value=value, **tiling)
    if layer.op == "add":
        entries = -(-shape.o // cfg.block_out) * shape.h * shape.w
        return elementwise(cfg, entries, [("add", "y"), ("shr", 1)], dtype="int8", **tiling)
    epilogue = [("requant", "q")] if "requant" in cfg.extensions else EPILOGUE
    return (dense_of if layer.op == "dense" else conv2d_of)(cfg, shape, epilogue=epilogue, **tiling)


def data(layer: BenchLayer, cfg: Config, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(random inputs of the program, the output that it must give), packed."""
    rng = np.random.default_rng(seed)
    if operators.goes_this_way(layer, cfg):
        return operators.data(layer, cfg, rng)
    make: dict[str, Callable] = {"conv2d": conv_data, "dense": conv_data, "add": _sum_data, "max_pool": _pool_data}
    return make[layer.op](layer.shape, cfg, rng)


def convolutions(cfg: Config, **tiling: Any) -> Program:
    """The 19 offloaded convolutions as one program, each reading the output of another, as in the network without sums.

    Inputs are `C2.1.x` and the parameters of each, `NAME.w` and `NAME.q` (or `NAME.b`), outputs `NAME.out`.
    """
    program, placement = Program(cfg, "convolutions"), Placement(cfg)
    outputs: dict[str, Buffer] = {}
    for layer, source in _chain():
        given = {"x": outputs[source]} if source else {}
        found = build_into(program, schedule(layer, cfg, **tiling), given, placement, name=layer.name)
        outputs[layer.name] = found["out"]
    return program


def _chain() -> list[tuple[BenchLayer, str | None]]:
    """(offloaded convolution, the one whose output it reads)."""
    pairs: list[tuple[BenchLayer, str | None]] = []
    block = last = None
    for layer in layers():
        if layer.op == "add":
            block = last  # where the next block begins
        if is_offloaded(layer):
            beside = layer.shape.taps == 1  # the shortcut, beside the block's other two
            pairs.append((layer, block if beside else last))
            last = last if beside else layer.name
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


def _pool_data(shape: ConvShape, cfg: Config, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    x = random_values(rng, 8, (1, shape.c, *shape.size))
    if "pad_value" not in cfg.extensions:
        x = np.maximum(x, 0)
    out = max_pool(x, kernel=shape.kernel, strides=shape.strides, pads=shape.pads)
    pack = {"cfg": cfg, "block": cfg.block_out}
    return {"x": layout.pack_activations(x, **pack)}, layout.pack_activations(out, **pack)


def _sum_data(shape: ConvShape, cfg: Config, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    entries = -(-shape.o // cfg.block_out) * shape.h * shape.w
    x, y = (random_values(rng, 8, (entries, cfg.batch, cfg.block_out)) for _ in range(2))
    return {"x": x, "y": y}, ((x.astype(int) + y) >> 1).astype(np.int8)
