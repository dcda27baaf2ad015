"""Moves of channels, beside cuts and padding of images: products with matrices of zeros and ones.

Channels that do not begin a block lie in other lanes before than after. Every block of the output is the sum of a few
blocks of the inputs, each multiplied by the matrix that takes its lanes to theirs. Channels of a constant value get it
from the store. Loads skip rows and add padding, micro-ops skip columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem
from ....hw.units import striped
from ....runtime import layout
from ....runtime.buffer import Buffer
from ... import cost
from ... import graph as g
from ...graph.integer_forms import Requant
from ...limits import most_padding
from ..recording import Recording, place
from .on_chip import OnChip, on_chip

_Source = tuple[int, int]  # (number of the input, block of its channels)


@dataclass(frozen=True)
class Move:
    """Where the elements of an output come from: images are cut from `begin` on in steps of `steps`, or padded.

    `channels` are (number of the input, its channel) of each channel of the output, None for those of value `value`;
    `pads` are (rows before, after, columns before, after), also of that value.
    """

    channels: tuple[_Source | None, ...]
    begin: tuple[int, int] = (0, 0)
    steps: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    value: int = 0


@dataclass(frozen=True, eq=False)
class Moved(g.Operator):
    """An operator that is a move, described by it."""

    move: Move


def move_of(op: g.Operator) -> Move | None:
    """The move that `op` is, of int8 images or vectors; None if it moves something else."""
    if isinstance(op, Moved):
        return op.move
    ranks = {len(t.shape) for t in (*op.inputs, op.output)}
    if op.output.dtype != "int8" or ranks not in ({2}, {4}):
        return None
    if isinstance(op, g.Concat) and op.axis == 1:
        return Move(tuple((k, c) for k, t in enumerate(op.inputs) for c in range(t.shape[1])))
    if isinstance(op, g.StridedSlice) and op.output.shape[0] == op.x.shape[0] and min(op.strides[2:], default=1) > 0:
        channels = tuple((0, op.begin[1] + k * op.strides[1]) for k in range(op.output.shape[1]))
        (y, x), (down, across) = (_image(values, default) for values, default in ((op.begin, 0), (op.strides, 1)))
        return Move(channels, (y, x), (down, across))
    if isinstance(op, g.Pad) and not any(op.pads[0]):
        before, after = op.pads[1]
        channels = (*(None,) * before, *((0, c) for c in range(op.x.shape[1])), *(None,) * after)
        (top, bottom), (left, right) = op.pads[2:] or ((0, 0), (0, 0))
        return Move(channels, pads=(top, bottom, left, right), value=int(op.value))
    if isinstance(op, g.Take) and op.indices[1] and not any(op.indices[:1] + op.indices[2:]):
        return Move(tuple((0, c) for c in op.indices[1]))
    return None


def _image(values: tuple[int, ...], default: int) -> tuple[int, int]:
    y, x = values[2:] or (default, default)
    return y, x


class Plan:
    """The tiles of a move: `together` blocks of the output, and `rows` of them.

    `terms` are the products of each block of the output: (source, number of its matrix in `matrices`). `constants` are
    the values that the store adds, int32, by block. `cycles` is the estimate of all. `fit` is whether something fits.
    Blocks before `first` are in their place already.
    """

    def __init__(self, op: g.Operator, move: Move, cfg: Config, first: int = 0):
        self.move, self.lanes, self.first = move, cfg.block_in, first
        self.matrices: list[np.ndarray] = []
        self.terms, self.constants = self._terms()
        n, _, self.oy, self.ox = (*op.output.shape, 1, 1)[:4]
        self.images, self.height = -(-n // cfg.batch), (*op.x.shape, 1, 1)[2]
        self.wide = (self.ox - sum(move.pads[2:]) - 1) * move.steps[1] + 1 + sum(move.pads[2:])  # columns of a load
        computed = range(1, len(self.terms) - first + 1)
        best = min((found for k in computed if (found := self._tile(k, cfg))), default=None)
        on_chip = len(self.matrices) <= cfg.wgt_depth // 2 and len(self.stores) <= cfg.par_entries
        self.cycles, self.together, self.rows = best or (0.0, 1, 1)
        self.widest = max(len(self.sources(k, self.together)) for k in range(first, len(self.terms), self.together))
        self.fit = best is not None and on_chip and max(move.pads) <= most_padding(cfg)

    def _terms(self) -> tuple[list[list[tuple[_Source, int]]], list[np.ndarray | None]]:
        numbers: dict[bytes, int] = {}
        terms, constants = [], []
        for first in range(0, len(self.move.channels), self.lanes):
            found: dict[_Source, np.ndarray] = {}
            constant = np.zeros(self.lanes, np.int32)
            for lane, source in enumerate(self.move.channels[first : first + self.lanes]):
                if source is None:
                    constant[lane] = self.move.value
                    continue
                block, other = divmod(source[1], self.lanes)
                empty = np.zeros((self.lanes, self.lanes), np.int8)
                found.setdefault((source[0], block), empty)[lane, other] = 1
            for matrix in found.values():
                if matrix.tobytes() not in numbers:
                    numbers[matrix.tobytes()] = len(self.matrices)
                    self.matrices.append(matrix)
            terms.append([(source, numbers[matrix.tobytes()]) for source, matrix in found.items()])
            constants.append(constant if constant.any() else None)
        return terms, constants

    @property
    def stores(self) -> list[np.ndarray]:
        """The different constants of all blocks."""
        return list({c.tobytes(): c for c in self.constants if c is not None}.values())

    def sources(self, first: int, count: int) -> list[_Source]:
        """What `count` blocks of the output from `first` on read, each once."""
        return list(dict.fromkeys(source for terms in self.terms[first : first + count] for source, _ in terms))

    def _tile(self, together: int, cfg: Config) -> tuple[float, int, int] | None:
        """(cycles, blocks together, rows) of the tallest tile of so many blocks; None if not even one row fits."""
        computed = self.terms[self.first :]
        groups = [self.sources(k, together) for k in range(self.first, len(self.terms), together)]
        widest = max(1, *map(len, groups))
        rows = min(self.oy, cfg.inp_depth // 2 // (widest * self.wide), cfg.acc_depth // 2 // (together * self.ox))
        if rows == 0 or max(len(terms) for terms in self.terms) * together > cfg.uop_depth // 2:
            return None
        tops = range(0, self.oy, rows)
        if any(sum(self.window(y, min(rows, self.oy - y))[1:]) >= min(rows, self.oy - y) for y in tops):
            return None  # a load must bring at least one row
        tiles, entries = -(-self.oy // rows), self.oy * self.ox * len(computed)
        products = self.oy * self.ox * sum(max(1, len(terms)) for terms in computed)
        loaded, loads = self.oy * self.wide * sum(map(len, groups)), tiles * sum(map(len, groups))
        load = cost.transfer(striped(cfg), loaded * cfg.inp_entry_bytes, loads)
        store = cost.transfer(cfg, entries * cfg.out_entry_bytes, tiles * len(computed))
        first = (load + store) / (tiles * len(groups))  # what nothing hides
        return self.images * max(load, store, cost.computed(products, 3 * tiles * len(groups))) + first, together, rows

    def window(self, first: int, count: int) -> tuple[int, int, int]:
        """(first row of the input, rows of padding before and after) of `count` rows of the output."""
        (top, *_), (begin, _), (step, _) = self.move.pads, self.move.begin, self.move.steps
        before, row = max(0, top - first), begin + first * step - top
        return max(0, row), before, max(0, row + (count - 1) * step + 1 - self.height)

    def __iter__(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(image, first block, blocks, first row, rows) of each tile."""
        blocks = len(self.terms)
        firsts = range(self.first, blocks, self.together)
        for n, k, y in product(range(self.images), firsts, range(0, self.oy, self.rows)):
            yield n, k, min(self.together, blocks - k), y, min(self.rows, self.oy - y)


