"""The class of all operators, bases of several, and the tensors between them.

Activations of four dimensions are NCHW whatever the file's layout is; other ranks keep the file's order. The definition
of an operator is exact: `R` is the rounding of hw/rounding.py. Where an operator says "contract double", that holds in
every contract, as it does in TensorFlow Lite's kernels; all other `R` follow the compilation's contract. The kernels
are in runtime/hostops/; a class names its own as `host` (host_calls.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...hw.errors import InputError, UnsupportedError
from ...hw.rounding import quantize_multiplier, rescale
from .host_calls import CustomCall, HostCall, Kernel

BYTES = ("int8", "uint8")
DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float32", "bool")
Ends = tuple[int, int]  # the least and the largest of some values


class Reach(NamedTuple):
    """Range of an operator's accumulators, int64, and the factors that scale them, float64, for all or per channel.

    `biases` belong to the channels of a layer. `exponents` of R are given if the factors do not determine them.
    """

    low: np.ndarray
    high: np.ndarray
    factors: np.ndarray
    biases: np.ndarray | None = None
    exponents: np.ndarray | None = None

    @classmethod
    def one(cls, ends: Ends, factor: float) -> Reach:
        """Accumulators of `ends`, scaled by one factor."""
        return cls(np.array([ends[0]]), np.array([ends[1]]), np.array([factor], np.float64))


@dataclass(frozen=True)
class Tensor:
    """A named activation: integers with scale and zero point, or plain numbers: `float32`, `int32`, `int64`, `bool`.

    Most are int8; int16 are inside recurrent layers (recurrent.py) and in networks of 16-bit activations (int16.py),
    int32 with a scale at the ends of networks. The first dimension is the batch. Only inputs and outputs of a network
    may be uint8: see `Recode`. A tensor with `data` is a constant operand.
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
        """The least and the largest value of an integer operand, without its zero point."""
        info = np.iinfo(self.dtype)
        low, high = (info.min, info.max) if self.data is None else (int(self.data.min()), int(self.data.max()))
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
    wide: ClassVar[bool] = False  # it also computes int16 values, on the host
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
        """The calls of `kernels` in the rounding contract `contract`, each on the result of its predecessor.

        The first takes the inputs, constant ones included. A convolution or dense layer is two calls: the int32
        accumulators, and their requantisation. Raises `UnsupportedError` where there is no kernel.
        """
        if not (kernels := self.kernels()):
            raise UnsupportedError(f"{type(self).__name__} {self.name!r}: this operator has no kernel")
        return [kernel.call(self, self.rounding(contract)) for kernel in kernels]

    def rounding(self, contract: str) -> str:
        """The rounding contract of it in a compilation of `contract`."""
        return contract

    def under(self, contract: str) -> Operator:
        """The operator that takes its place in the rounding contract `contract`."""
        return self

    @property
    def symbol(self) -> tuple[Tensor, int] | None:
        """(input of one number that moves the addresses it accesses, number of its values); None if there is none."""
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
        """The operator on these tensors, whose dimension k is dimension `axes[k]`; None where it has no such form."""
        return replace(self, inputs=inputs, output=output) if self.elementwise else None

    def of_tokens(self, inputs: tuple[Tensor, ...], count: int) -> Operator:
        """The operator on `inputs` of `count` rows, one of each token, instead of one row."""
        return replace(self, inputs=inputs, output=replace(self.output, shape=(count, *self.output.shape[1:])))

    def moved(self, x: np.ndarray) -> np.ndarray:
        """`x`, of the input's shape, with all elements in the order and shape of the output.

        Raises `UnsupportedError` unless the operator only rearranges elements (`rearranges`).
        """
        raise UnsupportedError(f"{type(self).__name__} {self.name!r}: does more than to rearrange elements")

    def reach(self) -> Reach | None:
        """Range of the accumulators over all int8 inputs; None where there are no accumulators."""
        return None

    @property
    def factors(self) -> Iterable[float]:
        """The real factor of each R."""
        return ()

    @property
    def multipliers(self) -> tuple[Any, ...]:
        """(multiplier, exponent) of each R, of the only R in `Rescaling`, or arrays with one of each per channel."""
        return ()

    def excess(self) -> str:
        """The excess of a value other than an accumulator or factor, to print after the name; empty: there is none."""
        return ""

    def check(self) -> None:
        """Raise `InputError` if parameters and shapes are inconsistent."""

    def expect(self, what: str, value: object, allowed: object) -> None:
        """Raise `InputError` unless `value` equals `allowed`."""
        if value != allowed:
            raise InputError(f"{type(self).__name__} {self.name!r}: {what} is {value}, expected {allowed}")

    def expect_int8(self) -> None:
        """Raise `InputError` unless inputs and output are int8, or of a `wide` operator all int16."""
        dtype = "int16" if self.wide and self.x.dtype == "int16" else "int8"
        self.expect("the conversion", {t.dtype for t in self.tensors}, {dtype})

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
        """Raise `InputError` unless `low`..`high` is a range of the output's values."""
        info = np.iinfo(self.output.dtype)
        if not info.min <= low <= high <= info.max:
            raise InputError(f"{type(self).__name__} {self.name!r}: clamp {low}..{high} is not within {info.dtype}")

    def expect_same_scale(self) -> None:
        """Raise `InputError` if an input is not quantised as the output is."""
        for t in self.inputs:
            facts = [(t.dtype, t.scale, t.zero_point) for t in (self.output, t)]
            self.expect("the output's quantisation (dtype, scale, zero point)", facts[0], facts[1])


