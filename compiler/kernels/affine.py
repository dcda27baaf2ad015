"""Sums, differences and products of an image with one constant per channel: products of the array, and a store.

The array multiplies by the constant of a product, in parts where it is beyond int8; the bias of the store has the
zero points, or the constant of a sum, whose fraction needs a shift. Nothing of the constant is loaded with the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from ...hw import rounding
from ...hw.isa import Mem
from ...hw.rounding import CONTRACTS, quantize_multiplier
from ...runtime import operators
from .. import graph as g
from ..graph.integer_forms import Requant
from ..graph.operators import ADD_SHIFT
from .language import TILE, Array, Kernel, Unfit

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

    store = Requant(0, 1 << 30, 1, op.output.zero_point, op.low, op.high, line.contract)
    parameters = k.requant(store, bias=line.bias, multiplier=line.multiplier, exponent=line.exponent)
    matrices = _matrices(k, line)
    pars = k.slots(most, Mem.PAR, count=1)
    weights = k.slots((1 if line.same else most) * parts, Mem.WGT, count=1)
    xs, ys = k.slots(most * each), k.banks(most * each)
    for first, image, start in product(range(0, blocks, most), range(images), range(0, pixels, each)):
        block, pixel = slice(first, min(first + most, blocks)), slice(start, min(start + each, pixels))
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
    """`store((sum(weights) * x << shift) + bias)`, channel by channel, and the store's scale and contract.

    `weights` are int64 (c,) within int8; the others are int64 (c,).
    """

    weights: tuple[np.ndarray, ...]
    bias: np.ndarray
    multiplier: np.ndarray
    exponent: np.ndarray
    shift: int
    contract: str

    @property
    def same(self) -> bool:
        """True if all channels have the same weights."""
        return all((part == part[0]).all() for part in self.weights)


@dataclass(frozen=True)
class _Sum:
    """What a sum depends on beside its constant: zero points and multipliers of x, constant and output, and clamps.

    `sign` is that of the second operand; with `first` that is x.
    """

    points: tuple[int, int, int]
    multipliers: tuple[tuple[int, int], ...]
    sign: int
    first: bool
    low: int
    high: int

    def values(self, constants: np.ndarray) -> np.ndarray:
        """int8 (c, 256): the results for each constant and each x."""
        pair, points, scales = (_VALUES[None, :], constants[:, None]), self.points, self.multipliers
        if self.first:
            pair, points, scales = pair[::-1], (points[1], points[0], points[2]), (scales[1], scales[0], scales[2])
        m, e = zip(*scales)
        facts = {"zero_points": points, "multipliers": m, "exponents": e, "sign": self.sign, "shift": ADD_SHIFT}
        return operators.add(*pair, **facts, low=self.low, high=self.high)

    def line(self, constants: np.ndarray) -> tuple[float, np.ndarray]:
        """(output steps per step of x, what each constant adds in steps of x), float64."""
        scales = [m * 2.0 ** (e - 31) for m, e in self.multipliers]
        of_x, of_constant = (self.sign, 1) if self.first else (1, self.sign)
        slope = of_x * scales[0] * scales[2] * 2.0**ADD_SHIFT
        return slope, of_constant * of_x * (constants - self.points[1]) * scales[1] / scales[0]


def line_of(op: g.Add | g.Mul) -> Line | None:
    """The line of an operator with a constant per channel; None where it is another one, or no line is exact."""
    if len(op.output.shape) != 4:
        return None
    constants = [k for k, t in enumerate(op.inputs) if t.data is not None]
    if len(constants) != 1 or op.inputs[1 - constants[0]].shape != op.output.shape:
        return None
    (k,), (x, y) = constants, (op.inputs[1 - constants[0]], op.inputs[constants[0]])
    shape = (1, 1, 1, 1, *y.shape)[-4:]
    if shape[0] * shape[2] * shape[3] > 1 or y.data is None:
        return None
    values = np.broadcast_to(y.data.reshape(-1), op.output.shape[1:2]).astype(np.int64)
    points = x.zero_point, y.zero_point, op.output.zero_point
    if isinstance(op, g.Mul):
        return _product(values - y.zero_point, x.zero_point, *op.multipliers)
    first, second, third = op.multipliers
    scales = (first, second, third) if k else (second, first, third)
    return _sum(_Sum(points, scales, op.sign, k == 0, op.low, op.high), tuple(values.tolist()))


def _product(factor: np.ndarray, zero_point: int, multiplier: int, exponent: int) -> Line:
    """`R(factor * (x - zero_point))`, contract double."""
    weights, rest = list[np.ndarray](), factor
    while not weights or rest.any():
        weights.append(np.clip(rest, -_LARGEST - 1, _LARGEST))
        rest = rest - weights[-1]
    scale = np.full(factor.shape, multiplier), np.full(factor.shape, exponent)
    return Line(tuple(weights), -zero_point * factor, *scale, 0, "double")


@lru_cache(maxsize=256)
def _sum(facts: _Sum, values: tuple[int, ...]) -> Line | None:
    """The line of a sum whose results are exact for every x, which is tried."""
    constants, places = np.unique(values, return_inverse=True)
    for shift, contract in product(_SHIFTS, CONTRACTS):
        bias = _biases(facts, constants, shift, contract)
        if bias is not None:
            weight, scale = _scale(facts, constants, shift)
            whole = [np.full(len(values), v) for v in (weight, *scale)]
            return Line((whole[0],), bias[places.reshape(-1)], whole[1], whole[2], shift, contract)
    return None


def _scale(facts: _Sum, constants: np.ndarray, shift: int) -> tuple[int, tuple[int, int]]:
    """(weight, (multiplier, exponent)) of a sum."""
    slope, _ = facts.line(constants)
    weight = _WEIGHT if shift else 1
    return weight if slope > 0 else -weight, quantize_multiplier(abs(slope) / (weight << shift))


def _biases(facts: _Sum, constants: np.ndarray, shift: int, contract: str) -> np.ndarray | None:
    """int64: a bias for each of the distinct constants, if there is one with which all results are exact."""
    weight, (multiplier, exponent) = _scale(facts, constants, shift)
    unit = weight << shift if weight > 0 else -(-weight << shift)
    nearest = np.rint((facts.line(constants)[1] - facts.points[0]) * unit)
    largest = float(np.abs(nearest).max()) + 128 * abs(unit) + max(_NEAR)
    if largest * 2.0 ** max(exponent, 0) >= 1 << 31:
        return None
    wanted, bias = facts.values(constants), np.zeros(len(constants), np.int64)
    missing = np.full(len(constants), True)
    for near in _NEAR:
        tried = nearest.astype(np.int64) + near
        total = unit * _VALUES + tried[:, None]
        found = rounding.requantise(total, multiplier, exponent, facts.points[2], facts.low, facts.high, contract)
        good = missing & (found == wanted).all(1)
        bias, missing = np.where(good, tried, bias), missing & ~good
    return None if missing.any() else bias
