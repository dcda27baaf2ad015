"""What a network keeps from one inference to the next: streaming networks and recurrent layers have state."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ....hw.errors import InputError
from ..operators import Tensor


@dataclass(frozen=True, eq=False)
class State:
    """A tensor that is there when an inference starts, and takes the values of `next` when it ends.

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