def by_channel(
    factors: Iterable[float], rounded: Callable[[float], tuple[int, int]] = quantize_multiplier
) -> tuple[np.ndarray, np.ndarray]:
    """(multipliers, exponents), int64, of the R of each channel."""
    pairs = np.array([rounded(factor) for factor in factors], np.int64)
    return pairs[:, 0], pairs[:, 1]


@dataclass(frozen=True, eq=False)
class OwnContract(Operator):
    """Base of operators whose R are in a contract of their own, as TensorFlow Lite's kernels have it: `double`.

    Networks of ONNX give them `single`; they follow where `double` is asked for.
    """

    contract: str = field(default="double", kw_only=True)

    def rounding(self, contract: str) -> str:
        return self.contract

    def under(self, contract: str) -> Operator:
        return replace(self, contract=contract) if contract == "double" else self


class Factored(Operator):
    """Base of operators with an R for each of several `factors`."""

    @property
    def multipliers(self) -> tuple[tuple[int, int], ...]:
        return tuple(quantize_multiplier(factor) for factor in self.factors)


class Rescaling(Operator):
    """Base of operators that bring one tensor into another quantisation by their only R."""

    @property
    def factor(self) -> float:
        """`x.scale / y.scale`."""
        return float(np.float64(self.x.scale) / np.float64(self.output.scale))

    @property
    def multipliers(self) -> tuple[int, int]:
        return quantize_multiplier(self.factor)


class Product(Rescaling):
    """Base of operators that bring products of two tensors into the output's quantisation by R."""

    @property
    def factor(self) -> float:
        """`x.scale * y.scale / output.scale`."""
        sx, sy, so = (np.float64(t.scale) for t in (*self.inputs, self.output))
        return float(sx * sy / so)


@dataclass(frozen=True, eq=False)
class AlongAxis(Operator):
    """Base of operators that compute along `axis` and keep the shape."""

    axis: int

    def carried(self, axis: int) -> int:
        return -1 if axis == self.axis else axis

    def check(self) -> None:
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("whether the axis exists", 0 <= self.axis < len(self.x.shape), True)


@dataclass(frozen=True, eq=False)
class Custom(Operator):
    """Base of a user's own operators, which a user's kernel computes (compiler/user_kernels.py).

    `compute` defines the results with which those of the kernel are compared; the host has no kernel.
    """

    def calls(self, contract: str) -> list[HostCall]:
        """`compute`."""
        return [CustomCall(type(self).__name__, {}, {}, self.output.dtype, self.compute)]

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        """The output for the inputs, in the graph's layout. Raises `UnsupportedError` unless a subclass defines it."""
        raise UnsupportedError(
            f"{type(self).__name__} {self.name!r}: nothing says what its results are; define compute(self, *arrays) in "
            "a class of your own that derives from Custom"
        )
