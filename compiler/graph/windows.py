"""The quantised operators over windows and whole axes: pooling, means, extremes, normalisation; images resized."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...hw.rounding import quantize_multiplier
from ...runtime.hostops.reductions import MOST_PLACES
from ..conv_shape import ConvShape
from .host_calls import Kernel
from .operators import AlongAxis, Operator, OwnContract, Reach, Rescaling
from .ranges import times


@dataclass(frozen=True, eq=False)
class Pool(Operator):
    """Base of pooling operators: windows of `kernel` elements (h, w), moved by `strides`, NCHW.

    `pads` is (top, left, bottom, right). The result is clamped to `low`..`high`.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    low: int = -128
    high: int = 127
    carries = (0, 1)

    def check(self) -> None:
        self.expect_int8()
        self.expect_clamp(self.low, self.high)
        self.expect("the number of dimensions", len(self.x.shape), 4)
        self.expect("the output's shape", self.output.shape, (*self.x.shape[:2], *self.shape.output))

    @property
    def shape(self) -> ConvShape:
        """The windows, each over one channel."""
        n, c, h, w = self.x.shape
        return ConvShape(n, c, h, w, c, self.kernel, self.strides, self.pads, groups=c)

    @property
    def axes(self) -> tuple[int, ...]:
        """The dimensions that its only window covers; none where there are several, or padding."""
        return (2, 3) if self.kernel == self.x.shape[2:] and not any(self.pads) else ()


@dataclass(frozen=True, eq=False)
class MaxPool(Pool):
    """The largest element of each window; padding never wins. Scale and zero point stay."""

    wide = True
    host = (Kernel("max_pool", "kernel strides low high pads"),)

    def check(self) -> None:
        super().check()
        self.expect_same_scale()


@dataclass(frozen=True, eq=False)
class AveragePool(Rescaling, Pool):
    """Mean of each window, without padding:
    `clamp(y.zero_point + R(sum(x - x.zero_point)))`, R by `x.scale / (y.scale * window size)`."""

    host = (Kernel("average_pool", "kernel strides low high x_zero_point zero_point multiplier exponent contract"),)

    def check(self) -> None:
        super().check()
        self.expect("the padding", self.pads, (0, 0, 0, 0))

    def reach(self) -> Reach:
        return Reach.one(times(self.x.ends, math.prod(self.kernel)), self.factor)

    @property
    def factor(self) -> float:
        return super().factor / math.prod(self.kernel)


@dataclass(frozen=True, eq=False)
class ExactAveragePool(Pool):
    """TensorFlow Lite's mean of each window: `clamp(sum(x) / n)`, ties away from zero; scale and zero point stay.

    n counts the elements of the window that are not padding. `x` are the values as they are: for a sum of values
    without their zero point, ties would fall elsewhere. With `ties_up` they go up, as in a uint8 file, whose values are
    not negative.
    """

    wide = True
    host = (Kernel("exact_average_pool", "kernel strides low high pads ties_up?"),)

    ties_up: bool = False

    def reach(self) -> Reach:
        # they are divided exactly, without a multiplier
        info = np.iinfo(self.x.dtype)
        return Reach.one(times((info.min, info.max), math.prod(self.kernel)), 0.0)

    def check(self) -> None:
        super().check()
        self.expect_same_scale()


@dataclass(frozen=True, eq=False)
class Reduction(Operator):
    """Base of operators over `axes` of int8 or int16 values; in the output's shape these are 1 or omitted."""

    wide = True

    axes: tuple[int, ...]

    def carried(self, axis: int) -> int:
        return self.reduced(axis, self.axes)

    def check(self) -> None:
        self.expect_int8()
        self.expect_reduced(self.axes)


@dataclass(frozen=True, eq=False)
class Mean(Rescaling, Reduction, OwnContract):
    """Mean over `axes`: `clamp(y.zero_point + R(sum(x - x.zero_point)))`."""

    host = (Kernel("mean", "axes shape x_zero_point zero_point multiplier exponent contract?"),)

    def reach(self) -> Reach:
        reach = Reach.one(times(self.x.ends, self.count), self.factor)
        return reach._replace(exponents=np.array([self.multipliers[1]]))

    @property
    def count(self) -> int:
        """Number of elements per mean."""
        return math.prod(self.x.shape[k] for k in self.axes)

    @property
    def multipliers(self) -> tuple[int, int]:
        """(multiplier, exponent) of R: `x.scale / (y.scale * count)`; in `double` the count divides the multiplier."""
        if self.contract == "single":
            return quantize_multiplier(self.factor / self.count)
        multiplier, exponent = super().multipliers
        shift = min(self.count.bit_length() - 1, 32, 31 + exponent)
        return (multiplier << shift) // self.count, exponent - shift


@dataclass(frozen=True, eq=False)
class Sum(Mean):
    """Sum over `axes`: as the mean, not divided by their count."""

    @property
    def multipliers(self) -> tuple[int, int]:
        """(multiplier, exponent) of R: `x.scale / y.scale`."""
        return quantize_multiplier(self.factor)


