"""The kernel of layers that two units divide: tiles of the input are loaded once, products run on both at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from ....hw.isa import Mem
from ....runtime import layout
from ....runtime.buffer import Buffer
from ... import graph as g
from ...limits import limits
from ...tir.placement import Slots
from ..direct.on_chip import OnChip, on_chip
from ..recording import Recording, channel_parameters
from .plan import Plan, plan_of


def lower(rec: Recording, op: g.QConv2d | g.QDense) -> None:
    """Append a convolution or a dense layer with ternary channels. Raises `ScheduleError` if it does not fit."""
    with on_chip(rec) as chip:
        weight = op.weight.reshape((*op.weight.shape, 1, 1)[:4])
        Kernel(rec, op, plan_of(op, rec.cfg), chip, (rec.activations[op.x.name], weight)).run()


class Area(NamedTuple):
    """Part of one image: its number, the first row and column of the output, and how many."""

    image: int
    y: int
    x: int
    rows: int
    columns: int


class Step(NamedTuple):
    """Products of blocks `chunk` of the input for a part of the output's blocks, in bank `bank` of each unit."""

    bank: int
    part: int
    area: Area
    chunk: range


class Unit:
    """One unit's share: its blocks of weights (`groups`), `per_group` output blocks each, from block `first` on.

    `record` appends its products. Its `weights` lie in `slots`; of the accumulators it has two `banks`, in which the
    blocks of a group are `apart` entries from each other.
    """

    def __init__(
        self,
        mem: Mem,
        record: Callable[..., None],
        blocks: range,
        banks: tuple[int, int],
        weights: Buffer,
        slots: Slots,
        extents: tuple[int, int, int],
    ):
        self.mem, self.record, self.blocks, self.banks = mem, record, blocks, banks
        self.weights, self.slots = weights, slots
        self.step, self.per_group, self.apart = extents  # groups of a tile, blocks of a group, entries between these

    @property
    def most(self) -> int:
        """Output blocks of a part, at most."""
        return min(self.step * self.per_group, len(self.blocks))

    def groups(self, part: int) -> range:
        """The groups of a part of the output's blocks."""
        every = -(-len(self.blocks) // self.per_group)
        return range(min(part * self.step, every), min((part + 1) * self.step, every))

    def outputs(self, part: int, bank: int, area: int) -> Iterator[tuple[int, int]]:
        """(output block, its first accumulator) in `bank` of each block of a part, in order."""
        for k, group in enumerate(self.groups(part)):
            first = group * self.per_group
            for b, block in enumerate(self.blocks[first : first + self.per_group]):
                yield block, self.banks[bank] + b * self.apart + k * area


class Kernel:
    """The places on chip of a layer, and the instructions of its tiles.

    `operands` are its input and its weights, int8 (O, C, rows, columns), as the plan sees them.
    """

    def __init__(
        self, rec: Recording, op: g.QConv2d | g.QDense, plan: Plan, chip: OnChip, operands: tuple[Buffer, np.ndarray]
    ):
        self.rec, self.op, self.plan, self.work = rec, op, plan, plan.work
        self.tile, self.shape, cfg = plan.tile, plan.work.shape, rec.cfg
        (self.x, weight), self.out = operands, rec.activations[op.output.name]
        self.plane = self.work.height(self.tile.rows) * self.work.width(self.tile.columns)
        self.inp = self._slots(chip, Mem.INP, self.tile.inputs * self.plane, self.tile.inp_slots)
        chip.region(Mem.ACC, cfg.acc_depth)  # a bank for each unit, and one that is stored
        own = len(op.weight) - op.ternary
        self.units = [*self._gemm(chip, weight[:own]), *self._ternary(chip, weight[own:])]
        self.parameters = channel_parameters(rec, op, op.corrected_bias)
        every, each = self.work.gemm + self.work.ternary, sum(unit.most for unit in self.units)
        self.at_once = every <= cfg.par_entries  # whether the parameters of all blocks are loaded together
        size = every if self.at_once else each
        self.par = self._slots(chip, Mem.PAR, size, 1 if self.at_once else cfg.par_entries // size)

    def _slots(self, chip: OnChip, mem: Mem, size: int, count: int) -> Slots:
        base = chip.region(mem, count * size)
        return Slots(mem, range(base, base + count * size, size), size, self.rec.placement)

    def _gemm(self, chip: OnChip, weight: np.ndarray) -> Iterator[Unit]:
        """The share of GEMM, unless it has none."""
        cfg, tile = self.rec.cfg, self.tile
        if not len(weight):
            return
        weights = self.rec.constant(f"{self.op.name}.w", layout.pack_weights(weight, cfg))
        slots = self._slots(chip, Mem.WGT, tile.gemm * tile.inputs * self.work.taps, tile.wgt_slots)
        banks = 0, cfg.bank_depth
        record = self.rec.program.gemm_uops
        yield Unit(Mem.WGT, record, range(self.work.gemm), banks, weights, slots, (tile.gemm, 1, 0))

    def _ternary(self, chip: OnChip, weight: np.ndarray) -> Iterator[Unit]:
        """The share of unit `ternary`, unless it has none."""
        cfg, tile, work = self.rec.cfg, self.tile, self.work
        if not len(weight):
            return
        weights = self.rec.constant(f"{self.op.name}.t", layout.pack_ternary_weights(weight, cfg))
        slots = self._slots(chip, Mem.TWGT, tile.groups * tile.inputs * work.group_taps, tile.twgt_slots)
        banks, blocks = (2 * cfg.bank_depth, 3 * cfg.bank_depth), range(work.gemm, work.gemm + work.ternary)
        extents = tile.groups, cfg.ternary_blocks, cfg.plane_depth
        yield Unit(Mem.TWGT, self.rec.program.ternary_uops, blocks, banks, weights, slots, extents)

    def run(self) -> None:
        """Append all tiles: loads of each step before the products of the step before, which need not wait for them.

        What lets a load wait for the operator before is an instruction of the queues of the units.
        """
        before: tuple[Step, tuple[int, ...]] | None = None
        for step in self._steps():
            if before is not None and not self.plan.ahead:
                self._compute(*before)
                before = None
            places = self._load(step)
            if before is not None:
                self._compute(*before)
            before = step, places
        assert before is not None
        self._compute(*before)

    def _steps(self) -> Iterator[Step]:
        (oy, ox), tile = self.shape.output, self.tile
        for k, (part, (image, y, x)) in enumerate(self.plan):
            area = Area(image, y, x, min(tile.rows, oy - y), min(tile.columns, ox - x))
            yield from (Step(k % 2, part, area, chunk) for chunk in self.plan.chunks)

    def _load(self, step: Step) -> tuple[int, ...]:
        """Load what is not there of the input and of the units' weights; the first entries of all."""
        inp = self._input(step.area, step.chunk)
        return inp, *(self._load_weights(unit, step.part, step.chunk) for unit in self.units)

    def _compute(self, step: Step, places: tuple[int, ...]) -> None:
        """The products of a step, and with the last blocks of the input the stores of its tile."""
        inp, *weights = places
        par = self._load_parameters(step.part)
        for unit, wgt in zip(self.units, weights):
            if len(unit.groups(step.part)):
                self.multiply(unit, (unit.banks[step.bank], inp, wgt), (step.part, step.chunk), step.area)
        if step.chunk.stop == self.work.inputs:
            for unit in self.units:
                self.store(unit, step, par)

    def _load_parameters(self, part: int) -> dict[int, int]:
        """Load the parameters of a part, if they are not there; the entry of each output block."""
        blocks = [block for unit in self.units for block, _ in unit.outputs(part, 0, 0)]
        if self.at_once:
            part, blocks = 0, list(range(self.work.gemm + self.work.ternary))
        base, present = self.par.take(0, part)
        if not present:
            for first, count, at in _runs([(block, k) for k, block in enumerate(blocks)], 1):
                self.rec.program.load(Mem.PAR, base + at, self.parameters, first, x_size=count)
        return {block: base + k for k, block in enumerate(blocks)}

    def _input(self, area: Area, chunk: range) -> int:
        """Load the input of a tile, if it is not there; its first entry."""
        key: Hashable = (area.image, area.y, area.x, chunk.start)
        base, present = self.inp.take(0, key)
        if not present:
            self.load_input(base, area, chunk)
        return base

    def load_input(self, base: int, area: Area, chunk: range) -> None:
        """Load the blocks `chunk` of the input of a tile to `base`."""
        work, (h, w) = self.work, self.shape.size
        top, above, rows, below = work.window(0, area.y, area.rows)
        left, before, columns, after = work.window(1, area.x, area.columns)
        pads, step = (above, below, before, after), work.row_step[0]
        first = ((area.image * work.inputs + chunk.start) * h + top) * w + left
        load = self.rec.program.load
        if columns == w and step == 1 and not any(pads) and rows * w == self.plane:
            load(Mem.INP, base, self.x, first, y_size=len(chunk), x_size=self.plane, x_stride=h * w)
            return
        fill = self.op.x.zero_point if any(pads) else 0
        for k in range(len(chunk)):
            where = {"y_size": rows, "x_size": columns, "x_stride": step * w, "pads": pads, "pad_value": fill}
            load(Mem.INP, base + k * self.plane, self.x, first + k * h * w, **where)

    def _load_weights(self, unit: Unit, part: int, chunk: range) -> int:
        """Load a unit's weights of a part, if they are not there; their first entry."""
        base, present = unit.slots.take(0, (part, chunk.start))
        groups, every = unit.groups(part), self.work.inputs
        taps = self.work.group_taps if unit.mem == Mem.TWGT else self.work.taps
        if not present and len(groups):
            first, size = (groups.start * every + chunk.start) * taps, len(chunk) * taps
            self.rec.program.load(
                unit.mem, base, unit.weights, first, y_size=len(groups), x_size=size, x_stride=every * taps
            )
        return base

    def multiply(self, unit: Unit, places: tuple[int, int, int], work: tuple[int, range], area: Area) -> None:
        """The products of a unit with one piece of the input; `places` are the first entries of what they use."""
        (acc, inp, wgt), (part, chunk), shape = places, work, self.shape
        (kh, kw), taps, width = shape.kernel, shape.taps, self.work.width(area.columns)
        loops = [
            (len(unit.groups(part)), self.tile.area, 0, len(chunk) * taps),
            (area.rows, area.columns, self.work.row_step[1] * width, 0),
            (area.columns, 1, shape.strides[1], 0),
        ]
        fresh = chunk.start == 0  # the first product replaces what the accumulators hold
        if fresh:
            unit.record(np.array([(acc, inp, wgt)]), loops, overwrite=True)
        if taps == 1:
            if len(chunk) > fresh:
                deep = (len(chunk) - fresh, 0, self.plane, 1)
                first = np.array([(acc, inp + fresh * self.plane, wgt + fresh)])
                unit.record(first, [deep, *loops])
            return
        down, across = shape.dilations
        uops = [
            (acc, inp + c * self.plane + ky * down * width + kx * across, wgt + c * taps + ky * kw + kx)
            for c, ky, kx in product(range(len(chunk)), range(kh), range(kw))
        ]
        unit.record(np.array(uops[fresh:]), loops)

    def store(self, unit: Unit, step: Step, par: dict[int, int]) -> None:
        """Store the blocks of a unit: several at once where they lie behind each other."""
        (oy, ox), store, area = self.shape.output, self.rec.program.store, step.area
        outputs = [*unit.outputs(step.part, step.bank, self.tile.area)]
        size, at = area.rows * area.columns, area.y * ox + area.x
        whole = area.columns == ox and oy * ox <= limits(self.rec.cfg, "STOREQ")["x_stride"]
        every = self.work.gemm + self.work.ternary
        for block, count, entry in _runs(outputs, size) if whole else ((b, 1, entry) for b, entry in outputs):
            first = (area.image * every + block) * oy * ox + at
            rows, columns, stride = (count, size, oy * ox) if area.columns == ox else (area.rows, area.columns, ox)
            more = int(count > 1)
            store(entry, self.out, first, y_size=rows, x_size=columns, x_stride=stride, par=par[block], par_step=more)


def _runs(blocks: Sequence[tuple[int, int]], apart: int) -> Iterator[tuple[int, int, int]]:
    """(first block, number, first entry) of what follows each other in `blocks`, (number, entry), `apart` entries."""
    k = 0
    while k < len(blocks):
        (block, entry), count = blocks[k], 1
        while k + count < len(blocks) and blocks[k + count] == (block + count, entry + count * apart):
            count += 1
        yield block, count, entry
        k += count
