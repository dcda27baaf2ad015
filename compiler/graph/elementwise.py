"""The element-wise quantised operators: ends of a network, tables, sums, products, and others of two operands.

Their kernels are in runtime/hostops/.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...hw.rounding import requantise
from .host_calls import Kernel
from .operators import Factored, Operator, OwnContract, Product, Reach, Rescaling, Tensor
from .ranges import products

SQUARE_SHIFT = 7  # bits by which SquaredDifference shifts its operands left
ADD_SHIFT = 20  # bits by which Add shifts its operands left, so that their rescaling is precise
_ADD_SHIFT_16 = 15  # of operands of 16 bits


@dataclass(frozen=True, eq=False)
class Quantize(Operator):
    """float32 -> int8 or int16: `clamp(round(x / scale) + zero_point)`, in float32.

    Ties go to the even value (ONNX), or with `ties_away` away from zero (TensorFlow Lite). With `reciprocal` x is
    multiplied by that of the scale, rounded to float32 (PyTorch).
    """

    elementwise = True

    ties_away: bool = False
    reciprocal: bool = False

    def kernels(self) -> tuple[Kernel, ...]:
        """The kernel on the host, which is told of int16 results."""
        dtype = " dtype" if self.output.dtype == "int16" else ""
        return (Kernel("quantize", f"scale=output.scale zero_point ties_away reciprocal?{dtype}"),)

    def check(self) -> None:
        dtype = "int16" if self.output.dtype == "int16" else "int8"
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("float32", dtype))
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class HostImage(Operator):
    """Base of conversions of an image as the host has it, NHWC, or with `planes` NCHW: -> int8 (n, c, h, w)."""

    unpacked = True
    source = ""  # the type of the image

    planes: bool = False

    @property
    def axes(self) -> tuple[int, ...]:
        """Dimension k of the output is dimension `axes[k]` of the input."""
        return (0, 1, 2, 3) if self.planes else (0, 3, 1, 2)

    @property
    def plain(self) -> tuple[Tensor, ...]:
        """The image."""
        return (self.x,)

    def kernels(self) -> tuple[Kernel, ...]:
        """The conversion, of NHWC images after a transposition."""
        return self.host if self.planes else (Kernel("transpose", "axes", dtype=self.source), *self.host)

    def carried(self, axis: int) -> int:
        return self.axes.index(axis)

    def check(self) -> None:
        self.expect("the conversion", (self.x.dtype, self.output.dtype), (self.source, "int8"))
        n, c, *size = self.output.shape
        self.expect("the input's shape", self.x.shape, (n, c, *size) if self.planes else (n, *size, c))


@dataclass(frozen=True, eq=False)
class QuantizeImage(HostImage):
    """`Quantize` of an image of float32 values."""

    host = (Kernel("quantize", "scale=output.scale zero_point ties_away"),)
    source = "float32"

    ties_away: bool = True


@dataclass(frozen=True, eq=False)
class RecodeImage(HostImage):
    """`Recode` of an image of uint8 values."""

    host = (Kernel("recode"),)
    source = "uint8"


@dataclass(frozen=True, eq=False)
class Dequantize(Operator):
    """int8 or int16 -> float32: `float32(q - zero_point) * float32(scale)`."""

    elementwise = True
    host = (Kernel("dequantize", "scale=x.scale zero_point=x.zero_point"),)

    def check(self) -> None:
        dtype = "int16" if self.x.dtype == "int16" else "int8"
        self.expect("the conversion", (self.x.dtype, self.output.dtype), (dtype, "float32"))
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class Requantize(Rescaling):
    """int8 in another quantisation: `clamp(y.zero_point + R(x - x.zero_point), low, high)`, contract double.

    A ReLU of its own is a `Requantize` whose `low` is the zero point.
    """

    elementwise = True
    host = (Kernel("rescale", "x_zero_point zero_point multiplier exponent low high"),)

    low: int = -128
    high: int = 127

    def check(self) -> None:
        self.expect_int8()
        self.expect_clamp(self.low, self.high)
        self.expect("the output's shape", self.output.shape, self.x.shape)

    def reach(self) -> Reach:
        return Reach.one(self.x.ends, self.factor)

    @property
    def table(self) -> np.ndarray:
        scale = *self.multipliers, self.output.zero_point
        return requantise(np.arange(-128, 128) - self.x.zero_point, *scale, self.low, self.high)


@dataclass(frozen=True, eq=False)
class NearestRequantize(Requantize):
    """int8 in another quantisation as onnxruntime computes it: float32 values to the nearest integer, ties to even."""

    host = (Kernel("lookup", constants="table"),)

    def under(self, contract: str) -> Operator:
        """In contract double it rounds twice, too."""
        if contract != "double":
            return self
        return Requantize(self.name, self.inputs, self.output, self.low, self.high)

    @property
    def table(self) -> np.ndarray:
        real = np.float32(self.x.scale) * (np.arange(-128, 128) - self.x.zero_point).astype(np.float32)
        steps = np.rint(real / np.float32(self.output.scale)) + self.output.zero_point
        return np.clip(steps, self.low, self.high).astype(np.int8)


@dataclass(frozen=True, eq=False)
class Recode(Operator):
    """uint8 <-> int8 of one scale, zero points 128 apart: the same real values, with the sign bit inverted."""

    elementwise, tabled = True, False
    host = (Kernel("recode"),)

    def check(self) -> None:
        self.expect("the conversion", {self.x.dtype, self.output.dtype}, {"int8", "uint8"})
        middle = [t.zero_point - (128 if t.dtype == "uint8" else 0) for t in (self.output, self.x)]
        facts = [(t.shape, t.scale, zero) for t, zero in zip((self.output, self.x), middle)]
        self.expect("the output's shape, scale and zero point from the middle of the range", *facts)


@dataclass(frozen=True, eq=False)
class Lookup(Operator):
    """A function of one int8 value: `table[x + 128]`, int8 (256,). `function` names it for people."""

    elementwise = True
    host = (Kernel("lookup", constants="table"),)

    function: str
    table: np.ndarray

    @property
    def same(self) -> bool:
        """True if no value changes, only what it stands for."""
        return bool((self.table == np.arange(-128, 128)).all())

    @property
    def viewed(self) -> Tensor | None:
        """The output, where no value changes."""
        return self.output if self.same and len(self.x.shape) in (2, 4) and self.x.data is None else None

    def check(self) -> None:
        self.expect_int8()
        self.expect("the table", (self.table.shape, str(self.table.dtype)), ((256,), "int8"))
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class Pairwise(Operator):
    """Base of operators on two int8 operands whose shapes broadcast as numpy's do; either may be a constant."""

    elementwise = True

    def check(self) -> None:
        self.expect_int8()
        self.expect_broadcast()


