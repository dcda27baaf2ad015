"""Products of an image with one value per channel, as gates of squeeze-and-excite blocks are."""

from __future__ import annotations

import numpy as np

from ...hw.isa import Mem
from .. import graph as g
from ..graph.integer_forms import Requant
from .language import Kernel, Unfit

_TILE = 200


def gate(k: Kernel, op: g.Mul) -> None:
    """GEMM copies the image to the accumulators, ahead of the ALU, which multiplies each pixel by its block's gates.

    In a schedule all operands of a chain have one shape.
    """
    k.need("overwrite", "acc8")
    shape = op.output.shape
    images = [t for t in op.inputs if t.data is None and t.shape == shape]
    if len(shape) != 4 or not images or shape[2] * shape[3] == 1:
        raise Unfit("no operand is an image as large as the output")
    image = op.inputs.index(images[0])
    values = op.inputs[1 - image]
    if values.data is not None and (1, 1, *values.shape)[-2:] == (1, 1):
        whole = np.broadcast_to(values.data, (*shape[:2], 1, 1))
        gates = k.packed_constant(values.name, whole).merged("gate")
    elif values.data is None and values.shape == (*shape[:2], 1, 1):
        gates = k.input(1 - image).merged("gate")
    else:
        raise Unfit("no operand has one value per channel of the other, an image")
    x = k.input(image).merged("gate", "n", "b").merged("pixel", "h", "w")
    out = k.output.merged("gate", "n", "b").merged("pixel", "h", "w")
    count, pixels = x.shape.values()
    kept = min(count, k.cfg.acc_depth // 8)
    size = min(_TILE, k.slot, k.bank - kept)
    most, each = min(kept, max(1, size // pixels)), min(pixels, size)

    one = k.identity()
    par = k.parameters(Requant(0, *op.multipliers, op.output.zero_point, op.low, op.high))
    factors = k.tile(Mem.ACC, low=k.cfg.acc_depth - kept, gate=kept)
    xs, ys = k.slots(most * each), k.banks(most * each)
    for group in range(0, count, kept):
        last = min(count, group + kept)
        z = k.load(factors[: last - group], gates[group:last])
        z += -values.zero_point
        for first in range(group, last, most):
            these = slice(first, min(last, first + most))
            for pixel in range(0, pixels, each):
                part = these, slice(pixel, min(pixels, pixel + each))
                tile = xs.load(x[part])
                y = ys.next(**tile.shape)
                y[...] = tile @ one
                y += -images[0].zero_point
                y *= z[these.start - group : these.stop - group]
                k.store(out[part], y, par)
