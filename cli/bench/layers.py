"""Layers to measure with: the convolutions of ResNet-18 as the VTA paper numbers them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...compiler.conv_shape import ConvShape
from ...hw.config import Config
from ...hw.rounding import quantize_multiplier, requantise
from ...runtime import layout
from ...runtime.program import Program
from .rows import check_names

EPILOGUE = (("shr", 8), ("add", "b"), ("max", 0), ("min", 127))


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


def square(size: int, c: int, o: int, kernel: int, stride: int, groups: int = 1) -> ConvShape:
    """The shape of one image of `size` rows and columns with "same" padding."""
    pad = kernel // 2
    return ConvShape(1, c, size, size, o, (kernel, kernel), (stride, stride), (pad, pad, pad, pad), groups=groups)


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


LAYERS = {name: square(*map(int, extents)) for name, *extents in map(str.split, _RESNET18.strip().splitlines())}


def resnet18_layers() -> dict[str, ConvShape]:
    """Layers C2 to C12, which VTA offloads."""
    return {name: shape for name, shape in LAYERS.items() if name != "C1"}


def layer(name: str) -> ConvShape:
    """The ResNet-18 layer `name`, one of C2 to C12. Raises `UnsupportedError` for an unknown one."""
    layers = resnet18_layers()
    check_names([name], layers)
    return layers[name]


def build_layer(name: str, cfg: Config) -> Program:
    """The program of a ResNet-18 layer with the epilogue `EPILOGUE`: inputs `x`, `w`, `b`, output `out`."""
    from ...compiler.api import build
    from ...compiler.schedule.conv2d import conv2d_of

    return build(conv2d_of(cfg, layer(name), epilogue=EPILOGUE), cfg, name=name)


def layer_data(name: str, cfg: Config, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(random inputs of `build_layer`'s program, the output that it must give)."""
    return conv_data(layer(name), cfg, np.random.default_rng(seed), plain=True)


def random_values(rng: np.random.Generator, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    """Signed numbers of so many bits."""
    return rng.integers(-(1 << bits - 1), 1 << bits - 1, shape, np.int8)


def conv_data(
    shape: ConvShape, cfg: Config, rng: np.random.Generator, image: np.ndarray | None = None, plain: bool = False
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(random inputs of a convolution or dense layer, or with the given `image`, the output that it must give), packed.

    Where the configuration has the extension, it is requantised unless `plain`; otherwise `EPILOGUE` is behind it.
    """
    x = random_values(rng, cfg.inp_bits, (1, shape.c, *shape.size)) if image is None else image
    w = random_values(rng, cfg.wgt_bits, (shape.o, shape.c, *shape.kernel))
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
    return inputs, layout.pack_activations(out.reshape(1, shape.o, *shape.output), cfg, block=cfg.block_out)


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
