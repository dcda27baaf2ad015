"""Layers to measure with: the convolutions of ResNet-18 as the VTA paper numbers them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..hw.config import Config
from ..hw.errors import UnsupportedError
from ..runtime import layout
from ..runtime.program import Program

EPILOGUE = (("shr", 8), ("add", "b"), ("max", 0), ("min", 127))


@dataclass(frozen=True)
class Layer:
    """A square convolution with "same" padding, batch 1: `size` is the input's height and width."""

    name: str
    size: int
    ci: int
    co: int
    kernel: int
    stride: int

    @property
    def pad(self) -> int:
        """Padding on every side."""
        return self.kernel // 2

    @property
    def output(self) -> int:
        """Height and width of the output."""
        return (self.size + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates: spatial padding counts, padded channels do not. Operations are twice as many."""
        return self.output**2 * self.co * self.ci * self.kernel**2


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


LAYERS = {row.split()[0]: Layer(row.split()[0], *map(int, row.split()[1:])) for row in _RESNET18.strip().splitlines()}


def resnet18_layers() -> list[Layer]:
    """C2 to C12: what VTA runs of the network."""
    return [found for name, found in LAYERS.items() if name != "C1"]


def layer(name: str) -> Layer:
    """The ResNet-18 layer `name` of C2 to C12. Raises `UnsupportedError` for an unknown one."""
    layers = {found.name: found for found in resnet18_layers()}
    if name not in layers:
        raise UnsupportedError(f"unknown layer {name!r}; known are {', '.join(layers)}")
    return layers[name]


def build_layer(name: str, cfg: Config) -> Program:
    """The program of a ResNet-18 layer with the epilogue `EPILOGUE`: inputs `x`, `w`, `b`, output `out`."""
    from .api import build
    from .schedule.conv2d import conv2d

    c = layer(name)
    pad, stride = (c.pad, c.pad, c.pad, c.pad), (c.stride, c.stride)
    sch = conv2d(cfg, 1, c.size, c.size, c.ci, c.co, c.kernel, c.kernel, stride, pad, epilogue=EPILOGUE)
    return build(sch, cfg, name=name)


def layer_data(name: str, cfg: Config, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(random inputs of `build_layer`'s program, the output that it must give)."""
    c, rng = layer(name), np.random.default_rng(seed)
    x = rng.integers(-(1 << cfg.inp_bits - 1), 1 << cfg.inp_bits - 1, (1, c.ci, c.size, c.size), np.int8)
    w = rng.integers(-(1 << cfg.wgt_bits - 1), 1 << cfg.wgt_bits - 1, (c.co, c.ci, c.kernel, c.kernel), np.int8)
    b = rng.integers(-100, 100, c.co, np.int32)
    out = post_processed(accumulators(x[0], w, c), b)
    packed = layout.pack_activations(out.reshape(1, c.co, c.output, c.output), cfg, block=cfg.block_out)
    inputs = {"x": layout.pack_activations(x, cfg), "w": layout.pack_weights(w, cfg), "b": layout.pack_bias(b, cfg)}
    return inputs, packed


def accumulators(x: np.ndarray, w: np.ndarray, c: Layer) -> np.ndarray:
    """int64 (co, output * output) sums of products of an image `x` (ci, size, size) and weights `w`."""
    acc = np.zeros((c.co, c.output * c.output))
    wide = np.pad(x.astype(np.float64), ((0, 0), (c.pad, c.pad), (c.pad, c.pad)))  # float64 sums below 2**53 are exact
    last = c.stride * (c.output - 1) + 1
    for ky in range(c.kernel):
        for kx in range(c.kernel):
            window = wide[:, ky : ky + last : c.stride, kx : kx + last : c.stride]
            acc += w[:, :, ky, kx].astype(np.float64) @ window.reshape(c.ci, -1)
    return acc.astype(np.int64)


def post_processed(acc: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """`EPILOGUE` of accumulators (co, ...), int8."""
    return np.clip((acc >> 8) + bias[:, None], 0, 127).astype(np.int8)
