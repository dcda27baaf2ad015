"""Kinds of values: what an attribute of a host operator, or a field of a program file, may be.

A kind answers whether a value is allowed, and its text says what is. JSON values and constant arrays alike are checked:
an integer is one, not a float or a truth value that Python would take for it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..hw.errors import ProgramError

MOST = 1 << 31  # the largest extent, stride or position that means anything in a program
DIMENSIONS = 8  # the most that a tensor has
NAME_LENGTH = 10_000  # characters of the longest name


class Kind:
    """A set of values; `str()` says which."""

    def allows(self, value: object) -> bool:
        """Whether `value` is one of them."""
        raise NotImplementedError


@dataclass(frozen=True)
class Int(Kind):
    """Integers from `low` to `high`."""

    low: int
    high: int = MOST

    def allows(self, value: object) -> bool:
        """Whether `value` is an int in the range."""
        return type(value) is int and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"an integer from {self.low} to {self.high}"


@dataclass(frozen=True)
class Real(Kind):
    """Numbers from `low` to `high`."""

    low: float
    high: float

    def allows(self, value: object) -> bool:
        """Whether `value` is an int or float in the range, which NaN never is."""
        return isinstance(value, (int, float)) and type(value) is not bool and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    def allows(self, value: object) -> bool:
        """Whether `value` is a bool."""
        return type(value) is bool

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class OneOf(Kind):
    """One of `values`, texts or integers."""

    values: tuple[str | int, ...]

    def allows(self, value: object) -> bool:
        """Whether `value` is in `values`, and of the same type."""
        return any(type(value) is type(one) and value == one for one in self.values)

    def __str__(self) -> str:
        return f"one of {', '.join(map(str, self.values))}"


@dataclass(frozen=True)
class Text(Kind):
    """Printable text: names go into messages and tables."""

    def allows(self, value: object) -> bool:
        """Whether `value` is a printable str of reasonable length."""
        return isinstance(value, str) and len(value) <= NAME_LENGTH and value.isprintable()

    def __str__(self) -> str:
        return f"a text of at most {NAME_LENGTH} printable characters"


@dataclass(frozen=True)
class Optional(Kind):
    """What `kind` allows, or nothing."""

    kind: Kind

    def allows(self, value: object) -> bool:
        """Whether `value` is None or allowed."""
        return value is None or self.kind.allows(value)

    def __str__(self) -> str:
        return f"{self.kind} or null"


@dataclass(frozen=True)
class ListOf(Kind):
    """Lists or tuples of what `kind` allows, `length` long, or of any length up to `most`."""

    kind: Kind
    length: int | None = None
    most: int = MOST

    def allows(self, value: object) -> bool:
        """Whether `value` is such a list."""
        if not isinstance(value, (list, tuple)) or (self.length is not None and len(value) != self.length):
            return False
        return len(value) <= self.most and all(map(self.kind.allows, value))

    def __str__(self) -> str:
        count = "" if self.length is None else f"{self.length} elements, each "
        return f"a list of {count}{self.kind}"


@dataclass(frozen=True)
class MapOf(Kind):
    """Dicts of printable names to what `kind` allows."""

    kind: Kind

    def allows(self, value: object) -> bool:
        """Whether `value` is such a dict."""
        return isinstance(value, dict) and all(map(Text().allows, value)) and all(map(self.kind.allows, value.values()))

    def __str__(self) -> str:
        return f"an object whose values are each {self.kind}"


@dataclass(frozen=True)
class Anything(Kind):
    """Any JSON value: what is checked elsewhere."""

    def allows(self, value: object) -> bool:
        """Whether it is a value at all."""
        return True

    def __str__(self) -> str:
        return "any value"


@dataclass(frozen=True)
class Array(Kind):
    """Arrays of `rank` dimensions of one of `dtypes`, with values from `low` to `high`; floats are finite."""

    rank: int
    dtypes: tuple[str, ...]
    low: int = -(1 << 63)
    high: int = (1 << 63) - 1

    def allows(self, value: object) -> bool:
        """Whether `value` is such an array, with at least one element."""
        if not isinstance(value, np.ndarray) or value.ndim != self.rank or str(value.dtype) not in self.dtypes:
            return False
        if value.dtype.kind == "f":
            return value.size > 0 and bool(np.isfinite(value).all())
        return value.size > 0 and self.low <= int(value.min()) and int(value.max()) <= self.high

    def __str__(self) -> str:
        limits = f", values from {self.low} to {self.high}" if self.low > -(1 << 63) else ""
        return f"an array, {' or '.join(self.dtypes)}, of {self.rank} dimensions{limits}"


NAME = Text()
SIZE = Int(1)
SHAPE = ListOf(SIZE, most=DIMENSIONS)


def check_fields(
    values: Mapping[str, object], kinds: Mapping[str, Kind], optional: frozenset[str] = frozenset()
) -> None:
    """Raise `ProgramError`, naming the field, its value and what is allowed, unless `values` are of `kinds`.

    Fields that are `optional` may be absent; no others may be there.
    """
    for name in values:
        if name not in kinds:
            raise ProgramError(f"{shown(name)} is unknown; known are {', '.join(kinds) or 'none'}")
    for name, kind in kinds.items():
        if name not in values:
            if name not in optional:
                raise ProgramError(f"{name} is missing: must be {kind}")
        elif not kind.allows(values[name]):
            raise ProgramError(f"{name} = {shown(values[name])}: must be {kind}")


def shown(value: object) -> str:
    """`value` for a message: short, whatever it is."""
    if isinstance(value, np.ndarray):
        values = f", values from {value.min()} to {value.max()}" if value.size and value.dtype.kind in "iu" else ""
        return f"{value.dtype} {value.shape}{values}"
    if isinstance(value, int) and not -(1 << 80) < value < 1 << 80:
        return f"an integer of {value.bit_length()} bits"
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlist = _SHORT.maxtuple = 12
