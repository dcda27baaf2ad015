"""Deeploy's softmax along the columns of an image, whose channels are heads: tables, and exact quotients by a sum.

With t = levels * 2**k // sum, where no exponential e reaches 2**k, `e * t >> k` is the quotient or one less; what is
left then says which. t is the result of a long division, with a bit for each power of two times the sum that can
still be subtracted: `min(v, v - d)` of unsigned numbers does both. v is what is left, with the bits of t behind it; to
compare numbers as if they were unsigned, 2**31 is subtracted from it.
"""

from __future__ import annotations

import numpy as np

from ...hw.isa import Mem
from ...runtime.hostops.deeploy import exponentials
from .. import graph as g
from ..graph.integer_forms import Requant
from .language import Array, Extents, Kernel, Tile, Unfit

_TOP = 1 << 31


def integer_softmax(k: Kernel, op: g.IntegerSoftmax) -> None:
    """As many rows at a time as fit the accumulators."""
    k.need("acc8", "lookup", "requant", batch=1)
    if len(op.x.shape) != 4:
        raise Unfit(f"{op.x.dtype} of {len(op.x.shape)} dimensions: only images of int8")
    # the exponentials of values that are 255 to 0 below the largest
    table = exponentials(np.arange(-255, 1), op.quadratic, op.linear, op.constant, op.period)
    if table.min() < 0 or table[-1] < 1:
        raise Unfit(f"exponentials from {table.min()} on: must be positive where x is the largest")
    shift = int(table.max()).bit_length()  # the k of the formula
    dividend = (op.levels - 1) << shift
    bits = max(1, (dividend // int(table[-1])).bit_length())  # of t, the dividend by a sum
    if (dividend + (1 << bits)) << bits >= _TOP or table.max() * op.x.shape[3] >= _TOP:
        raise Unfit(f"exponentials up to {table.max()}, {op.levels} levels: quotients do not fit 32 bits")

    x, out = (image.merged("row", "n", "b", "h").named(w="column") for image in (k.input(0), k.output))
    rows, columns = x.shape.values()
    par = k.parameters(Requant(1, *op.multipliers, op.output.zero_point, op.low, op.high))
    number, constants = k.table("exponentials", table), _constants(k, dividend, bits)
    most = k.most(rows, lambda count: _tiles(count, columns, bits))
    for x_rows, out_rows in zip(x.parts(most), out.parts(most)):
        count = x_rows.shape["row"]
        first, second = _tiles(count, columns, bits)
        with k.scope():
            copies, factor = k.tiles(Mem.ACC, *first, high=k.bank)
            others, zeros, powers = k.tiles(Mem.ACC, *second, low=k.bank)
            divisors, less = zeros.pieces({"row": count, "bit": bits}, {"row": count})
            (left, products), quotients = (copies[0], copies[1]), others[0]
            for tile in (others, copies):
                k.load(tile, x_rows.repeated(copy=2))
            zeros[...] = 0
            largest = others[1].max_along("column")
            largest *= -1
            largest += 127  # the table ends with the largest
            for values in (products, quotients, left):
                values += largest
                values.lookup(number)
            sums = products.sum_along("column")
            less += sums
            less *= -1
            k.load(powers, constants[: 3 * bits])
            k.load(factor, constants[3 * bits].repeated(row=count))
            _divide(factor, sums, divisors, powers)
            left *= op.levels - 1
            products[...] = 0
            quotients *= factor
            quotients >>= shift
            products += quotients
            products *= less
            left += less
            left += products
            left >>= 31  # 0 where the quotient is one too low, else -1: the store adds 1
            quotients += left
            k.store(out_rows, quotients, par)


def _tiles(rows: int, columns: int, bits: int) -> tuple[Extents, Extents]:
    """In each bank: copies and the t of each row; copies, divisors with the sums times -1, and constants."""
    copies = {"copy": 2, "row": rows, "column": columns}
    return [copies, {"row": rows}], [copies, {"entry": rows * (bits + 1)}, {"constant": 3, "bit": bits}]


def _constants(k: Kernel, dividend: int, bits: int) -> Array:
    """For `_divide`: of each bit the largest divisor, its factor, and what is added; then the dividend."""
    bit = np.arange(bits)
    rows = (dividend >> bit) + 1, -(1 << (bit + bits)), 1 << bit
    constants = np.concatenate([*rows, [(dividend << bits) - _TOP]]).astype(np.int32)
    return k.known("bits", np.repeat(constants.reshape(-1, 1, 1), k.cfg.block_out, 2))


def _divide(quotient: Tile, sums: Tile, divisors: Tile, powers: Tile) -> None:
    """Divide the dividend, which is in `quotient`, by each of `sums`.

    A divisor that is too large for it is as good as the smallest of these. For each bit is added what is right where it
    is 1: minus the divisor, but for the bit itself.
    """
    bits = powers.shape["bit"]
    divisors += sums
    divisors.minimum(powers[0])
    divisors *= powers[1]
    divisors += powers[2]
    for power in reversed(range(bits)):
        divisor = divisors[:, power]
        divisor += quotient
        quotient.minimum(divisor)
    quotient += 1 << (bits - 1)
    quotient <<= 32 - bits
    quotient >>= 32 - bits
    quotient += 1 << (bits - 1)
