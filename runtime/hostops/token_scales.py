"""Operators of language models whose values have a scale per token, found in each run, in exact integers.

The residual is int32, queries, keys and values are int16. The row of a token becomes 16 bits by a power of two, in two
int8 bytes, so that layers compute the sums of both with the same weights. The scale of a token is
`mantissa * 2**exponent`, int32 (T, 2) for T tokens, the mantissa at most 2**11. Positions and blocks of tokens are as
in attention.py.
"""

from __future__ import annotations

import numpy as np

from ...hw.errors import InputError
from ..schema import SIZE, Array, Int, Kind, OneOf
from .arrays import AnyArray, Attrs, Float32, Int8, Int16, Int32, Int64
from .attention import token_places
from .roots import ROOT_BITS, inverse_root
from .row import HostOp, Operand, Operands, need

MANTISSA_BITS = 15  # of multipliers
MOST_INPUTS = 8192  # of a layer: sums of both bytes, 256 times the high ones, then stay below 2**35
PAIR_BITS = 14  # fractional bits of the cosines and sines of `rotate_pairs`
SCORES_PER_UNIT = 256  # scores of `cache_attention` are multiples of 1 / SCORES_PER_UNIT
_LOW_BITS = 6  # of a score: the index into LOW_POWERS; the bits above it are the index into HIGH_POWERS
LOW_POWERS, HIGH_POWERS = (  # int64 (64,): exponentials of -k / 256 and of -k / 4, of 15 fractional bits
    np.round((1 << 15) * np.exp(-np.arange(64) / steps)).astype(np.int64)
    for steps in (SCORES_PER_UNIT, SCORES_PER_UNIT >> _LOW_BITS)
)
GATE_BITS = 12  # fractional bits of the gate where `gated_product` looks up its sigmoid, which is constant beyond +-16
_SIGMOID_STEP = 8  # bits of the gate between two entries of SIGMOID
SIGMOID = np.round((1 << 16) / (1 + np.exp(-np.arange(257) / 16))).astype(np.int64)  # sigmoid(k / 16), 16 bits


def scaled(x: Int64, exponent: AnyArray | int) -> Int64:
    """int64 `x * 2**exponent` of magnitudes up to 2**62, to the nearest integer, ties up; saturates beyond int32."""
    right, left = np.clip(-np.asarray(exponent, np.int64), 0, 62), np.clip(exponent, 0, 31)
    shifted: Int64 = (x + (np.left_shift(np.int64(1), right) >> 1)) >> right
    return np.clip(shifted, -(1 << 31), 1 << 31) << left


def _bits(x: Int64) -> Int64:
    """The number of bits of integers from 0 on."""
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)


def _of_16_bits(x: Int64, least: int) -> tuple[Int64, Int64]:
    """(int64 rows within +-32639, exponents (T, 1), at least `least`) whose product is nearly `x` (T, C).

    The high byte of such a value is no -128, when the low one is signed, too.
    """
    largest = np.abs(x).max(-1, keepdims=True)
    exponent = np.maximum(_bits(largest + (largest >> 7)) - 15, least)
    return scaled(x, -exponent), exponent


def _times_gains(x: AnyArray, gain: Int16 | None) -> tuple[Int64, Int64, Int64, Int64]:
    """(rows times the gains in 16 bits, their exponents, rows before it in 16 bits, their exponents)."""
    rows, before = _of_16_bits(x.astype(np.int64), 0)
    values, exponent = _of_16_bits(rows if gain is None else rows * gain, -15)
    return values, exponent, rows, before


def token_bytes(x: AnyArray, *, gain: Int16 | None = None) -> Int8:
    """int8 (1, C, 2 * T, 1): rows of `x` (T, C), int16 or int32, times `gain`, in 16 bits: high bytes, then low ones.

    A value is 256 times the high byte plus the low one, both signed. The largest of a row is from 2**14 on.
    """
    values = _times_gains(x, gain)[0]
    high = (values + 128) >> 8
    both = np.concatenate([high, values - 256 * high]).astype(np.int8)
    return np.ascontiguousarray(both.T[None, :, :, None])


def token_scales(x: AnyArray, *, gain: Int16 | None = None, epsilon: int = 0) -> Int32:
    """int32 (T, 2): the scales of `token_bytes` of `x` (T, C).

    With `gain` they are divided by the root of the sum of squares of `x`, to which `epsilon` is added, and multiplied
    by 2**20.
    """
    _, exponent, rows, before = _times_gains(x, gain)
    if gain is None:
        return np.concatenate([np.ones_like(exponent), exponent + before], -1).astype(np.int32)
    squares = np.maximum((rows * rows).sum(-1, keepdims=True) + (epsilon >> np.minimum(2 * before, 62)), 1)
    half = (_bits(squares) - ROOT_BITS + 1) // 2
    root = inverse_root((squares >> np.maximum(2 * half, 0)) << np.maximum(-2 * half, 0))
    return np.concatenate([root, exponent - half], -1).astype(np.int32)


