"""Sums, differences and products of an image with one constant per channel: products of the array, and a store.

The array multiplies by the constant of a product, in parts where it is beyond int8; the bias of the store has the
zero points, or the constant of a sum, whose fraction needs a shift. Nothing of the constant is loaded with the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, singledispatch
from itertools import product

import numpy as np

from ...hw.isa import Mem
from ...hw.rounding import CONTRACTS, quantize_multiplier
from .. import graph as g
from ..graph import reference
from ..graph.elementwise import ADD_SHIFT
from ..graph.integer_forms import Requant
from .language import TILE, Array, Kernel, Unfit, cuts

_VALUES = np.arange(-128, 128)
_WEIGHT = 64  # of the array, where the accumulators need more bits
_SHIFTS = (0, 14)  # of the accumulators of sums: these are within int32, and have fractions of 20 bits
_NEAR = (0, 1, -1, 2, -2)  # biases beside the nearest that are tried: they decide ties
_LARGEST = 127  # of a part of a weight


def constant_per_channel(k: Kernel, op: g.Add | g.Mul) -> None:
    """A sum, difference or product: the weights and parameters of some blocks of channels stay for all their pixels."""
    k.need("overwrite", "requant", batch=1)
    line = line_of(op)
    if line is None:
        raise Unfit("no operand is one constant per channel of the other, an image, or no store gives all its results")
    x = k.input(next(i for i, t in enumerate(op.inputs) if t.data is None)).merged("pixel", "h", "w")
    out = k.output.merged("pixel", "h", "w")
    (images, blocks, pixels), parts = x.shape.values(), len(line.weights)
    size = min(TILE, k.slot, k.bank)
    each = min(pixels, size)
    most = min(blocks, size // max(1, each), k.cfg.par_entries, k.cfg.wgt_depth // parts)

    parameters, matrices = k.requant(line.store, bias=line.bias), _matrices(k, line)
    pars = k.slots(most, Mem.PAR, count=1)
    weights = k.slots((1 if line.same else most) * parts, Mem.WGT, count=1)
    xs, ys = k.slots(most * each), k.banks(most * each)
    for block, image, pixel in product(cuts(blocks, most), range(images), cuts(pixels, each)):
        tile = xs.load(x[image, block, pixel])
        y, w = ys.next(**tile.shape), weights.hold(matrices[0] if line.same else matrices[block])
        y[...] = tile @ w[..., 0]
        for part in range(1, parts):
            y += (tile @ w[..., part]).over("b pixel")
        y <<= line.shift
        k.store(out[image, block, pixel], y, pars.hold(parameters[block]))


def _matrices(k: Kernel, line: Line) -> Array:
    """In DRAM, the parts of the weights of each block on the diagonals of matrices, or those of all blocks."""
    block = k.cfg.block_in
    weights = np.stack([np.pad(part, (0, -len(part) % block)) for part in line.weights], 1)
    weights = weights.reshape(-1, block, len(line.weights)).swapaxes(1, 2)  # (blocks, parts, lanes)
    if line.same:
        weights = np.repeat(weights[:1, :, :1], block, 2)
    matrices = (weights[..., None] * np.eye(block, dtype=np.int64)).astype(np.int8)
    return k.known("weights", matrices, b=len(matrices), part=len(line.weights))


@dataclass(frozen=True)
class Line:
    """`store((sum(weights) * x << shift) + bias)`, channel by channel.

    `weights` are int64 (c,) within int8, `bias` is int64 (c,).
    """

    weights: tuple[np.ndarray, ...]
    bias: np.ndarray
    store: Requant
    shift: int = 0

    @property
    def same(self) -> bool:
        """True if all channels have the same weights."""
        return all((part == part[0]).all() for part in self.weights)


@lru_cache(maxsize=64)
def line_of(op: g.Add | g.Mul) -> Line | None:
    """The line of an operator with a constant per channel; None where it is another one, or no line is exact."""
    constants = [k for k, t in enumerate(op.inputs) if t.data is not None]
    if len(op.output.shape) != 4 or len(constants) != 1 or op.inputs[1 - constants[0]].shape != op.output.shape:
        return None
    constant = op.inputs[constants[0]].data
    if constant is None or max((1, 1, 1, 1, *constant.shape)[-4:][k] for k in (0, 2, 3)) > 1:
        return None
    return _line(op, constants[0], np.broadcast_to(constant.reshape(-1), op.output.shape[1:2]).astype(np.int64))


@singledispatch
def _line(op: g.Mul, k: int, constants: np.ndarray) -> Line | None:
    """The line of a product, with operand `k` int64 `constants`, one per channel."""
    factor, weights = constants - op.inputs[k].zero_point, list[np.ndarray]()
    while not weights or (factor != sum(weights)).any():
        weights.append(np.clip(factor - sum(weights), -_LARGEST - 1, _LARGEST))
    store = Requant(0, *op.multipliers, op.output.zero_point, op.low, op.high, "double")
    return Line(tuple(weights), -op.inputs[1 - k].zero_point * factor, store)


@_line.register
def _(op: g.Add, k: int, constants: np.ndarray) -> Line | None:
    """That of a sum whose results are exact for every x, which is tried."""
    distinct, places = np.unique(constants, return_inverse=True)
    pair = (_VALUES[None], distinct[:, None]) if k else (distinct[:, None], _VALUES[None])
    wanted = reference.apply(op, *(t.astype(np.int8) for t in pair))
    scales, signs = [m * 2.0 ** (e - 31) for m, e in op.multipliers], (1, op.sign)
    slope = signs[1 - k] * scales[1 - k] * scales[2] * 2.0**ADD_SHIFT  # output steps per step of x
    added = signs[k] * signs[1 - k] * (distinct - op.inputs[k].zero_point) * scales[k] / scales[1 - k]  # steps of x
    for shift, contract in product(_SHIFTS, CONTRACTS):
        weight = (_WEIGHT if shift else 1) * (1 if slope > 0 else -1)
        unit = weight * (1 << shift)
        store = Requant(0, *quantize_multiplier(slope / unit), op.output.zero_point, op.low, op.high, contract)
        nearest = np.rint((added - op.inputs[1 - k].zero_point) * unit).astype(np.int64)
        if (abs(nearest).max() + 128 * abs(unit) + max(_NEAR)) * 2.0 ** max(store.exponent, 0) >= 1 << 31:
            continue
        bias = nearest[:, None] + np.array(_NEAR)  # (constants, biases), of which the first exact one is taken
        exact = (store.apply(unit * _VALUES + bias[..., None]) == wanted[:, None]).all(2)
        if exact.any(1).all():
            bias = bias[np.arange(len(distinct)), exact.argmax(1)][places.reshape(-1)]
            return Line((np.full(len(constants), weight),), bias, store, shift)
    return None
