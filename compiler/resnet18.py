"""All of ResNet-18, batch 1, layer by layer: schedules, synthetic data and lower bounds, to measure with.

Convolutions are named as in Table 1 of the VTA paper, C2.1, C2.2 and so on where a shape occurs several times; C3,
which the network lacks, is the paper's. Values are int8. With the extension `requant` every layer is requantised per
channel by its store; without, convolutions have the epilogue of `workloads`, and sums are halved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..hw.config import Config
from ..hw.rounding import quantize_multiplier, requantise
from ..runtime import kernels, layout
from ..runtime.buffer import Buffer
from ..runtime.program import Program
from . import resnet18_ops
from .api import build, build_into
from .slots import Placement
from .tile import Work
from .workloads import EPILOGUE, LAYERS, Layer, accumulators, post_processed

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


@dataclass(frozen=True)
class Entry:
    """One layer: `op` is conv2d, max_pool, add or dense; `layer` its shape, where the kernel of a sum is 1."""

    name: str
    op: str
    layer: Layer

    @property
    def shape(self) -> str:
        """The name without the number of the occurrence."""
        return self.name.split(".")[0]

    @property
    def offloaded(self) -> bool:
        """Whether it is one of the 19 convolutions that VTA runs: all but the first."""
        return self.op == "conv2d" and self.name not in ("C1", EXTRA)

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates: spatial padding counts, padded channels do not."""
        return self.layer.macs if self.op in ("conv2d", "dense") else 0


def entries() -> list[Entry]:
    """The layers in the order in which the network runs them, and the paper's C3 at the end."""
    return [_entry(name) for name in [*_BLOCKS.split(), EXTRA]]


def _entry(name: str) -> Entry:
    if name == "maxpool":
        return Entry(name, "max_pool", Layer(name, 112, 64, 64, 3, 2))
    if name == "fc":
        return Entry(name, "dense", Layer(name, 1, 512, 1000, 1, 1))
    if name.startswith("add"):
        size, channels = _SHAPES[name[3]]
        return Entry(name, "add", Layer(name, size, channels, channels, 1, 1))
    return Entry(name, "conv2d", LAYERS[name.split(".")[0]])


