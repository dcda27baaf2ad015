"""What a network keeps from one inference to the next: streaming networks and recurrent layers have state."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...hw.errors import InputError
from .operators import Tensor


@dataclass(frozen=True, eq=False)
class State:
    """A tensor that is there when an inference starts, and takes the values of `next` when it ends.

    The first inference finds the values `initial`. `next` is any tensor of the graph: one that an operator produces, an
    input, a constant, or a state, also this one.
    """

    tensor: Tensor
    initial: np.ndarray = field(repr=False)
    next: Tensor

    def __post_init__(self) -> None:
        t, y = self.tensor, self.next
        facts = [(one.shape, one.dtype, one.scale, one.zero_point) for one in (t, y)]
        if facts[0] != facts[1]:
            raise InputError(
                f"state {t.name!r} has shape, dtype, scale and zero point {facts[0]}, its next values, {y.name!r}, "
                f"{facts[1]}; they must be equal"
            )
        if (self.initial.shape, str(self.initial.dtype)) != (t.shape, t.dtype):
            found = f"{self.initial.dtype} {self.initial.shape}"
            raise InputError(f"state {t.name!r}: its initial values are {found}, must be {t.dtype} {t.shape}")
