"""Recurrent layers, SVDF and LSTM, the wider integers around them, and the states of a network.

The layers compute as TensorFlow Lite does: R is contract double, and factors are made of float32 products of the
scales. A `State` of the graph holds the values that they keep from one inference to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ...hw.errors import InputError
from ...hw.rounding import quantize_multiplier, rescale
from .host_calls import Kernel
from .layers import Linear, QConv2d, QDense
from .operators import AlongAxis, Ends, Operator, Reach, Rescaling, Tensor, by_channel
from .ranges import int32_bytes, sums
from .windows import Softmax


@dataclass(frozen=True, eq=False)
class State:
    """A tensor that has a value when an inference starts, and takes the values of `next` when it ends.

    The first inference finds the values `initial`. `next` is any tensor of the graph: one that an operator produces, an
    input, a constant, or a state, also this one. Integers are kept as they are: a file may say other scales for what is
    read and what is assigned.
    """

    tensor: Tensor
    initial: np.ndarray = field(repr=False)
    next: Tensor

    def __post_init__(self) -> None:
        t, y = self.tensor, self.next
        if (t.shape, t.dtype) != (y.shape, y.dtype):
            raise InputError(
                f"state {t.name!r} is {t.dtype} {t.shape}, its next values, {y.name!r}, are {y.dtype} {y.shape}; they "
                "must be equal"
            )
        if (self.initial.shape, str(self.initial.dtype)) != (t.shape, t.dtype):
            found = f"{self.initial.dtype} {self.initial.shape}"
            raise InputError(f"state {t.name!r}: its initial values are {found}, must be {t.dtype} {t.shape}")


GATES = 5  # values of logistic and tanh per cell and step of an LSTM


def product_scale(*scales: float, over: float = 1.0) -> float:
    """The product of `scales` over another, every step of it rounded to float32."""
    found = np.float32(scales[0])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for scale in scales[1:]:
            found = found * np.float32(scale)
        return float(found / np.float32(over))


class OfSvdf(Linear):
    """Mixed into layers of an SVDF, whose scales are float32 products and quotients."""

    @property
    def scales(self) -> np.ndarray:
        """float64 (O,): the factor of R before it is rounded to a multiplier and an exponent."""
        return np.array([product_scale(self.x.scale, float(s), over=self.output.scale) for s in self.weight_scale])


@dataclass(frozen=True, eq=False)
class Features(OfSvdf, QDense):
    """The dense layer at the input of an SVDF with int8 state: one value per filter, in the state's quantisation."""


@dataclass(frozen=True, eq=False)
class TimeFilter(OfSvdf, QConv2d):
    """The filter along time of an SVDF with int8 state: a convolution of windows (N, filters, 1, memory)."""


@dataclass(frozen=True, eq=False)
class Dense16(Operator):
    """int8 (N, I) -> int16 or int32 (N, O): `clamp(R(bias + (x - x.zero_point) @ weight.T))`, R per row by `scales`.

    `weight` is int8 (O, I), `bias` int32 (O,), `scales` float64 (O,).
    """

    weight: np.ndarray
    bias: np.ndarray
    scales: np.ndarray
    carries, corrected_bias = (0,), Linear.corrected_bias

    def check(self) -> None:
        self.expect("the input's type", self.x.dtype, "int8")
        self.expect("whether the output is int16 or int32", self.output.dtype in ("int16", "int32"), True)
        self.expect("the number of dimensions", (len(self.x.shape), self.weight.ndim), (2, 2))
        rows, features = self.weight.shape
        self.expect("the number of input features", features, self.x.shape[1])
        self.expect("the shapes of biases and scales", (self.bias.shape, self.scales.shape), ((rows,), (rows,)))
        self.expect("the output's shape", self.output.shape, (self.x.shape[0], rows))
        self.expect("the output's zero point", self.output.zero_point, 0)

    def reach(self) -> Reach:
        return Reach(*sums(self.weight, self.bias, self.x.ends), self.scales)

    @property
    def result_ends(self) -> Ends:
        """The least and the largest result of all int8 inputs, before it is clamped."""
        reach = self.reach()
        low, high = (rescale(ends, *self.multipliers) for ends in (reach.low, reach.high))
        return int(low.min()), int(high.max())

    @property
    def result_bytes(self) -> int:
        """How many bytes hold a result: as many as its type has, but of int32 those that its values need, 3 or 4."""
        return int32_bytes(*self.result_ends) if self.output.dtype == "int32" else super().result_bytes

    def kernels(self) -> tuple[Kernel, ...]:
        """The kernel on the host, which is told of int32 results."""
        attrs = "x_zero_point dtype" if self.output.dtype == "int32" else "x_zero_point"
        return (Kernel("dense_int16", attrs, "weight bias multiplier exponent"),)

    @property
    def multipliers(self) -> tuple[np.ndarray, np.ndarray]:
        return by_channel(self.scales)

    @property
    def macs(self) -> int:
        return self.x.shape[0] * self.weight.size


