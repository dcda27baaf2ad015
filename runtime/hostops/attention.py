"""Operators of transformers in integers: matrix products, norms, rotations, and attention over caches.

`R` is the rounding of hw/rounding.py, contract double unless `contract` is given. An operator with a position computes
a block of T consecutive tokens of a text: the position is int32 (1,), n, and row k is token n * T + k, counted from 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...hw.errors import InputError, UnsupportedError
from ...hw.rounding import quantize_multiplier, requantise, rescale
from ..schema import SIZE, Array, Int, Kind, ListOf
from .arrays import AnyArray, Attrs, Int8, Int16, Int32, Int64, Ints
from .c_calls import C, Value, Writer, spread, strides
from .int16 import SHORT_BITS, short_rescale
from .movement import copy_whole
from .roots import HIGH, LOW, ROOT_BITS, inverse_root
from .row import TWO_SCALES, WIDE, HostOp, Operand, Operands, multiplied, need

ROTATION_BITS = 14  # fractional bits of the cosines and sines of `rotate`
TURN = quantize_multiplier(2.0**-ROTATION_BITS)  # (multiplier, exponent) of R after a rotation
SCORE_STEPS = 40  # scores of `attention` are multiples of 1 / SCORE_STEPS
LARGEST_WEIGHT = 127  # weight of the largest score of `attention`
WEIGHTS = np.round(LARGEST_WEIGHT * np.exp((np.arange(-128, 128) - 127) / SCORE_STEPS)).astype(np.int32)
UNSEEN = -(128 << 20)  # added to the scores of later tokens, so that their weights are 0
LARGEST_SCORE = 1 << 26  # bound of all scores, below which UNSEEN suffices
MEAN_BITS = 24  # fractional bits of the means of `attention`: means of values -127 to 127 fill int32
LARGEST_CONTEXT = 8192  # most positions of `attention`: a reciprocal then has four significant bits
_SMALL_SUM = 512  # context for which sums of weights, shifted left by 4, use all bits of `inverse_root`


def batch_matmul(
    x: AnyArray,
    y: AnyArray,
    *,
    zero_points: Ints,
    multiplier: int,
    exponent: int,
    transposed: bool = False,
    images: bool = False,
    contract: str = "double",
) -> AnyArray:
    """`clamp(zo + R(sum((x - zx) * (y - zy))))`: rows of `x` by columns of `y`, or by its rows if `transposed`.

    The dimensions before the last two broadcast. `zero_points` belong to x, y and the output. With `images` matrices
    are images of one row, (N, columns, 1, rows). R is contract double; of int16 `x`, by int16 or int8 `y`, it is
    `short_rescale`. The result has the type of `x`.
    """
    if images:
        x, y = (t[:, :, 0].swapaxes(1, 2) for t in (x, y))
    a, b = (t.astype(np.float64) - zero_points[k] for k, t in enumerate((x, y)))  # sums are exact below 2**53
    products = (a @ (b.swapaxes(-1, -2) if transposed else b)).astype(np.int64)
    scaled = (
        short_rescale(products, multiplier, exponent)
        if x.dtype == np.int16
        else rescale(products, multiplier, exponent, contract)
    )
    info = np.iinfo(x.dtype)
    result = np.clip(scaled + zero_points[2], info.min, info.max).astype(x.dtype)
    return np.ascontiguousarray(result.swapaxes(1, 2)[:, :, None]) if images else result


def squares_shift(width: int) -> int:
    """Bits by which a sum of `width` squares of int8 values is shifted right to be at most 2**20."""
    return max(0, math.ceil(math.log2(width)) + 14 - ROOT_BITS)


def rms_norm(x: Int8, *, multiplier: AnyArray, exponent: AnyArray) -> Int8:
    """int8 `clamp(R(x * r))`, r the `inverse_root` of the sum of squares along the last axis, D elements.

    The sum is shifted right by `squares_shift`. `multiplier` and `exponent` of R, (D,), contain the gains.
    """
    wide = x.astype(np.int64)
    squares = (wide * wide).sum(-1, keepdims=True) >> squares_shift(x.shape[-1])
    return requantise(wide * inverse_root(squares), multiplier, exponent, 0)


def rotate(x: Int8, position: Int32, *, cosine: Int16, sine: Int16) -> Int8:
    """Rotary embedding of int8 `x` (T, C * 2W): in each of C chunks element k of both halves are a pair, rotated.

    The angles of a row are row `position` of `cosine` and `sine`, int16 (positions, W) in Q1.14.
    """
    places = token_places(position, len(x), len(cosine), "the tables of angles")
    c, s = (angles[places][:, None].astype(np.int64) for angles in (cosine, sine))
    halves = x.reshape(len(x), -1, 2, cosine.shape[1]).astype(np.int64)
    first, second = halves[:, :, 0], halves[:, :, 1]
    rotated = np.stack([first * c - second * s, first * s + second * c], 2)
    return requantise(rotated, *TURN, 0).reshape(x.shape)


def write_rows(cache: Int8, rows: Int8, position: Int32) -> Int8:
    """`cache` (1, C, N, 1) with `rows` (T, C), each in place of its token's position modulo N."""
    places = int(position[0]) * len(rows) + np.arange(len(rows))
    cache[0, :, places % cache.shape[2], 0] = rows
    return cache


