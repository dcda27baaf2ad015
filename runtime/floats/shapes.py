"""What each float operator needs of its inputs and attributes together, and the shape of its result.

As runtime/hostshapes.py: a function per operator, called once types and ranges have been checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...hw.errors import ProgramError
from .. import hostshapes
from ..hostshapes import Operand, averaged, conv_transposed, convolved, pooled, reduced


def _float(found: Operand) -> Operand:
    return found._replace(dtype="float32")


def together(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape to which both broadcast."""
    return _float(hostshapes.together(inputs, a))


def without_axes(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Without the axes, or with 1 in their place."""
    return _float(reduced(inputs, a))


def multiplied(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Rows of the first, columns of the second."""
    x, y = (operand.shape for operand in inputs)
    if min(len(x), len(y)) < 2 or x[-1] != y[-2]:
        raise ProgramError(f"inputs {[x, y]} are not matrices that can be multiplied")
    before = together([Operand(x[:-2], "float32"), Operand(y[:-2], "float32")], a).shape
    return Operand((*before, x[-2], y[-1]), "float32")


def steps(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Hidden values for each step."""
    (count, n, features), weight, recurrence = inputs[0].shape, a["weight"].shape, a["recurrence"].shape
    hidden = recurrence[1]
    if (weight, recurrence, a["bias"].shape) != ((4 * hidden, features), (4 * hidden, hidden), (4 * hidden,)):
        raise ProgramError(f"weight {weight}, recurrence {recurrence} and bias {a['bias'].shape} do not fit {features}")
    return Operand((count, n, hidden), "float32", count * n * 4 * hidden)


def float_convolved(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Smaller by what the kernel reaches."""
    return _float(convolved(inputs, a))


def float_conv_transposed(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Larger by the strides."""
    (_, c, *_), (into, per_group, *kernel), groups = inputs[0].shape, a["weight"].shape, a["groups"]
    if c != into or into % groups:
        raise ProgramError(f"weight {a['weight'].shape} in {groups} groups does not fit {c} channels")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, a["dilations"])]
    grown = a | {"weight": np.broadcast_to(np.float32(0), (per_group * groups, c, *reach))}
    return _float(conv_transposed(inputs, grown))


def largest(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """One per window."""
    return _float(pooled(inputs, a))


def mean(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """One per window, each of which holds a pixel unless padding counts."""
    found = _float(pooled(inputs, a) if a.get("padding_counts", False) else averaged(inputs, a))
    return found._replace(scratch=found.scratch + math.prod(inputs[0].shape[2:]))
