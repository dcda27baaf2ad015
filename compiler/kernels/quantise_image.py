"""float32 images to int8 on the ALU, as they lie in memory: the steps of quantise_steps.py, value by value.

The bits come as accumulators. Values wait in one bank and are quantised in the other one, so that the ALU reads two
operands in one cycle; constants lie in the bank opposite to what they are combined with. A load of accumulators is
written while the ALU leaves its bank alone, so the steps that need one bank only stand behind it. The largest number
after step 2 tells whether a value was NaN.
"""

from __future__ import annotations

import numpy as np

from ...hw.isa import Mem
from .. import graph as g
from ..graph.integer_forms import Requant
from .language import Kernel, Unfit
from .quantise_steps import EXPONENT_SHIFT, NUMBERS, steps_of

_TILE = 96  # entries: enough to hide what an instruction costs, and few, as nothing hides the first load
_SLOTS = 2  # of values, in the first bank, beside as many accumulators for amounts and for the larger line
_STORED = 3  # tiles in the second bank: one is stored, slowly, as the ALU reads its bank, and the next prepared
_LEFT = 8  # accumulators of a bank for constants, and for the largest number


def quantise_image(k: Kernel, op: g.QuantizeImage) -> None:
    """Tile by tile; the values of each are loaded while the one before it is quantised."""
    k.need("overwrite", "requant", "rescale", batch=1)
    x, out, steps = k.plain(op.x), k.plain(op.output), steps_of(op.output.scale, op.output.zero_point)
    if steps is None:
        raise Unfit(f"scale {op.output.scale:g}: no integers are exact for it")
    size = min(_TILE, x.size, (k.bank - _LEFT) // (_SLOTS + 2))
    one = k.constant(Mem.INP, "one", np.eye(1, k.cfg.block_in, dtype=np.int8)[:, None])[0]
    minus_two = k.matrices("minus_two", np.full((1, k.cfg.block_out, k.cfg.block_in), -2))[0]
    store, reciprocal, no_number = k.tile(Mem.PAR, par=3).parts(1)
    k.load(store, k.requant(steps.store))
    k.load(reciprocal, k.requant(Requant(0, *steps.reciprocal, 0, contract="single")))
    k.load(no_number, k.requant(Requant(-NUMBERS, 1 << 30, 1, 0, 0, 127)))
    values, wholes = (k.slots(size, Mem.ACC, *where) for where in ((_SLOTS, 0, k.bank), (_STORED, k.bank)))
    tile, left = {"entry": size}, {"number": _LEFT}
    amounts, lines, near = k.tiles(Mem.ACC, tile, tile, left, high=k.bank)
    far = k.tile(Mem.ACC, low=k.bank, **left)
    for place, numbers in (near, (NUMBERS, steps.least, steps.base)), (far, (steps.align, steps.centre, steps.corner)):
        lanes = np.repeat(np.array(numbers, np.int32)[:, None], k.cfg.block_out, 1)
        k.load(place[:3], k.known("numbers", lanes, number=3))
    numbers, least, base, largest = (near[n] for n in range(4))
    align, centre, corner = far[0], far[1], far[2]

    largest[...] = 0
    largest.maximum(numbers)
    lines[...] = 0
    lines.maximum(corner)
    tiles = [(part, values.next(**part.shape), wholes.next(**part.shape)) for part in x.parts(size)]
    k.load(tiles[0][1], tiles[0][0])
    tiles[0][2][...] = one @ minus_two
    for n, target in enumerate(out.parts(size)):
        (_, value, whole), following = tiles[n], tiles[n + 1 : n + 2]
        amount, line = amounts[: value.size], lines[: value.size]
        amount[...] = 0
        whole *= value  # steps 1 to 4
        whole += numbers
        largest.maximum(whole)
        whole.maximum(least)
        amount += whole
        amount += align
        for part, ahead, _ in following:
            k.load(ahead, part)
        whole *= -256  # step 5
        whole += centre
        whole.rescale(reciprocal)
        for _, _, ahead in following:
            ahead[...] = one @ minus_two
        amount >>= EXPONENT_SHIFT  # steps 6 to 10
        line.minimum(corner)  # never less: now it is the corner
        line.maximum(whole)
        whole += line
        whole += base
        whole >>= amount
        value.maximum(-1)
        value.minimum(1)
        whole *= value
        k.store(target, whole, store)
    k.store(k.array(k.rec.flag_numbers(op)), largest, no_number)