@dataclass(frozen=True, eq=False)
class Binary(Pairwise):
    """Base of pairwise operators whose results are clamped to `low`..`high`."""

    low: int = -128
    high: int = 127

    def check(self) -> None:
        super().check()
        self.expect_clamp(self.low, self.high)


@dataclass(frozen=True, eq=False)
class Add(Factored, Binary):
    """`clamp(zo + R_out(R_x((x - zx) << 20) + sign * R_y((y - zy) << 20)), low, high)`, contract double; sign is 1.

    R_x, R_y and R_out are given by `multipliers`. No operand leaves int32; whether the output's rescaling does, is for
    compiler/graph/ranges.py. Operands of 16 bits are shifted by 15.
    """

    wide = True
    host = (Kernel("add", "zero_points sign shift multipliers exponents low high"),)
    sign = 1

    @property
    def shift(self) -> int:
        """Bits by which the operands are shifted left."""
        return _ADD_SHIFT_16 if self.x.dtype == "int16" else ADD_SHIFT

    def reach(self) -> Reach:
        first, second = (t.rescaled_ends(self.shift, *self.multipliers[k]) for k, t in enumerate(self.inputs))
        low, high = sorted(self.sign * end for end in second)
        return Reach.one((first[0] + low, first[1] + high), self.factors[2])

    @property
    def scales(self) -> tuple[float, float, float]:
        """The steps of x, y and the output."""
        x, y = self.inputs
        return x.scale, y.scale, self.output.scale

    @property
    def factors(self) -> tuple[float, float, float]:
        """Factors of R_x, R_y and R_out; the first two are at most 1/2."""
        sx, sy, so = (np.float64(scale) for scale in self.scales)
        twice = 2 * max(sx, sy)
        return float(sx / twice), float(sy / twice), float(twice / ((1 << self.shift) * so))


@dataclass(frozen=True, eq=False)
class Sub(Add):
    """`clamp(zo + R_out(R_x((x - zx) << 20) - R_y((y - zy) << 20)), low, high)`, contract double."""

    sign = -1


@dataclass(frozen=True, eq=False)
class Mul(Product, Binary, OwnContract):
    """`clamp(zo + R((x - zx) * (y - zy)), low, high)`."""

    wide = True
    host = (Kernel("multiply", "zero_points low high multiplier exponent contract?"),)

    def reach(self) -> Reach:
        x, y = self.inputs
        return Reach.one(products(x.ends, y.ends), self.factor)


@dataclass(frozen=True, eq=False)
class Maximum(Pairwise):
    """`max(x, y)` of the values as they are, int8 or int16; scale and zero point stay."""

    wide = True
    host = (Kernel("maximum"),)

    def check(self) -> None:
        super().check()
        self.expect_same_scale()


@dataclass(frozen=True, eq=False)
class Minimum(Maximum):
    """`min(x, y)` of the values as they are, int8 or int16; scale and zero point stay."""

    host = (Kernel("minimum"),)


