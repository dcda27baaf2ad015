"""Operators that the host computes between launches, on numpy arrays, by name.

A host step of an executable names one of `HOST_OPS`; it is called with the step's input arrays and its attributes
(JSON values and constant arrays), and returns the step's outputs. Each is an ordinary function: arrays are
positional arguments, attributes keyword arguments. Its row in `HOST_OPS` says what these may be, and what the result
is (runtime/hostshapes.py): a step that does not comply is refused before anything runs. Activations are NCHW or
(N, features). The arithmetic is that of runtime/operators.py and runtime/softmax.py, which the compiler's reference
interpreter calls through the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature

import numpy as np

from ..hw.errors import InputError, ProgramError
from ..hw.rounding import CONTRACTS
from . import layout as layouts
from . import operators
from .floats.rows import FLOAT_ROWS
from .hostshapes import (
    Operand,
    Rule,
    accumulated,
    as_dtype,
    averaged,
    concatenated,
    conv_transposed,
    convolved,
    dense,
    dense_rows,
    filtered,
    folded,
    joined,
    looked_up,
    lstm_steps,
    packed,
    padded,
    per_channel,
    pooled,
    recoded,
    reduced,
    reshaped,
    sliced,
    softmaxed,
    together,
    transposed,
    unpacked,
    unpacked_softmaxed,
)
from .kernels import recurrent
from .kernels.rows import KERNEL_ROWS
from .schema import MOST, SHAPE, SIZE, Anything, Array, Flag, Int, Kind, ListOf, OneOf, Real, check_fields, shown
from .softmax import softmax
from .steps import DTYPES

# The float32 before 0.5: a tie and this make a whole number, as float32 rounds their sum, but this and this do not.
_BELOW_HALF = np.nextafter(np.float32(0.5), np.float32(0))


def quantize(x: np.ndarray, *, scale: float, zero_point: int, ties_away: bool = False) -> np.ndarray:
    """int8 `clamp(round(x / scale) + zero_point, -128, 127)`, divided in float32.

    Ties go to the even value, as in ONNX, or away from zero. Raises `InputError` for values that are not numbers.
    """
    if np.isnan(x).any():
        raise InputError("the input holds NaN, which has no int8 value")
    with np.errstate(over="ignore"):  # the largest numbers are clamped like those that are not finite
        q = np.asarray(x, np.float32) / np.float32(scale)
    q = np.trunc(q + np.copysign(_BELOW_HALF, q)) if ties_away else np.rint(q)
    return np.clip(q + zero_point, -128, 127).astype(np.int8)


def expect_numbers(flags: np.ndarray) -> np.ndarray:
    """`flags`, which a launch made of float32 values. Raises `InputError` unless all are 0: a value is no number."""
    if flags.any():
        raise InputError("the input holds NaN, which has no int8 value")
    return flags


def dequantize(q: np.ndarray, *, scale: float, zero_point: int) -> np.ndarray:
    """float32 `(q - zero_point) * scale`."""
    return (q.astype(np.int32) - zero_point).astype(np.float32) * np.float32(scale)


def recode(x: np.ndarray) -> np.ndarray:
    """uint8 `x` as int8, 128 subtracted; int8 `x` as uint8, 128 added."""
    return (x.view(np.uint8) ^ np.uint8(128)).view(np.int8 if x.dtype == np.uint8 else np.uint8)


def pad(x: np.ndarray, *, pads: Sequence[Sequence[int]], value: float) -> np.ndarray:
    """`x` with `value` around it; `pads` holds (before, after) per dimension."""
    return np.pad(x, [tuple(pair) for pair in pads], constant_values=value)


def reshape(x: np.ndarray, *, shape: Sequence[int]) -> np.ndarray:
    """The same elements in another shape."""
    return x.reshape(shape)


def transpose(x: np.ndarray, *, axes: Sequence[int]) -> np.ndarray:
    """Dimension k of the result is dimension `axes[k]` of `x`."""
    return np.ascontiguousarray(x.transpose(axes))


def concatenate(*arrays: np.ndarray, axis: int) -> np.ndarray:
    """The arrays, joined along `axis`."""
    return np.concatenate(arrays, axis)


def strided_slice(x: np.ndarray, *, begin: Sequence[int], strides: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """`result[i] = x[begin + i * stride]` in every dimension; strides may be negative."""
    indices = [first + step * np.arange(n) for first, step, n in zip(begin, strides, shape)]
    return x[np.ix_(*indices)]


def pack(x: np.ndarray, *, batch: int, block: int, layout: str = "NCHW") -> np.ndarray:
    """Activations, 4 or 2 dimensions, in the accelerator's layout; see runtime/layout.py.

    Images may be NHWC: their channels are then dimension 3.
    """
    return layouts.pack_blocks(x.transpose(0, 3, 1, 2) if layout == "NHWC" else x, batch, block)


def unpack(packed: np.ndarray, *, n: int, c: int, shape: Sequence[int], layout: str = "NCHW") -> np.ndarray:
    """Activations of `shape` from `packed`: `n` images of `c` channels in the accelerator's layout.

    Images come out in the order of `layout`, before their shape changes.
    """
    return layouts.unpack_blocks(packed, c, n, layout).reshape(shape)


def unpack_planes(planes: np.ndarray, *, n: int, c: int, shape: Sequence[int]) -> np.ndarray:
    """Integers of `shape` from planes of their bytes, lowest first, in the accelerator's layout: `n` rows of `c`.

    Two planes make int16, more int32.
    """
    return layouts.unpack_blocks(layouts.joined_planes(planes), c, n).reshape(shape)


def unpack_softmax(
    packed: np.ndarray,
    *,
    n: int,
    c: int,
    shape: Sequence[int],
    axis: int,
    multiplier: int,
    exponent: int,
    bits: int = 8,
) -> np.ndarray:
    """`softmax` of what `unpack` gives, in one call."""
    x = unpack(packed, n=n, c=c, shape=shape)
    return softmax(x, axis=axis, multiplier=multiplier, exponent=exponent, bits=bits)


def accumulators(*planes: np.ndarray, n: int, c: int) -> np.ndarray:
    """int32 activations (n, c, ...) from the four packed byte planes, lowest first, that a program stored."""
    return layouts.unpack_blocks(layouts.planes_to_int32(planes), c, n)


def chain(x: np.ndarray, *, stages: Sequence[Sequence], tables: np.ndarray | None = None) -> np.ndarray:
    """`x` through operators of one input, each on the result of the one before it: (name, attributes) of each.

    The table of a `lookup` is a row of `tables`, int8 (number, 256).
    """
    for name, attrs in stages:
        (x,) = HOST_OPS[name]([x], _with_table(name, attrs, tables))
    return x


def _with_table(name: str, attrs: dict, tables: np.ndarray | None) -> dict:
    """The attributes of a stage: a lookup's number of a table replaced by the table. Raises `ProgramError`."""
    if name != "lookup":
        return attrs
    number, count = attrs.get("table"), 0 if tables is None else len(tables)
    if tables is None or type(number) is not int or not 0 <= number < count:
        raise ProgramError(f"table = {shown(number)}: must be the number of one of its {count} tables")
    return attrs | {"table": tables[number]}