@dataclass(frozen=True, eq=False)
class Filter16(Operator):
    """The filter along time of an SVDF with int16 state: int16 windows (N, F, M) -> int8 (N, U).

    `clamp(zo + R(bias + sum(x * weight)))`, weights int16 (F, M), biases int32 (U,); unit u sums the F / U filters from
    `u * F / U` on. The sum wraps at 32 bits.
    """

    host = (Kernel("filter_int16", "zero_point multiplier exponent", "weight bias"),)

    weight: np.ndarray
    bias: np.ndarray
    factor: float

    def check(self) -> None:
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int16", "int8"))
        self.expect("the window", self.x.shape[1:], self.weight.shape)
        self.expect("the window's zero point", self.x.zero_point, 0)
        self.expect("the filters modulo the units", self.weight.shape[0] % len(self.bias), 0)
        self.expect("the output's shape", self.output.shape, (self.x.shape[0], len(self.bias)))
        self.expect("whether R is by less than 2**30", 0 <= self.factor < 2.0**30, True)

    @property
    def multipliers(self) -> tuple[int, int]:
        return quantize_multiplier(self.factor)

    @property
    def macs(self) -> int:
        return math.prod(self.x.shape)


class Cells(Operator):
    """Base of operators that compute cells of an LSTM, their third input, by gates, their first, (N, T, gates * C)."""

    @property
    def cell_bits(self) -> int:
        """Integer bits of the cells, besides the sign."""
        return 15 + math.frexp(self.inputs[2].scale)[1] - 1

    @property
    def functions(self) -> int:
        """Number of values of logistic and tanh that it computes."""
        gates, _, cells = self.inputs
        return GATES * math.prod(cells.shape) * gates.shape[1]

    def expect_cells(self) -> None:
        """Raise `InputError` unless the cells are quantised as their functions need."""
        self.expect("the cells' scale", math.frexp(self.inputs[2].scale)[0], 0.5)
        self.expect("the number of integer bits of the cells, from 0 to 6", 0 <= self.cell_bits <= 6, True)


@dataclass(frozen=True, eq=False)
class LstmStep(Cells):
    """One step of an LSTM from sums that are there: int16 (N, 2, C), the hidden values and the cells.

    Inputs are gates, int16 (N, 1, 4 * C), the part of the hidden values in the same sums, int16 or int32 (N, 4 * C),
    and cells, int16 (N, C); the rest is as in `Lstm`.
    """

    host = (Kernel("lstm_step", "zero_point cell_bits clip coupled multiplier exponent"),)

    factor: float
    clip: int = 0
    coupled: bool = False

    def check(self) -> None:
        self.expect("the number of inputs", len(self.inputs), 3)
        gates, own, cells = self.inputs
        types = gates.dtype, cells.dtype, self.output.dtype, own.dtype in ("int16", "int32")
        self.expect("the conversion", types, ("int16", "int16", "int16", True))
        n, size = cells.shape
        rows = (3 if self.coupled else 4) * size
        self.expect("the shapes of gates and sums", (gates.shape, own.shape), ((n, 1, rows), (n, rows)))
        self.expect("the output's shape", self.output.shape, (n, 2, size))
        self.expect_cells()
        self.expect("whether R is by less than 2**30", 0 <= self.factor < 2.0**30, True)

    @property
    def multipliers(self) -> tuple[int, int]:
        return quantize_multiplier(self.factor)


