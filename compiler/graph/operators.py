"""The quantised operators that carry no weights, and the tensors between operators.

Activations of four dimensions are NCHW whatever the file's layout is; other ranks keep the file's order. The definition
of an operator is exact: `R` is the rounding of hw/rounding.py. Where an operator says "contract double", that holds in
every contract, as it does in TensorFlow Lite's kernels; all other `R` follow the compilation's contract. The kernels
are in runtime/hostops/; a class names its own as `host` (host_calls.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from ...hw.errors import InputError, UnsupportedError
from ...hw.rounding import quantize_multiplier, requantise, rescale
from .host_calls import HostCall, Kernel
from .reach import Ends, Reach, products

ADD_SHIFT = 20  # bits by which Add shifts its operands left, so that their rescaling is precise
BYTES = ("int8", "uint8")
DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "bool")


@dataclass(frozen=True)
class Tensor:
    """A named activation: integers with scale and zero point, or plain numbers: `float32`, `int32`, `int64`, `bool`.

    Most are int8; int16 are inside recurrent layers (recurrent/layers.py), and int16 and int32 with a scale at the ends
    of their networks. The first dimension is the batch. Only inputs and outputs of a network may be uint8: see
    `Recode`. A tensor with `data` is a constant operand.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "int8"
    scale: float = 1.0
    zero_point: int = 0
    data: np.ndarray | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InputError(f"tensor {self.name!r}: dtype {self.dtype!r} must be one of {', '.join(DTYPES)}")
        if not self.shape or min(self.shape) < 1:
            raise InputError(f"tensor {self.name!r}: shape {self.shape}: every dimension must be at least 1")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"tensor {self.name!r}: scale {self.scale} must be positive and finite")
        info = np.iinfo("int8" if self.dtype in ("float32", "bool") else self.dtype)
        if not info.min <= self.zero_point <= info.max:
            raise InputError(f"tensor {self.name!r}: zero point {self.zero_point} is outside {info.min}..{info.max}")
        if self.data is not None and (self.data.shape, str(self.data.dtype)) != (self.shape, self.dtype):
            raise InputError(f"tensor {self.name!r}: data is {self.data.dtype} {self.data.shape}")

    @property
    def nbytes(self) -> int:
        """Bytes of the plain array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def ends(self) -> Ends:
        """The least and the largest value of an int8 operand, without its zero point."""
        low, high = (-128, 127) if self.data is None else (int(self.data.min()), int(self.data.max()))
        return low - self.zero_point, high - self.zero_point

    def rescaled_ends(self, shift: int, multiplier: int, exponent: int) -> Ends:
        """`ends`, shifted left and rescaled."""
        low, high = (int(rescale(end << shift, multiplier, exponent)) for end in self.ends)
        return low, high


@dataclass(frozen=True, eq=False)
class Operator:
    """An operator: named, with its input tensors and its output.

    `host` are the kernels that compute it, each from the result of the one before. Of an `elementwise` operator each
    element of the output is a function of one element of each input; their shapes broadcast.
    """

    host: ClassVar[tuple[Kernel, ...]] = ()
    elementwise: ClassVar[bool] = False
    rearranges: ClassVar[bool] = False  # see `moved`
    copies: ClassVar[bool] = False  # no element changes
    overwrites: ClassVar[bool] = False  # the output takes the place of the first input, a cache
    unpacked: ClassVar[bool] = False  # in a launch the output is not in blocks of channels
    carries: ClassVar[tuple[int, ...]] = ()  # dimensions whose parts stay in their order, see `carried`
    tabled = True  # an element-wise one may be part of a table of values of 8 bits, if only these and float32 are in it
    seen = 0  # positions of a text that it reads; 0: its work does not depend on them

    name: str
    inputs: tuple[Tensor, ...]
    output: Tensor

    def __post_init__(self) -> None:
        self.check()

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.inputs[0]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The inputs and the output."""
        return (*self.inputs, self.output)

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates: spatial padding counts, padded channels do not."""
        return 0

    @property
    def renames(self) -> bool:
        """Whether the output is the input's plain array under another name."""
        return False

    @property
    def viewed(self) -> Tensor | None:
        """In blocks of channels: the tensor whose images and channels the bytes of the output are, where these are
        bytes of the first input; None where they are computed.
        """
        return None

    @property
    def parts(self) -> tuple[tuple[Tensor, int], ...]:
        """The inputs that are channels of the output, unchanged, and the first channel of each."""
        return ()

    @property
    def result_bytes(self) -> int:
        """How many bytes hold a result."""
        return np.dtype(self.output.dtype).itemsize

    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels that compute it on the host: `host`, unless they depend on its types."""
        return self.host

    def calls(self, contract: str) -> list[HostCall]:
        """The calls of `kernels`."""
        return [kernel.call(self, contract) for kernel in self.kernels()]

    def rounding(self, contract: str) -> str:
        """The rounding contract of it in a compilation of `contract`."""
        return contract

    def under(self, contract: str) -> Operator:
        """The operator that takes its place in the rounding contract `contract`."""
        return self

    @property
    def symbol(self) -> tuple[Tensor, int] | None:
        """The input, one number, that moves what it reads or writes, and how many values it may have; None: there is
        none.
        """
        return None

    def in_lanes(self, block: int) -> bool:
        """Whether its output is best an image of heads, each of them a lane of the blocks of `block` channels."""
        return False

    @property
    def plain(self) -> tuple[Tensor, ...]:
        """The tensors that the accelerator reads or writes as the host has them, not in blocks of channels."""
        return ()

    def carried(self, axis: int) -> int:
        """The dimension of the output whose part i is made of part i of dimension `axis` of the inputs alone, every
        part alike, with the same constants; -1 where none is known.
        """
        if axis in self.carries:
            return axis
        y = self.output.shape
        for t in self.inputs:
            own = axis - len(y) + len(t.shape)
            whole = own == axis and t.shape[axis] == y[axis]
            if not (whole if t.data is None else own < 0 or t.shape[own] == 1):
                return -1
        return axis if self.elementwise else -1

    def reduced(self, axis: int, axes: tuple[int, ...]) -> int:
        """`carried` of an operator that computes along `axes`, which are 1 or omitted in the output's shape."""
        dropped = len(self.x.shape) > len(self.output.shape)
        return -1 if axis in axes else axis - dropped * sum(k < axis for k in axes)

    @property
    def apart(self) -> bool:
        """Whether it computes each part of the first dimension of inputs and output from that part alone."""
        shapes = [t.shape for t in self.tensors if t.data is None]
        rows = all(len(shape) > 1 and shape[0] == self.output.shape[0] for shape in shapes)
        return rows and self.carried(0) == 0

    def permuted(self, inputs: tuple[Tensor, ...], output: Tensor, axes: tuple[int, ...]) -> Operator | None:
        """It on `inputs` and `output`, whose dimension k is its dimension `axes[k]`; None without such a form."""
        return replace(self, inputs=inputs, output=output) if self.elementwise else None

    def of_tokens(self, inputs: tuple[Tensor, ...], count: int) -> Operator:
        """It on `inputs` of `count` rows, one of each token, instead of one row."""
        return replace(self, inputs=inputs, output=replace(self.output, shape=(count, *self.output.shape[1:])))

    def moved(self, x: np.ndarray) -> np.ndarray:
        """What it makes of `x`, of its input's shape, by giving all elements another order or shape.

        Raises `UnsupportedError` of an operator that does more, as `rearranges` says.
        """
        raise UnsupportedError(f"{type(self).__name__} {self.name!r}: does more than to rearrange elements")

    def reach(self) -> Reach | None:
        """What its accumulators reach for any int8 inputs; None without any."""
        return None

    @property
    def factors(self) -> Iterable[float]:
        """What each R multiplies by."""
        return ()

    @property
    def multipliers(self) -> tuple[tuple[int, int], ...]:
        """(multiplier, exponent) of each R; of the only one in `Scaled`, arrays of channels' in layers."""
        return tuple(quantize_multiplier(factor) for factor in self.factors)

    def excess(self) -> str:
        """What is too large in it beside accumulators and their factors, to print after its name; empty: nothing."""
        return ""

    def check(self) -> None:
        """Raise `InputError` if parameters and shapes are inconsistent."""

    def expect(self, what: str, value: object, allowed: object) -> None:
        """Raise `InputError` unless `value` equals `allowed`."""
        if value != allowed:
            raise InputError(f"{type(self).__name__} {self.name!r}: {what} is {value}, expected {allowed}")

    def expect_int8(self) -> None:
        """Raise `InputError` unless inputs and output are int8."""
        self.expect("the conversion", {t.dtype for t in self.tensors}, {"int8"})

    def expect_broadcast(self) -> None:
        """Raise `InputError` unless there are two inputs whose shapes broadcast, as numpy's do, to the output's."""
        self.expect("the number of operands", len(self.inputs), 2)
        self.expect("the output's shape", self.output.shape, self.together(*(t.shape for t in self.inputs)))

    def together(self, *shapes: tuple[int, ...]) -> tuple[int, ...]:
        """The shape to which `shapes` broadcast. Raises `InputError` if they do not."""
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            raise InputError(f"{type(self).__name__} {self.name!r}: shapes {list(shapes)} do not broadcast") from None

    def expect_reduced(self, axes: tuple[int, ...]) -> None:
        """Raise `InputError` unless the output has the input's shape with `axes` of size 1, or without them."""
        kept = tuple(1 if k in axes else n for k, n in enumerate(self.x.shape))
        if self.output.shape != kept:
            dropped = tuple(n for k, n in enumerate(self.x.shape) if k not in axes)
            self.expect("the output's shape", self.output.shape, dropped or (1,))

    def expect_clamp(self, low: int, high: int) -> None:
        """Raise `InputError` unless `low`..`high` is a range of int8 values."""
        if not -128 <= low <= high <= 127:
            raise InputError(f"{type(self).__name__} {self.name!r}: clamp {low}..{high} is not within int8")

    def expect_same_scale(self) -> None:
        """Raise `InputError` if an input is not quantised as the output is."""
        for t in self.inputs:
            facts = [(t.dtype, t.scale, t.zero_point) for t in (self.output, t)]
            self.expect("the output's quantisation (dtype, scale, zero point)", facts[0], facts[1])


