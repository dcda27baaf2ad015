"""Operators of transformers on numpy arrays, in integers.

Arrays are positional arguments, attributes keyword arguments; `R` is the rounding of hw/rounding.py, contract double.
Rows are those of T tokens that follow one another in a text. Their position is int32 (1,), n: row k is token n * T + k,
from 0. One token is a block of T = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...hw.errors import InputError
from ...hw.rounding import quantize_multiplier, requantise, rescale
from .roots import ROOT_BITS, inverse_root

ROTATION_BITS = 14  # fraction of the cosines and sines of `rotate`
TURN = quantize_multiplier(2.0**-ROTATION_BITS)  # (multiplier, exponent) that removes it
SCORE_STEPS = 40  # of the scores in `attention`: a step is 1/40
LARGEST_WEIGHT = 127  # of `attention`: that of the largest score
WEIGHTS = np.round(LARGEST_WEIGHT * np.exp((np.arange(-128, 128) - 127) / SCORE_STEPS)).astype(np.int32)
UNSEEN = -(128 << 20)  # added to the scores behind the position, so that their weights are 0
LARGEST_SCORE = 1 << 26  # below which all scores must stay for that
MEAN_BITS = 24  # fraction of the mean in `attention`: with that of values -127 to 127, all of int32
LARGEST_CONTEXT = 8192  # of `attention`: a reciprocal of four bits is left
_SMALL_SUM = 512  # the context for which sums of weights, shifted left by 4, use all of `inverse_root`


def batch_matmul(
    x: np.ndarray,
    y: np.ndarray,
    *,
    zero_points: Sequence[int],
    multiplier: int,
    exponent: int,
    transposed: bool = False,
    images: bool = False,
) -> np.ndarray:
    """int8 `clamp(zo + R(sum((x - zx) * (y - zy))))`: rows of `x` by columns of `y`, or with `transposed` by its rows.

    The dimensions before the last two broadcast. `zero_points` are those of x, y and the output. With `images` matrices
    are images of one row, (N, columns, 1, rows).
    """
    if images:
        x, y = (t[:, :, 0].swapaxes(1, 2) for t in (x, y))
    a, b = (t.astype(np.float64) - zero_points[k] for k, t in enumerate((x, y)))  # sums are exact below 2**53
    products = (a @ (b.swapaxes(-1, -2) if transposed else b)).astype(np.int64)
    result = requantise(products, multiplier, exponent, zero_points[2])
    return np.ascontiguousarray(result.swapaxes(1, 2)[:, :, None]) if images else result


def squares_shift(width: int) -> int:
    """By how many bits the sum of the squares of `width` int8 values is shifted right to be at most 2**20."""
    return max(0, math.ceil(math.log2(width)) + 14 - ROOT_BITS)


def rms_norm(x: np.ndarray, *, multiplier: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """int8 `clamp(R(x * r))`, r `inverse_root` of the sum of the squares of the last axis, with R by its elements.

    The sum is shifted right by `squares_shift`. `multiplier` and `exponent` are (D,), the gains in them.
    """
    wide = x.astype(np.int64)
    squares = (wide * wide).sum(-1, keepdims=True) >> squares_shift(x.shape[-1])
    return requantise(wide * inverse_root(squares), multiplier, exponent, 0)


def rotate(x: np.ndarray, position: np.ndarray, *, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    """int8 of `x` (T, C * 2W), in each of C chunks element k of the first half turned with element k of the second.

    The angles of a row are those of its token: `cosine` and `sine` are int16 (positions, W) in Q1.14.
    """
    places = _places(position, len(x), len(cosine), "the tables of angles")
    c, s = (angles[places][:, None].astype(np.int64) for angles in (cosine, sine))
    halves = x.reshape(len(x), -1, 2, cosine.shape[1]).astype(np.int64)
    first, second = halves[:, :, 0], halves[:, :, 1]
    turned = np.stack([first * c - second * s, first * s + second * c], 2)
    return requantise(turned, *TURN, 0).reshape(x.shape)


def write_rows(cache: np.ndarray, rows: np.ndarray, position: np.ndarray) -> np.ndarray:
    """`cache` (1, C, N, 1) with `rows` (T, C), each in place of its token's position modulo N."""
    result = cache.copy()
    places = int(position[0]) * len(rows) + np.arange(len(rows))
    result[0, :, places % cache.shape[2], 0] = rows
    return result