@dataclass(frozen=True, eq=False)
class Prelu(Factored, Pairwise):
    """`clamp(zo + R_0(x - zx))` where `x >= zx`, else `clamp(zo + R_1((x - zx) * (alpha - za)))`, contract double.

    The inputs are x and alpha; R_0 and R_1 are given by `multipliers`.
    """

    host = (Kernel("prelu", "zero_points multipliers exponents"),)

    def reach(self) -> Reach:
        x, alpha = (t.ends for t in self.inputs)
        low, high = np.array([x, products(x, alpha)], np.int64).T
        return Reach(low, high, np.array(self.factors))

    @property
    def factors(self) -> tuple[float, float]:
        """Factors of R_0 and R_1: `x.scale / y.scale`, and that times `alpha.scale`."""
        (sx, sa), so = (np.float64(t.scale) for t in self.inputs), np.float64(self.output.scale)
        return float(sx / so), float(sx * sa / so)


@dataclass(frozen=True, eq=False)
class NearestPrelu(Operator):
    """x, below 0 times the slope of its channel, as onnxruntime has it: float32 to the nearest step, ties to even.

    `slopes` are float32, one for each index of dimension 1.
    """

    elementwise, tabled = True, False
    host = (Kernel("lookup_channels", constants="table"),)

    slopes: np.ndarray
    low: int = -128
    high: int = 127

    @property
    def table(self) -> np.ndarray:
        """int8 (channels, 256): the results of all values."""
        real = np.float32(self.x.scale) * (np.arange(-128, 128) - self.x.zero_point).astype(np.float32)
        steps = np.rint(np.where(real < 0, real * self.slopes[:, None], real) / np.float32(self.output.scale))
        return np.clip(steps + self.output.zero_point, self.low, self.high).astype(np.int8)

    def carried(self, axis: int) -> int:
        return -1 if axis == 1 else super().carried(axis)

    def permuted(self, inputs: tuple[Tensor, ...], output: Tensor, axes: tuple[int, ...]) -> Operator | None:
        return super().permuted(inputs, output, axes) if axes[1] == 1 else None

    def check(self) -> None:
        self.expect_int8()
        self.expect_clamp(self.low, self.high)
        self.expect("the slopes", (self.slopes.shape, str(self.slopes.dtype)), (self.x.shape[1:2], "float32"))
        self.expect("whether all slopes are numbers", bool(np.isfinite(self.slopes).all()), True)
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class LeakyRelu(Factored, Lookup):
    """`clamp(zo + R_0(x - zx))` where `x >= zx`, else `clamp(zo + R_1(x - zx))`, contract double, by a table.

    `slopes` are the factors of R_0 and R_1.
    """

    slopes: tuple[float, float]

    @property
    def factors(self) -> tuple[float, float]:
        return self.slopes


@dataclass(frozen=True, eq=False)
class PairLookup(Operator):
    """A function of two values of 8 bits, by a table (256, 256): each counts from its type's smallest value."""

    elementwise = True
    host = (Kernel("lookup_pair", constants="table"),)

    table: np.ndarray

    def check(self) -> None:
        types = {t.dtype for t in self.inputs} | {self.output.dtype}
        self.expect("whether all is of 8 bits", types <= {"int8", "uint8"} and self.output.dtype == "int8", True)
        self.expect("the table", (self.table.shape, str(self.table.dtype)), ((256, 256), "int8"))
        self.expect_broadcast()


@dataclass(frozen=True, eq=False)
class SquaredDifference(Factored, Pairwise):
    """`clamp(zo + R_out((R_x((x - zx) << 7) - R_y((y - zy) << 7)) ** 2))`, contract double."""

    host = (Kernel("squared_difference", "zero_points multipliers exponents shift"),)
    shift = SQUARE_SHIFT

    def reach(self) -> Reach:
        first, second = (t.rescaled_ends(self.shift, *self.multipliers[k]) for k, t in enumerate(self.inputs))
        furthest = max(abs(first[1] - second[0]), abs(first[0] - second[1]))
        return Reach.one((0, furthest * furthest), self.factors[2])

    @property
    def factors(self) -> tuple[float, float, float]:
        """Factors of R_x, R_y and R_out; the first two are at most 1/2."""
        sx, sy, so = (np.float64(t.scale) for t in (*self.inputs, self.output))
        twice = 2 * max(sx, sy)
        return float(sx / twice), float(sy / twice), float(twice * twice / ((1 << 2 * SQUARE_SHIFT) * so))


@dataclass(frozen=True, eq=False)
class Div(Rescaling, Binary):
    """`clamp(zo + R((x - zx) / (y - zy)), low, high)`; runtime/hostops/fixed_point.py defines how quotients round."""

    host = (Kernel("divide", "zero_points low high multiplier exponent"),)

    @property
    def factor(self) -> float:
        """`x.scale / (y.scale * output.scale)`, in float32."""
        sx, sy, so = (np.float32(t.scale) for t in (*self.inputs, self.output))
        return float(sx / (sy * so))
