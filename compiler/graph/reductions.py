"""Quantised operators along whole axes, beside means and softmax; their kernels are runtime/kernels/reductions.py."""

from __future__ import annotations

from dataclasses import dataclass

from .operators import Operator


@dataclass(frozen=True, eq=False)
class ReduceMax(Operator):
    """The largest value over `axes`; scale and zero point stay. In the output's shape the axes are 1 or omitted."""

    axes: tuple[int, ...]

    def check(self) -> None:
        """Raise `InputError` if shapes or scales are inconsistent."""
        self.expect_int8()
        self.expect_same_scale()
        self.expect_reduced(self.axes)


@dataclass(frozen=True, eq=False)
class ReduceMin(ReduceMax):
    """The smallest value over `axes`; scale and zero point stay."""


@dataclass(frozen=True, eq=False)
class ArgMax(Operator):
    """The position of the largest value along `axis`, of several the first, as int32 or int64.

    With `smallest` that of the smallest value. In the output's shape the axis is 1 or omitted.
    """

    axis: int
    smallest: bool = False

    def check(self) -> None:
        """Raise `InputError` if shapes or dtypes are inconsistent."""
        self.expect("the output's dtype", self.output.dtype in ("int32", "int64"), True)
        self.expect("the input's dtype", self.x.dtype, "int8")
        self.expect_reduced((self.axis,))


@dataclass(frozen=True, eq=False)
class L2Normalization(Operator):
    """`(x - zx) / sqrt(sum((x - zx) ** 2))` along `axis`, in TensorFlow Lite's fixed-point arithmetic.

    The output has scale 1/128 and zero point 0. With `scaled_first`, that of uint8 files, the differences are scaled
    before the quotient is rounded.
    """

    axis: int
    scaled_first: bool = False

    def check(self) -> None:
        """Raise `InputError` if the output is quantised otherwise, or the axis does not exist."""
        self.expect_int8()
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("the output's scale and zero point", (self.output.scale, self.output.zero_point), (1 / 128, 0))
        self.expect("whether the axis exists", 0 <= self.axis < len(self.x.shape), True)


@dataclass(frozen=True, eq=False)
class LogSoftmax(Operator):
    """`log(exp(x) / sum(exp(x)))` along `axis`, in float32: runtime/kernels/reductions.py is the definition."""

    axis: int

    def check(self) -> None:
        """Raise `InputError` if shapes are inconsistent, or the axis does not exist."""
        self.expect_int8()
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("whether the axis exists", 0 <= self.axis < len(self.x.shape), True)
