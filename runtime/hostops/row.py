"""The row of a host operator: its NumPy function, its allowed inputs and attributes, its result, its call in C."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, NamedTuple

import numpy as np

from ...hw.errors import ProgramError, UnsupportedError
from ...hw.rounding import CONTRACTS
from ..schema import SHAPE, SIZE, Array, Flag, Int, Kind, ListOf, OneOf, Real, check_fields
from .arrays import AnyArray, Attrs
from .c_calls import Translation, Value, Writer

# an operator may make arrays of _GROWTH times the elements of its operands and result, and _FREE elements more
_GROWTH, _FREE = 64, 1 << 20

INT8, INT16, INT32 = (Int(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32))
MULTIPLIER, EXPONENT = Int(0, (1 << 31) - 1), Int(-32, 31)  # parameters of hw/rounding.py
FINITE = Real(-3.5e38, 3.5e38)
WIDE = ("int8", "int16")
INTEGERS = (*WIDE, "int32")
NUMBERS = ("float32", "int32", "int64")
_WIDTHS = (*INTEGERS, "int64")
ANY = ("int8", "uint8", "int16", "int32", "int64", "float32", "bool")
_SCALES = ListOf(MULTIPLIER, 2), ListOf(EXPONENT, 2)
CLAMP: dict[str, Kind] = {"low": INT16, "high": INT16}  # of int8 or int16 values: see `limited`
TWO_SCALES: dict[str, Kind] = dict(zip(("multipliers", "exponents"), _SCALES))
PER_CHANNEL: dict[str, Kind] = {
    "multiplier": Array(1, _WIDTHS, 0, (1 << 31) - 1),
    "exponent": Array(1, _WIDTHS, -32, 31),
}
# the kind of an attribute by its name, where the row of its operator gives no other; bool parameters are flags
KINDS: dict[str, Kind] = {
    "axes": ListOf(Int(0)),
    "axis": Int(0),
    "bias": Array(1, ("int32",)),
    "contract": OneOf(CONTRACTS),
    "dilations": ListOf(SIZE, 2),
    "exponent": EXPONENT,
    "exponents": ListOf(EXPONENT, 3),
    "kernel": ListOf(SIZE, 2),
    "layout": OneOf(("NCHW", "NHWC")),
    "multiplier": MULTIPLIER,
    "multipliers": ListOf(MULTIPLIER, 3),
    "pads": ListOf(Int(0), 4),
    "scale": Real(2.0**-126, 2.0**127),
    "shape": SHAPE,
    "strides": ListOf(SIZE, 2),
    "zero_points": ListOf(INT8, 3),
    **dict.fromkeys(("low", "high", "x_zero_point", "zero_point"), INT8),
    **dict.fromkeys(("batch", "block", "c", "groups", "n"), SIZE),
}


class Operand(NamedTuple):
    """Shape and dtype of an array; `scratch` is the number of elements of the largest intermediate array."""

    shape: tuple[int, ...]
    dtype: str
    scratch: int = 0


Operands = Sequence[Operand]
Rule = Callable[[Operands, Attrs], Operand]
"""The result of an operator, from its inputs and all its attributes, whose types and ranges have been checked.

Raises `ProgramError` where they do not fit together.
"""


@dataclass(frozen=True)
class HostOp:
    """A host operator: its `function` in NumPy, and the allowed contents of a step that names it.

    Arrays are positional arguments of the function, attributes its keyword arguments: their names are those of `.tw`
    files, and `KINDS` or `kinds` say which values are allowed. `rule` gives shape and dtype of the result. There are
    `count` inputs, or with 0 at least one, of one of `dtypes`, of one of `ranks` dimensions where these are given. `c`
    writes the operator's call in C; a program with an operator without one, or with inputs or results of int16 where
    `narrow` says that C has those of int8 alone, cannot be emitted as C. One that `overwrites` changes its first input,
    a cache, and returns it.
    """

    function: Callable[..., AnyArray]
    rule: Rule
    kinds: Mapping[str, Kind] = field(default_factory=dict[str, Kind])
    dtypes: tuple[str, ...] = ("int8",)
    ranks: tuple[int, ...] = ()
    count: int = 1
    c: Translation | None = None
    narrow: bool = False
    overwrites: bool = False

    def __call__(self, arrays: list[AnyArray], attrs: Attrs, in_place: bool = False) -> list[AnyArray]:
        """The only result, in a list, for input arrays and attributes, constant arrays among them.

        Inputs stay as they are; with `in_place` an operator that `overwrites` changes the first.
        """
        first, *others = arrays
        if self.overwrites and not in_place:
            first = first.copy()
        return [self.function(first, *others, **attrs)]

    @cached_property
    def _parameters(self) -> list[Parameter]:
        return [p for p in signature(self.function).parameters.values() if p.kind is p.KEYWORD_ONLY]

    @cached_property
    def attrs(self) -> dict[str, Kind]:
        """The allowed values of each attribute."""
        flags = {p.name: Flag() for p in self._parameters if p.annotation == "bool"}
        known = {**KINDS, **flags, **self.kinds}
        return {p.name: known[p.name] for p in self._parameters}

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The values of attributes that are absent."""
        return {p.name: p.default for p in self._parameters if p.default is not p.empty}

    def result(self, inputs: Operands, attrs: Attrs) -> Operand:
        """Shape and dtype of the result.

        Raises `ProgramError` for inputs or attributes that are not allowed, among them those for which an array far
        larger than inputs, constants and result would be made.
        """
        if len(inputs) != (self.count or max(1, len(inputs))):
            raise ProgramError(f"{len(inputs)} inputs: must be {self.count or 'at least 1'}")
        for k, x in enumerate(inputs):
            if x.dtype not in self.dtypes:
                raise ProgramError(f"input {k} is {x.dtype}: must be {' or '.join(self.dtypes)}")
            if self.ranks and len(x.shape) not in self.ranks:
                allowed = " or ".join(map(str, self.ranks))
                raise ProgramError(f"input {k} has shape {x.shape}: must have {allowed} dimensions")
        check_fields(attrs, self.attrs, frozenset(self.defaults))
        found = self.rule(inputs, self.defaults | attrs)
        constants: list[AnyArray] = [v for v in attrs.values() if isinstance(v, np.ndarray)]
        known = [*(math.prod(x.shape) for x in (*inputs, found)), *(v.size for v in constants)]
        most = _GROWTH * sum(known) + _FREE
        if found.scratch > most:
            raise ProgramError(
                f"makes an array of {found.scratch:,} elements on the way: at most {most:,} are allowed here"
            )
        return found

    def write(self, writer: Writer, inputs: Sequence[Value], output: Value, attrs: Attrs) -> None:
        """Write the operator's calls in C. Raises `UnsupportedError` for an operator without any."""
        wide = self.narrow and "int16" in {output.dtype, *(x.dtype for x in inputs)}
        if self.c is None or wide:
            name = f"{self.function.__name__!r}{' of int16 values' * wide}"
            raise UnsupportedError(f"host operator {name} has no C kernel; run the program with Python")
        top, given = writer.top, self.defaults | attrs
        given |= {key: float(value) for key, value in given.items() if isinstance(self.attrs[key], Real)}
        self.c(writer, inputs, output, given)
        writer.top = top