def _sums_of_values(acc: Int32) -> Int64:
    """int64 (T, C): the sums of values from those of their bytes (1, C, 2 * T, 1)."""
    high, low = np.split(acc[0, :, :, 0].T.astype(np.int64), 2)
    return 256 * high + low


def scale_token_sums(
    acc: Int32, scales: Int32, *residual: Int32, multiplier: Int32, exponent: Int32, bias: Int32, dtype: str
) -> AnyArray:
    """int16 or int32 (T, C): sums of bytes (1, C, 2 * T, 1) times the tokens' `scales` and the channels', plus `bias`.

    A channel's scale is `multiplier * 2**exponent`. A `residual` (T, C) is added. Results saturate.
    """
    factors = scales[:, :1].astype(np.int64) * multiplier
    y = scaled(_sums_of_values(acc) * factors, scales[:, 1:].astype(np.int64) + exponent)
    y = np.clip(y, -(1 << 31), (1 << 31) - 1) + bias + (residual[0].astype(np.int64) if residual else 0)
    info = np.iinfo(dtype)
    return np.clip(y, info.min, info.max).astype(dtype)


def token_logits(acc: Int32, scales: Int32, *, scale: Float32) -> Float32:
    """float32 (T, C): sums of bytes (1, C, 2 * T, 1) times the tokens' `scales`, times `scale`, in float64.

    They are rounded to float32 at the end.
    """
    of_tokens = np.ldexp(scales[:, :1].astype(np.float64), scales[:, 1:])
    return (_sums_of_values(acc) * of_tokens * scale.astype(np.float64)).astype(np.float32)


def embed_tokens(tokens: Int32, *, table: Int8, multiplier: Int32, exponent: Int32) -> Int32:
    """int32 (T, C): rows `tokens` of `table` (words, C), times `multiplier * 2**exponent` of the row.

    Raises `InputError` for a token that is no row.
    """
    wrong = tokens[(tokens < 0) | (tokens >= len(table))]
    if wrong.size:
        raise InputError(f"token {wrong[0]}: the model has {len(table)} words, from 0 on")
    rows = table[tokens].astype(np.int64) * multiplier[tokens, None]
    return np.clip(scaled(rows, exponent[tokens, None]), -(1 << 31), (1 << 31) - 1).astype(np.int32)


