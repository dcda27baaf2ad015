"""The quantised operators with weights: convolutions and dense layers, their biases and their requantisation.

All compute `clamp(zero_points + R(acc), low, high)` with `acc = bias + sum((x - x.zero_point) * weight)`, wrapped to
32 bits, and R per output channel by `multipliers` in the compilation's contract.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...hw.rounding import CONTRACTS, exact_multiplier, quantize_multiplier
from ..conv_shape import ConvShape
from .host_calls import Kernel
from .operators import Operator, Reach, by_channel
from .ranges import sums

REQUANTISE = Kernel(
    "requantise", "zero_point low high contract", "multiplier exponent steps?"
)  # accumulators of a layer to int8


@dataclass(frozen=True, eq=False)
class Linear(Operator):
    """Base of convolutions and dense layers: int8 weights, int32 biases, requantisation and clamp.

    `weight` is int8 with the output channel first, `weight_scale` float32 (O,), `bias` int32 (O,). Weights minus
    their zero point are -255..255, and may need int16.

    With `float32_scale` the product of the scales of input and weights is rounded to float32, as TensorFlow Lite does
    for dense layers with one weight scale, and in uint8 for all layers. With `exact` the scales are fractions by powers
    of two, and R rounds once in every contract. `contract`, if given, is that of R whatever the compilation's is.

    `steps`, int32 (O,), are added to the output's zero point, as the whole steps of a real bias: what is left of it may
    be close to an integer in `bias` where the bias itself is not.
    """

    weight: np.ndarray
    weight_scale: np.ndarray
    bias: np.ndarray
    low: int = -128
    high: int = 127
    float32_scale: bool = field(default=False, kw_only=True)
    exact: bool = field(default=False, kw_only=True)
    contract: str | None = field(default=None, kw_only=True)
    steps: np.ndarray | None = field(default=None, kw_only=True)
    groups = 1  # an output channel reads the input channels of its group; convolutions may have several groups
    carries = (0,)

    def check(self) -> None:
        channels = self.weight.shape[0]
        wide = self.weight.dtype == np.int16
        self.expect("the weights' dtype", str(self.weight.dtype), "int16" if wide else "int8")
        self.expect("whether the weights are -255..255", bool((np.abs(self.weight.astype(int)) <= 255).all()), True)
        self.expect("the biases' dtype", str(self.bias.dtype), "int32")
        self.expect("the scales' shape", self.weight_scale.shape, (channels,))
        self.expect("the biases' shape", self.bias.shape, (channels,))
        self.expect("the zero points' shape", self.zero_points.shape, (channels,))
        self.expect("whether the zero points are int8", bool((np.abs(self.zero_points + 0.5) < 128).all()), True)
        self.expect("whether the contract is known", self.contract in (None, *CONTRACTS), True)
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int8", "int8"))
        self.expect_clamp(self.low, self.high)

    @property
    def zero_points(self) -> np.ndarray:
        """int32 (O,): what is added to R in each channel."""
        return np.int32(self.output.zero_point) + (np.zeros_like(self.bias) if self.steps is None else self.steps)

    @property
    def depthwise(self) -> bool:
        """True if every output channel reads one of several input channels."""
        return self.groups > 1 and self.weight.shape[1] == 1

    @property
    def corrected_bias(self) -> np.ndarray:
        """int32 (O,): `bias - x.zero_point * sum(weight)`, so that `acc = corrected_bias + sum(x * weight)`.

        That holds if padding, and the filling of a transposed convolution between pixels, is x.zero_point.
        """
        sums = self.weight.reshape(len(self.weight), -1).sum(1, dtype=np.int64)
        return (self.bias - self.x.zero_point * sums).astype(np.int32)  # wraps as the accumulator does

    @property
    def scales(self) -> np.ndarray:
        """float64 (O,): the factor of R before it is rounded to a multiplier and an exponent."""
        if not self.float32_scale:
            return np.float64(self.x.scale) * self.weight_scale.astype(np.float64) / np.float64(self.output.scale)
        with np.errstate(over="ignore"):  # compiler/graph/ranges.py refuses infinite factors
            product = np.float32(self.x.scale) * self.weight_scale
        return product.astype(np.float64) / np.float64(self.output.scale)

    @property
    def multipliers(self) -> tuple[np.ndarray, np.ndarray]:
        """(multipliers, exponents), int64 (O,), of the requantisation; see hw/rounding.py."""
        return self._multipliers

    @cached_property
    def _multipliers(self) -> tuple[np.ndarray, np.ndarray]:
        return by_channel(self.scales, exact_multiplier if self.exact else quantize_multiplier)

    def reach(self) -> Reach:
        return Reach(*sums(self.weight, self.bias, self.x.ends), self.scales, self.bias)

    def rounding(self, contract: str) -> str:
        """The rounding contract of R in a compilation of `contract`."""
        return self.contract or contract

    @property
    def scaling(self) -> dict[str, Any]:
        """How the scales become multipliers, and how R rounds, for layers made of this one."""
        return {name: getattr(self, name) for name in ("float32_scale", "exact", "contract", "steps")}


@dataclass(frozen=True, eq=False)
class Divisible(Linear):
    """Base of layers whose output channels two compute units may divide: the last `ternary` of them run on unit
    `ternary`, the others on GEMM.

    Weights of these channels are -1, 0 or 1, so that the results do not depend on the units.
    """

    ternary: int = field(default=0, kw_only=True)
    strides = dilations = (1, 1)
    pads = (0, 0, 0, 0)

    def check(self) -> None:
        super().check()
        channels = len(self.weight)
        self.expect("the number of ternary channels", self.ternary, min(max(self.ternary, 0), channels))
        if self.ternary:
            last = self.weight[channels - self.ternary :]
            self.expect("the dtype of the weights with ternary channels", str(self.weight.dtype), "int8")
            outside = sorted({*np.unique(last).tolist()} - {-1, 0, 1})
            self.expect("what begins the list of ternary weights beyond -1, 0 and 1", outside[:3], [])

    @property
    def shape(self) -> ConvShape:
        """The extents of input, kernel and output; rows of a dense layer are images of one pixel."""
        (n, c, *size), (o, _, *kernel) = self.x.shape, self.weight.shape
        (h, w), (kh, kw) = size or (1, 1), kernel or (1, 1)
        return ConvShape(n, c, h, w, o, (kh, kw), self.strides, self.pads, self.dilations, self.groups)

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates: spatial padding counts, padded channels do not."""
        return self.shape.macs


