"""What each operator of this folder needs of its inputs and attributes together, and the shape of its result.

As runtime/hostshapes.py: a function per operator, called once types and ranges have been checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...hw.errors import ProgramError
from ..hostshapes import Operand, reduced


def need(holds: bool, text: str) -> None:
    """Raise `ProgramError` with `text` unless it holds."""
    if not holds:
        raise ProgramError(text)


def taken(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """As many elements per dimension as indices, or all."""
    (shape, dtype, _), indices = inputs[0], a["indices"]
    need(len(indices) == len(shape), f"indices of {len(indices)} dimensions: its input {shape} has {len(shape)}")
    for k, (n, found) in enumerate(zip(shape, indices)):
        need(max(found, default=0) < n, f"indices: {max(found, default=0)} is not in dimension {k} of {shape}")
    return Operand(tuple(len(found) or n for n, found in zip(shape, indices)), dtype)


def resized(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Images of the size asked."""
    n, c, *_ = inputs[0].shape
    return Operand((n, c, *a["size"]), "int8")


def chosen(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Of the asked dtype, without the axis, or with 1 in its place."""
    return Operand(reduced(inputs, a | {"axes": [a["axis"]]}).shape, a["dtype"])
