"""Leaky ReLU without a table: the larger of two lines, or the smaller one where the slope below zero is the steeper.

Where both slopes are multiples of one unit, the lines are products with multiples of an identity, and the store scales
the result: that is tried for all 256 values. Else the ALU rescales both lines as the function's definition does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

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
    """`store(max(above * x, below * x + offset))`, or min where the line below the zero point is the steeper one.

    With `scales`, (multiplier, exponent) above and below, `offset` is added to both lines, which are then rescaled.
    """

    above: int
    below: int
    offset: int
    store: Requant
    scales: tuple[tuple[int, int], tuple[int, int]] | None
    larger: bool

    def apply(self, x: np.ndarray) -> np.ndarray:
        """int8 values of int8 `x`."""
        x = x.astype(np.int64)
        lines = [self.above * x, self.below * x + self.offset]
        if self.scales is not None:
            lines = [rescale(x + self.offset, *scale) for scale in self.scales]
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
    weights = k.matrices("multiples", np.stack([identity * lines.above, identity * lines.below]))
    scales = [k.requant(Requant(0, *scale, 0), f"scale_{line}") for line, scale in enumerate(lines.scales or ())]
    pars = k.tile(Mem.PAR, par=1 + len(scales))
    for par, source in zip(pars.parts(1), (k.requant(lines.store), *scales)):
        k.load(par, source)
    xs, ys = k.slots(size), k.banks(2 * size)
    for part, target in zip(x.parts(size), out.parts(size)):
        tile = xs.load(part)
        both = ys.next(**part.shape), ys.other(line=2, entry=size)[1, : part.size]
        for line, y in enumerate(both):
            y[...] = tile @ weights[line]
            if scales or line:
                y += lines.offset
            if scales:
                y.rescale(pars[1 + line])
        above, below = both
        (above.maximum if lines.larger else above.minimum)(below)
        k.store(target, above, pars[0])


def lines_of(op: g.LeakyRelu) -> Lines:
    """The two lines of a rectifier, whose slopes are not negative: the cheaper form that is exact."""
    return _found(op.table.tobytes(), op.x.zero_point, op.output.zero_point, op.slopes, op.multipliers)


@lru_cache(maxsize=256)
def _found(
    table: bytes,
    zero: int,
    target: int,
    slopes: tuple[float, float],
    scales: tuple[tuple[int, int], tuple[int, int]],
) -> Lines:
    wanted = np.frombuffer(table, np.int8)
    exact = (each for each in _products(wanted, zero, target, slopes) if np.array_equal(each.apply(_VALUES), wanted))
    rescaled = Lines(1, 1, -zero, Requant(0, *_UNIT, target), scales, slopes[1] <= slopes[0])
    return next(exact, rescaled)


def _products(wanted: np.ndarray, zero: int, target: int, slopes: tuple[float, float]) -> Iterator[Lines]:
    """Lines of multiples of one unit that are exact above the zero point."""
    right = _VALUES >= zero
    for above in range(_MOST, 0, -1) if slopes[0] > 0 else ():
        for contract in ("double", "single"):
            store = Requant(-above * zero, *quantize_multiplier(slopes[0] / above), target, contract=contract)
            if not np.array_equal(store.apply(above * _VALUES[right]), wanted[right]):
                continue
            near = round(slopes[1] / slopes[0] * above)
            for below in (near, near - 1, near + 1):
                if 0 <= below <= _MOST:
                    yield Lines(above, below, (above - below) * zero, store, None, below <= above)