def _chained(inputs: Sequence[Operand], a: dict) -> Operand:
    """The result of the last stage; what is made on the way is scratch."""
    found, scratch = inputs[0], 0
    for k, stage in enumerate(a["stages"]):
        known = isinstance(stage, (list, tuple)) and len(stage) == 2 and isinstance(stage[1], dict)
        if not known or stage[0] not in STAGES:
            raise ProgramError(
                f"stages: number {k}, {shown(stage)}, must be [operator, attributes], one of {', '.join(STAGES)}"
            )
        found = HOST_OPS[stage[0]].result([found], _with_table(stage[0], stage[1], a.get("tables")))
        scratch = max(scratch, found.scratch, math.prod(found.shape))
    return found._replace(scratch=scratch)


_INT8, _COUNTED = Int(-128, 127), DTYPES
_MULTIPLIER, _EXPONENT = Int(0, (1 << 31) - 1), Int(-32, 31)  # of hw/rounding.py
_INT32 = Int(-(1 << 31), (1 << 31) - 1)
_CLAMP: dict[str, Kind] = {"low": _INT8, "high": _INT8}
_CONTRACT: dict[str, Kind] = {"contract": OneOf(CONTRACTS)}
_SCALE: dict[str, Kind] = {"multiplier": _MULTIPLIER, "exponent": _EXPONENT}
_POINTS: dict[str, Kind] = {"x_zero_point": _INT8, "zero_point": _INT8}
_FLOAT32: dict[str, Kind] = {"scale": Real(2.0**-126, 2.0**127), "zero_point": _INT8}
_STRIDES: dict[str, Kind] = {"strides": ListOf(SIZE, 2)}
_PADS: dict[str, Kind] = {"pads": ListOf(Int(0), 4)}
_POOL: dict[str, Kind] = {"kernel": ListOf(SIZE, 2), **_STRIDES, **_CLAMP}
_THREE: dict[str, Kind] = {"zero_points": ListOf(_INT8, 3)}
_LAYOUT: dict[str, Kind] = {"layout": OneOf(("NCHW", "NHWC"))}
_BLOCKS: dict[str, Kind] = {"n": SIZE, "c": SIZE, "shape": SHAPE}
_SOFTMAX: dict[str, Kind] = {"axis": Int(0), "multiplier": _MULTIPLIER, "exponent": Int(0, 31), "bits": OneOf((8, 16))}
_NUMBERS = ("int8", "int16", "int32", "int64")
_MULTIPLIERS, _EXPONENTS = Array(1, _NUMBERS, 0, (1 << 31) - 1), Array(1, _NUMBERS, -32, 31)  # per channel


