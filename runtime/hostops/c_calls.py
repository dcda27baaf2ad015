"""Calls of C functions: the statements of a host operator in C, and the writer that records them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from ...hw.errors import UnsupportedError
from .arrays import AnyArray, Attrs, Ints

ALIGN = 8  # bytes; alignment of parts of the scratch memory, enough for every C type
SCRATCH = "scratch"  # name of the pointer to the scratch memory in the statements
RANK = 8  # most dimensions of a walk, TW_RANK in tw_host.h
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


_TYPES = {
    "int8": "TW_INT8",
    "uint8": "TW_UINT8",
    "bool": "TW_UINT8",
    "int16": "TW_INT16",
    "int32": "TW_INT32",
    "int64": "TW_INT64",
    "float32": "TW_FLOAT32",
}


def type_of(x: Value | AnyArray) -> str:
    """The C constant for the dtype of an array. Raises `UnsupportedError` for a dtype that kernels do not know."""
    if str(x.dtype) not in _TYPES:
        raise UnsupportedError(f"an array is {x.dtype}; C kernels compute with {', '.join(_TYPES)}")
    return _TYPES[str(x.dtype)]


class Statement(NamedTuple):
    """A call of `function` with C expressions. A `checked` one returns 0 for input values that are not allowed."""

    function: str
    arguments: tuple[str, ...]
    checked: bool = False

    def __str__(self) -> str:
        text = f"{self.function}({', '.join(self.arguments)})"
        return f"if (!{text}) return TW_BAD_INPUT;" if self.checked else f"{text};"


@dataclass(frozen=True)
class Call:
    """A host step in C: runtime/c/hostcalls.py says how its parts are used."""

    statements: tuple[Statement, ...]
    data: dict[str, AnyArray]
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

    statements: list[Statement] = field(default_factory=list[Statement])
    data: dict[str, AnyArray] = field(default_factory=dict[str, AnyArray])
    top: int = 0  # bytes of the scratch memory in use
    most: int = 0  # largest `top` of the step

    def call(self, function: str, *arguments: str | int, checked: bool = False) -> None:
        """Add a statement."""
        self.statements.append(Statement(function, tuple(map(str, arguments)), checked))

    def array(self, hint: str, values: AnyArray | Ints, dtype: str = "int32") -> str:
        """The name of a constant array of `dtype`, flat; equal arrays have equal names, in every step.

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

    def walk(self, shape: Ints, *steps: Ints) -> str:
        """The name of a plan for `tw_next` through `shape`; each operand moves by its steps along each dimension."""
        return self.plan(merged(shape, steps))

    def plan(self, rows: Sequence[Ints]) -> str:
        """The name of a plan of (size, steps of each operand), innermost first.

        Raises `UnsupportedError` for more than `RANK`.
        """
        if len(rows) > RANK:
            raise UnsupportedError(f"its arrays are walked in {len(rows)} dimensions, at most {RANK} are possible in C")
        return self.array("walk", [len(rows), *(v for row in rows for v in row)])


Translation = Callable[[Writer, Sequence[Value], Value, Attrs], None]
"""Writes the statements that compute an output from inputs, with all attributes of a step."""


