"""Element-wise quantised operators beside sums and products; their kernels are runtime/hostops/elementwise.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .host_calls import Kernel
from .operators import Binary, Lookup, Operator, Pairwise, Rescaling
from .reach import Reach, products

SQUARE_SHIFT = 7  # bits by which SquaredDifference shifts its operands left


@dataclass(frozen=True, eq=False)
class Maximum(Pairwise):
    """`max(x, y)` of the int8 values as they are; scale and zero point stay."""

    host = (Kernel("maximum"),)

    def check(self) -> None:
        """Raise `InputError` if shapes or scales are inconsistent."""
        super().check()
        self.expect_same_scale()


@dataclass(frozen=True, eq=False)
class Minimum(Maximum):
    """`min(x, y)` of the int8 values as they are; scale and zero point stay."""

    host = (Kernel("minimum"),)


@dataclass(frozen=True, eq=False)
class Prelu(Pairwise):
    """`clamp(zo + R_0(x - zx))` where `x >= zx`, else `clamp(zo + R_1((x - zx) * (alpha - za)))`, contract double.

    The inputs are x and alpha; R_0 and R_1 are given by `multipliers`.
    """

    host = (Kernel("prelu", "zero_points multipliers exponents"),)

    def reach(self) -> Reach:
        """What its accumulators reach, above and below zero."""
        x, alpha = (t.ends for t in self.inputs)
        low, high = np.array([x, products(x, alpha)], np.int64).T
        return Reach(low, high, np.array(self.factors))

    @property
    def factors(self) -> tuple[float, float]:
        """What R_0 and R_1 multiply by: `x.scale / y.scale`, and that times `alpha.scale`."""
        (sx, sa), so = (np.float64(t.scale) for t in self.inputs), np.float64(self.output.scale)
        return float(sx / so), float(sx * sa / so)


@dataclass(frozen=True, eq=False)
class LeakyRelu(Lookup):
    """`clamp(zo + R_0(x - zx))` where `x >= zx`, else `clamp(zo + R_1(x - zx))`, contract double, as its table says.

    `slopes` are what R_0 and R_1 multiply by.
    """

    slopes: tuple[float, float]

    @property
    def factors(self) -> tuple[float, float]:
        """What R_0 and R_1 multiply by."""
        return self.slopes


@dataclass(frozen=True, eq=False)
class PairLookup(Operator):
    """A function of two values of 8 bits, by a table (256, 256): each counts from its type's smallest value."""

    elementwise = True
    host = (Kernel("lookup_pair", constants="table"),)

    table: np.ndarray

    def check(self) -> None:
        """Raise `InputError` unless the shapes broadcast to the output's, and the table is whole."""
        types = {t.dtype for t in self.inputs} | {self.output.dtype}
        self.expect("whether all is of 8 bits", types <= {"int8", "uint8"} and self.output.dtype == "int8", True)
        self.expect("the table", (self.table.shape, str(self.table.dtype)), ((256, 256), "int8"))
        self.expect_broadcast()


@dataclass(frozen=True, eq=False)
class SquaredDifference(Pairwise):
    """`clamp(zo + R_out((R_x((x - zx) << 7) - R_y((y - zy) << 7)) ** 2))`, contract double."""

    host = (Kernel("squared_difference", "zero_points multipliers exponents shift"),)
    shift = SQUARE_SHIFT

    def reach(self) -> Reach:
        """What the output's rescaling gets: both operands are rescaled before."""
        first, second = (t.rescaled_ends(self.shift, *self.multipliers[k]) for k, t in enumerate(self.inputs))
        furthest = max(abs(first[1] - second[0]), abs(first[0] - second[1]))
        return Reach.one((0, furthest * furthest), self.factors[2])

    @property
    def factors(self) -> tuple[float, float, float]:
        """What R_x, R_y and R_out multiply by; the first two by at most 1/2."""
        sx, sy, so = (np.float64(t.scale) for t in (*self.inputs, self.output))
        twice = 2 * max(sx, sy)
        return float(sx / twice), float(sy / twice), float(twice * twice / ((1 << 2 * SQUARE_SHIFT) * so))


@dataclass(frozen=True, eq=False)
class Div(Rescaling, Binary):
    """`clamp(zo + R((x - zx) / (y - zy)), low, high)`; runtime/hostops/fixed_point.py defines how quotients round."""

    host = (Kernel("divide", "zero_points low high multiplier exponent"),)

    @property
    def factor(self) -> float:
        """What R multiplies by: `x.scale / (y.scale * output.scale)`, in float32."""
        sx, sy, so = (np.float32(t.scale) for t in (*self.inputs, self.output))
        return float(sx / (sy * so))