@dataclass(frozen=True, eq=False)
class Quantize(Operator):
    """float32 -> int8: `clamp(round(x / scale) + zero_point, -128, 127)`, in float32.

    Ties go to the even value (ONNX), or with `ties_away` away from zero (TensorFlow Lite).
    """

    elementwise = True
    host = (Kernel("quantize", "scale=output.scale zero_point ties_away"),)

    ties_away: bool = False

    def check(self) -> None:
        """Raise `InputError` unless it is float32 -> int8 of one shape."""
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("float32", "int8"))
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class QuantizeImage(Operator):
    """`Quantize`, ties away from zero, of an image that lies as NHWC: float32 (n, h, w, c) -> int8 (n, c, h, w)."""

    host = (
        Kernel("transpose", "axes", dtype="float32"),
        Kernel("quantize", "scale=output.scale zero_point ties_away"),
    )
    unpacked = True
    axes, ties_away = (0, 3, 1, 2), True

    @property
    def plain(self) -> tuple[Tensor, ...]:
        """The image of float32 values."""
        return (self.x,)

    def carried(self, axis: int) -> int:
        """The dimension of the output that has the parts of dimension `axis`."""
        return self.axes.index(axis)

    def check(self) -> None:
        """Raise `InputError` unless it is float32 -> int8 of such shapes."""
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("float32", "int8"))
        n, c, *size = self.output.shape
        self.expect("the input's shape", self.x.shape, (n, *size, c))