def write_columns(cache: Int8, block: Int8, position: Int32, *, tokens: int = 1) -> Int8:
    """`cache` (1, N, V, 1) with `block` (1, V, B, 1), transposed, in place of the B rows around the position.

    `tokens` is T, which divides B.
    """
    size = block.shape[2]
    first = int(token_places(position, tokens, cache.shape[1], "the cache")[0]) // size * size
    cache[0, first : first + size, :, 0] = block[0, :, :, 0].T
    return cache


def reciprocal_shifts(context: int) -> tuple[int, int, int]:
    """(left, down, right) for `reciprocal` over `context` positions.

    `((inverse_root(s << left) >> down)**2) >> right` is nearly 2**24 / s for a sum s of weights, and so little above it
    that a mean of values -127 to 127 stays within int32.
    """
    left = 4 - max(0, math.ceil(math.log2(context / _SMALL_SUM)))
    down = max(0, 3 - left)
    return left, down, 2 * ROOT_BITS - MEAN_BITS - left - 2 * down


def reciprocal(total: Int64, context: int) -> Int64:
    """About 2**24 / total for sums of weights, of which the largest is 127, over at most `context` positions."""
    left, down, right = reciprocal_shifts(context)
    root = inverse_root(total << left) >> down
    return (root * root) >> right


def attention(
    queries: Int8,
    keys: Int8,
    values: Int8,
    position: Int32,
    *,
    key_groups: Ints,
    value_groups: Ints,
    seen: int,
    multipliers: Ints,
    exponents: Ints,
) -> Int8:
    """int8 (T, R * V): means of `values` (1, N, V, 1) weighted by exponentials of queries times `keys` (1, 2W, N, 1).

    `queries` (T, R * 2W) are R chunks per token; a chunk and a key have two halves of W lanes, and lane k of each half
    belongs to group `key_groups[k]`, lane k of a value to `value_groups[k]`; -1 is padding. The lanes of a group in a
    chunk are one query. The first `seen` positions are read; tokens after that of a row have weight 0. The first
    multiplier and exponent give scores in steps of 1/40, the second give the output.
    """
    places = token_places(position, len(queries), seen, "the positions that are read")
    width, context = keys.shape[1], keys.shape[2]
    chunks = queries.reshape(len(queries), -1, width).astype(np.float64)  # products are exact: sums are below 2**53
    k, v = keys[0, :, :seen, 0].astype(np.float64), values[0, :seen, :, 0].astype(np.float64)
    lanes, outputs = np.tile(np.asarray(key_groups), 2), np.asarray(value_groups)
    unseen = np.where(np.arange(seen) > places[:, None], UNSEEN, 0)[:, None]
    means = np.zeros((*chunks.shape[:2], values.shape[2]), np.int64)
    for group in sorted(set(value_groups) - {-1}):
        of_keys, of_values = lanes == group, outputs == group
        scores = rescale((chunks[..., of_keys] @ k[of_keys]).astype(np.int64), multipliers[0], exponents[0]) + unseen
        below = scores - scores.max(-1, keepdims=True) + LARGEST_WEIGHT
        weights = WEIGHTS[np.clip(below, -128, 127) + 128]
        sums = (weights @ v[:, of_values]).astype(np.int64)
        means[..., of_values] = sums * reciprocal(weights.sum(-1, keepdims=True, dtype=np.int64), context)
    return requantise(means, multipliers[1], exponents[1], 0).reshape(len(queries), -1)


def token_places(position: Int32, tokens: int, size: int, what: str) -> Int64:
    """Positions of the tokens of block number `position`. Raises `InputError` for one outside `what`, of `size`."""
    first = int(position[0]) * tokens
    if not 0 <= first <= size - tokens:
        outside = first if first < 0 else max(first, size)
        raise InputError(f"position {outside} is not in {what}, which end at {size - 1}; reset the state")
    return first + np.arange(tokens)


