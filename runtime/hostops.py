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
from collections.abc import Sequence

import numpy as np

from ..hw.errors import InputError, ProgramError
from ..hw.rounding import CONTRACTS
from . import hostshapes as rules
from . import layout as layouts
from . import operators
from .floats.rows import FLOAT_ROWS
from .hostop import (
    AXES,
    CLAMP,
    INT8,
    MULTIPLIER,
    PADS,
    PER_CHANNEL,
    POOL,
    SCALE,
    STRIDES,
    THREE,
    UNIT,
    HostOp,
    scales,
    weights,
)
from .hostshapes import Operand
from .kernels.rows import KERNEL_ROWS
from .schema import MOST, SHAPE, SIZE, Anything, Array, Flag, Int, Kind, ListOf, OneOf, Real, shown
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


_CONTRACT: dict[str, Kind] = {"contract": OneOf(CONTRACTS)}
_POINTS: dict[str, Kind] = {"x_zero_point": INT8, "zero_point": INT8}
_FLOAT32: dict[str, Kind] = {"scale": UNIT, "zero_point": INT8}
_LAYOUT: dict[str, Kind] = {"layout": OneOf(("NCHW", "NHWC"))}
_BLOCKS: dict[str, Kind] = {"n": SIZE, "c": SIZE, "shape": SHAPE}
_SOFTMAX: dict[str, Kind] = {"axis": Int(0), "multiplier": MULTIPLIER, "exponent": Int(0, 31), "bits": OneOf((8, 16))}
_FOLD: dict[str, Kind] = {"offsets": ListOf(Int(0)), "top": Int(0), "left": Int(0), "value": INT8, **_LAYOUT}
_FOLD |= dict.fromkeys(("rows", "dilation", "step", "strips", "group", "entries", "block"), SIZE)
_SLICE: dict[str, Kind] = {"begin": ListOf(Int(0)), "strides": ListOf(Int(-MOST)), "shape": SHAPE}
_CONVOLUTION = weights(4) | STRIDES | PADS | {"dilations": ListOf(SIZE, 2), "groups": SIZE}
_TRANSPOSED = weights(4) | STRIDES | {"pads": ListOf(Int(-MOST), 4)}
_REQUANTISE = PER_CHANNEL | {"zero_point": INT8} | CLAMP | _CONTRACT
_ADD = scales(3) | THREE | CLAMP | {"sign": OneOf((-1, 1)), "shift": Int(0, 22)}

CHECKS = ("expect_numbers",)  # operators that only refuse: they run although nothing reads what they give
# operators of one input that move values or compute each by itself (softmax: by row): what `chain` may hold
VALUE_BY_VALUE = ("quantize", "dequantize", "recode", "rescale", "rescale_integers", "lookup", "cast", "narrow")
LAYOUTS = ("reshape", "transpose", "take", "pack", "fold_windows", "unpack", "unpack_planes")
STAGES = (*VALUE_BY_VALUE, *LAYOUTS, "softmax", "unpack_softmax")

HOST_OPS: dict[str, HostOp] = {
    op.function.__name__: op
    for op in (
        HostOp(quantize, rules.as_dtype("int8"), _FLOAT32 | {"ties_away": Flag()}, ("float32",)),
        HostOp(expect_numbers, rules.as_dtype("int8")),
        HostOp(dequantize, rules.as_dtype("float32"), _FLOAT32, ("int8", "int16")),
        HostOp(recode, rules.recoded, {}, ("int8", "uint8")),
        HostOp(pad, rules.padded, {"pads": ListOf(ListOf(Int(0), 2)), "value": Real(-3.5e38, 3.5e38)}, DTYPES),
        HostOp(reshape, rules.reshaped, {"shape": SHAPE}, DTYPES),
        HostOp(transpose, rules.transposed, {"axes": ListOf(Int(0))}, DTYPES),
        HostOp(concatenate, rules.concatenated, {"axis": Int(0)}, DTYPES, count=0),
        HostOp(strided_slice, rules.sliced, _SLICE, DTYPES),
        HostOp(pack, rules.packed, {"batch": SIZE, "block": SIZE} | _LAYOUT, DTYPES, (2, 4)),
        HostOp(layouts.fold_windows, rules.folded, _FOLD, ranks=(4,)),
        HostOp(unpack, rules.unpacked, _BLOCKS | _LAYOUT, DTYPES, (4, 6)),
        HostOp(unpack_planes, rules.joined, _BLOCKS, ranks=(5,)),
        HostOp(unpack_softmax, rules.unpacked_softmaxed, _BLOCKS | _SOFTMAX, ranks=(4, 6)),
        HostOp(accumulators, rules.accumulated, {"n": SIZE, "c": SIZE}, ranks=(4, 6), count=4),
        HostOp(softmax, rules.softmaxed, _SOFTMAX),
        HostOp(operators.conv2d_accumulators, rules.convolved, _CONVOLUTION, ranks=(4,)),
        HostOp(operators.conv_transpose2d_accumulators, rules.conv_transposed, _TRANSPOSED, ranks=(4,)),
        HostOp(operators.dense_accumulators, rules.dense, weights(2), ranks=(2,)),
        HostOp(operators.requantise, rules.per_channel, _REQUANTISE, ("int32",), (2, 3, 4)),
        HostOp(operators.rescale, rules.as_dtype("int8"), _POINTS | SCALE | CLAMP),
        HostOp(operators.add, rules.together, _ADD, count=2),
        HostOp(operators.multiply, rules.together, THREE | SCALE | CLAMP, count=2),
        HostOp(operators.lookup, rules.looked_up, {"table": Array(1, ("int8",))}),
        HostOp(operators.max_pool, rules.pooled, POOL | CLAMP | PADS, ranks=(4,)),
        HostOp(operators.average_pool, rules.pooled, POOL | CLAMP | _POINTS | SCALE | _CONTRACT, ranks=(4,)),
        HostOp(operators.exact_average_pool, rules.averaged, POOL | CLAMP | PADS | {"ties_up": Flag()}, ranks=(4,)),
        HostOp(operators.mean, rules.reduced, AXES | _POINTS | SCALE),
        HostOp(chain, _chained, {"stages": ListOf(Anything(), most=16), "tables": Array(2, ("int8",))}, DTYPES),
        *FLOAT_ROWS,
        *KERNEL_ROWS,
    )
}