@dataclass(frozen=True, eq=False)
class QConv2d(Divisible):
    """Convolution, NCHW, weights (O, C / groups, KH, KW): output channel o sees group `o // (O / groups)`.

    `strides` and `dilations` are (h, w), `pads` (top, left, bottom, right). A depthwise convolution is one with as
    many groups as input channels; it may have several output channels per group.
    """

    host = (
        Kernel("conv2d_accumulators", "x_zero_point strides pads dilations groups", "weight bias", "int32"),
        REQUANTISE,
    )

    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1

    def check(self) -> None:
        super().check()
        self.expect("the number of dimensions", (len(self.x.shape), self.weight.ndim), (4, 4))
        n, c, *_ = self.x.shape
        self.expect("the number of input channels", self.weight.shape[1] * self.groups, c)
        self.expect("the number of output channels modulo the groups", len(self.weight) % self.groups, 0)
        if self.ternary:
            self.expect("the number of groups with ternary channels", self.groups, 1)
        self.expect("the output's shape", self.output.shape, (n, len(self.weight), *self.shape.output))


@dataclass(frozen=True, eq=False)
class QConvTranspose2d(Linear):
    """Transposed convolution, NCHW, weights (O, C, KH, KW), not flipped: pixel (i, j) of the input adds its product
    with tap (k, l) to pixel (i * strides[0] + k - top, j * strides[1] + l - left) of the output, if there is one.

    `pads` is (top, left, bottom, right): the rows and columns cropped on each side; bottom and right may be negative,
    then the output has additional rows and columns there that hold the bias. It equals a convolution of stride 1 with
    the flipped kernel, over the input with `strides - 1` pixels of value x.zero_point between its pixels.
    """

    host = (Kernel("conv_transpose2d_accumulators", "x_zero_point strides pads", "weight bias", "int32"), REQUANTISE)

    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    def check(self) -> None:
        super().check()
        self.expect("the number of dimensions", (len(self.x.shape), self.weight.ndim), (4, 4))
        n, c, *size = self.x.shape
        self.expect("the number of input channels", self.weight.shape[1], c)
        self.expect("the smallest padding at the top or left", min(0, *self.pads[:2]), 0)
        grown = [
            (size[k] - 1) * self.strides[k] + self.weight.shape[2 + k] - self.pads[k] - self.pads[k + 2] for k in (0, 1)
        ]
        self.expect("the output's shape", self.output.shape, (n, len(self.weight), *grown))

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates, including cropped pixels."""
        return math.prod(self.x.shape) * self.weight.size // self.weight.shape[1]


@dataclass(frozen=True, eq=False)
class QDense(Divisible):
    """Dense layer on (N, I), weights (O, I)."""

    host = (Kernel("dense_accumulators", "x_zero_point", "weight bias", "int32"), REQUANTISE)

    def check(self) -> None:
        super().check()
        self.expect("the number of dimensions", (len(self.x.shape), self.weight.ndim), (2, 2))
        self.expect("the number of input features", self.weight.shape[1], self.x.shape[1])
        self.expect("the output's shape", self.output.shape, (self.x.shape[0], self.weight.shape[0]))


@dataclass(frozen=True, eq=False)
class StandIn(Operator):
    """Mixed into a layer that replaces another layer, with as many useful multiply-accumulates, `work`.

    Zeros among the moved weights, and weights in two parts, are no useful work.
    """

    work: int = 0

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates of the original layer."""
        return self.work