def _batch_multiplied(inputs: Operands, a: Attrs) -> Operand:
    (x, dtype, _), (y, second, _) = inputs
    need(second in ("int8", dtype), f"inputs are {dtype} and {second}: the second must be int8, or as the first")
    need(
        dtype == "int8" or a["exponent"] < SHORT_BITS, f"exponent = {a['exponent']}: of int16 at most {SHORT_BITS - 1}"
    )
    if a["images"]:
        need(all(len(s) == 4 and s[2] == 1 for s in (x, y)), f"inputs {[x, y]} are not images of one row")
        matrices = [Operand((s[0], s[3], s[1]), each) for s, each in ((x, dtype), (y, second))]
        (count, rows, columns), *_ = _batch_multiplied(matrices, a | {"images": False})
        return Operand((count, columns, 1, rows), dtype)
    y = (*y[:-2], *y[:-3:-1]) if a["transposed"] else y
    return multiplied([Operand(x, dtype), Operand(y, second)], a)


def _normed(inputs: Operands, a: Attrs) -> Operand:
    shape, given = inputs[0].shape, [a["multiplier"].shape, a["exponent"].shape]
    need(given == [shape[-1:]] * 2, f"multiplier and exponent {given}: the input is {shape}")
    return inputs[0]


def _placed(inputs: Operands) -> list[tuple[int, ...]]:
    """Shapes of the inputs before the last, which must be a position."""
    *values, position = inputs
    need(position[:2] == ((1,), "int32"), f"the position is {position.dtype} {position.shape}: must be int32 (1,)")
    wrong = [x.dtype for x in values if x.dtype != "int8"]
    need(not wrong, f"an input is {wrong[:1]}: must be int8")
    return [x.shape for x in values]


def _expect_cache(cache: tuple[int, ...]) -> None:
    need(len(cache) == 4 and cache[::3] == (1, 1), f"a cache is {cache}: must have 4 dimensions, of 1 at both ends")


def _rotated(inputs: Operands, a: Attrs) -> Operand:
    (shape,), angles = _placed(inputs), [a["cosine"].shape, a["sine"].shape]
    need(angles[0] == angles[1], f"cosine and sine {angles} differ in shape")
    width = 2 * angles[0][1]
    need(len(shape) == 2 and width > 0, f"input {shape}, angles {angles[0]}: must be (tokens, chunks)")
    need(shape[0] <= angles[0][0], f"input {shape} has more tokens than the {angles[0][0]} positions of the angles")
    need(shape[1] % width == 0, f"input {shape} has no chunks of {width}, twice the angles")
    return Operand(shape, "int8")


def _with_rows(inputs: Operands, a: Attrs) -> Operand:
    cache, rows = _placed(inputs)
    _expect_cache(cache)
    need(len(rows) == 2 and rows[1] == cache[1] and rows[0] <= cache[2], f"rows {rows} do not fit {cache}")
    return Operand(cache, "int8")


def _with_columns(inputs: Operands, a: Attrs) -> Operand:
    cache, block = _placed(inputs)
    _expect_cache(cache)
    _expect_cache(block)
    need(block[1] == cache[2] and cache[1] % block[2] == 0, f"block {block} does not fit {cache}")
    tokens = a["tokens"]
    need(block[2] % tokens == 0, f"tokens = {tokens}: the block has {block[2]} positions")
    return Operand(cache, "int8")


def _attended(inputs: Operands, a: Attrs) -> Operand:
    queries, keys, values = _placed(inputs)
    _expect_cache(keys)
    _expect_cache(values)
    need(values[1] == keys[2] <= LARGEST_CONTEXT, f"keys {keys}, values {values}: at most {LARGEST_CONTEXT} positions")
    need(a["seen"] <= keys[2], f"seen = {a['seen']}: the cache has {keys[2]} positions")
    lanes, outputs = a["key_groups"], a["value_groups"]
    need(2 * len(lanes) == keys[1], f"key_groups has {len(lanes)} lanes: must have half of {keys}")
    need(len(outputs) == values[2], f"value_groups has {len(outputs)} lanes: values are {values}")
    unknown = set(outputs) - set(lanes) - {-1}
    need(not unknown, f"value_groups has {sorted(unknown)[:1]}, which key_groups has not")
    need(
        len(queries) == 2 and queries[1] % keys[1] == 0, f"queries {queries} have no chunks of {keys[1]}, a key's lanes"
    )
    need(queries[0] <= a["seen"], f"queries {queries} are of more tokens than the {a['seen']} positions that are read")
    tokens, chunks = queries[0], queries[1] // keys[1]
    return Operand((tokens, chunks * values[2]), "int8", tokens * chunks * a["seen"])