@dataclass(frozen=True, eq=False)
class Lstm(Cells):
    """T steps of an LSTM: inputs are gates, int16 (N, T, 4 * C), hidden values, int8 (N, C), and cells, int16 (N, C).

    The gates are the inputs' part of the sums of input, forget, cell and output gate; without an input gate
    (`coupled`) they are three. The result, int16 (N, T + 1, C), has the hidden values after each step, in the
    quantisation of the output, and in its last row the cells. `weight`, int8 (4 * C, C), is that of the hidden values,
    `bias` less their zero point times its sums, `scales` are factors of R, float64 (4 * C,). The cells' scale is a
    power of two; they are clamped to +-`clip` unless it is 0.
    """

    host = (
        Kernel(
            "lstm",
            "zero_point cell_bits clip coupled multiplier=multipliers.1.0 exponent=multipliers.1.1",
            "weight bias gate_multiplier=multipliers.0.0 gate_exponent=multipliers.0.1",
        ),
    )

    weight: np.ndarray
    bias: np.ndarray
    scales: np.ndarray
    factor: float
    clip: int = 0
    coupled: bool = False

    def check(self) -> None:
        self.expect("the number of inputs", len(self.inputs), 3)
        gates, hidden, cells = self.inputs
        types = tuple(t.dtype for t in (*self.inputs, self.output))
        self.expect("the conversion", types, ("int16", "int8", "int16", "int16"))
        n, size = hidden.shape
        rows = (3 if self.coupled else 4) * size
        self.expect("the gates' number of dimensions", len(gates.shape), 3)
        self.expect("the gates' shape", gates.shape, (n, gates.shape[1], rows))
        self.expect("the cells' shape", cells.shape, (n, size))
        self.expect("the weights' shape", self.weight.shape, (rows, size))
        self.expect("the shapes of biases and scales", (self.bias.shape, self.scales.shape), ((rows,), (rows,)))
        self.expect("the output's shape", self.output.shape, (n, gates.shape[1] + 1, size))
        self.expect_cells()
        for factor in (*self.scales.tolist(), self.factor):
            if not 0 <= factor < 2.0**30:
                raise InputError(f"Lstm {self.name!r}: scales sums by {factor:g}; it must be at least 0, below 2**30")

    @property
    def multipliers(self) -> tuple[tuple[np.ndarray, np.ndarray], tuple[int, int]]:
        """(multipliers, exponents) of R of the gates' sums, and of the hidden values."""
        return by_channel(self.scales), quantize_multiplier(self.factor)

    @property
    def macs(self) -> int:
        gates, _, _ = self.inputs
        return gates.shape[0] * gates.shape[1] * self.weight.size


@dataclass(frozen=True, eq=False)
class LstmOutputs(Operator):
    """The hidden values of an `Lstm`, int8 (N, T, C), out of its result (N, T + 1, C)."""

    host = (Kernel("strided_slice", "begin strides shape", dtype="int16"), Kernel("narrow"))
    begin, strides = (0, 0, 0), (1, 1, 1)

    def check(self) -> None:
        (n, rows, size), y = self.x.shape, self.output
        self.expect("the conversion", (self.x.dtype, y.dtype), ("int16", "int8"))
        facts = (n, rows - 1, size), self.x.scale, self.x.zero_point
        self.expect("the output's shape, scale and zero point", (y.shape, y.scale, y.zero_point), facts)


@dataclass(frozen=True, eq=False)
class LstmCells(Operator):
    """The cells of an `Lstm` after its last step, int16 (N, 1, C), out of its result (N, T + 1, C)."""

    host = (Kernel("strided_slice", "begin strides shape"),)
    strides = 1, 1, 1

    @property
    def begin(self) -> tuple[int, int, int]:
        """Where the cells begin in the input."""
        return 0, self.x.shape[1] - 1, 0

    def check(self) -> None:
        n, _, size = self.x.shape
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int16", "int16"))
        self.expect("the output's shape", self.output.shape, (n, 1, size))


@dataclass(frozen=True, eq=False)
class Rescale(Rescaling):
    """Integers in another quantisation and width: `clamp(y.zero_point + R(x - x.zero_point))`, contract double."""

    elementwise = True
    host = (Kernel("rescale_integers", "dtype x_zero_point zero_point multiplier exponent"),)

    def check(self) -> None:
        allowed = {"int8", "int16", "int32"}
        self.expect("whether the types are int8, int16 or int32", {self.x.dtype, self.output.dtype} <= allowed, True)
        self.expect("the output's shape", self.output.shape, self.x.shape)
        reach = _reach(self.x)
        self.expect("whether R leaves 32 bits", reach * max(1.0, self.factor) >= 2.0**31, False)


def _reach(t: Tensor) -> float:
    info = np.iinfo(t.dtype)
    return float(max(info.max - t.zero_point, t.zero_point - info.min))


@dataclass(frozen=True, eq=False)
class Softmax16(Softmax):
    """Softmax of int8 with an int16 result, in steps of 2**-16 from zero point -2**15.

    Files say 2**-16 or 1 / 65535; the arithmetic is the same.
    """

    bits = 16

    def kernels(self) -> tuple[Kernel, ...]:
        return (Kernel("softmax", "axis bits multiplier exponent"),)

    def check(self) -> None:
        y = self.output
        self.expect("the conversion", (self.x.dtype, y.dtype), ("int8", "int16"))
        AlongAxis.check(self)
        self.expect("the output's zero point", y.zero_point, -(1 << 15))
        self.expect("the output's scale in units of 2**-16, to three digits", round(y.scale * 2.0**16, 3), 1.0)
        self.expect("whether beta times the input's scale is above 2**-26", self.beta * self.x.scale > 2**-26, True)
