"""Norms of rows: the root mean square norm of language models, and Deeploy's integer norms.

The former takes tables and steps of Newton's method for one over a square root (runtime/hostops/roots.py), the latter
finds integer roots digit by digit. Rows are vectors of int8; without the extensions of `need_roots` nothing fits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...hw.isa import Mem
from ...hw.rounding import exact_multiplier, quantize_multiplier
from ...runtime.hostops import roots
from .. import graph as g
from ..graph.integer_forms import Requant
from .language import Array, Extents, Kernel, Tile, Unfit, by_shape, refuse

EXTENSIONS = "acc8", "lookup", "lane_reduce", "overwrite", "requant", "rescale"
COPIES = 4  # of the argument: the index of each table, and one for each step


def need_roots(k: Kernel) -> None:
    """Raise `Unfit` where the configuration computes no roots."""
    k.need(*EXTENSIONS, batch=1)


def root_tables(k: Kernel) -> tuple[int, int]:
    """The numbers of the tables of the first guess, loaded where they are not on chip."""
    return k.table("high", roots.HIGH), k.table("low", roots.LOW)


def inverse_root(arguments: Tile, tables: tuple[int, int]) -> Tile:
    """`2**20 / sqrt(s)` of accumulators s, integers 0 to 2**20.

    `arguments` (copy, entry) are `COPIES` copies of s, one after the other; they are overwritten. The first of them
    becomes the result.
    """
    root, low, *steps = (arguments[copy] for copy in range(COPIES))
    indices, rest = arguments[:2].merged("entry"), arguments[2:].merged("entry")
    root >>= roots.HIGH_SHIFT
    low >>= roots.LOW_SHIFT
    indices += -128
    root.lookup(tables[0])
    low.lookup(tables[1])
    rest *= -1
    root += low
    for square in steps:
        square *= root
        _shift_negative(square, roots.SQUARE_SHIFT, 1)
        square *= root
        _shift_negative(square, roots.HALF_SHIFT, roots.THREE + 1)
        root *= square
        root >>= roots.STEP_SHIFT
    return root


def _shift_negative(y: Tile, bits: int, more: int) -> None:
    """`~(-y >> bits) + more`: the shift rounds a negative number as that of its negative does."""
    y += -1
    y >>= bits
    y += more


_ROWS = 16  # at a time: enough to hide the latency of products


@by_shape()
def rms_norm(k: Kernel, op: g.RmsNorm) -> None:
    """`x / sqrt(mean(x * x)) * gain`: squares, their sum over lanes and blocks, one over its root, products.

    Gains, the root of the number of elements, and scales are one factor per channel, of the store.
    """
    need_roots(k)
    refuse(len(op.x.shape) != 2, f"{len(op.x.shape)} dimensions: only rows of channels")
    x, out = (rows.named(n="row") for rows in (k.input(0), k.output))
    rows, blocks = x.shape.values()
    multiplier, exponent = op.multipliers
    tables = root_tables(k)
    par = k.parameters(Requant(0, 1 << 30, 1, 0), multiplier=multiplier, exponent=exponent)
    most = max(1, min(rows, _ROWS, k.bank // (blocks + COPIES)))
    for x_rows, out_rows in zip(x.parts(most), out.parts(most)):
        with k.scope():
            copies = {"copy": COPIES, "row": x_rows.shape["row"]}
            values = k.tile(Mem.ACC, high=k.bank, **x_rows.shape)
            squares, roots = k.tiles(Mem.ACC, x_rows.shape, copies, low=k.bank)
            roots[...] = 0
            for y in (squares, values):
                k.load(y, x_rows)
            squares *= values
            sums = squares[:, 0]
            if blocks > 1:
                sums += squares[:, 1:]
            sums.sum_lanes()
            sums >>= op.shift
            roots += sums
            values *= inverse_root(roots, tables)
            for row in range(values.shape["row"]):
                k.store(out_rows[row], values[row], par)


LARGEST = 128  # the largest root of a mean of squares of bytes
_BITS = 22  # of a reciprocal
_BEYOND = 129  # the smallest magnitude of a quotient that is clamped whatever its bias
_WORD = 1 << 31
_LONGEST = 1 << 13  # elements of a row whose mean of squares, up to 2**14, a product with 31 bits of 1 / n gives


def _values(t: g.Tensor) -> NDArray[np.int64]:
    assert t.data is not None  # weights and biases are constant
    return t.data.astype(np.int64)


def _reach(op: g.IntegerNorm) -> tuple[str, bool]:
    """(Reason why results do not fit 32 bits, empty if they do; whether a weight is negative)."""
    _, *constants = op.inputs
    weight, bias, *_ = *(int(np.abs(_values(t)).max()) for t in constants), 0
    fits = (255 if len(constants) > 1 else 128) * weight + LARGEST * (bias + 1) + LARGEST * _BEYOND < _WORD
    wrong = "" if fits else f"weights up to {weight}, biases up to {bias}: quotients do not fit 32 bits"
    return wrong, bool(_values(constants[0]).min() < 0)


def digits(lanes: int) -> list[int]:
    """The place values of the digits of a root, in a number system of base `lanes`, the largest first."""
    found = [1]
    while found[0] * lanes <= LARGEST:
        found.insert(0, found[0] * lanes)
    return found


def reciprocals() -> NDArray[np.int64]:
    """int64 (256,): `x * table[128 - r] >> 22` is `x // r` for roots r >= 1 and x from 0 to 258 * r."""
    table = np.full(256, 1)
    table[:LARGEST] = -(-(1 << _BITS) // np.arange(LARGEST, 0, -1))
    return table


@by_shape(_reach)
def integer_norm(k: Kernel, op: g.IntegerNorm) -> None:
    """Deeploy's norms, iRMSNorm and iLayerNorm, exactly: a root from tables, a quotient by a product.

    With r the root of the mean of squares, which is at most 128, p an element times its weight, and b its bias, a
    result is `(trunc(p / r) + b) >> s`: the largest integer not above `(p + (r - 1) * [p < 0] + b * r) / (r << s)`, a
    shift, then a quotient by r. Clamped to -129..129, with 129 added, that is a product with a reciprocal of 22 bits.

    A root is found digit by digit, in a number system of the lanes: lane n tries n + 1 as the next digit, and the digit
    is the number of lanes whose squares are not above the mean.
    """
    k.need("acc8", "lane_reduce", "lookup", "requant", "rescale", batch=1)
    if len(op.x.shape) != 2 or (op.x.zero_point and len(op.inputs) < 3):
        raise Unfit(f"{op.x.dtype} of {len(op.x.shape)} dimensions, zero point {op.x.zero_point}: only rows of int8, 0")
    count, lanes = op.x.shape[1], k.cfg.block_in
    refuse(count & (count - 1) and count > _LONGEST, f"rows of {count} elements: means are not exact")
    if wrong := _reach(op)[0]:
        raise Unfit(wrong)
    x, out = (image.named(n="row", b="block") for image in (k.input(0), k.output))
    rows, blocks = x.shape.values()
    par = k.tile(Mem.PAR, par=2)
    bias = -(_BEYOND << _BITS) - (1 << (_BITS - 1))  # the store rounds: half a step less is rounded down
    k.load(par[0], k.requant(Requant(bias, *exact_multiplier(2.0**-_BITS), op.output.zero_point, op.low, op.high)))
    if count & (count - 1):
        k.load(par[1], k.requant(Requant(0, *quantize_multiplier(0.5 / count), 0, contract="single"), "mean"))
    constants = list[Array]()
    for name, sign, t in zip(("weights", "biases"), (1, -1), op.inputs[1:]):
        padded = np.pad(sign * _values(t), (0, -count % lanes)).astype(np.int32).reshape(-1, 1, lanes)
        constants.append(k.known(name, padded, block=len(padded)))
    constants.append(k.known("tries", np.repeat(-np.arange(1, lanes + 1, dtype=np.int8)[None], len(digits(lanes)), 0)))
    mask = [k.known("mask", (np.arange(lanes) < count % lanes).astype(np.int8)[None])] if count % lanes else []
    most = k.most(min(rows, lanes), lambda rows: _tiles(k, rows, blocks))
    for x_rows, out_rows in zip(x.parts(most), out.parts(most)):
        with k.scope():
            k.store(out_rows, _normalised(k, op, x_rows, constants, mask, par[1]), par[0])


def _tiles(k: Kernel, rows: int, blocks: int) -> tuple[Extents, Extents]:
    """The axes of the tiles in each bank: copies of rows and a factor of each; copies, weights, a mask, and roots."""
    centred, row, whole = len(k.op.inputs) > 2, {"row": rows}, {"row": rows, "block": blocks}
    roots = {"row": rows, "digit": len(digits(k.cfg.block_in))}
    return [{"copy": 2 + centred} | whole, row], [{"copy": 1 + centred} | whole, {"block": blocks}, {"mask": 1}, roots]


def _normalised(k: Kernel, op: g.IntegerNorm, x: Array, constants: list[Array], mask: list[Array], scale: Tile) -> Tile:
    """The quotients of the rows `x`, with 129 added, times 2**22.

    `constants` are the weights, the biases times -1 if there are any, and the numbers that lanes try as digits.
    """
    (rows, blocks), count, (weight, *bias, tries) = x.shape.values(), op.x.shape[1], constants
    first, second = _tiles(k, rows, blocks)
    copies, factors = k.tiles(Mem.ACC, *first, high=k.bank)
    others, weights, lanes, roots = k.tiles(Mem.ACC, *second, low=k.bank)
    (products, squares), signs = (copies[0], copies[1]), others[0]
    inverse = k.table("reciprocals", reciprocals())
    k.load(roots, tries.named(tries="digit").repeated(row=rows))
    k.load(signs, x)
    k.load(copies, x.repeated(copy=copies.shape["copy"]))
    k.load(weights, weight)
    if bias:
        k.load(others[1], bias[0].repeated(row=rows))
    for known in mask:
        k.load(lanes, known)

    if bias:
        _mask(copies[2], count, lanes)
        means = _means(copies[2], count, scale, op.x.zero_point, factors)
        means *= -1
        means += -op.x.zero_point
        for y in (signs, products, squares):
            y += means
    _mask(signs, count, lanes)
    squares *= signs
    means = _means(squares, count, scale)
    products *= weights
    if _reach(op)[1]:
        signs *= weights
    signs >>= 31  # -1 where a product is below 0, or 0
    root, inverses = _roots(means, roots), roots[:, 0]
    for y, source in (factors, root), (inverses, factors):
        y[...] = 0
        y += source
    factors += 1
    inverses.lookup(inverse)
    signs *= factors
    if bias:
        biases = others[1]  # times -1, as roots are
        biases *= root
        signs += biases
    products += signs
    products >>= op.shift
    root *= -_BEYOND
    products.minimum(root)
    products += root
    products.maximum(0)
    products *= inverses
    return products


def _roots(means: Tile, y: Tile) -> Tile:
    """The roots of `means` + 1 (row), rounded down, times -1: in all lanes of the last digit of `y` (row, digit).

    The lanes of `y` hold -1, -2, -3, ... `means`, which are in the other bank, change.
    """
    means *= -1
    means += -2
    root = y[:, 0]
    for digit, value in enumerate(digits(y.kernel.cfg.block_in)):
        before, root = root, y[:, digit]
        root *= value
        if digit:
            root += before
        root *= root
        root += means
        root >>= 31
        root.sum_lanes()
        root *= value
        if digit:
            root += before
    return root


def _mask(y: Tile, count: int, mask: Tile) -> None:
    """Set the lanes behind the last of `count` elements of each row to 0: other operators leave anything there."""
    if count % y.kernel.cfg.block_in:
        y[:, y.shape["block"] - 1] *= mask


def _means(y: Tile, count: int, scale: Tile, zero_point: int = 0, negative: Tile | None = None) -> Tile:
    """The mean of `count` elements of each row less the zero point, rounded down, in all lanes of its first entry.

    With `negative`, accumulators for one number per row, it is rounded toward zero. Where `count` is no power of two,
    `scale` divides.
    """
    sums = y.sum_along("block").sum_lanes()
    sums += -count * zero_point
    if negative is not None:
        negative[...] = 0
        negative += sums
        negative >>= 31
        negative *= 1 - count
        sums += negative
    if count & (count - 1):
        sums <<= 1
        sums += 1 - count
        return sums.rescale(scale)
    sums >>= count.bit_length() - 1
    return sums
