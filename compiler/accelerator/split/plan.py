"""Tiles of a layer whose output channels two units divide, and what it costs.

Both units read one tile of the input, of which they make different output blocks. Each has two of the four banks of
accumulators: one in which it computes, while the tile before is stored from the other. Weights and inputs are loaded in
pieces, each of one part of the input blocks, so that products begin when the first pieces are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ....hw.config import UOP_BYTES, Config
from ....hw.errors import ScheduleError
from ....hw.isa import INSN_BYTES
from ....hw.units import fetch_reader, striped
from ... import cost
from ... import graph as g
from ...conv_shape import ConvShape

SLACK = 0.002  # among tiles this close to the best in cycles, the fewest steps win
Numbers = np.ndarray


@dataclass(frozen=True)
class Division:
    """A layer in blocks of channels: `inputs` of them make `gemm` blocks on GEMM and `ternary` on unit `ternary`.

    The latter are computed in `groups` of as many as that unit makes at once. `images` are those of one batch.
    """

    shape: ConvShape
    images: int
    inputs: int
    gemm: int
    ternary: int
    groups: int

    @staticmethod
    def of(shape: ConvShape, ternary: int, cfg: Config) -> Division:
        """The division of a layer whose last `ternary` output channels are ternary.

        A kernel as large as the image makes it a dense layer on the entries of the image.
        """
        inputs, blocks = -(-shape.c // cfg.block_in), -(-ternary // cfg.block_out)
        if shape.kernel == shape.size and not any(shape.pads) and shape.dilations == (1, 1):
            inputs *= shape.taps
            shape = ConvShape(shape.n, shape.c, 1, 1, shape.o)
        gemm, groups = -(-(shape.o - ternary) // cfg.block_out), -(-blocks // cfg.ternary_blocks)
        return Division(shape, -(-shape.n // cfg.batch), inputs, gemm, blocks, groups)

    @property
    def row_step(self) -> tuple[int, int]:
        """Rows of the image between two rows of a tile, and rows of a tile between those of two outputs.

        A kernel of one row skips the rows between its strides; they need not be loaded.
        """
        alone = self.shape.kernel[0] == 1 and not any(self.shape.pads[::2])
        return (self.shape.strides[0], 1) if alone else (1, self.shape.strides[0])

    @property
    def taps(self) -> int:
        """Entries of weights of one block of the input for one block of the output."""
        return self.shape.taps

    def products(self, blocks: int) -> int:
        """Micro-ops that compute `blocks` output blocks, or groups of them."""
        oy, ox = self.shape.output
        return self.images * oy * ox * blocks * self.inputs * self.taps

    @property
    def at_once(self) -> int:
        """Outputs of a row that a micro-op of unit `ternary` makes, each in a plane of its own."""
        return 1

    @property
    def group_taps(self) -> int:
        """As `taps`, of ternary weights for one group."""
        return self.taps

    def group_products(self) -> int:
        """Micro-ops that compute all groups."""
        return self.products(self.groups)

    def height(self, rows: Any) -> Any:
        """Rows of the tile of the input that `rows` of the output read, a number or an array."""
        return (rows - 1) * self.row_step[1] + self.shape.span[0]

    def width(self, columns: Any) -> Any:
        """Columns of the tile of the input that `columns` of the output read, a number or an array."""
        return (columns - 1) * self.shape.strides[1] + self.shape.span[1]

    def window(self, axis: int, first: int, count: int) -> tuple[int, int, int, int]:
        """(first element, padding before, elements, padding after) of the input of `count` outputs from `first` on.

        `axis` is 0 for rows, which are counted in steps, 1 for columns.
        """
        step, size = self.row_step[0] if axis == 0 else 1, self.shape.size[axis]
        reach = self.height(count) if axis == 0 else self.width(count)
        low = first * self.shape.strides[axis] - self.shape.pads[axis]
        inside = [k for k in range(reach) if 0 <= low + k * step < size]
        if not inside:
            return 0, reach, 0, 0
        return low + inside[0] * step, inside[0], len(inside), reach - 1 - inside[-1]

    def sizes(self, axis: int) -> list[int]:
        """Sizes of tiles along an axis of the output, whose tiles all reach the image."""
        extent = self.shape.output[axis]
        found = sorted({-(-extent // k) for k in range(1, extent + 1)})
        return [
            size
            for size in found
            if all(self.window(axis, first, min(size, extent - first))[2] for first in range(0, extent, size))
        ]


@dataclass(frozen=True)
class Tile:
    """Extents of a tile: rows and columns of the output, blocks on GEMM, groups of blocks, blocks of the input.

    With `outer` the loop over output blocks is around that over tiles of the image. The others are numbers of pieces
    of the input, of weights and of ternary weights on chip.
    """

    rows: int
    columns: int
    gemm: int
    groups: int
    inputs: int
    outer: bool
    inp_slots: int
    wgt_slots: int
    twgt_slots: int

    @property
    def area(self) -> int:
        """Pixels of the output."""
        return self.rows * self.columns


class _Pieces:
    """How often the pieces of an operand are loaded, and how many are on chip, for arrays of tiles.

    `loops` are (extent, whether the operand depends on it), the innermost first; a piece is loaded in `load` cycles,
    beside steps of `step` cycles. Short steps do not hide how long a load takes, so that several run ahead: up to four
    pieces of a tile, of whole tiles one more for each step in which one is loading. More places need more micro-ops.
    """

    def __init__(
        self, size: Numbers, depth: int, loops: list[tuple[Numbers, Numbers | bool]], load: Numbers, step: Numbers
    ):
        most = depth // np.maximum(size, 1)
        distinct = reached = window = self.reuse = np.ones_like(size)
        for extent, depends in loops:
            again = ~np.asarray(depends) & (distinct > most) & (extent > 1)
            kept = ~np.asarray(depends) & (distinct <= most) & (extent > 1)
            window = np.where(kept, np.maximum(window, distinct), window)
            self.reuse = np.where(kept, self.reuse * extent, self.reuse)
            reached = np.where(depends | again, reached * extent, reached)
            distinct = np.where(depends, distinct * extent, distinct)
        loading = np.minimum(np.ceil((cost.round_trip() + load) / np.maximum(step, 1)), 2).astype(int)
        several = np.where(loops[0][0] > 1, 4, 2 + loading)
        short = np.where(step < 4 * cost.round_trip(), several, 2)
        ahead = np.maximum(np.where(load > step / 2, 2 * window, window), short)
        self.slots = np.minimum(np.minimum(most, np.where(reached > window, ahead, window)), reached)
        self.fits = size <= depth
        self.load = load
        self.reached, self.cycles = reached, reached * load
        self.waits = np.where((self.slots < 2) & (reached > 1), self.cycles, 0)
        # where all slots are in use again and again, loads pass beside the last use alone
        self.kept = np.where((self.slots <= window) & (reached > window), 1 - 1 / self.reuse, 0)


class Search:
    """All tiles of a division, as arrays, with their cycles; infinite for those that do not fit."""

    def __init__(self, work: Division, cfg: Config):
        self.work, self.cfg = work, cfg
        self.plane = cfg.plane_depth * work.at_once  # pixels of a group
        room = min(cfg.bank_depth if work.gemm else cfg.acc_depth, self.plane if work.groups else cfg.acc_depth)
        pixels = [(rows, columns) for rows in work.sizes(0) for columns in work.sizes(1) if rows * columns <= room]
        most = max(work.gemm, work.groups)
        parts = sorted({-(-most // -(-most // k)) for k in range(1, most + 1)})
        inputs = sorted({-(-work.inputs // k) for k in range(1, work.inputs + 1)})
        self.possible = bool(pixels)  # whether tiles of few pixels reach the image
        every = [(*pair, *rest) for pair, *rest in product(pixels, parts, inputs, (0, 1))]
        self.rows, self.columns, self.parts, self.inputs, self.outer = np.array(every or [(1,) * 5], np.int64).T
        self.gemm, self.groups = -(-work.gemm // self.parts), -(-work.groups // self.parts)
        oy, ox = work.shape.output
        self.tiles = work.images * -(-oy // self.rows) * -(-ox // self.columns)
        self.chunks = -(-work.inputs // self.inputs)
        self.area = self.rows * self.columns
        self.steps = self.tiles * self.parts * self.chunks
        self.units = self._computed(work.products(work.gemm)), self._computed(work.group_products())
        self.step = np.maximum(*self.units) / self.steps
        self._operands()
        self._parameters()
        fits = self._fits() & self.possible
        self.cycles = np.where(fits, self._cycles(), np.inf)

    def _operands(self) -> None:
        work, cfg, taps = self.work, self.cfg, self.work.taps
        port, outer = striped(cfg), self.outer > 0
        rows = self.inputs * work.height(self.rows)
        size = rows * work.width(self.columns)
        load = cost.rows_moved(port, size * cfg.inp_entry_bytes, self.inputs, rows)
        spatial, across = np.where(outer, self.tiles, self.parts), np.where(outer, self.parts, self.tiles)
        every: list[tuple[Numbers, Numbers | bool]] = [(self.chunks, True)]
        self.inp = _Pieces(size, cfg.inp_depth, [*every, (spatial, outer), (across, ~outer)], load, self.step)
        weights = [*every, (spatial, ~outer), (across, outer)]
        size = self.gemm * self.inputs * taps
        load = cost.rows_moved(port, size * cfg.wgt_entry_bytes, 1, self.gemm) * (work.gemm > 0)
        self.wgt = _Pieces(size, cfg.wgt_depth, weights, load, self.step)
        size = self.groups * self.inputs * work.group_taps
        load = cost.rows_moved(port, size * cfg.twgt_entry_bytes, 1, self.groups) * (work.groups > 0)
        self.twgt = _Pieces(size, cfg.twgt_depth, weights, load, self.step)

    def _parameters(self) -> None:
        """Those of how many blocks are loaded together, and how often for want of room."""
        work, cfg = self.work, self.cfg
        self.blocks = self.gemm + np.minimum(work.ternary, self.groups * cfg.ternary_blocks)
        again = np.where((self.outer > 0) | (self.parts * self.blocks <= cfg.par_entries), 1, self.tiles)
        self.reloads = np.where(work.gemm + work.ternary <= cfg.par_entries, 0, again * self.parts - 1)

    def _fits(self) -> Numbers:
        cfg, blocks = self.cfg, self.blocks
        fits = (self.gemm * self.area <= cfg.bank_depth) & (self.groups * self.area <= self.plane)
        fits &= (blocks <= cfg.par_entries) & (2 * self._micro_ops() <= cfg.uop_depth)
        return fits & self.inp.fits & self.wgt.fits & self.twgt.fits

    def _micro_ops(self) -> Numbers:
        """Those of one instruction: what its two loops do not count."""
        blocks = np.maximum(self.gemm, self.groups)
        if self.work.taps > 1:
            return self.inputs * self.work.taps * np.minimum(blocks, np.minimum(self.rows, self.columns))
        loops = np.sort(np.stack([blocks, self.inputs, self.rows, self.columns]), axis=0)
        return loops[0] * loops[1]

    def _cycles(self) -> Numbers:
        cfg, work, operands = self.cfg, self.work, (self.inp, self.wgt, self.twgt)
        computed, tiles, units = self.step * self.steps, self.tiles * self.parts, (work.gemm > 0) + (work.groups > 0)
        loaded = self.inp.cycles + self.wgt.cycles + self.twgt.cycles
        first = self.inp.load + self.wgt.load + self.twgt.load
        # what is kept is loaded in the first turn of the inner loop, beside what changes with it, and most in its first
        # tile
        weights, turn = self.wgt.load + self.twgt.load, np.where(self.outer, self.tiles, self.parts)
        both = np.where(self.outer, turn * self.inp.load + weights, self.inp.load + turn * weights)
        late = np.maximum(self.chunks * both - first - self.step * (turn * self.chunks - 1), 0)
        late = np.maximum(late, (first - self.step) * (self.chunks - 1))
        stored, stores = self._stored()
        # instructions, parameters and micro-ops come over the same port
        instructions = units * (self.steps + tiles) + stores * tiles + self.inp.reached * self.inputs
        fetched = cost.moved(cfg, INSN_BYTES * (instructions + self.wgt.reached + self.twgt.reached))
        others = cost.moved(cfg, (work.gemm + work.ternary) * cfg.par_entry_bytes)
        # each place on chip of the input has micro-ops of its own
        kernels = np.minimum(tiles, np.maximum(self.inp.slots // self.chunks, 2)) * self.chunks
        others = others + cost.moved(cfg, self._micro_ops() * UOP_BYTES * kernels) * units
        before = first + others + np.minimum(fetched, fetch_reader(cfg).buffer)
        total = np.maximum(before + late + computed, np.maximum(loaded + others + fetched, tiles * stored) + self.step)
        for pieces in operands:
            total = np.maximum(total, loaded + computed * pieces.kept) + pieces.waits
        # parameters replace others when these are stored, and the loads of the next tile wait behind them
        total = np.maximum(total, before + self.reloads * (computed / tiles + stored + cost.latency()))
        # a bank is computed, and stored before it is computed again
        total = np.maximum(total, before + tiles * (computed / tiles + stored + cost.latency()) / 2)
        return total + stored + 2 * cost.round_trip()

    def _stored(self) -> tuple[Numbers, Numbers]:
        """(cycles in which the outputs of a tile are stored, instructions)."""
        cfg, work = self.cfg, self.work
        whole = self.columns == work.shape.output[1]
        gemm, ternary = (n / self.parts for n in (work.gemm, work.ternary))
        entries = (gemm + ternary) * self.area
        dense = whole & ((cfg.ternary_blocks == 1) | ((self.groups == 1) & (self.area == cfg.plane_depth)))
        instructions = np.where(dense, np.minimum(ternary, 1), ternary)
        rows = (gemm + ternary) * np.where(whole, 1, self.rows)
        if work.at_once > 1:  # each output is a row of its own
            instructions, rows = ternary * work.at_once * np.where(whole, 1, self.rows), rows + ternary * self.area
        instructions = instructions + np.where(whole, np.minimum(gemm, 1), gemm)
        moved = cost.rows_moved(cfg, entries * cfg.out_entry_bytes, instructions, rows)
        return np.maximum(moved, entries * cfg.lanes / cfg.ppu_lanes), instructions

    def _computed(self, products: int) -> Numbers:
        """Cycles in which a unit issues its micro-ops."""
        return cost.computed(products, self.tiles * self.parts * (self.chunks + 1)) * (products > 0)

    def best(self) -> int:
        """The position of the cheapest tile. Raises `ScheduleError` if none fits."""
        if not np.isfinite(self.cycles).any():
            cfg, work, shape = self.cfg, self.work, self.work.shape
            if not self.possible:
                raise ScheduleError(
                    f"tiles of padding alone: padding {shape.pads} around {shape.h}x{shape.w} pixels is too much for a "
                    f"kernel that spans {shape.span}"
                )
            raise ScheduleError(
                f"no tile fits {cfg.name}: a pixel of the output needs {work.height(1) * work.width(1)} entries of "
                f"inputs and {work.taps} of each kind of weights; it has {cfg.inp_depth}, {cfg.wgt_depth} and "
                f"{cfg.twgt_depth}"
            )
        steps = self.tiles * self.parts * self.chunks
        return int(
            np.lexsort((self.cycles, np.where(self.cycles <= self.cycles.min() * (1 + SLACK), steps, np.inf)))[0]
        )

    def tile(self, k: int) -> Tile:
        """Tile `k`."""
        names = ("rows", "columns", "gemm", "groups", "inputs")
        slots = {f"{name}_slots": int(getattr(self, name).slots[k]) for name in ("inp", "wgt", "twgt")}
        return Tile(**{name: int(getattr(self, name)[k]) for name in names}, outer=bool(self.outer[k]), **slots)


class Plan:
    """The tiles of a layer: `cycles` is the estimate of all, `units` those in which each unit computes."""

    def __init__(self, work: Division, cfg: Config):
        self.work, self.cfg = work, cfg
        search = Search(work, cfg)
        best = search.best()
        self.tile, self.cycles = search.tile(best), float(search.cycles[best])
        self.units = {name: float(cycles[best]) for name, cycles in zip(("gemm", "ternary"), search.units)}

    @property
    def ahead(self) -> bool:
        """True if the pieces of a step can be loaded while those of the step before are in use."""
        work, tile, chunks = self.work, self.tile, len(self.chunks)
        weights = chunks * self.parts
        pieces = [(tile.inp_slots, chunks * len(self.images))]
        pieces += [(tile.wgt_slots, weights)] * bool(work.gemm) + [(tile.twgt_slots, weights)] * bool(work.groups)
        return all(slots > 1 or count == 1 for slots, count in pieces)

    @property
    def chunks(self) -> list[range]:
        """The blocks of the input, in pieces."""
        step, every = self.tile.inputs, self.work.inputs
        return [range(first, min(first + step, every)) for first in range(0, every, step)]

    @property
    def parts(self) -> int:
        """Parts of the output's blocks, each of which both units compute together."""
        work, tile = self.work, self.tile
        return max(-(-work.gemm // max(tile.gemm, 1)), -(-work.groups // max(tile.groups, 1)))

    @property
    def images(self) -> list[tuple[int, int, int]]:
        """(image, first row, first column) of each tile of the output's pixels."""
        (oy, ox), tile = self.work.shape.output, self.tile
        return list(product(range(self.work.images), range(0, oy, tile.rows), range(0, ox, tile.columns)))

    def __iter__(self) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """(part of the output's blocks, one of `images`) of each tile, in order."""
        if self.tile.outer:
            yield from product(range(self.parts), self.images)
        else:
            yield from ((part, image) for image in self.images for part in range(self.parts))


@cost.cached(256)
def plan_for(shape: ConvShape, ternary: int, cfg: Config) -> Plan:
    """The plan of a layer whose last `ternary` output channels are ternary. Raises `ScheduleError` if none fits."""
    return Plan(Division.of(shape, ternary, cfg), cfg)


def plan_of(op: g.Divisible, cfg: Config) -> Plan:
    """The plan of a convolution or dense layer. Raises `ScheduleError` if it does not fit."""
    assert isinstance(op, (g.QConv2d, g.QDense))
    return plan_for(op.shape, op.ternary, cfg)


def refusal(op: g.Divisible, cfg: Config) -> str:
    """Reason why `cfg` cannot compute a layer with ternary channels; empty if it can."""
    if "ternary" not in cfg.units:
        return f"{op.ternary} ternary channels: {cfg.name} has units {', '.join(cfg.units)}, not ternary"
    others = len(op.weight) - op.ternary
    if others % cfg.block_out:
        return f"{others} channels on GEMM beside {op.ternary} ternary ones: must be a multiple of {cfg.block_out}"
    if "overwrite" not in cfg.extensions:
        return f"{op.ternary} ternary channels: need extension overwrite"
    try:
        plan_of(op, cfg)
    except ScheduleError as exc:
        return str(exc)
    return ""


def cycles(op: g.Divisible, cfg: Config) -> float:
    """Estimated cycles of the layer."""
    return plan_of(op, cfg).cycles