def rotate_pairs(x: Int16, position: Int32, *, cosine: Int16, sine: Int16, heads: int) -> Int16:
    """Rotary embedding of int16 `x` (T, C): neighbours of the first `heads` heads are pairs; the rest stays.

    The angles of a row are row `position` of `cosine` and `sine`, int16 (positions, head / 2) in Q1.14.
    """
    places = token_places(position, len(x), len(cosine), "the tables of angles")
    c, s = (angles[places][:, None].astype(np.int64) for angles in (cosine, sine))
    width = heads * 2 * cosine.shape[1]
    pairs = x[:, :width].astype(np.int64).reshape(len(x), heads, -1, 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    rotated = np.stack([even * c - odd * s, even * s + odd * c], -1).reshape(len(x), width)
    rotated = np.clip((rotated + (1 << PAIR_BITS - 1)) >> PAIR_BITS, -(1 << 15), (1 << 15) - 1)
    return np.concatenate([rotated.astype(np.int16), x[:, width:]], 1)


def write_tokens(cache: Int16, rows: Int16, position: Int32, *, start: int) -> Int16:
    """`cache` (N, C) with elements `start` to `start + C` of `rows`, one of each token, at the tokens' positions."""
    cache[token_places(position, len(rows), len(cache), "the cache")] = rows[:, start : start + cache.shape[1]]
    return cache


def cache_attention(
    x: Int16, cache: Int16, position: Int32, *, heads: int, kv_heads: int, multiplier: int, exponent: int
) -> Int16:
    """int16 (T, heads * D): means of values, weighted by exponentials of queries times keys, to the nearest integer.

    Queries are the first heads * D elements of `x` (T, C); `cache` (N, 2 * kv_heads * D) holds keys, then values, of
    all positions. Consecutive heads share keys and values. `multiplier * 2**exponent` makes scores in steps of 1/256.
    """
    places = token_places(position, len(x), len(cache), "the cache")
    seen, width = int(places[-1]) + 1, cache.shape[1] // 2 // kv_heads
    both = cache[:seen].astype(np.float64).reshape(seen, 2, kv_heads, width)  # sums stay below 2**53, so are exact
    queries = x[:, : heads * width].astype(np.float64).reshape(len(x), kv_heads, -1, width)
    products = np.einsum("tgrd,sgd->tgrs", queries, both[:, 0], optimize=True).astype(np.int64)
    scores = scaled(products * multiplier, exponent)
    hidden = np.arange(seen) > places[:, None, None, None]
    below = np.where(hidden, -(1 << 32), scores).max(-1, keepdims=True) - scores
    entry = np.clip(below, 0, (1 << 2 * _LOW_BITS) - 1)
    powers = HIGH_POWERS[entry >> _LOW_BITS] * LOW_POWERS[entry & (1 << _LOW_BITS) - 1]
    weights = np.where(hidden, 0, (powers + (1 << 14)) >> 15)
    sums = np.einsum("tgrs,sgd->tgrd", weights.astype(np.float64), both[:, 1], optimize=True).astype(np.int64)
    totals = weights.sum(-1, keepdims=True)
    return ((2 * sums + totals) // (2 * totals)).astype(np.int16).reshape(len(x), -1)


def gated_product(x: Int32, *, multiplier: int, exponent: int, shift: int) -> Int32:
    """int32 (T, C): `silu(gate) * up / 2**shift` of `x` (T, 2 * C), the gates, then the others; saturates.

    `gate * multiplier * 2**exponent` is the gate with 12 fractional bits, for its sigmoid, which is interpolated
    between 257 entries. Roundings are to the nearest integer, ties up.
    """
    gate, up = np.split(x.astype(np.int64), 2, 1)
    argument = scaled(gate * multiplier, exponent)
    magnitude = np.minimum(np.abs(argument), (16 << GATE_BITS) - 1)
    entry, rest = magnitude >> _SIGMOID_STEP, magnitude & (1 << _SIGMOID_STEP) - 1
    between = ((SIGMOID[entry + 1] - SIGMOID[entry]) * rest + (1 << _SIGMOID_STEP - 1)) >> _SIGMOID_STEP
    sigmoid = SIGMOID[entry] + between
    sigmoid = np.where(argument < 0, (1 << 16) - sigmoid, sigmoid)
    silu = (gate * sigmoid + (1 << 15)) >> 16
    return np.clip(scaled(silu * up, -shift), -(1 << 31), (1 << 31) - 1).astype(np.int32)


def _rows(x: Operand, *dtypes: str) -> tuple[int, ...]:
    need(len(x.shape) == 2 and x.dtype in dtypes, f"rows are {x.dtype} {x.shape}: must be {' or '.join(dtypes)} (T, C)")
    return x.shape


def _need_position(x: Operand) -> None:
    need(x[:2] == ((1,), "int32"), f"the position is {x.dtype} {x.shape}: must be int32 (1,)")


def _checked_rows(inputs: Operands, a: Attrs) -> tuple[int, ...]:
    rows = _rows(inputs[0], "int16", "int32")
    need(a["gain"] is None or a["gain"].shape == rows[1:], f"the gains do not fit rows {rows}")
    return rows


def _bytes_of(inputs: Operands, a: Attrs) -> Operand:
    tokens, width = _checked_rows(inputs, a)
    return Operand((1, width, 2 * tokens, 1), "int8")


def _scales_of(inputs: Operands, a: Attrs) -> Operand:
    return Operand((_checked_rows(inputs, a)[0], 2), "int32")


def _sums(inputs: Operands, *parameters: AnyArray) -> tuple[int, int]:
    """(tokens, channels) of sums of bytes with the tokens' scales."""
    (acc, dtype, _), scales = inputs[:2]
    of_bytes = len(acc) == 4 and acc[::3] == (1, 1) and acc[2] % 2 == 0 and dtype == "int32"
    need(of_bytes, f"sums are {dtype} {acc}: must be int32 (1, C, 2 * T, 1)")
    tokens = acc[2] // 2
    need(scales[:2] == ((tokens, 2), "int32"), f"scales are {scales.dtype} {scales.shape}: must be int32 ({tokens}, 2)")
    need({p.shape for p in parameters} == {acc[1:2]}, f"parameters per channel do not fit sums {acc}")
    return tokens, acc[1]


def _scaled_sums(inputs: Operands, a: Attrs) -> Operand:
    need(len(inputs) in (2, 3), f"{len(inputs)} inputs: must be 2 or 3")
    shape = _sums(inputs, a["multiplier"], a["exponent"], a["bias"])
    need(all(x[:2] == (shape, "int32") for x in inputs[2:]), f"the residual must be int32 {shape}")
    return Operand(shape, a["dtype"])


def _logits(inputs: Operands, a: Attrs) -> Operand:
    return Operand(_sums(inputs, a["scale"]), "float32")


def _embedded(inputs: Operands, a: Attrs) -> Operand:
    need(len(inputs[0].shape) == 1, f"tokens are {inputs[0].shape}: must be (T,)")
    words, width = a["table"].shape
    need(a["multiplier"].shape == a["exponent"].shape == (words,), f"scales of rows do not fit {words} words")
    return Operand((*inputs[0].shape, width), "int32")


def _rotated(inputs: Operands, a: Attrs) -> Operand:
    tokens, width = _rows(inputs[0], "int16")
    _need_position(inputs[1])
    angles = a["cosine"].shape
    need(a["sine"].shape == angles and tokens <= angles[0], f"angles {angles} do not fit {tokens} tokens")
    need(a["heads"] * 2 * angles[1] <= width, f"{a['heads']} heads of {2 * angles[1]} do not fit rows of {width}")
    return Operand((tokens, width), "int16")


def _written(inputs: Operands, a: Attrs) -> Operand:
    cache, rows = (_rows(x, "int16") for x in inputs[:2])
    _need_position(inputs[2])
    need(a["start"] + cache[1] <= rows[1] and rows[0] <= cache[0], f"rows {rows} do not fit the cache {cache}")
    return Operand(cache, "int16")


def _attended(inputs: Operands, a: Attrs) -> Operand:
    rows, cache = (_rows(x, "int16") for x in inputs[:2])
    _need_position(inputs[2])
    heads, groups = a["heads"], a["kv_heads"]
    need(cache[1] % (2 * groups) == 0 and heads % groups == 0, f"{heads} and {groups} heads do not fit a cache {cache}")
    width = heads * (cache[1] // 2 // groups)
    need(width <= rows[1] and rows[0] <= cache[0], f"rows {rows} do not fit {heads} heads and a cache {cache}")
    return Operand((rows[0], width), "int16", rows[0] * heads * cache[0])


def _gated(inputs: Operands, a: Attrs) -> Operand:
    tokens, width = _rows(inputs[0], "int32")
    need(width % 2 == 0, f"rows of {width}: must be as many gates as others")
    return Operand((tokens, width // 2), "int32")


_MULTIPLIER, _EXPONENT = Int(0, (1 << MANTISSA_BITS) - 1), Int(-400, 400)
_PER_CHANNEL: dict[str, Kind] = {
    "multiplier": Array(1, ("int32",), 0, (1 << MANTISSA_BITS) - 1),
    "exponent": Array(1, ("int32",), -400, 400),
}
_ONE: dict[str, Kind] = {"multiplier": _MULTIPLIER, "exponent": _EXPONENT}
_GAIN: dict[str, Kind] = {"gain": Array(1, ("int16",))}
_ANGLES: dict[str, Kind] = dict.fromkeys(("cosine", "sine"), Array(2, ("int16",)))
_HEADS: dict[str, Kind] = dict.fromkeys(("heads", "kv_heads"), SIZE)
_SUMMED = {**_PER_CHANNEL, "dtype": OneOf(("int16", "int32"))}
_PLACED = ("int16", "int32")  # the last input is a position

ROWS = (
    HostOp(token_bytes, _bytes_of, _GAIN, ("int16", "int32")),
    HostOp(token_scales, _scales_of, {**_GAIN, "epsilon": Int(0, 1 << 60)}, ("int16", "int32")),
    HostOp(scale_token_sums, _scaled_sums, _SUMMED, ("int32",), count=0),
    HostOp(token_logits, _logits, {"scale": Array(1, ("float32",))}, ("int32",), count=2),
    HostOp(embed_tokens, _embedded, {**_PER_CHANNEL, "table": Array(2, ("int8",))}, ("int32",)),
    HostOp(rotate_pairs, _rotated, {**_ANGLES, "heads": SIZE}, _PLACED, count=2),
    HostOp(write_tokens, _written, {"start": Int(0)}, _PLACED, count=3, overwrites=True),
    HostOp(cache_attention, _attended, {**_HEADS, **_ONE}, _PLACED, count=3),
    HostOp(gated_product, _gated, {**_ONE, "shift": Int(-31, 62)}, ("int32",)),
)
