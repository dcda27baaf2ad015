"""What a host operator is: its function, and the inputs and attributes that a step which names it may hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature

import numpy as np

from ..hw.errors import ProgramError
from .hostshapes import Operand, Rule
from .schema import SHAPE, SIZE, Array, Int, Kind, ListOf, Real, check_fields

_GROWTH = 64  # times the elements of its operands is what an operator may hold on the way to its result,
_FREE = 1 << 20  # and so many more

# kinds of attributes that several operators have
INT8, INT32 = Int(-128, 127), Int(-(1 << 31), (1 << 31) - 1)
MULTIPLIER, EXPONENT = Int(0, (1 << 31) - 1), Int(-32, 31)  # of hw/rounding.py
SCALE: dict[str, Kind] = {"multiplier": MULTIPLIER, "exponent": EXPONENT}
CLAMP: dict[str, Kind] = {"low": INT8, "high": INT8}
THREE: dict[str, Kind] = {"zero_points": ListOf(INT8, 3)}
AXES: dict[str, Kind] = {"axes": ListOf(Int(0)), "shape": SHAPE}
STRIDES: dict[str, Kind] = {"strides": ListOf(SIZE, 2)}
PADS: dict[str, Kind] = {"pads": ListOf(Int(0), 4)}
POOL: dict[str, Kind] = {"kernel": ListOf(SIZE, 2), **STRIDES}
UNIT = Real(2.0**-126, 2.0**127)  # a scale
_NUMBERS = ("int8", "int16", "int32", "int64")
PER_CHANNEL: dict[str, Kind] = {"multiplier": Array(1, _NUMBERS, 0, (1 << 31) - 1)}
PER_CHANNEL |= {"exponent": Array(1, _NUMBERS, -32, 31)}


def scales(count: int) -> dict[str, Kind]:
    """Multipliers and exponents of so many tensors."""
    return {"multipliers": ListOf(MULTIPLIER, count), "exponents": ListOf(EXPONENT, count)}


def weights(rank: int) -> dict[str, Kind]:
    """Those of a layer of int8 activations, with its biases."""
    return {"weight": Array(rank, ("int8", "int16"), -255, 255), "bias": Array(1, ("int32",)), "x_zero_point": INT8}


@dataclass(frozen=True)
class HostOp:
    """A host operator: its `function`, and what a step that names it may hold.

    `rule` gives the result's shape and dtype. There are `count` inputs, at least one where it is 0, of one of `dtypes`,
    with one of `ranks` dimensions where these are given. `attrs` are the kinds of the function's keyword arguments.
    """

    function: Callable[..., np.ndarray]
    rule: Rule
    attrs: Mapping[str, Kind] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("int8",)
    ranks: tuple[int, ...] = ()
    count: int = 1

    def __call__(self, arrays: list[np.ndarray], attrs: dict) -> list[np.ndarray]:
        """The results for input arrays and attributes, constants among them."""
        return [self.function(*arrays, **attrs)]

    @cached_property
    def optional(self) -> frozenset[str]:
        """Attributes that may be absent."""
        parameters = signature(self.function).parameters.values()
        return frozenset(p.name for p in parameters if p.default is not p.empty)

    def result(self, inputs: Sequence[Operand], attrs: dict) -> Operand:
        """Shape and dtype of the result. Raises `ProgramError` for inputs or attributes that are not allowed.

        Neither are those for which an array far larger than inputs, constants and result would be made.
        """
        if len(inputs) != (self.count or max(1, len(inputs))):
            raise ProgramError(f"{len(inputs)} inputs: must be {self.count or 'at least 1'}")
        for k, x in enumerate(inputs):
            if x.dtype not in self.dtypes:
                raise ProgramError(f"input {k} is {x.dtype}: must be {' or '.join(self.dtypes)}")
            if self.ranks and len(x.shape) not in self.ranks:
                allowed = " or ".join(map(str, self.ranks))
                raise ProgramError(f"input {k} has shape {x.shape}: must have {allowed} dimensions")
        check_fields(attrs, self.attrs, self.optional)
        found = self.rule(inputs, attrs)
        known = [*(x.shape for x in (*inputs, found)), *(v.shape for v in attrs.values() if isinstance(v, np.ndarray))]
        most = _GROWTH * sum(map(math.prod, known)) + _FREE
        if found.scratch > most:
            raise ProgramError(
                f"makes an array of {found.scratch:,} elements on the way: at most {most:,} are allowed here"
            )
        return found
