"""Operators of Deeploy's dialect of ONNX: integers without scales.

Tensors have scale 1; unsigned ones have 128 subtracted, and zero point -128. A RequantShift is a product with a
fraction by a power of two, rounded once, ties up. A multiplier with an exponent of at least 0 does that in both
contracts (hw/rounding.py), so that the operators of other networks, given such multipliers, compute the dialect's.
The others have kernels in runtime/hostops/deeploy.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...hw.rounding import exact_multiplier, quantize_multiplier
from .attention import BatchMatMul
from .elementwise import ADD_SHIFT, Add, Mul, Requantize
from .host_calls import Kernel
from .operators import Operator, Reach
from .ranges import sum_bytes

WIDE = ("int8", "int32")


@dataclass(frozen=True, eq=False)
class Shifted(Operator):
    """Mixed into an operator with one R: it multiplies by `ratio`, a multiple of 2**-31, and rounds once."""

    ratio: float = field(default=1.0, kw_only=True)

    @property
    def factor(self) -> float:
        return self.ratio

    @property
    def multipliers(self) -> tuple[int, int]:
        return exact_multiplier(self.ratio)


@dataclass(frozen=True, eq=False)
class ShiftRequantize(Shifted, Requantize):
    """A RequantShift of an int8 tensor."""


@dataclass(frozen=True, eq=False)
class ShiftMul(Shifted, Mul):
    """A RequantShift of the products of two int8 tensors."""


@dataclass(frozen=True, eq=False)
class ShiftMatMul(Shifted, BatchMatMul):
    """A RequantShift of the matrix products of two int8 tensors."""

    def in_lanes(self, block: int) -> bool:
        """Whether its matrices are narrower than a block: they need fewer cycles as one per lane.

        In other networks softmax and norms are along lanes, and the products are of images.
        """
        if self.images:
            return False
        x, y, out = (t.shape for t in self.tensors)
        if {len(x), len(y), len(out)} not in ({4}, {5}) or x[:-2] != y[:-2] or x[0] != 1:
            return False
        elements = self.inner if self.transposed else out[-1]  # elements of a head
        narrow = elements < block or (x[1] % block == 0 and min(self.inner, out[-1]) < block)
        return (len(x) == 4 or x[3] == 1) and narrow


@dataclass(frozen=True, eq=False)
class ShiftAdd(Add):
    """A RequantShift of the sums of two int8 tensors: R of the operands undoes their left shift, R_out is exact."""

    ratio: float = field(default=1.0, kw_only=True)

    @property
    def factors(self) -> tuple[float, float, float]:
        return 2.0**-ADD_SHIFT, 2.0**-ADD_SHIFT, self.ratio

    @property
    def scales(self) -> tuple[float, float, float]:
        """The steps of x, y and the output, in a unit of their own."""
        return 1.0, 1.0, 1 / self.ratio

    @property
    def multipliers(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """(multiplier, exponent) of R_x, R_y and R_out."""
        same = quantize_multiplier(2.0**-ADD_SHIFT)
        return same, same, exact_multiplier(self.ratio)


@dataclass(frozen=True, eq=False)
class IntegerMatMul(Operator):
    """int32 sums of products, int8 or int32: rows of x by columns of y; dimensions before the last two broadcast."""

    host = (Kernel("integer_matmul"),)

    @cached_property
    def weight(self) -> np.ndarray | None:
        """int8 (columns, elements of a row): the second operand of two matrices, where it is constant; else None."""
        x, y = self.inputs
        return y.data.T if y.data is not None and y.dtype == "int8" and len(x.shape) == len(y.shape) == 2 else None

    @property
    def result_bytes(self) -> int:
        """How many bytes hold a sum: 3 or 4."""
        if self.weight is None or self.x.dtype != "int8":
            return super().result_bytes
        return sum_bytes(self.weight)

    def check(self) -> None:
        self.expect("the number of operands", len(self.inputs), 2)
        self.expect("whether all are integers", all(t.dtype in WIDE for t in self.inputs), True)
        self.expect("the output's type", self.output.dtype, "int32")
        x, y = (t.shape for t in self.inputs)
        self.expect("whether both operands are matrices", min(len(x), len(y)) > 1, True)
        self.expect("the number of rows of the second operand", y[-2], x[-1])
        self.expect("the output's shape", self.output.shape, (*self.together(x[:-2], y[:-2]), x[-2], y[-1]))

    @property
    def macs(self) -> int:
        return math.prod(self.output.shape) * self.x.shape[-1]


@dataclass(frozen=True, eq=False)
class RequantShift(Operator):
    """`clamp((x * factor + offset + half) >> shift, low, high)` of int32, which is int8 or int32.

    Factor and offset are the other inputs, int32 and constant; they broadcast to the shape of x. The
    zero point of an int8 output is added.
    """

    elementwise = True
    host = (Kernel("requant_shift", "shift dtype low high zero_point"),)

    shift: int
    low: int
    high: int

    def check(self) -> None:
        self.expect("the number of inputs", len(self.inputs), 3)
        self.expect("the inputs' types", {t.dtype for t in self.inputs}, {"int32"})
        self.expect("the output's shape", self.output.shape, self.together(*(t.shape for t in self.inputs)))
        self.expect("whether the output is int8 or int32", self.output.dtype in WIDE, True)
        self.expect("whether the shift is 0..31", 0 <= self.shift <= 31, True)


@dataclass(frozen=True, eq=False)
class IntegerSoftmax(Shifted):
    """Deeploy's iSoftmax along the last axis and the RequantShift after it: runtime/hostops/deeploy.py."""

    host = (
        Kernel(
            "integer_softmax",
            "quadratic linear constant period levels low high zero_point multiplier exponent",
        ),
    )

    quadratic: int
    linear: int
    constant: int
    period: int
    levels: int
    low: int = -128
    high: int = 127

    def reach(self) -> Reach:
        return Reach.one((0, self.levels - 1), self.factor)

    def check(self) -> None:
        self.expect("the types", (self.x.dtype in WIDE, self.output.dtype), (True, "int8"))
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("whether period and levels are above 0", min(self.period, self.levels) > 0, True)
        self.expect_clamp(self.low, self.high)


@dataclass(frozen=True, eq=False)
class IntegerNorm(Operator):
    """Deeploy's iRMSNorm of x and a weight, or iLayerNorm of x, a weight and a bias, along the last axis.

    Weight and bias are int32 (D,) and constant. The kernel is in runtime/hostops/deeploy.py.
    """

    host = (Kernel("integer_norm", "shift low high x_zero_point"),)

    shift: int
    low: int = -128
    high: int = 127

    def check(self) -> None:
        self.expect("the types", (self.x.dtype in WIDE, self.output.dtype), (True, "int8"))
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("the number of weights and biases", len(self.inputs) in (2, 3), True)
        for t in self.inputs[1:]:
            self.expect("the weights", (t.dtype, t.shape), ("int32", self.x.shape[-1:]))
        self.expect("whether the shift is 0..31", 0 <= self.shift <= 31, True)
        self.expect_clamp(self.low, self.high)
