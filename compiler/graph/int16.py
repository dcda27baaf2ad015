"""Operators on activations of 16 bits with weights of 8 bits, the 16x8 quantisation of TensorFlow Lite.

Zero points are 0. All run on the host, in the arithmetic of TensorFlow Lite's reference kernels: sums of products have
64 bits, which runtime/hostops/int16.py brings to int16. Sums, products, pools and means of 16 bits
are the operators of int8, which take both (`Operator.wide`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ...hw.rounding import quantize_multiplier
from ..conv_shape import ConvShape
from .host_calls import Kernel
from .operators import AlongAxis, Operator, by_channel
from .ranges import sums

_INT16, _INT32 = np.iinfo(np.int16), np.iinfo(np.int32)


@dataclass(frozen=True, eq=False)
class WideLayer(Operator):
    """Base of layers int16 -> int16: `clamp(R(bias + sum(x * weight)), low, high)`, R per output channel.

    `weight` is int8 with the output channel first, `weight_scale` float32 (O,), `bias` int64 or int32 (O,), whose type
    is that of the sums. R is in fixed point: of 64-bit sums `short_rescale`, of 32-bit sums contract double.
    """

    sums_as: ClassVar[Kernel]  # the kernel of the sums on the host
    requantise: ClassVar[Kernel] = Kernel("requantise_int16", "low high", "multiplier exponent")

    weight: np.ndarray
    weight_scale: np.ndarray
    bias: np.ndarray
    low: int = _INT16.min
    high: int = _INT16.max
    carries = (0,)

    def check(self) -> None:
        channels = len(self.weight)
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int16", "int16"))
        self.expect("the zero points", (self.x.zero_point, self.output.zero_point), (0, 0))
        self.expect("the weights' dtype", str(self.weight.dtype), "int8")
        self.expect("whether biases are int32 or int64", str(self.bias.dtype) in ("int32", "int64"), True)
        self.expect("the shapes of scales and biases", (self.weight_scale.shape, self.bias.shape), ((channels,),) * 2)
        self.expect_clamp(self.low, self.high)

    @property
    def scales(self) -> np.ndarray:
        """float64 (O,): the factor of R."""
        return np.float64(self.x.scale) * self.weight_scale.astype(np.float64) / np.float64(self.output.scale)

    @property
    def multipliers(self) -> tuple[np.ndarray, np.ndarray]:
        """(multipliers, exponents), int64 (O,), of R in fixed point."""
        return by_channel(self.scales)

    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels on the host: the sums, and R."""
        return replace(self.sums_as, dtype=str(self.bias.dtype)), self.requantise

    def excess(self) -> str:
        low, high = sums(self.weight, self.bias.astype(np.int64), (_INT16.min, _INT16.max))
        largest = np.maximum(np.abs(low), np.abs(high))
        if self.bias.dtype == np.int32 and largest.max() > _INT32.max:
            return f"has sums of up to {largest.max()}, which wrap at 32 bits; the file needs int64 biases"
        scaled = float((largest * self.scales).max())
        if scaled <= _INT32.max:
            return ""
        return f"scales sums to {scaled:g} steps of {self.output.scale:g}; at most 2**31 are allowed"


@dataclass(frozen=True, eq=False)
class WideConv2d(WideLayer):
    """Convolution, NCHW, weights (O, C / groups, KH, KW); geometry as in `QConv2d`."""

    sums_as = Kernel("conv2d_accumulators", "x_zero_point strides pads dilations groups", "weight bias")

    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1

    def check(self) -> None:
        super().check()
        self.expect("the number of dimensions", (len(self.x.shape), self.weight.ndim), (4, 4))
        self.expect("the number of input channels", self.weight.shape[1] * self.groups, self.x.shape[1])
        self.expect("the number of output channels modulo the groups", len(self.weight) % self.groups, 0)
        self.expect("the output's shape", self.output.shape, (self.x.shape[0], len(self.weight), *self.shape.output))

    @property
    def shape(self) -> ConvShape:
        """The extents of input, kernel and output."""
        (n, c, h, w), (o, _, kh, kw) = self.x.shape, self.weight.shape
        return ConvShape(n, c, h, w, o, (kh, kw), self.strides, self.pads, self.dilations, self.groups)

    @property
    def macs(self) -> int:
        return self.shape.macs


@dataclass(frozen=True, eq=False)
class WideConvTranspose2d(WideLayer):
    """Transposed convolution, NCHW, weights (O, C, KH, KW); geometry as in `QConvTranspose2d`."""

    sums_as = Kernel("conv_transpose2d_accumulators", "x_zero_point strides pads", "weight bias")

    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    def check(self) -> None:
        super().check()
        self.expect("the number of dimensions", (len(self.x.shape), self.weight.ndim), (4, 4))
        self.expect("the number of input channels", self.weight.shape[1], self.x.shape[1])
        grown = [
            (n - 1) * s + k - self.pads[i] - self.pads[i + 2]
            for i, (n, s, k) in enumerate(zip(self.x.shape[2:], self.strides, self.weight.shape[2:]))
        ]
        self.expect("the output's shape", self.output.shape, (self.x.shape[0], len(self.weight), *grown))

    @property
    def macs(self) -> int:
        """Multiply-accumulates, including cropped pixels."""
        return math.prod(self.x.shape) * self.weight.size // self.weight.shape[1]


@dataclass(frozen=True, eq=False)
class WideDense(WideLayer):
    """Dense layer on (N, I), weights (O, I); R is a factor in double precision, ties away from zero."""

    sums_as = Kernel("dense_accumulators", "x_zero_point", "weight bias")
    requantise = Kernel("requantise_real", "x_scale=x.scale output_scale=output.scale low high", "weight_scale")

    def check(self) -> None:
        super().check()
        self.expect("the number of dimensions", (len(self.x.shape), self.weight.ndim), (2, 2))
        self.expect("the number of input features", self.weight.shape[1], self.x.shape[1])
        self.expect("the output's shape", self.output.shape, (self.x.shape[0], len(self.weight)))

    @property
    def macs(self) -> int:
        return self.x.shape[0] * self.weight.size


@dataclass(frozen=True, eq=False)
class WideSoftmax(AlongAxis):
    """`exp(beta * x) / sum(exp(beta * x))` along `axis`, int16, by two tables with interpolation.

    The results are steps of 2**-15.
    """

    host = (Kernel("softmax_int16", "axis multiplier exponent"),)

    beta: float = 1.0

    def check(self) -> None:
        super().check()
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int16", "int16"))
        self.expect("the zero points", (self.x.zero_point, self.output.zero_point), (0, 0))
        self.expect("whether beta is positive and finite", 0 < self.beta < math.inf, True)

    @property
    def multipliers(self) -> tuple[int, int]:
        """(multiplier, exponent) that take differences of the input to steps of 10 / 65535."""
        return quantize_multiplier(float(np.float32(self.x.scale) * np.float32(self.beta)) / (10 / 65535))


@dataclass(frozen=True, eq=False)
class WideLookup(Operator):
    """A function of one int16 value: `table[x + 2**15]`, int16 (65536,). `function` names it for people."""

    elementwise, tabled = True, False
    host = (Kernel("lookup", constants="table"),)

    function: str
    table: np.ndarray

    def check(self) -> None:
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int16", "int16"))
        self.expect("the table", (self.table.shape, str(self.table.dtype)), ((1 << 16,), "int16"))
        self.expect("the output's shape", self.output.shape, self.x.shape)
