"""Kinds of values: the values that an attribute of a host operator, or a field of a program file, may have.

JSON values and constant arrays alike are checked, by their exact type: neither a float nor a truth value is an integer.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

import numpy as np

from ..hw.errors import ProgramError
from .arrays import Array as AnyArray

MOST = 1 << 31  # the largest extent, stride or position that means anything in a program
DIMENSIONS = 8  # the most that a tensor has
NAME_LENGTH = 10_000  # characters of the longest name


class Kind:
    """A set of values: `allows(value)` tells whether a value is in it, `str()` which values are."""

    def __init__(self, text: str, allows: Callable[[object], bool]):
        self._text, self.allows = text, allows

    def __str__(self) -> str:
        return self._text


class Int(Kind):
    """Integers from `low` to `high`."""

    def __init__(self, low: int, high: int = MOST):
        super().__init__(f"an integer from {low} to {high}", lambda x: type(x) is int and low <= x <= high)


class Real(Kind):
    """Integers and floats from `low` to `high`; not NaN."""

    def __init__(self, low: float, high: float):
        text = f"a number from {low:g} to {high:g}"
        super().__init__(text, lambda x: isinstance(x, (int, float)) and type(x) is not bool and low <= x <= high)


class Flag(Kind):
    """True or false."""

    def __init__(self) -> None:
        super().__init__("true or false", lambda x: type(x) is bool)


class OneOf(Kind):
    """One of `values`, of its type: True is not 1."""

    def __init__(self, values: Sequence[str | int]):
        text = f"one of {', '.join(map(str, values))}"
        super().__init__(text, lambda x: any(type(x) is type(value) and x == value for value in values))


class Text(Kind):
    """Printable text of reasonable length: names go into messages and tables."""

    def __init__(self) -> None:
        text = f"a text of at most {NAME_LENGTH} printable characters"
        super().__init__(text, lambda x: isinstance(x, str) and len(x) <= NAME_LENGTH and x.isprintable())


class Optional(Kind):
    """Values that `kind` allows, or None."""

    def __init__(self, kind: Kind):
        super().__init__(f"{kind} or null", lambda x: x is None or kind.allows(x))


class ListOf(Kind):
    """Lists or tuples of values that `kind` allows, `length` long, or of any length up to `most`."""

    def __init__(self, kind: Kind, length: int | None = None, most: int = MOST):
        def allows(value: object) -> bool:
            if not _is_list(value) or len(value) > most or (length is not None and len(value) != length):
                return False
            return all(map(kind.allows, value))

        super().__init__(f"a list of {'' if length is None else f'{length} elements, each '}{kind}", allows)


class MapOf(Kind):
    """Dicts of printable names to values that `kind` allows."""

    def __init__(self, kind: Kind):
        def allows(value: object) -> bool:
            return is_dict(value) and all(map(Text().allows, value)) and all(map(kind.allows, value.values()))

        super().__init__(f"an object whose values are each {kind}", allows)


class Anything(Kind):
    """Any JSON value, which is checked elsewhere."""

    def __init__(self) -> None:
        super().__init__("any value", lambda x: True)


class Array(Kind):
    """Arrays of `rank` dimensions of one of `dtypes`, with values from `low` to `high`; floats are finite."""

    def __init__(self, rank: int, dtypes: Sequence[str], low: int = -(1 << 63), high: int = (1 << 63) - 1):
        def allows(value: object) -> bool:
            if not _is_array(value) or value.ndim != rank or str(value.dtype) not in dtypes or not value.size:
                return False
            if value.dtype.kind == "f":
                return bool(np.isfinite(value).all())
            return low <= int(value.min()) and int(value.max()) <= high

        limits = f", values from {low} to {high}" if low > -(1 << 63) else ""
        super().__init__(f"an array, {' or '.join(dtypes)}, of {rank} dimensions{limits}", allows)


def is_a(value: object, kind: type) -> bool:
    """Whether `value` is a `kind`: for values of users, who may give others than the annotations say."""
    return isinstance(value, kind)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, (list, tuple))


def is_dict(value: object) -> TypeGuard[Mapping[object, object]]:
    """Whether `value` is a dict."""
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[AnyArray]:
    return isinstance(value, np.ndarray)


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
    if _is_array(value):
        values = f", values from {value.min()} to {value.max()}" if value.size and value.dtype.kind in "iu" else ""
        return f"{value.dtype} {value.shape}{values}"
    if isinstance(value, int) and not -(1 << 80) < value < 1 << 80:
        return f"an integer of {value.bit_length()} bits"
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlist = _SHORT.maxtuple = 12
