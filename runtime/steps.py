"""What an executable is made of: tensors, launches of the accelerator, and operators of the host."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..hw.errors import ProgramError
from .buffer import KINDS as BUFFER_KINDS
from .buffer import MOST_BYTES, whole
from .launch import Launch

DTYPES = ("int8", "uint8", "int16", "int32", "uint32", "int64", "float32", "bool")
KINDS = (*BUFFER_KINDS, "state")


@dataclass(eq=False)
class Tensor:
    """A named array between steps; `kind` is input, output, temp, constant (its values are in `data`) or state.

    A state keeps its values from run to run: the first one finds `data` there, and at the end of each it takes the
    values of the tensor named `next`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str = "temp"
    data: np.ndarray | None = None
    next: str | None = None

    def __post_init__(self) -> None:
        self.shape = whole(f"tensor {self.name!r}: shape", self.shape)
        if min(self.shape, default=1) < 1:
            raise ProgramError(f"tensor {self.name!r}: shape {self.shape}: every dimension must be at least 1")
        if self.kind not in KINDS:
            raise ProgramError(f"tensor {self.name!r}: kind {self.kind!r} must be one of {', '.join(KINDS)}")
        if self.dtype not in DTYPES:
            raise ProgramError(f"tensor {self.name!r}: dtype {self.dtype!r} must be one of {', '.join(DTYPES)}")
        if self.nbytes > MOST_BYTES:
            raise ProgramError(f"tensor {self.name!r}: {self.nbytes:,} bytes; at most {MOST_BYTES:,} are allowed")
        keeps = self.kind in ("constant", "state")
        if keeps != (self.data is not None):
            needs = "needs data" if keeps else "takes no data; only constant and state tensors do"
            raise ProgramError(f"tensor {self.name!r}: kind {self.kind!r} {needs}")
        if (self.kind == "state") != (self.next is not None):
            needs = "needs next, the tensor whose values it takes" if self.next is None else "takes no next"
            raise ProgramError(f"tensor {self.name!r}: kind {self.kind!r} {needs}")
        if self.data is not None and (self.data.shape != self.shape or self.data.dtype != self.dtype):
            found = f"{self.data.dtype} {self.data.shape}"
            raise ProgramError(f"tensor {self.name!r}: data is {found}, must be {self.dtype} {self.shape}")

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(eq=False)
class LaunchStep:
    """One start of the accelerator; `bind` maps names of the launch's buffers to names of tensors.

    `macs` are the layer's useful multiply-accumulates: spatial padding counts, padded channels do not.
    """

    name: str
    launch: Launch
    bind: dict[str, str]
    macs: int = 0


@dataclass(eq=False)
class HostStep:
    """One operator of `hostops.HOST_OPS` on the host; `attrs` are JSON values, `constants` arrays by attribute name."""

    name: str
    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    macs: int = 0