def _weights(rank: int) -> dict[str, Kind]:
    return {"weight": Array(rank, ("int8", "int16"), -255, 255), "bias": Array(1, ("int32",)), "x_zero_point": _INT8}


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


CHECKS = ("expect_numbers",)  # operators that only refuse: they run although nothing reads what they give
# operators of one input that move values or compute each by itself (softmax: by row): what `chain` may hold
VALUE_BY_VALUE = ("quantize", "dequantize", "recode", "rescale", "rescale_integers", "lookup", "cast", "narrow")
LAYOUTS = ("reshape", "transpose", "take", "pack", "fold_windows", "unpack", "unpack_planes")
STAGES = (*VALUE_BY_VALUE, *LAYOUTS, "softmax", "unpack_softmax")

_GROWTH = 64  # times the elements of its operands is what an operator may hold on the way to its result,
_FREE = 1 << 20  # and so many more

HOST_OPS: dict[str, HostOp] = {
    op.function.__name__: op
    for op in (
        HostOp(quantize, as_dtype("int8"), _FLOAT32 | {"ties_away": Flag()}, ("float32",)),
        HostOp(expect_numbers, as_dtype("int8")),
        HostOp(dequantize, as_dtype("float32"), _FLOAT32, ("int8", "int16")),
        HostOp(recode, recoded, {}, ("int8", "uint8")),
        HostOp(pad, padded, {"pads": ListOf(ListOf(Int(0), 2)), "value": Real(-3.5e38, 3.5e38)}, _COUNTED),
        HostOp(reshape, reshaped, {"shape": SHAPE}, _COUNTED),
        HostOp(transpose, transposed, {"axes": ListOf(Int(0))}, _COUNTED),
        HostOp(concatenate, concatenated, {"axis": Int(0)}, _COUNTED, count=0),
        HostOp(
            strided_slice,
            sliced,
            {"begin": ListOf(Int(0)), "strides": ListOf(Int(-MOST)), "shape": SHAPE},
            _COUNTED,
        ),
        HostOp(pack, packed, {"batch": SIZE, "block": SIZE} | _LAYOUT, _COUNTED, (2, 4)),
        HostOp(
            layouts.fold_windows,
            folded,
            dict.fromkeys(("rows", "dilation", "step", "strips", "group", "entries", "block"), SIZE)
            | {"offsets": ListOf(Int(0)), "top": Int(0), "left": Int(0), "value": _INT8}
            | _LAYOUT,
            ranks=(4,),
        ),
        HostOp(unpack, unpacked, _BLOCKS | _LAYOUT, _COUNTED, (4, 6)),
        HostOp(unpack_planes, joined, _BLOCKS, ranks=(5,)),
        HostOp(unpack_softmax, unpacked_softmaxed, _BLOCKS | _SOFTMAX, ranks=(4, 6)),
        HostOp(accumulators, accumulated, {"n": SIZE, "c": SIZE}, ranks=(4, 6), count=4),
        HostOp(softmax, softmaxed, _SOFTMAX),
        HostOp(
            operators.conv2d_accumulators,
            convolved,
            _weights(4) | _STRIDES | _PADS | {"dilations": ListOf(SIZE, 2), "groups": SIZE},
            ranks=(4,),
        ),
        HostOp(
            operators.conv_transpose2d_accumulators,
            conv_transposed,
            _weights(4) | _STRIDES | {"pads": ListOf(Int(-MOST), 4)},
            ranks=(4,),
        ),
        HostOp(operators.dense_accumulators, dense, _weights(2), ranks=(2,)),
        HostOp(
            operators.requantise,
            per_channel,
            {
                "multiplier": _MULTIPLIERS,
                "exponent": _EXPONENTS,
                "zero_point": _INT8,
            }
            | _CLAMP
            | _CONTRACT,
            ("int32",),
            (2, 3, 4),
        ),
        HostOp(operators.rescale, as_dtype("int8"), _POINTS | _SCALE | _CLAMP),
        HostOp(
            operators.add,
            together,
            {"multipliers": ListOf(_MULTIPLIER, 3), "exponents": ListOf(_EXPONENT, 3)}
            | _THREE
            | _CLAMP
            | {"sign": OneOf((-1, 1)), "shift": Int(0, 22)},
            count=2,
        ),
        HostOp(operators.multiply, together, _THREE | _SCALE | _CLAMP, count=2),
        HostOp(operators.lookup, looked_up, {"table": Array(1, ("int8",))}),
        HostOp(operators.max_pool, pooled, _POOL | _PADS, ranks=(4,)),
        HostOp(operators.average_pool, pooled, _POOL | _POINTS | _SCALE | _CONTRACT, ranks=(4,)),
        HostOp(operators.exact_average_pool, averaged, _POOL | _PADS | {"ties_up": Flag()}, ranks=(4,)),
        HostOp(
            recurrent.dense_int16,
            dense_rows,
            _weights(2) | {"multiplier": _MULTIPLIERS, "exponent": _EXPONENTS, "dtype": OneOf(("int16", "int32"))},
            ranks=(2,),
        ),
        HostOp(
            recurrent.filter_int16,
            filtered,
            {"weight": Array(2, ("int16",)), "bias": Array(1, ("int32",)), "zero_point": _INT8} | _SCALE,
            ("int16",),
            (3,),
        ),
        HostOp(recurrent.narrow, as_dtype("int8"), {}, ("int16", "int32")),
        HostOp(
            recurrent.rescale_integers,
            lambda inputs, a: Operand(inputs[0].shape, a["dtype"]),
            {"x_zero_point": _INT32, "zero_point": _INT32, "dtype": OneOf(("int8", "int16", "int32"))} | _SCALE,
            ("int8", "int16", "int32"),
        ),
        HostOp(
            recurrent.lstm,
            lstm_steps,
            {"weight": Array(2, ("int8",)), "bias": Array(1, ("int32",)), "zero_point": _INT8}
            | {"gate_multiplier": _MULTIPLIERS, "gate_exponent": _EXPONENTS}
            | {"cell_bits": Int(0, 6), "clip": Int(0, (1 << 15) - 1), "coupled": Flag()}
            | _SCALE,
            ("int8", "int16"),
            (2, 3),
            3,
        ),
        HostOp(operators.mean, reduced, {"axes": ListOf(Int(0)), "shape": SHAPE} | _POINTS | _SCALE),
        HostOp(
            chain,
            _chained,
            {"stages": ListOf(Anything(), most=16), "tables": Array(2, ("int8",))},
            _COUNTED,
        ),
        *(HostOp(*row) for row in FLOAT_ROWS),
        *(HostOp(*row) for row in KERNEL_ROWS),
    )
}
