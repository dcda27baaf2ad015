"""Sums, differences and products of an image with one constant per channel: products of the array, and a store.

The array multiplies by the constant of a product, in parts where it is beyond int8; the bias of the store has the
zero points, or the constant of a sum, whose fraction needs a shift. Nothing of the constant is loaded with the image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from ....hw import rounding
from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rounding import CONTRACTS, quantize_multiplier
from ....hw.units import striped
from ....runtime import operators
from ... import cost
from ... import graph as g
from ...graph.operators import ADD_SHIFT
from ..direct.on_chip import OnChip, on_chip
from ..recording import Recording

_TILE = 256  # entries: enough to hide what an instruction costs, and few enough for a short start and end
_VALUES = np.arange(-128, 128)
_WEIGHT = 64  # of the array, where the accumulators need more bits
_SHIFTS = (0, 14)  # of the accumulators of sums: these are within int32, and have fractions of 20 bits
_NEAR = (0, 1, -1, 2, -2)  # biases beside the nearest that are tried: they decide ties
_LARGEST = 127  # of a part of a weight


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


def line_of(op: g.Operator, cfg: Config) -> Line | None:
    """The line of an operator with a constant per channel; None where it is another one, or no line is exact."""
    able = cfg.batch == 1 and cfg.block_in == cfg.block_out and {"overwrite", "requant"} <= cfg.extensions
    if not able or not isinstance(op, (g.Add, g.Mul)) or len(op.output.shape) != 4:
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


def cycles(op: g.Operator, line: Line, cfg: Config) -> float:
    """Estimated cycles: the longest of array and ALU, loads and stores, and the first load and the last store."""
    n, channels, *size = op.output.shape
    blocks, pixels = -(-channels // cfg.block_in), n * math.prod(size)
    entries, tiles = blocks * pixels, -(-blocks * pixels // _TILE)
    loads = cost.transfer(striped(cfg), entries * cfg.inp_entry_bytes, tiles)
    stores = cost.transfer(cfg, entries * cfg.out_entry_bytes + blocks * cfg.par_entry_bytes, tiles)
    compute = cost.computed(entries * (len(line.weights) + (line.shift > 0)), 2 * tiles)
    return max(compute, loads, stores) + (loads + stores) / tiles


def lower(rec: Recording, op: g.Add | g.Mul, line: Line) -> None:
    """Append the operator, some blocks and pixels at a time."""
    cfg, program, (n, channels, *size) = rec.cfg, rec.program, op.output.shape
    pixels, blocks = math.prod(size), -(-channels // cfg.block_in)
    k = next(k for k, t in enumerate(op.inputs) if t.data is None)
    x, out = rec.operand(op, k), rec.activations[op.output.name]
    each = min(pixels, _TILE)
    together = min(blocks, max(1, _TILE // each), cfg.par_entries)
    with on_chip(rec) as chip:
        whole, constants = together * each, _Constants(rec, op, line, chip, together)
        inp, acc = chip.slots(Mem.INP, whole), chip.banks(whole, whole, cfg.acc_depth // 2)
        for k, (block, image, pixel) in enumerate(_tiles((blocks, n, pixels), (together, 1, each))):
            many, count = min(together, blocks - block), min(each, pixels - pixel)
            where = (image * blocks + block) * pixels + pixel
            program.load(Mem.INP, inp[k % 2], x, where, y_size=many, x_size=count, x_stride=pixels)
            constants.multiply(acc[k % 2], inp[k % 2], block, many, count)
            if line.shift:
                program.alu(AluOp.SHR, [(many * count, 1, 0)], acc[k % 2], imm=-line.shift)
            par = constants.parameters(block, many)
            program.store(acc[k % 2], out, where, y_size=many, x_size=count, x_stride=pixels, par=par, par_step=1)


def _tiles(sizes: tuple[int, ...], steps: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return product(*(range(0, size, step) for size, step in zip(sizes, steps)))


class _Constants:
    """Parameters and matrices of `together` blocks on chip; one matrix for all where all channels have one weight."""

    def __init__(self, rec: Recording, op: g.Add | g.Mul, line: Line, chip: OnChip, together: int):
        self.rec, self.line, block = rec, line, rec.cfg.block_in
        scale = {"multiplier": line.multiplier, "exponent": line.exponent, "contract": line.contract}
        facts = {"zero_point": op.output.zero_point, "low": op.low, "high": op.high}
        parameters = rec.parameters(f"{op.name}.par", bias=line.bias, **scale, **facts)
        weights = np.stack([np.pad(part, (0, -len(part) % block)) for part in line.weights], 1)
        weights = weights.reshape(-1, block, len(line.weights)).swapaxes(1, 2)  # (blocks, parts, lanes)
        if line.same:
            weights = np.repeat(weights[:1, :, :1], block, 2)
        matrices = (weights[..., None] * np.eye(block, dtype=np.int64)).astype(np.int8)
        self.parts = len(line.weights)
        self.buffers = {Mem.PAR: parameters, Mem.WGT: rec.constant(f"{op.name}.weights", matrices)}
        count = 1 if line.same else together
        self.bases = {Mem.PAR: chip.region(Mem.PAR, together), Mem.WGT: chip.region(Mem.WGT, count * self.parts)}
        self.loaded = {Mem.PAR: -1, Mem.WGT: -1}

    def _load(self, mem: Mem, first: int, count: int) -> int:
        """The first of `count` entries from `first` of their buffer on."""
        if self.loaded[mem] != first:
            self.rec.program.load(mem, self.bases[mem], self.buffers[mem], first, x_size=count)
            self.loaded[mem] = first
        return self.bases[mem]

    def parameters(self, block: int, many: int) -> int:
        """The first parameters of `many` blocks from `block` on."""
        return self._load(Mem.PAR, block, many)

    def multiply(self, acc: int, inp: int, block: int, many: int, count: int) -> None:
        """Multiply blocks of `count` entries each by their weights."""
        same, parts = self.line.same, self.parts
        wgt = self._load(Mem.WGT, 0, parts) if same else self._load(Mem.WGT, block * parts, many * parts)
        loops = [(many, count, count, 0 if same else parts), (count, 1, 1, 0)]
        for part in range(parts):
            self.rec.program.gemm(loops, acc, inp, wgt + part, overwrite=part == 0)
