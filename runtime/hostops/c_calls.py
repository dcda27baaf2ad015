"""Calls of C functions: what a host operator becomes in C, and the writer that takes the calls down."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...hw.errors import UnsupportedError

ALIGN = 8  # bytes; of parts of the scratch memory, hence of every C type in it
SCRATCH = "scratch"  # the name of the pointer to it in the statements
RANK = 8  # the most dimensions of a walk, TW_RANK in tw_host.h
INT32_MIN = -(1 << 31)  # C has no constant of it, only the negative of one beyond the largest


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
    """What a host step is in C; see runtime/c/hostcalls.py."""

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


Translation = Callable[[Writer, Sequence[Value], Value, dict], None]
"""Writes the statements that compute the output from the inputs with all attributes of a step."""


@dataclass(frozen=True)
class C:
    """A call of `function` with `arguments`, names that say what is passed.

    `inputs` are the pointers of all inputs, `typed` each with its type; `x`, `x_type`, `x_width` (bytes) are those of
    the first, `out`, `out_type` and `size` those of the output. `walk` is a plan through the elements of all inputs,
    `rows` the number of rows and the elements of one, `along` what `along` gives for the attribute `axis`, `kept`,
    `gone` and `gone_count` what `reduction` gives for `axes`. `numbers` is an array of the attributes that have these
    names. An attribute stands for its value: a number, or a constant array. Anything else is passed as it is.
    """

    function: str
    arguments: str
    numbers: str = ""
    checked: bool = False

    def __call__(self, w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
        """Write the call."""
        found = [text for name in self.arguments.split() for text in self._argument(name, w, inputs, output, a)]
        w.call(self.function, *found, checked=self.checked)

    def _argument(self, name: str, w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> Sequence[str | int]:
        x = inputs[0]
        match name:
            case "inputs":
                return [v.pointer for v in inputs]
            case "typed":
                return [text for v in inputs for text in (v.pointer, type_of(v))]
            case "x":
                return [x.pointer]
            case "x_type":
                return [type_of(x)]
            case "x_width":
                return [x.width]
            case "out":
                return [output.pointer]
            case "out_type":
                return [type_of(output)]
            case "size":
                return [output.size]
            case "walk":
                return [pair_walk(w, inputs, output)]
            case "rows":
                return [math.prod(x.shape[:-1]), x.shape[-1]]
            case "along":
                return along(x, a["axis"])
            case "kept" | "gone" | "gone_count":
                return [reduction(w, x, a["axes"])[("kept", "gone", "gone_count").index(name)]]
            case "numbers":
                return [w.array("numbers", flat(a[key] for key in self.numbers.split()))]
        return [constant(w, name, a[name]) if name in a else name]


def flat(values: Iterable[Any]) -> list[int]:
    """Numbers, and those in lists of numbers."""
    return [n for v in values for n in (v if isinstance(v, (list, tuple)) else [v])]


def constant(w: Writer, name: str, value: Any) -> str | int:
    """An attribute as a C expression: a number, or the name of a constant array."""
    if isinstance(value, np.ndarray):
        return w.array(name, value, "int32" if value.dtype == np.int64 else str(value.dtype))
    if isinstance(value, float):
        return real(value)
    return "INT32_MIN" if value == INT32_MIN else int(value)


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


def pair_walk(w: Writer, inputs: Sequence[Value], output: Value) -> str:
    """A plan through the elements of all inputs, spread onto the shape of the output."""
    return w.walk(output.shape, *(spread(x.shape, output.shape) for x in inputs))


def matrix_walk(w: Writer, inputs: Sequence[Value], output: Value) -> str:
    """A plan through the matrices of all inputs, the last two dimensions, spread onto those of the output."""
    around = output.shape[:-2]
    return w.walk(around, *(spread(x.shape[:-2], around, math.prod(x.shape[-2:])) for x in inputs))


def along(x: Value, axis: int) -> tuple[int, int, int]:
    """(elements before the axis, along it, behind it)."""
    return math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])


def reduction(w: Writer, x: Value, axes: Sequence[int]) -> tuple[str, str, int]:
    """(the walk of what stays, that of `axes`, elements in it)."""
    steps = strides(x.shape)
    kept, gone = ([k for k in range(len(x.shape)) if (k in axes) == inside] for inside in (False, True))
    plans = (w.walk([x.shape[k] for k in some], [steps[k] for k in some]) for some in (kept, gone))
    first, second = plans
    return first, second, math.prod(x.shape[k] for k in gone)


def known_function(op: str, name: str, functions: Mapping[str, Any], dtype: str) -> Any:
    """What stands for a function in C. Raises `UnsupportedError` for one that is not among `functions`."""
    if name not in functions:
        raise UnsupportedError(
            f"function {name!r} of {dtype} in host operator {op!r} has no C kernel; run the program with Python"
        )
    return functions[name]