@cost.cached(128)
def plan_of(op: g.Operator, cfg: Config) -> Plan | None:
    """The tiles of a move; None if `op` is none, or nothing fits `cfg`."""
    if "overwrite" not in cfg.extensions or cfg.block_in != cfg.block_out or (move := move_of(op)) is None:
        return None
    plan = Plan(op, move, cfg)
    return plan if plan.fit else None


def lower(rec: Recording, op: g.Operator) -> None:
    """Append a move, tile by tile."""
    cfg, plan, out = rec.cfg, plan_of(op, rec.cfg), rec.activations[op.output.name]
    assert plan is not None  # `refusal` said so
    if op.x.data is None and place(rec.activations[op.x.name]) == place(out):
        whole = op.x.shape[1] // cfg.block_in  # blocks that nothing is added to
        if whole == len(plan.terms):
            return
        plan = Plan(op, plan.move, cfg, whole)
    operands = [_operand(rec, t) for t in op.inputs]
    with on_chip(rec) as chip:
        lanes = rec.constant(f"{op.name}.lanes", np.stack(plan.matrices))
        wgt, pars = chip.constant(Mem.WGT, lanes, len(plan.matrices)), _parameters(rec, op, plan, chip)
        area, size = plan.rows * plan.wide, plan.together * plan.rows * plan.ox
        inp, acc = chip.slots(Mem.INP, plan.widest * area), chip.banks(size, size, cfg.acc_depth // 2)
        for k, (n, first, count, y, rows) in enumerate(plan):
            sources = plan.sources(first, count)
            for number, (operand, block) in enumerate(sources):
                where = n * -(-op.inputs[operand].shape[1] // cfg.block_in) + block
                _load(rec, op, plan, (operands[operand], inp[k % 2] + number * rows * plan.wide), (where, y, rows))
            _products(rec, plan, (acc[k % 2], inp[k % 2], wgt), (range(first, first + count), rows), sources)
            for block in range(first, first + count):
                offset = ((n * len(plan.terms) + block) * plan.oy + y) * plan.ox
                base = acc[k % 2] + (block - first) * rows * plan.ox
                rec.program.store(base, out, offset, x_size=rows * plan.ox, par=pars[block])


def _operand(rec: Recording, t: g.Tensor) -> Buffer:
    if t.data is None:
        return rec.activations[t.name]
    return rec.constant(t.name, layout.pack_blocks(t.data, rec.cfg.batch, rec.cfg.block_in))


def _parameters(rec: Recording, op: g.Operator, plan: Plan, chip: OnChip) -> list[int | None]:
    """The PAR entry of each block's store, which adds its constants; None where there are none."""
    stores = plan.stores
    if not stores:
        return [None] * len(plan.terms)
    unit = asdict(Requant(0, 1 << 30, 1, 0)) | {"bias": np.concatenate(stores)}
    first = chip.constant(Mem.PAR, rec.parameters(f"{op.name}.par", **unit), len(stores))
    place = {constants.tobytes(): first + k for k, constants in enumerate(stores)}
    return [None if constants is None else place[constants.tobytes()] for constants in plan.constants]


def _load(rec: Recording, op: g.Operator, plan: Plan, to: tuple[Buffer, int], tile: tuple[int, int, int]) -> None:
    """Load `tile`, (block of the packed input, first row of the output, rows), from a buffer `to` an entry."""
    (buffer, base), (block, first, count), move = to, tile, plan.move
    (h, w), (_, _, left, right) = (*op.x.shape, 1, 1)[2:4], move.pads
    begin, before, after = plan.window(first, count)
    columns = plan.wide - left - right
    pads = (before, after, left, right)
    offset = (block * h + begin) * w + move.begin[1]
    rec.program.load(
        Mem.INP,
        base,
        buffer,
        offset,
        y_size=count - before - after,
        x_size=columns,
        x_stride=w * move.steps[0],
        pads=pads,
        pad_value=move.value if any(pads) else 0,
    )


def _products(
    rec: Recording,
    plan: Plan,
    bases: tuple[int, int, int],
    tile: tuple[range, int],
    sources: list[_Source],
) -> None:
    """The products of (blocks, rows) of a tile: the first of each block replaces what the accumulators hold."""
    (acc, inp, wgt), (blocks, rows) = bases, tile
    loops = [(rows, plan.ox, plan.wide, 0), (plan.ox, 1, plan.move.steps[1], 0)]
    fresh, added = [], []
    for number, block in enumerate(blocks):
        base = acc + number * rows * plan.ox
        uops = [(base, inp + sources.index(s) * rows * plan.wide, wgt + matrix) for s, matrix in plan.terms[block]]
        if not uops:  # constants alone
            rec.program.gemm(loops, base, reset=True)
        fresh, added = fresh + uops[:1], added + uops[1:]
    for uops, overwrite in ((fresh, True), (added, False)):
        if uops:
            rec.program.gemm_uops(np.array(uops), loops, overwrite=overwrite)