@dataclass(frozen=True, eq=False)
class Dequantize(Operator):
    """int8, or int16 with zero point 0, -> float32: `float32(q - zero_point) * float32(scale)`."""

    elementwise = True
    host = (Kernel("dequantize", "scale=x.scale zero_point=x.zero_point"),)

    def check(self) -> None:
        """Raise `InputError` unless it is such a conversion of one shape."""
        wide = self.x.dtype == "int16" and self.x.zero_point == 0
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int16" if wide else "int8", "float32"))
        self.expect("the output's shape", self.output.shape, self.x.shape)


def by_channel(
    factors: Iterable[float], rounded: Callable[[float], tuple[int, int]] = quantize_multiplier
) -> tuple[np.ndarray, np.ndarray]:
    """(multipliers, exponents), int64, of the R of each channel."""
    pairs = np.array([rounded(factor) for factor in factors], np.int64)
    return pairs[:, 0], pairs[:, 1]


class Scaled(Operator):
    """Base of operators with one R, a product with a fixed-point number, `factor`."""

    factor: float

    @property
    def multipliers(self) -> tuple[int, int]:
        """(multiplier, exponent) of R."""
        return quantize_multiplier(self.factor)


class Rescaling(Scaled):
    """Base of operators that bring one tensor into another quantisation by R."""

    @property
    def factor(self) -> float:
        """What R multiplies by: `x.scale / y.scale`."""
        return float(np.float64(self.x.scale) / np.float64(self.output.scale))


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
        """Raise `InputError` unless it is int8 -> int8 of one shape."""
        self.expect_int8()
        self.expect_clamp(self.low, self.high)
        self.expect("the output's shape", self.output.shape, self.x.shape)

    def reach(self) -> Reach:
        """What its accumulators reach."""
        return Reach.one(self.x.ends, self.factor)

    @property
    def table(self) -> np.ndarray:
        """int8 (256,): the results for -128..127."""
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
        """int8 (256,): the results for -128..127."""
        real = np.float32(self.x.scale) * (np.arange(-128, 128) - self.x.zero_point).astype(np.float32)
        steps = np.rint(real / np.float32(self.output.scale)) + self.output.zero_point
        return np.clip(steps, self.low, self.high).astype(np.int8)