def write_columns(cache: np.ndarray, block: np.ndarray, position: np.ndarray, *, tokens: int = 1) -> np.ndarray:
    """`cache` (1, N, V, 1) with `block` (1, V, B, 1), transposed, in place of the B rows that the position is among.

    It is that of `tokens` tokens, T, which divides B.
    """
    size, result = block.shape[2], cache.copy()
    first = int(_places(position, tokens, cache.shape[1], "the cache")[0]) // size * size
    result[0, first : first + size, :, 0] = block[0, :, :, 0].T
    return result


def reciprocal_shifts(context: int) -> tuple[int, int, int]:
    """(left, down, right): a sum s of weights over a context gives `((inverse_root(s << left) >> down)**2) >> right`.

    That is nearly 2**24 / s, from below or so little above that a mean of values -127 to 127 stays within int32.
    """
    left = 4 - max(0, math.ceil(math.log2(context / _SMALL_SUM)))
    down = max(0, 3 - left)
    return left, down, 2 * ROOT_BITS - MEAN_BITS - left - 2 * down


def reciprocal(total: np.ndarray, context: int) -> np.ndarray:
    """int64, about 2**24 / total, of sums of weights, the largest of which is 127, over at most `context` positions."""
    left, down, right = reciprocal_shifts(context)
    root = inverse_root(total << left) >> down
    return (root * root) >> right


def attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    position: np.ndarray,
    *,
    key_groups: Sequence[int],
    value_groups: Sequence[int],
    seen: int,
    multipliers: Sequence[int],
    exponents: Sequence[int],
) -> np.ndarray:
    """int8 (T, R * V): the means of `values` (1, N, V, 1) by the exponentials of queries times `keys` (1, 2W, N, 1).

    `queries` (T, R * 2W) are R chunks; a chunk and a key have two halves, of whose W lanes lane k is of the group
    `key_groups[k]`; lane k of a value is of `value_groups[k]`. In each chunk each group is a query of its own. Lanes of
    group -1 are padding. The first `seen` positions are read; those behind a row's token weigh nothing for it. The
    first multiplier and exponent give the scores, in steps of 1/40, the second the output.
    """
    places = _places(position, len(queries), seen, "the positions that are read")
    width, context = keys.shape[1], keys.shape[2]
    chunks = queries.reshape(len(queries), -1, width).astype(np.float64)  # products are exact: sums are below 2**53
    k, v = keys[0, :, :seen, 0].astype(np.float64), values[0, :seen, :, 0].astype(np.float64)
    lanes, outputs = np.tile(np.asarray(key_groups), 2), np.asarray(value_groups)
    unseen = np.where(np.arange(seen) > places[:, None], UNSEEN, 0)[:, None]
    means = np.zeros((*chunks.shape[:2], values.shape[2]), np.int64)
    for group in sorted(set(value_groups) - {-1}):
        mine, its = lanes == group, outputs == group
        scores = rescale((chunks[..., mine] @ k[mine]).astype(np.int64), multipliers[0], exponents[0]) + unseen
        below = scores - scores.max(-1, keepdims=True) + LARGEST_WEIGHT
        weights = WEIGHTS[np.clip(below, -128, 127) + 128]
        sums = (weights @ v[:, its]).astype(np.int64)
        means[..., its] = sums * reciprocal(weights.sum(-1, keepdims=True, dtype=np.int64), context)
    return requantise(means, multipliers[1], exponents[1], 0).reshape(len(queries), -1)


def _places(position: np.ndarray, tokens: int, size: int, what: str) -> np.ndarray:
    """The positions of a block of `tokens` tokens, the number `position` of its kind."""
    first = int(position[0]) * tokens
    if not 0 <= first <= size - tokens:
        outside = first if first < 0 else max(first, size)
        raise InputError(f"position {outside} is not in {what}, which end at {size - 1}; reset the state")
    return first + np.arange(tokens)