def need(holds: bool, text: str) -> None:
    """Raise `ProgramError` with `text` unless it holds."""
    if not holds:
        raise ProgramError(text)


def same(inputs: Operands, a: Attrs) -> Operand:
    """Shape and dtype of the first input."""
    return Operand(*inputs[0][:2])


def giving(dtype: str, rule: Rule = same) -> Rule:
    """A rule: the result of `rule` with another dtype."""
    return lambda inputs, a: rule(inputs, a)._replace(dtype=dtype)


def cast_to(inputs: Operands, a: Attrs) -> Operand:
    """The first input's shape with the dtype of the attribute `dtype`."""
    return Operand(inputs[0].shape, a["dtype"])


def limited(rule: Rule) -> Rule:
    """A rule: the result of `rule`, whose values are clamped to `low`..`high`, which its dtype must hold."""

    def checked(inputs: Operands, a: Attrs) -> Operand:
        found = rule(inputs, a)
        need_values(found.dtype, *(a[name] for name in ("low", "high") if name in a))
        return found

    return checked


def need_values(dtype: str, *values: int) -> None:
    """Raise `ProgramError` for a value that `dtype` does not hold."""
    info = np.iinfo(dtype)
    for value in values:
        need(info.min <= value <= info.max, f"{value} is not {dtype}")


def along_axis(inputs: Operands, a: Attrs) -> Operand:
    """Shape and dtype of the first input, which must have dimension `axis`."""
    need(a["axis"] < len(inputs[0].shape), f"axis = {a['axis']}: its input has {len(inputs[0].shape)} dimensions")
    return same(inputs, a)


def together(inputs: Operands, a: Attrs) -> Operand:
    """int8 of the shape to which all inputs broadcast."""
    shapes = [x.shape for x in inputs]
    try:
        return Operand(np.broadcast_shapes(*shapes), "int8")
    except ValueError:
        raise ProgramError(f"inputs {shapes} do not broadcast") from None


def one_type(inputs: Operands, a: Attrs) -> Operand:
    """The shape to which two inputs of one dtype broadcast, in that dtype."""
    need(inputs[0].dtype == inputs[1].dtype, f"inputs differ in dtype: {inputs[0].dtype} and {inputs[1].dtype}")
    return together(inputs, a)._replace(dtype=inputs[0].dtype)


def reduced(inputs: Operands, a: Attrs) -> Operand:
    """Attribute `shape`: the input's shape without the dimensions `axes`, or with 1 in place of each."""
    (shape, dtype, _), axes, out = inputs[0], a["axes"], tuple(a["shape"])
    need(len({*axes}) == len(axes) and max(axes, default=0) < len(shape), f"axes = {axes} are not those of {shape}")
    left = math.prod(n for k, n in enumerate(shape) if k not in axes)
    need(math.prod(out) == left, f"shape = {out} has not the {left} elements that {shape} without axes {axes} has")
    return Operand(out, dtype)


def multiplied(inputs: Operands, a: Attrs) -> Operand:
    """Matrix products of two inputs in the dtype of the first; the dimensions before the last two broadcast."""
    (x, dtype, _), y = inputs[0], inputs[1].shape
    need(min(len(x), len(y)) > 1, f"inputs {[x, y]} are not matrices")
    need(x[-1] == y[-2], f"inputs {[x, y]} cannot be multiplied: {x[-1]} is not {y[-2]}")
    around = together([Operand(x[:-2], dtype), Operand(y[:-2], dtype)], a).shape
    return Operand((*around, x[-2], y[-1]), dtype)