@dataclass(frozen=True, eq=False)
class Recode(Operator):
    """uint8 <-> int8 of one scale, zero points 128 apart: the same real values, with the sign bit inverted."""

    elementwise, tabled = True, False
    host = (Kernel("recode"),)

    def check(self) -> None:
        """Raise `InputError` unless it is uint8 -> int8 or back, of one shape and scale."""
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

    def check(self) -> None:
        """Raise `InputError` unless shapes are equal and the table has 256 int8 entries."""
        self.expect_int8()
        self.expect("the table", (self.table.shape, str(self.table.dtype)), ((256,), "int8"))
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class Pairwise(Operator):
    """Base of operators on two int8 operands whose shapes broadcast as numpy's do; either may be a constant."""

    elementwise = True

    def check(self) -> None:
        """Raise `InputError` if the shapes do not broadcast to the output's."""
        self.expect_int8()
        self.expect_broadcast()


@dataclass(frozen=True, eq=False)
class Binary(Pairwise):
    """Base of those whose results are clamped."""

    low: int = -128
    high: int = 127

    def check(self) -> None:
        """Raise `InputError` if the shapes do not broadcast to the output's, or the bounds are not int8."""
        super().check()
        self.expect_clamp(self.low, self.high)


@dataclass(frozen=True, eq=False)
class Add(Binary):
    """`clamp(zo + R_out(R_x((x - zx) << 20) + sign * R_y((y - zy) << 20)), low, high)`, contract double; sign is 1.

    R_x, R_y and R_out are given by `multipliers`. No operand leaves int32; whether the output's rescaling does, is for
    compiler/graph/ranges.py.
    """

    host = (Kernel("add", "zero_points sign shift multipliers exponents low high"),)
    shift, sign = ADD_SHIFT, 1

    def reach(self) -> Reach:
        """What the output's rescaling gets: both operands are rescaled before."""
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
        """What R_x, R_y and R_out multiply by; the first two by at most 1/2."""
        sx, sy, so = (np.float64(scale) for scale in self.scales)
        twice = 2 * max(sx, sy)
        return float(sx / twice), float(sy / twice), float(twice / ((1 << ADD_SHIFT) * so))


@dataclass(frozen=True, eq=False)
class Sub(Add):
    """As `Add`, with sign -1."""

    sign = -1


class Product(Rescaling):
    """Base of operators that bring products of two tensors into the output's quantisation by R."""

    @property
    def factor(self) -> float:
        """What R multiplies by: `x.scale * y.scale / output.scale`."""
        sx, sy, so = (np.float64(t.scale) for t in (*self.inputs, self.output))
        return float(sx * sy / so)


@dataclass(frozen=True, eq=False)
class Mul(Product, Binary):
    """`clamp(zo + R((x - zx) * (y - zy)), low, high)`, contract double."""

    host = (Kernel("multiply", "zero_points low high multiplier exponent"),)

    def reach(self) -> Reach:
        """What its accumulators reach."""
        x, y = self.inputs
        return Reach.one(products(x.ends, y.ends), self.factor)


@dataclass(frozen=True, eq=False)
class AlongAxis(Operator):
    """Base of operators that compute along `axis` and keep the shape."""

    axis: int

    def carried(self, axis: int) -> int:
        """The dimension of the output that has the parts of dimension `axis`; -1: there is none."""
        return -1 if axis == self.axis else axis

    def check(self) -> None:
        """Raise `InputError` if the axis does not exist, or the shape does not stay."""
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("whether the axis exists", 0 <= self.axis < len(self.x.shape), True)


@dataclass(frozen=True, eq=False)
class Softmax(AlongAxis):
    """`exp(beta * x) / sum(exp(beta * x))` along `axis` in TensorFlow Lite's fixed-point arithmetic.

    The output has scale 1/256 and zero point -128.
    """

    host = (Kernel("softmax", "axis multiplier exponent"),)

    beta: float = 1.0

    def check(self) -> None:
        """Raise `InputError` if the output is quantised otherwise, or the axis does not exist."""
        self.expect_int8()
        super().check()
        self.expect("the output's scale and zero point", (self.output.scale, self.output.zero_point), (1 / 256, -128))
        self.expect("whether beta is finite", math.isfinite(self.beta), True)
        self.expect("whether beta times the input's scale is above 2**-26", self.beta * self.x.scale > 2**-26, True)

    @property
    def multipliers(self) -> tuple[int, int]:
        """(multiplier, exponent >= 0) that take differences of the input to Q5.26."""
        return quantize_multiplier(min(np.float64(self.beta) * self.x.scale * 2.0**26, 2.0**31 - 1))