@dataclass(frozen=True, eq=False)
class ResizeBilinear(Operator):
    """NCHW images of another size, each pixel a mean of its four neighbours, weighted by distance.

    Positions have ten fractional bits and sums twenty, rounded with ties away from zero: runtime/hostops/resize.py
    is the definition. With the `offset` of a uint8 file the arithmetic is float32 on `x + offset`.
    """

    wide = True
    host = (Kernel("resize_bilinear", "size align_corners half_pixel_centers offset?"),)

    align_corners: bool = False
    half_pixel_centers: bool = False
    offset: int | None = None
    carries = (0, 1)

    def check(self) -> None:
        self.expect_int8()
        self.expect_same_scale()
        self.expect("the number of dimensions", (len(self.x.shape), len(self.output.shape)), (4, 4))
        self.expect("the output's images and channels", self.output.shape[:2], self.x.shape[:2])


@dataclass(frozen=True, eq=False)
class ReduceMax(Reduction):
    """The largest value over `axes`; scale and zero point stay."""

    host = (Kernel("reduce_max", "axes shape"),)

    def check(self) -> None:
        super().check()
        self.expect_same_scale()


@dataclass(frozen=True, eq=False)
class ReduceMin(ReduceMax):
    """The smallest value over `axes`; scale and zero point stay."""

    host = (Kernel("reduce_min", "axes shape"),)


@dataclass(frozen=True, eq=False)
class ArgMax(Operator):
    """The position of the largest (or `smallest`) value along `axis`, the first of equal values, as int32 or int64.

    In the output's shape the axis is 1 or omitted.
    """

    host = (Kernel("arg_max", "axis shape dtype smallest"),)

    axis: int
    smallest: bool = False

    def carried(self, axis: int) -> int:
        return self.reduced(axis, (self.axis,))

    def check(self) -> None:
        self.expect("the output's dtype", self.output.dtype in ("int32", "int64"), True)
        self.expect("whether the input holds numbers", self.x.dtype in ("int8", "float32", "int32", "int64"), True)
        self.expect_reduced((self.axis,))


@dataclass(frozen=True, eq=False)
class TopK(Operator):
    """The largest values of each row, or their `positions`, in descending order; equal values keep their order.

    Their number is the output's last size. Values keep their quantisation, positions are int32.
    """

    host = (Kernel("top_k", "count=output.shape.-1 positions"),)

    positions: bool = False

    def check(self) -> None:
        *around, size = self.output.shape
        self.expect("the rows", tuple(around), self.x.shape[:-1])
        self.expect("whether rows are long enough", size <= self.x.shape[-1], True)
        if self.positions:
            self.expect("the output's dtype", self.output.dtype, "int32")
        else:
            self.expect_same_scale()


@dataclass(frozen=True, eq=False)
class L2Normalization(AlongAxis):
    """`(x - zx) / sqrt(sum((x - zx) ** 2))` along `axis`, in TensorFlow Lite's fixed-point arithmetic.

    The output has scale 1/128 and zero point 0. With `scaled_first`, as in uint8 files, the differences are scaled
    before the quotient is rounded.
    """

    host = (Kernel("l2_normalize", "axis x_zero_point scaled_first"),)

    scaled_first: bool = False

    def check(self) -> None:
        self.expect_int8()
        super().check()
        self.expect("the output's scale and zero point", (self.output.scale, self.output.zero_point), (1 / 128, 0))


@dataclass(frozen=True, eq=False)
class Softmax(AlongAxis):
    """`exp(beta * x) / sum(exp(beta * x))` along `axis` in TensorFlow Lite's fixed-point arithmetic.

    There the output has scale 1/256 and zero point -128; another scale is part of the dividends.
    """

    host = (Kernel("softmax", "axis multiplier exponent"),)

    beta: float = 1.0

    def kernels(self) -> tuple[Kernel, ...]:
        if (self.steps, self.output.zero_point) == (256, -128):
            return self.host
        return (Kernel("softmax", "axis multiplier exponent steps zero_point"),)

    @property
    def steps(self) -> float:
        """Steps of the output in 1."""
        return 1 / self.output.scale

    def check(self) -> None:
        self.expect_int8()
        super().check()
        self.expect("whether 1 is at most 2**16 steps of the output", 0.5 < self.steps <= 2**MOST_PLACES, True)
        self.expect("whether beta is finite", math.isfinite(self.beta), True)
        self.expect("whether beta times the input's scale is above 2**-26", self.beta * self.x.scale > 2**-26, True)

    @property
    def multipliers(self) -> tuple[int, int]:
        """(multiplier, exponent >= 0) that take differences of the input to Q5.26."""
        return quantize_multiplier(min(np.float64(self.beta) * self.x.scale * 2.0**26, 2.0**31 - 1))


@dataclass(frozen=True, eq=False)
class LogSoftmax(AlongAxis):
    """`log(exp(x) / sum(exp(x)))` along `axis`, in float32: runtime/hostops/reductions.py is the definition."""

    host = (Kernel("log_softmax", "axis scale=x.scale output_scale=output.scale zero_point"),)

    def check(self) -> None:
        self.expect_int8()
        super().check()