def least_bytes(entry: Entry, cfg: Config) -> tuple[int, int]:
    """(loaded, stored): every tensor moved once, in packed layout, parameters included."""
    c = entry.layer
    ib, ob = -(-c.ci // cfg.block_in), -(-c.co // cfg.block_out)
    stored = ob * c.output**2 * cfg.out_entry_bytes
    if entry.op == "add":
        return 2 * stored, stored
    if entry.op == "max_pool":
        return ob * c.size**2 * cfg.out_entry_bytes, stored
    rows = c.size**2 if c.kernel > 1 else c.output * c.size  # of a kernel of one row only those that it reads
    weights = ib * ob * c.kernel**2 * cfg.wgt_entry_bytes
    parameters = ob * cfg.par_entry_bytes if "requant" in cfg.extensions else ob * cfg.acc_entry_bytes
    return ib * rows * cfg.inp_entry_bytes + weights + parameters, stored


def bounds(entry: Entry, cfg: Config) -> dict[str, float]:
    """Cycles that no schedule can undercut, by what bounds them.

    One product of a tile per cycle (`gemm`), 8 bytes per cycle on each port (`load`, `store`), 16 in all (`memory`).
    """
    loaded, stored = least_bytes(entry, cfg)
    found = {"gemm": entry.macs / cfg.macs_per_cycle, "load": loaded / 8, "store": stored / 8}
    return found | {"memory": (loaded + stored) / 16}


def work_of(entry: Entry, cfg: Config) -> Work:
    """What the tile search gets of a convolution or dense layer."""
    c = entry.layer
    blocks = -(-c.co // cfg.block_out), -(-c.ci // cfg.block_in)
    plain = "requant" not in cfg.extensions
    return Work(
        1,
        *blocks,
        c.output,
        c.output,
        c.kernel,
        c.kernel,
        (c.stride, c.stride),
        operands=int(plain),
        alu_ops=len(EPILOGUE) * plain,
    )


def has_tiles(entry: Entry, cfg: Config) -> bool:
    """Whether a layer's program comes from a schedule whose tiles are searched."""
    return entry.op in ("conv2d", "dense") and not resnet18_ops.goes_this_way(entry.op, entry.layer, cfg)


def program(entry: Entry, cfg: Config, **tiling: Any) -> Program:
    """The program of a layer; `tiling` are `tile`, `vthreads` and `search` of the schedule's function."""
    if resnet18_ops.goes_this_way(entry.op, entry.layer, cfg):
        return resnet18_ops.program(entry.op, entry.layer, cfg)
    return build(schedule(entry, cfg, **tiling), cfg, name=entry.name)


def schedule(entry: Entry, cfg: Config, **tiling: Any):
    """The `Schedule` of a layer that does not go the way of `resnet18_ops`."""
    c = entry.layer
    epilogue = [("requant", "q")] if "requant" in cfg.extensions else EPILOGUE
    if entry.op == "dense":
        from .schedule.dense import dense

        return dense(cfg, 1, c.ci, c.co, epilogue=epilogue, **tiling)
    if entry.op == "max_pool":
        from .schedule.pool import pool

        value = -128 if "pad_value" in cfg.extensions else 0  # the network pools what is not negative
        return pool(cfg, 1, c.size, c.size, c.co, 3, 3, (2, 2), (1, 1, 1, 1), pad_value=value, **tiling)
    if entry.op == "add":
        from .schedule.elementwise import elementwise

        tensors = -(-c.co // cfg.block_out) * c.size**2
        return elementwise(cfg, tensors, [("add", "y"), ("shr", 1)], dtype="int8", **tiling)
    from .schedule.conv2d import conv2d

    pad, stride = (c.pad, c.pad, c.pad, c.pad), (c.stride, c.stride)
    return conv2d(cfg, 1, c.size, c.size, c.ci, c.co, c.kernel, c.kernel, stride, pad, epilogue=epilogue, **tiling)


def data(entry: Entry, cfg: Config, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(random inputs of the program, the output that it must give), packed."""
    rng = np.random.default_rng(seed)
    if resnet18_ops.goes_this_way(entry.op, entry.layer, cfg):
        return resnet18_ops.data(entry.op, entry.layer, cfg, rng)
    make: dict[str, Callable] = {"conv2d": _conv_data, "dense": _conv_data, "add": _sum_data, "max_pool": _pool_data}
    return make[entry.op](entry, cfg, rng)


def convolutions(cfg: Config, **tiling: Any) -> Program:
    """The 19 offloaded convolutions as one program, each reading what another stored, as in the network without sums.

    Inputs are `C2.1.x` and the parameters of each, `NAME.w` and `NAME.q` (or `NAME.b`), outputs `NAME.out`.
    """
    program, place = Program(cfg, "convolutions"), Placement(cfg)
    outputs: dict[str, Buffer] = {}
    for entry, source in _chain():
        given = {"x": outputs[source]} if source else {}
        found = build_into(program, schedule(entry, cfg, **tiling), given, place, name=entry.name)
        outputs[entry.name] = found["out"]
    return program


def _chain() -> list[tuple[Entry, str | None]]:
    """(offloaded convolution, the one whose output it reads)."""
    pairs: list[tuple[Entry, str | None]] = []
    block = last = None
    for entry in entries():
        if entry.op == "add":
            block = last  # where the next block begins
        if entry.offloaded:
            beside = entry.layer.kernel == 1  # on the way past the block's other two
            pairs.append((entry, block if beside else last))
            last = last if beside else entry.name
    return pairs


def convolutions_data(cfg: Config, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(random inputs of `convolutions`, the outputs that it must give), packed."""
    inputs: dict[str, np.ndarray] = {}
    images: dict[str | None, np.ndarray] = {}
    outputs = {}
    for k, (entry, source) in enumerate(_chain()):
        found, outputs[f"{entry.name}.out"] = _conv_data(
            entry, cfg, np.random.default_rng(seed + k), images.get(source)
        )
        x = found.pop("x")
        images[entry.name] = layout.unpack_activations(outputs[f"{entry.name}.out"], entry.layer.co, cfg)
        inputs |= {f"{entry.name}.{name}": array for name, array in found.items()}
        inputs |= {} if source else {f"{entry.name}.x": x}
    return inputs, outputs


def _random(rng: np.random.Generator, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-(1 << bits - 1), 1 << bits - 1, shape, np.int8)


def _conv_data(
    entry: Entry, cfg: Config, rng: np.random.Generator, image: np.ndarray | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    c = entry.layer
    x = _random(rng, cfg.inp_bits, (1, c.ci, c.size, c.size)) if image is None else image
    w = _random(rng, cfg.wgt_bits, (c.co, c.ci, c.kernel, c.kernel))
    acc = accumulators(x[0], w, c)
    if "requant" in cfg.extensions:
        deviation = np.sqrt(c.ci * c.kernel**2) * 5000
        pairs = [quantize_multiplier(s) for s in rng.uniform(30, 60, c.co) / deviation]
        multiplier, exponent = np.array(pairs, np.int64).T
        bias = rng.integers(-(1 << 18), 1 << 18, c.co)
        facts = {"zero_point": -5, "low": -128, "high": 127, "contract": "double"}
        q = layout.pack_par(cfg, bias=bias, multiplier=multiplier, exponent=exponent, **facts)
        out = requantise(acc + bias[:, None], multiplier[:, None], exponent[:, None], -5)
        inputs = {"q": q}
    else:
        bias = rng.integers(-100, 100, c.co, np.int32)
        out, inputs = post_processed(acc, bias), {"b": layout.pack_bias(bias, cfg)}
    if entry.op == "dense":
        inputs |= {"x": layout.pack_dense_activations(x.reshape(1, -1), cfg)}
        inputs |= {"w": layout.pack_dense_weights(w.reshape(c.co, c.ci), cfg)}
        return inputs, layout.pack_dense_activations(out.reshape(1, -1), cfg, block=cfg.block_out)
    inputs |= {"x": layout.pack_activations(x, cfg), "w": layout.pack_weights(w, cfg)}
    return inputs, layout.pack_activations(out.reshape(1, c.co, c.output, c.output), cfg, block=cfg.block_out)


def _pool_data(entry: Entry, cfg: Config, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    c = entry.layer
    x = _random(rng, 8, (1, c.ci, c.size, c.size))
    if "pad_value" not in cfg.extensions:
        x = np.maximum(x, 0)
    out = kernels.max_pool(x, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    pack = {"cfg": cfg, "block": cfg.block_out}
    return {"x": layout.pack_activations(x, **pack)}, layout.pack_activations(out, **pack)


def _sum_data(entry: Entry, cfg: Config, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    tensors = -(-entry.layer.co // cfg.block_out) * entry.layer.size**2
    x, y = (_random(rng, 8, (tensors, cfg.batch, cfg.block_out)) for _ in range(2))
    return {"x": x, "y": y}, ((x.astype(int) + y) >> 1).astype(np.int8)
