"""Leaky ReLU without a table: the larger of two lines, or the smaller one where the slope below zero is the steeper.

Where both slopes are multiples of one unit, the lines are products with multiples of an identity, and the store scales
the result: that is tried for all 256 values. Else the ALU rescales both lines as the function's definition does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from ...hw.isa import Mem
from ...hw.rounding import quantize_multiplier, rescale
from .. import graph as g
from ..graph.integer_forms import Requant
from .elementwise import need_one_shape
from .language import Kernel, Unfit

_TILE = 200  # entries: enough to hide what an instruction costs, and few enough for a short start and end
_VALUES = np.arange(-128, 128)
_MOST = 127  # of a weight
_UNIT = (1 << 30, 1)  # of RESCALE that changes nothing


@dataclass(frozen=True)
class Lines:
    """`store(max(a, b))` of the lines `weight * x + offset` above and below the zero point, or `min` of them.

    With `scales`, (multiplier, exponent) of each, the lines are rescaled before.
    """

    weights: tuple[int, int]
    offsets: tuple[int, int]
    store: Requant
    larger: bool
    scales: tuple[tuple[int, int], ...] = ()

    def apply(self, x: np.ndarray) -> np.ndarray:
        """int8 values of int8 `x`."""
        lines = [weight * x.astype(np.int64) + offset for weight, offset in zip(self.weights, self.offsets)]
        if self.scales:
            lines = [rescale(line, *scale) for line, scale in zip(lines, self.scales)]
        return self.store.apply(np.maximum(*lines) if self.larger else np.minimum(*lines))


def leaky_relu(k: Kernel, op: g.LeakyRelu) -> None:
    """A rectifier: the two lines of a tile are in two banks, so that the ALU reads both in one cycle."""
    need_one_shape(op)
    if min(op.slopes) < 0:
        raise Unfit(f"slope {min(op.slopes):g}: must not be negative")
    lines = lines_of(op)
    k.need("overwrite", "requant", *(["rescale"] if lines.scales else []))
    x, out = k.input(0).merged("entry"), k.output.merged("entry")
    size = min(_TILE, x.size, k.slot, k.bank // 2)

    identity = np.eye(k.cfg.block_out, k.cfg.block_in)
    weights = k.matrices("multiples", np.stack([identity * weight for weight in lines.weights]))
    scales = [k.requant(Requant(0, *scale, 0), f"scale_{line}") for line, scale in enumerate(lines.scales)]
    pars = k.tile(Mem.PAR, par=1 + len(scales))
    for par, source in zip(pars.parts(1), (k.requant(lines.store), *scales)):
        k.load(par, source)
    xs, ys = k.slots(size), k.banks(2 * size)
    for part, target in zip(x.parts(size), out.parts(size)):
        tile = xs.load(part)
        above, below = ys.next(**part.shape), ys.other(line=2, entry=size)[1, : part.size]
        for line, y in enumerate((above, below)):
            y[...] = tile @ weights[line]
            y += lines.offsets[line]
            if scales:
                y.rescale(pars[1 + line])
        (above.maximum if lines.larger else above.minimum)(below)
        k.store(target, above, pars[0])


@lru_cache(maxsize=256)
def lines_of(op: g.LeakyRelu) -> Lines:
    """The two lines of a rectifier, whose slopes are not negative: multiples of one unit where these are exact."""
    zero, target, (right, left), wanted = op.x.zero_point, op.output.zero_point, op.slopes, op.table
    above_zero = _VALUES >= zero
    for above, contract in product(range(_MOST, 0, -1) if right > 0 else (), ("double", "single")):
        store = Requant(-above * zero, *quantize_multiplier(right / above), target, contract=contract)
        if np.array_equal(store.apply(above * _VALUES[above_zero]), wanted[above_zero]):
            near = round(left / right * above)
            for below in (near, near - 1, near + 1):
                found = Lines((above, below), (0, (above - below) * zero), store, below <= above)
                if 0 <= below <= _MOST and np.array_equal(found.apply(_VALUES), wanted):
                    return found
    return Lines((1, 1), (-zero, -zero), Requant(0, *_UNIT, target), left <= right, op.multipliers)
