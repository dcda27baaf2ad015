"""Operators of a user's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...hw.errors import UnsupportedError
from .host_calls import CustomCall, HostCall
from .operators import Operator


@dataclass(frozen=True, eq=False)
class Custom(Operator):
    """Base of operators that no file has: a kernel of one's own computes them (compiler/user_kernels.py).

    `compute` says what they are, for everything that compares results; the host has no kernel of it.
    """

    def calls(self, contract: str) -> list[HostCall]:
        """`compute`."""
        return [CustomCall(type(self).__name__, {}, {}, self.output.dtype, self.compute)]

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        """The output for the inputs, in the graph's layout. Raises `UnsupportedError` where a class does not say it."""
        raise UnsupportedError(
            f"{type(self).__name__} {self.name!r}: nothing says what its results are; define compute(self, *arrays) in "
            "a class of your own that derives from Custom"
        )
