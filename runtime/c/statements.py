"""Calls of C functions: what the operator of a host step becomes, and the writer that its translation is given."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...hw.errors import UnsupportedError

ALIGN = 8  # bytes; of parts of the scratch memory, hence of every C type in it
SCRATCH = "scratch"  # the name of the pointer to it in the statements
RANK = 8  # the most dimensions of a walk, TW_RANK in tw_host.h


class Value(NamedTuple):
    """An array in memory: a C expression of its address, its shape and dtype."""

    pointer: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Elements of the array."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.size * self.width


_TYPES = {"int8": "TW_INT8", "uint8": "TW_UINT8", "bool": "TW_UINT8", "int16": "TW_INT16", "int32": "TW_INT32"}
_TYPES |= {"int64": "TW_INT64", "float32": "TW_FLOAT32"}


def type_of(x: Value) -> str:
    """The C constant of its type. Raises `UnsupportedError` for one that kernels do not know."""
    if x.dtype not in _TYPES:
        raise UnsupportedError(f"an array is {x.dtype}; C kernels compute with {', '.join(_TYPES)}")
    return _TYPES[x.dtype]


class Statement(NamedTuple):
    """A call of `function` with C expressions; `checked`: it returns whether the values that it read are allowed."""

    function: str
    arguments: tuple[str, ...]
    checked: bool = False

    def __str__(self) -> str:
        text = f"{self.function}({', '.join(self.arguments)})"
        return f"if (!{text}) return TW_BAD_INPUT;" if self.checked else f"{text};"


@dataclass(frozen=True)
class Call:
    """What a host step is in C; see `hostcalls`."""

    statements: tuple[Statement, ...]
    data: dict[str, np.ndarray]
    scratch: int
    sources: tuple[str, ...] = ()


def real(value: float) -> str:
    """A float32 number that is not NaN as a C constant, exactly."""
    with np.errstate(over="ignore"):
        found = float(np.float32(value))
    if math.isinf(found):
        return "TW_INFINITY" if found > 0 else "-TW_INFINITY"
    return f"{found.hex()}f"


@dataclass
class Writer:
    """Takes down the statements of one host step."""

    statements: list[Statement] = field(default_factory=list)
    data: dict[str, np.ndarray] = field(default_factory=dict)
    top: int = 0  # of the scratch memory in use
    most: int = 0

    def call(self, function: str, *arguments: str | int, checked: bool = False) -> None:
        """Add a statement."""
        self.statements.append(Statement(function, tuple(map(str, arguments)), checked))

    def array(self, hint: str, values: np.ndarray | Sequence[int], dtype: str = "int32") -> str:
        """The name of a constant array of `dtype`, flat; equal ones have equal names, in every step.

        Raises `UnsupportedError` for values that are not in `dtype`.
        """
        found = np.ascontiguousarray(np.asarray(values).reshape(-1))
        flat = found.astype(dtype)
        if not np.array_equal(flat, found):
            raise UnsupportedError(f"{hint}: {found.min()} to {found.max()} are not in {dtype}, as the C kernel needs")
        name = f"{hint}_{hashlib.sha256(flat.dtype.str.encode() + flat.tobytes()).hexdigest()[:12]}"
        self.data[name] = flat
        return name

    def scratch(self, nbytes: int) -> str:
        """A pointer to so many bytes that nothing else uses until `top` is set back."""
        start = self.top
        self.top = -(-(start + nbytes) // ALIGN) * ALIGN
        self.most = max(self.most, self.top)
        return f"(void *)({SCRATCH} + {start})"

    def walk(self, shape: Sequence[int], *steps: Sequence[int]) -> str:
        """The name of a plan for `tw_next` through `shape`; each operand moves by its steps along each dimension."""
        return self.plan(merged(shape, steps))

    def plan(self, rows: Sequence[Sequence[int]]) -> str:
        """The name of a plan of (size, steps of each operand), innermost first.

        Raises `UnsupportedError` for more than `RANK`.
        """
        if len(rows) > RANK:
            raise UnsupportedError(f"its arrays are walked in {len(rows)} dimensions, at most {RANK} are possible in C")
        return self.array("walk", [len(rows), *(v for row in rows for v in row)])


def merged(shape: Sequence[int], steps: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """(size, steps of each operand) of the dimensions, innermost first, as few as possible."""
    rows: list[tuple[int, ...]] = []
    for size, *moves in reversed([*zip(shape, *steps)]):
        if size == 1:
            continue
        if rows and all(move == rows[-1][0] * inner for move, inner in zip(moves, rows[-1][1:])):
            rows[-1] = (rows[-1][0] * size, *rows[-1][1:])
        else:
            rows.append((size, *moves))
    return rows


def strides(shape: Sequence[int], unit: int = 1) -> list[int]:
    """By how much the address of an element grows along each dimension, in units of one element by default."""
    return [unit * math.prod(shape[k + 1 :]) for k in range(len(shape))]


def spread(shape: Sequence[int], onto: Sequence[int], unit: int = 1) -> list[int]:
    """As `strides`, of an array of `shape` that broadcasts to `onto`: 0 along what it does not have."""
    own = [0 if n == 1 else step for n, step in zip(shape, strides(shape, unit))]
    return [0] * (len(onto) - len(shape)) + own


Translation = Callable[[Writer, Sequence[Value], Value, dict], None]
"""Writes the statements that compute the output from the inputs with the attributes of a step."""