def _matrices(shape: Ints, images: bool) -> tuple[list[int], list[int], list[int], list[int]]:
    """Of an array of matrices: shape and steps of the outer dimensions, then of (rows, columns)."""
    steps = strides(shape)
    if images:
        return [shape[0]], [steps[0]], [shape[3], shape[1]], [steps[3], steps[1]]
    return [*shape[:-2]], steps[:-2], [*shape[-2:]], steps[-2:]


def _batch_matmul_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """A walk through the matrices; the numbers have steps of rows, columns and multiplied elements within them."""
    (x_count, _, x_size, x_step), (y_count, _, y_size, y_step), (count, _, size, step) = (
        _matrices(v.shape, a["images"]) for v in (*inputs, output)
    )
    if a["transposed"]:
        y_step = y_step[::-1]
    sizes = (x_count, x_size), (y_count, y_size), (count, size)
    plan = w.walk(count, *(spread(around, count, math.prod(inner)) for around, inner in sizes))
    numbers = [*size, x_size[1], *x_step, y_step[1], y_step[0], *step]
    numbers += [*a["zero_points"], a["multiplier"], a["exponent"], int(a["contract"] == "single")]
    x, y = (v.pointer for v in inputs)
    w.call("tw_batch_matmul", x, y, output.pointer, plan, w.array("numbers", numbers))


def _roots(w: Writer) -> str:
    return w.array("roots", np.concatenate([HIGH, LOW]))


def _rms_norm_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    shift = squares_shift(inputs[0].shape[-1])
    C("tw_rms_norm", f"x out rows {shift} {_roots(w)} multiplier+exponent")(w, inputs, output, a)


def _need_one_token(tokens: int) -> None:
    if tokens > 1:
        raise UnsupportedError(f"a block of {tokens} tokens has no C kernel; compile a network of one token at a time")


def _rotate_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    _need_one_token(inputs[0].shape[0])
    scale = w.array("scale", TURN)
    arguments = f"inputs out size cosine.shape.1 cosine.shape.0 cosine sine {scale}"
    C("tw_rotate", arguments, checked=True)(w, inputs, output, a)


def _write_rows_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """A copy of the cache, unless it is written in place, then the row."""
    _need_one_token(inputs[1].shape[0])
    copy_whole(w, inputs[0], output)
    C("tw_write_rows", "x1 x2 out out.shape.1:3")(w, inputs, output, a)


def _write_columns_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """A copy of the cache, unless it is written in place, then the block."""
    _need_one_token(a["tokens"])
    copy_whole(w, inputs[0], output)
    C("tw_write_columns", "x1 x2 out out.shape.1:3 x1.shape.2", checked=True)(w, inputs, output, a)


def _attention_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """The scratch memory holds the scores of one query, then its weights."""
    queries, keys, values, _ = inputs
    _need_one_token(queries.shape[0])
    width, context = keys.shape[1:3]
    groups = sorted({*a["value_groups"]} - {-1})
    numbers = [queries.size // width, width, context, values.shape[2], a["seen"], *a["multipliers"], *a["exponents"]]
    numbers += [*reciprocal_shifts(context), len(groups), *groups, *a["key_groups"], *a["value_groups"]]
    pointers = [v.pointer for v in (*inputs, output)]
    tables = w.array("weights", WEIGHTS, "int8"), _roots(w)
    call = *pointers, w.scratch(4 * a["seen"]), w.array("numbers", numbers), *tables
    w.call("tw_attention", *call, checked=True)


_PER_ELEMENT = {"multiplier": Array(1, ("int64",), 0, (1 << 31) - 1), "exponent": Array(1, ("int64",), -32, 31)}
_ANGLES: dict[str, Kind] = dict.fromkeys(("cosine", "sine"), Array(2, ("int16",)))
_GROUPS = dict.fromkeys(("key_groups", "value_groups"), ListOf(Int(-1)))
_PLACED = ("int8", "int32")  # the last input is a position

ROWS = (
    HostOp(batch_matmul, _batch_multiplied, {}, WIDE, count=2, c=_batch_matmul_in_c, narrow=True),
    HostOp(rms_norm, _normed, _PER_ELEMENT, c=_rms_norm_in_c),
    HostOp(rotate, _rotated, _ANGLES, _PLACED, count=2, c=_rotate_in_c),
    HostOp(write_rows, _with_rows, {}, _PLACED, count=3, c=_write_rows_in_c, overwrites=True),
    HostOp(write_columns, _with_columns, {"tokens": SIZE}, _PLACED, count=3, c=_write_columns_in_c, overwrites=True),
    HostOp(attention, _attended, {**_GROUPS, **TWO_SCALES, "seen": SIZE}, _PLACED, count=4, c=_attention_in_c),
)
