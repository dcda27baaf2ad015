"""Deeploy's norms, iRMSNorm and iLayerNorm, exactly: a root from tables, a quotient by a product.

With r the root of the mean of squares, which is at most 128, p an element times its weight, and b its bias, a result
is `(trunc(p / r) + b) >> s`: the largest integer not above `(p + (r - 1) * [p < 0] + b * r) / (r << s)`, a shift, then
a quotient by r. Clamped to -129..129, with 129 added, that is a product with a reciprocal of 22 bits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...hw.isa import Mem
from ...hw.rounding import exact_multiplier, quantize_multiplier, rescale
from .. import graph as g
from ..graph.integer_forms import Requant
from .integer_roots import LARGEST, integer_roots, load_root_constants, root_tables, root_tiles
from .language import Array, Extents, Kernel, Tile, Unfit, by_shape

_BITS = 22  # of a reciprocal
_BEYOND = 129  # the quotients that are clamped whatever they are
_WORD = 1 << 31


def _values(t: g.Tensor) -> np.ndarray:
    assert t.data is not None  # weights and biases are constant
    return t.data.astype(np.int64)


def _reach(op: g.IntegerNorm) -> tuple[str, bool]:
    """What of its constants does not suit the kernel, and whether a weight is negative."""
    _, *constants = op.inputs
    weight, bias, *_ = *(int(np.abs(_values(t)).max()) for t in constants), 0
    fits = (255 if len(constants) > 1 else 128) * weight + LARGEST * (bias + 1) + LARGEST * _BEYOND < _WORD
    wrong = "" if fits else f"weights up to {weight}, biases up to {bias}: quotients do not fit 32 bits"
    return wrong, bool(_values(constants[0]).min() < 0)


@by_shape(_reach)
def integer_norm(k: Kernel, op: g.IntegerNorm) -> None:
    """As many rows at a time as fit the accumulators."""
    k.need("acc8", "lane_reduce", "lookup", "requant", "rescale", batch=1)
    _check(op)
    x, out = k.input(0).named(n="row", b="block"), k.output.named(n="row", b="block")
    rows, blocks = x.shape.values()
    bias = -(_BEYOND << _BITS) - (1 << (_BITS - 1))  # the store rounds: half a step less is rounded down
    store = k.requant(Requant(bias, *exact_multiplier(2.0**-_BITS), op.output.zero_point, op.low, op.high))
    most = k.most(min(rows, k.cfg.block_in), lambda count: _tiles(k, count, blocks))
    for first in range(0, rows, most):
        these = slice(first, min(first + most, rows))
        with k.scope():
            _normalise(k, op, x[these], out[these], store)


def reciprocals() -> np.ndarray:
    """int64 (256,): `x * table[r] >> 22` is `x // r` for roots r from 1 on and x from 0 to 258 * r."""
    table = np.full(256, 1)
    table[1 : LARGEST + 1] = -(-(1 << _BITS) // np.arange(1, LARGEST + 1))
    return table


def _check(op: g.IntegerNorm) -> None:
    x, centred = op.x, len(op.inputs) > 2
    if len(x.shape) != 2 or (x.zero_point and not centred):
        raise Unfit(f"{x.dtype} of {len(x.shape)} dimensions, zero point {x.zero_point}: only rows of int8, 0")
    if not _divides(x.shape[1]):
        raise Unfit(f"rows of {x.shape[1]} elements: means are not exact")
    if wrong := _reach(op)[0]:
        raise Unfit(wrong)


@lru_cache(maxsize=64)
def _divides(count: int) -> bool:
    """True if sums over `count` elements, of squares, too, are divided by it exactly."""
    if not count & (count - 1):
        return True
    if count > 1 << 13:
        return False
    at = np.arange(-256, (1 << 14) + 256) * count  # a quotient that grows with the sum is exact if it is at its steps
    found = [rescale(2 * sums - (count - 1), *quantize_multiplier(0.5 / count), "single") for sums in (at, at - 1)]
    return all(np.array_equal(q, s // count) for q, s in zip(found, (at, at - 1)))


def _tiles(k: Kernel, rows: int, blocks: int) -> tuple[Extents, Extents]:
    """In each bank: copies of the rows, and what roots need; copies or biases, weights, a mask, and the rest of it."""
    centred, row = len(k.op.inputs) > 2, {"row": rows, "block": blocks}
    first, second = root_tiles(rows, k.cfg.block_in)
    first, second = [{"copy": 2 + centred} | row, *first], [{"block": blocks}, {"mask": 1}, *second]
    return first, [{"copy": 1 + centred} | row, *second]


def _normalise(k: Kernel, op: g.IntegerNorm, x: Array, out: Array, store: Array) -> None:
    (rows, blocks), count, centred = x.shape.values(), op.x.shape[1], len(op.inputs) > 2
    tables, inverse = root_tables(k, rows), k.table("reciprocals", reciprocals())
    par = k.tile(Mem.PAR, par=2)
    k.load(par[0], store)
    if count & (count - 1):
        k.load(par[1], k.requant(Requant(0, *quantize_multiplier(0.5 / count), 0, contract="single"), "mean"))
    banks = _tiles(k, rows, blocks)
    copies, *first = k.tiles(Mem.ACC, *banks[0], high=k.bank)
    others, weights, mask, *second = k.tiles(Mem.ACC, *banks[1], low=k.bank)
    products, squares, signs = copies[0], copies[1], others[0]
    factors, (_, roots, inverses) = first[0], (second[0][n] for n in range(3))

    constants = load_root_constants(k, second)
    k.load(signs, x)
    k.load(copies, x.repeated(copy=2 + centred))
    _load_constants(k, op, weights, others[1] if centred else None, mask[0])
    if centred:
        _masked(k, copies[2], count, mask[0])
        means = _truncated_means(copies[2], factors, count, op.x.zero_point, par[1])
        means *= -1
        means += -op.x.zero_point
        for y in (signs, products, squares):
            y += means
    _masked(k, signs, count, mask[0])
    squares *= signs
    means = _divided(_sums(squares), count, par[1])
    means += 1
    products *= weights
    if _reach(op)[1]:
        signs *= weights
    signs >>= 31  # -1 where a product is below 0, or 0
    integer_roots(k, means, tables, constants, first, second)
    inverses.lookup(inverse)
    signs *= factors
    if centred:
        biases = others[1]
        biases *= roots
        signs += biases
    products += signs
    products >>= op.shift
    roots *= _BEYOND
    products.minimum(roots)
    products += roots
    products.maximum(0)
    products *= inverses
    k.store(out, products, par[0])


def _load_constants(k: Kernel, op: g.IntegerNorm, weights: Tile, biases: Tile | None, mask: Tile) -> None:
    lanes, count = k.cfg.block_in, op.x.shape[1]

    def packed(name: str, t: g.Tensor) -> Array:
        padded = np.pad(_values(t), (0, -count % lanes)).astype(np.int32)
        return k.known(name, padded.reshape(-1, 1, lanes), block=weights.size)

    k.load(weights, packed("weights", op.inputs[1]))
    if biases is not None:
        k.load(biases, packed("biases", op.inputs[2]).repeated(row=biases.shape["row"]))
    if left := count % lanes:
        k.load(mask, k.known("mask", (np.arange(lanes) < left).astype(np.int8)[None]))


def _masked(k: Kernel, y: Tile, count: int, mask: Tile) -> None:
    """Lanes behind the last of `count` elements of each row become 0: there may be anything."""
    if count % k.cfg.block_in:
        y[:, y.shape["block"] - 1] *= mask


def _sums(y: Tile) -> Tile:
    """The sum of the elements of each row, in its first entry."""
    return y.sum_along("block").sum_lanes()


def _divided(y: Tile, count: int, scale: Tile) -> Tile:
    """`y` by `count`, rounded down; by `scale` where that is no power of two."""
    if count & (count - 1):
        y <<= 1
        y += 1 - count
        return y.rescale(scale)
    y >>= count.bit_length() - 1
    return y


def _truncated_means(y: Tile, negative: Tile, count: int, zero_point: int, scale: Tile) -> Tile:
    """The means of the elements less the zero point, rounded toward zero; `negative` is for one number per row."""
    sums = _sums(y)
    sums += -count * zero_point
    negative[...] = 0
    negative += sums
    negative >>= 31
    negative *= 1 - count
    sums += negative
    return _divided(sums, count, scale)
