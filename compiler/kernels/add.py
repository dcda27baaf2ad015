"""Sums of two tensors on the multiplier array: weights of several digits, one row of DWGEMM each.

The operands are loaded into the input scratchpad, ahead of the array: unlike accumulator loads, their transfer takes no
time in the compute queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from ...hw.isa import Mem
from .. import graph as g
from ..graph.integer_forms import WeightedSum, weighted_form
from .elementwise import need_one_shape
from .language import Array, Kernel, Unfit, by_shape

_TILE = 64  # entries: enough to hide what an instruction costs, and few enough for a short start and end
_Lanes = tuple[int, ...]  # that each operand has in an entry


def _digits(op: g.Add) -> tuple[tuple[int, ...], ...] | None:
    form = weighted_form(op)
    return form and (form.x, form.y)


@by_shape(_digits)
def weighted_sum(k: Kernel, op: g.Add) -> None:
    """A sum or difference whose weights are a few digits to base 256.

    Operands may have fewer channels: what the paddings `k.rec.padded` add is part of the parameters.
    """
    k.need("depthwise", "overwrite", "requant")
    need_one_shape(op)
    form = weighted_form(op)
    if form is None:
        raise Unfit("no weights of a few digits give its sums")
    alike = _alike(k, op)
    kinds = [*dict.fromkeys(lanes for _, lanes in alike)]
    digits = sorted({(d, n) for lanes in kinds for own, n in zip((form.x, form.y), lanes) for d in own if d and n})
    rows = k.rows("w", np.array([[d] * n + [0] * (k.cfg.block_out - n) for d, n in digits]))
    pars = k.load(k.tile(Mem.PAR, kind=len(kinds)), _parameters(k, op, form, kinds))

    size = min(_TILE, k.slot // 2, k.bank, max(len(part) for part, _ in alike))
    xs, ys = k.slots(2 * size), k.banks(size)
    operands, out = [k.input(number).merged("entry") for number in (0, 1)], k.output.merged("entry")
    tiles = [(first, min(first + size, p.stop), lanes) for p, lanes in alike for first in range(p.start, p.stop, size)]
    for first, end, lanes in tiles:
        inputs = xs.next(operand=2, entry=size)[:, : end - first]
        for number, operand in enumerate(operands):
            if lanes[number]:
                k.load(inputs[number], operand[first:end])
        y, empty = ys.next(entry=end - first), True
        for pair in zip(form.x, form.y):  # from the most significant digits on
            if not empty:
                y <<= 8
            for number, digit in enumerate(zip(pair, lanes)):
                if all(digit):
                    k.multiply(y, inputs[number] * rows[digits.index(digit)], overwrite=empty)
                    empty = False
        k.store(out[first:end], y, pars[kinds.index(lanes)])


def _alike(k: Kernel, op: g.Add) -> list[tuple[range, _Lanes]]:
    """(entries of the output, lanes that each operand has there) of the parts that are alike."""
    block, blocks, found, first = k.cfg.block_in, k.output.shape["b"], list[tuple[range, _Lanes]](), 0
    channels = [k.rec.padded[t.name].x.shape[1] if t.name in k.rec.padded else block * blocks for t in op.inputs]
    for lanes, same in groupby(tuple(min(block, max(0, c - b * block)) for c in channels) for b in range(blocks)):
        count = k.output.size // blocks * len([*same])
        found.append((range(first, first + count), lanes))
        first += count
    return found


def _parameters(k: Kernel, op: g.Add, form: WeightedSum, kinds: Sequence[_Lanes]) -> Array:
    """The parameters of a store of each kind: in the lanes that an operand lacks, its padding is part of the bias."""
    bias = np.full((len(kinds), k.cfg.block_out), form.store.bias, np.int64)
    for lane_bias, lanes in zip(bias, kinds):
        for t, digits, many in zip(op.inputs, (form.x, form.y), lanes):
            if many < k.cfg.block_out:
                lane_bias[many:] += k.rec.padded[t.name].value * sum(d << 8 * n for n, d in enumerate(reversed(digits)))
    return k.requant(form.store, bias=bias.reshape(-1))