@dataclass(frozen=True)
class C:
    """A call of the C function `function` whose arguments are named by words.

    | word | argument |
    |---|---|
    | `inputs`, `typed` | pointers of all inputs; each followed by its type |
    | `x` (first input), `x1`, `x2`, `out` | pointer; `x_type` is its type, `x_width` the bytes of an element |
    | `size` | elements of the output |
    | `walk`, `matrices` | plan through the elements of all inputs; through their matrices |
    | `rows`, `planes` | (rows, elements of a row) of the first input; images times channels |
    | `along` | `along` of the attribute `axis` |
    | `kept`, `gone`, `gone_count` | `reduction` over the attribute `axes` |
    | `once` | 1 where the attribute `contract` is `single`, else 0 |
    | `numbers` | constant array of the words in `numbers` |
    | an attribute | its number, or a constant array; `name_type` is the array's type, `a+b` two arrays as one |
    | `x.shape.1:`, `out.shape.0`, `pads.:2` | sizes of the first input or the output, values of an attribute |

    Any other word is passed as it is. A `checked` function returns 0 for input values that are not allowed.
    """

    function: str
    arguments: str
    numbers: str = ""
    checked: bool = False

    def __call__(self, w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
        """Write the call."""
        found = [text for word in self.arguments.split() for text in self._argument(word, w, inputs, output, a)]
        w.call(self.function, *found, checked=self.checked)

    def _argument(self, word: str, w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> Sequence[str | int]:
        x = inputs[0]
        arrays: dict[str, Value] = {"x": x, "out": output} | {f"x{k}": v for k, v in enumerate(inputs)}
        name, _, part = word.partition(".")
        stem, _, fact = word.rpartition("_")
        if part and (name in arrays or name in a):
            return _sizes(arrays[name].shape if name in arrays else getattr(a[name], "shape", a[name]), part)
        if word in arrays:
            return [arrays[word].pointer]
        if fact == "type" and (stem in arrays or stem in a):
            return [type_of(arrays[stem] if stem in arrays else a[stem])]
        if fact == "width" and stem in arrays:
            return [arrays[stem].width]
        if "+" in word and word.split("+")[0] in a:
            return [w.array(word.replace("+", "_"), np.concatenate([a[key] for key in word.split("+")]))]
        match word:
            case "inputs":
                return [v.pointer for v in inputs]
            case "typed":
                return [text for v in inputs for text in (v.pointer, type_of(v))]
            case "size":
                return [output.size]
            case "walk":
                return [w.walk(output.shape, *(spread(v.shape, output.shape) for v in inputs))]
            case "matrices":
                around = output.shape[:-2]
                return [w.walk(around, *(spread(v.shape[:-2], around, math.prod(v.shape[-2:])) for v in inputs))]
            case "rows":
                return [math.prod(x.shape[:-1]), x.shape[-1]]
            case "planes":
                return [math.prod(x.shape[:2])]
            case "along":
                return along(x, a["axis"])
            case "kept" | "gone" | "gone_count":
                return [reduction(w, x, a["axes"])[("kept", "gone", "gone_count").index(word)]]
            case "once":
                return [int(a["contract"] == "single")]
            case "numbers":
                words = self.numbers.split()
                values = (v for one in words for v in self._number(one, w, inputs, output, a))
                return [w.array("numbers", [*values])]
            case _:
                return [constant(w, word, a[word]) if word in a else word]

    def _number(self, word: str, w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> Iterable[int]:
        """The integers of a word of `numbers`; a list attribute gives all of its own."""
        if word in a:
            values: list[int] = np.reshape(a[word], -1).tolist()
            return values
        return map(int, self._argument(word, w, inputs, output, a))


def _sizes(values: Ints, part: str) -> Sequence[int]:
    """Values of a shape or list: `shape` are all, `.2` is one, `.:2` are the first two, `.2:` all from number 2 on."""
    first, colon, last = part.removeprefix("shape").removeprefix(".").partition(":")
    return values[int(first or 0) : int(last) if last else None] if colon or not first else [values[int(first)]]


def constant(w: Writer, name: str, value: AnyArray | float) -> str | int:
    """An attribute as a C expression: a number, or the name of a constant array."""
    if isinstance(value, np.ndarray):
        return w.array(name, value, "int32" if value.dtype == np.int64 else str(value.dtype))
    if isinstance(value, float):
        return real(value)
    return "INT32_MIN" if value == INT32_MIN else int(value)


def merged(shape: Ints, steps: Sequence[Ints]) -> list[tuple[int, ...]]:
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


def strides(shape: Ints, unit: int = 1) -> list[int]:
    """Distance of neighbours along each dimension, in elements, or in bytes with `unit` bytes of an element."""
    return [unit * math.prod(shape[k + 1 :]) for k in range(len(shape))]


def spread(shape: Ints, onto: Ints, unit: int = 1) -> list[int]:
    """`strides` of an array of `shape` that broadcasts to `onto`: 0 along dimensions in which it is repeated."""
    own = [0 if n == 1 else step for n, step in zip(shape, strides(shape, unit))]
    return [0] * (len(onto) - len(shape)) + own


def along(x: Value, axis: int) -> tuple[int, int, int]:
    """Numbers of elements before the axis, along it, and after it."""
    return math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])


def reduction(w: Writer, x: Value, axes: Ints) -> tuple[str, str, int]:
    """(plan through the dimensions that stay, plan through `axes`, elements of `axes`)."""
    steps = strides(x.shape)
    kept, gone = ([k for k in range(len(x.shape)) if (k in axes) == inside] for inside in (False, True))
    first, second = (w.walk([x.shape[k] for k in some], [steps[k] for k in some]) for some in (kept, gone))
    return first, second, math.prod(x.shape[k] for k in gone)


T = TypeVar("T")


def known_function(op: str, name: str, functions: Mapping[str, T], dtype: str) -> T:
    """The entry of a function in C. Raises `UnsupportedError` for a name that is not among `functions`."""
    if name not in functions:
        raise UnsupportedError(
            f"function {name!r} of {dtype} in host operator {op!r} has no C kernel; run the program with Python"
        )
    return functions[name]
