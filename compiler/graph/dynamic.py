"""Dynamic quantisation: operators on uint8 values whose scale and zero point are computed in each run.

float32 values become int8, uint8 less 128. Layers give the int32 sums of products with these, which host operators make
float32 again (runtime/hostops/dynamic.py defines them). Weights are int8, without zero points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..conv_shape import ConvShape
from .host_calls import Kernel
from .operators import Operator
from .ranges import sum_bytes


@dataclass(frozen=True, eq=False)
class ValueRange(Operator):
    """float32 (2,): the least and the largest of 0 and the values."""

    host = (Kernel("value_range"),)

    def check(self) -> None:
        self.expect("the types", (self.x.dtype, self.output.dtype), ("float32", "float32"))
        self.expect("the output's shape", self.output.shape, (2,))


@dataclass(frozen=True, eq=False)
class RangeScale(Operator):
    """float32 (1,): the scale of 255 steps between the two ends of a range."""

    host = (Kernel("range_scale"),)

    def check(self) -> None:
        self.expect("the ends", (self.x.dtype, self.x.shape), ("float32", (2,)))
        self.expect("the output", (self.output.dtype, self.output.shape), ("float32", (1,)))


@dataclass(frozen=True, eq=False)
class RangeZeroPoint(Operator):
    """uint8 (1,): the zero point of a range, the first input, of which the second is the scale."""

    host = (Kernel("range_zero_point"),)

    def check(self) -> None:
        self.expect("the inputs", [(t.dtype, t.shape) for t in self.inputs], [("float32", (2,)), ("float32", (1,))])
        self.expect("the output", (self.output.dtype, self.output.shape), ("uint8", (1,)))


@dataclass(frozen=True, eq=False)
class QuantizeBy(Operator):
    """int8, uint8 less 128, of float32 values, a scale and a zero point, which are computed."""

    host = (Kernel("quantize_by"),)

    def check(self) -> None:
        self.expect("the types", [t.dtype for t in self.tensors], ["float32", "float32", "uint8", "int8"])
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class PadBy(Operator):
    """int8 with a computed zero point around it, uint8 (1,); `pads` are (before, after) per dimension."""

    host = (Kernel("pad_by", "pads"),)

    pads: tuple[tuple[int, int], ...]

    def check(self) -> None:
        self.expect("the types", [t.dtype for t in self.tensors], ["int8", "uint8", "int8"])
        shape = tuple(n + before + after for n, (before, after) in zip(self.x.shape, self.pads))
        self.expect("the output's shape", self.output.shape, shape)


@dataclass(frozen=True, eq=False)
class IntegerConv2d(Operator):
    """int32 sums of a convolution of int8, NCHW, without padding; weights int8 (O, C / groups, KH, KW).

    They wrap at 32 bits. Of a depthwise convolution there are as many groups as input channels.
    """

    host = (Kernel("conv2d_accumulators", "x_zero_point=stored strides pads dilations groups", "weight bias"),)

    weight: np.ndarray
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    pads, stored = (0, 0, 0, 0), 0  # values are taken as they are stored, whatever their zero point is

    def check(self) -> None:
        self.expect("the types", (self.x.dtype, str(self.weight.dtype), self.output.dtype), ("int8", "int8", "int32"))
        self.expect("the number of input channels", self.weight.shape[1] * self.groups, self.x.shape[1])
        self.expect("the number of output channels modulo the groups", len(self.weight) % self.groups, 0)
        self.expect("the output's shape", self.output.shape, (self.x.shape[0], len(self.weight), *self.shape.output))

    @property
    def bias(self) -> np.ndarray:
        """int32 (O,): zeros."""
        return np.zeros(len(self.weight), np.int32)

    @property
    def depthwise(self) -> bool:
        """True if every output channel reads one of several input channels."""
        return self.groups > 1 and self.weight.shape[1] == 1

    @property
    def shape(self) -> ConvShape:
        """The extents of input, kernel and output."""
        (n, c, h, w), (o, _, *kernel) = self.x.shape, self.weight.shape
        return ConvShape(n, c, h, w, o, (kernel[0], kernel[1]), self.strides, self.pads, self.dilations, self.groups)

    @property
    def macs(self) -> int:
        return self.shape.macs

    @cached_property
    def _result_bytes(self) -> int:
        return sum_bytes(self.weight)

    @property
    def result_bytes(self) -> int:
        """How many bytes hold a sum: 3 or 4."""
        return self._result_bytes


@dataclass(frozen=True, eq=False)
class SubtractZeroPoint(Operator):
    """int32 sums of products less those with the zero point, a computed uint8 (1,); see runtime/hostops/dynamic.py.

    `sums` int32 are those of the weights, one for each index of dimension `axis`.
    """

    host = (Kernel("subtract_zero_point", "axis", "sums"),)

    sums: np.ndarray
    axis: int

    def check(self) -> None:
        self.expect("the types", [t.dtype for t in self.tensors], ["int32", "uint8", "int32"])
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("the sums", (str(self.sums.dtype), self.sums.shape), ("int32", (self.x.shape[self.axis],)))


@dataclass(frozen=True, eq=False)
class ScaleSums(Operator):
    """float32 `SubtractZeroPoint(...) * scale + bias`, and at least 0 with `relu`.

    Inputs are the sums, the zero point, the scale, and a bias or none. Scale and bias are one number, or one for each
    index of dimension `axis`.
    """

    host = (Kernel("scale_sums", "axis relu?", "sums"),)

    sums: np.ndarray
    axis: int
    relu: bool = False

    @property
    def extends(self) -> bool:
        """Whether a bias may be added."""
        return len(self.inputs) == 3 and not self.relu

    def check(self) -> None:
        types = ["int32", "uint8", "float32", "float32"][: len(self.inputs)]
        self.expect("the types", [t.dtype for t in self.inputs], types)
        self.expect("the output", (self.output.dtype, self.output.shape), ("float32", self.x.shape))
        self.expect("the sums", (str(self.sums.dtype), self.sums.shape), ("int32", (self.x.shape[self.axis],)))
