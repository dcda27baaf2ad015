"""Depthwise convolutions that load every row of the input once: rows stay on chip in a ring.

Output rows are computed in parts, through all channels without a break. A part needs new rows and some of the part
before it, wherever these are: micro-ops name the first entry of each row of a window. Weights and parameters are loaded
with the first part that needs them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

import numpy as np

from ....hw.isa import Mem
from ....runtime.buffer import Buffer
from ...limits import limits
from ...tir.placement import Placement
from ..recording import Recording
from .depthwise_plan import Part, Piece, Plane, RowPlan
from .on_chip import on_chip

_PARAMETERS = 8  # blocks whose parameters are loaded at a time: stores wait for each load


def lower(rec: Recording, plan: RowPlan, buffers: Mapping[str, Buffer], pad_value: int = 0) -> None:
    """Append the convolution of buffer `x` with `w` and `par`, packed as for a schedule of it, to `out`."""
    cfg, bank = rec.cfg, plan.slots * plan.size
    with on_chip(rec) as chip:
        wgt = chip.region(Mem.WGT, plan.weights, 0, max(plan.weights, cfg.wgt_depth // cfg.block_in))
        par = chip.region(Mem.PAR, plan.blocks)
        ring = _ring(rec, plan)
        low, high = chip.banks(bank, bank, cfg.acc_depth // 2)
        layer = _Layer(rec, plan, buffers, (ring, wgt, par), pad_value)
        starts = [base + k * plan.size for k in range(plan.slots) for base in (low, high)]
        for part, acc in zip(plan, cycle(starts)):
            layer.record(part, acc)
        if plan.padded:
            rec.placement.use(Mem.INP, ring.outside, plan.width)


def _ring(rec: Recording, plan: RowPlan) -> _Ring:
    """The ring in INP, all of it; its first rows are the least recently used ones."""
    first = plan.padded + len(plan.rows(0, next(iter(plan))[0].end))
    start = rec.placement.region(Mem.INP, first * plan.width, 0, plan.room * plan.width)
    return _Ring(rec.placement, plan, -(-start // plan.width) % plan.room)


class _Ring:
    """Rows of INP, which those of the input fill in turn from row `start` on.

    Where the plan is padded, that one is none of them, but the row of the padding, at entry `outside`.
    """

    def __init__(self, placement: Placement, plan: RowPlan, start: int):
        self._placement, self._width, self._rows = placement, plan.width, plan.room
        self._next, self._kept = start, start if plan.padded else -1
        self.outside = start * plan.width

    def take(self) -> int:
        """The first entry of the next row."""
        if self._next == self._kept:
            self._next = (self._next + 1) % self._rows
        at, self._next = self._next * self._width, (self._next + 1) % self._rows
        self._placement.use(Mem.INP, at, self._width)
        return at


class _Row(NamedTuple):
    """A row to be loaded: entry `at` of INP, entry `dram` of the image, the columns of padding on both sides."""

    at: int
    dram: int
    width: int
    pads: tuple[int, int]


class _Product(NamedTuple):
    """Row `ky` of the kernel of a block, for `rows` output rows of `columns`.

    `dst` and `src` are the first entries, `step` lies between the inputs of two output rows; `add`: it is not the first
    product of its accumulators.
    """

    add: bool
    rows: int
    step: int
    columns: int
    dst: int
    src: int
    block: int
    ky: int


class _Layer:
    """The state while parts are recorded: rows of the present plane on chip, blocks of weights and parameters so far.

    `where` are the ring and the first entries of WGT and PAR.
    """

    def __init__(
        self,
        rec: Recording,
        plan: RowPlan,
        buffers: Mapping[str, Buffer],
        where: tuple[_Ring, int, int],
        pad_value: int,
    ):
        self.cfg, self.program, self.plan, self.buffers, self.fill = rec.cfg, rec.program, plan, buffers, pad_value
        self.ring, self.wgt, self.par = where
        if plan.padded:
            row = {"y_size": 0, "x_size": plan.width, "pads": (1, 0, 0, 0), "pad_value": pad_value}
            self.program.load(Mem.INP, self.ring.outside, buffers["x"], 0, **row)
        self._weights = self._parameters = 0
        self._plane: Plane | None = None
        self._rows: dict[int, int] = {}  # row of the image -> its first entry

    def record(self, part: Part, acc: int) -> None:
        """Record loads, products and stores of a part, whose accumulators begin at `acc`."""
        blocks = 1 + max(piece.plane.block for piece in part)
        rows: list[_Row] = []
        products: list[_Product] = []
        at = acc
        for piece in part:
            rows += self._new_rows(piece)
            products += self._products(piece, at)
            at += piece.size
        self._load(rows)
        self._load_weights(blocks)
        self._multiply(products)
        self._load_parameters(blocks)
        self._store(part, acc)

    def _new_rows(self, piece: Piece) -> Iterator[_Row]:
        shape, plane = self.plan.shape, piece.plane
        if plane != self._plane:
            self._plane, self._rows = plane, {}
        width = shape.reach(1, plane.columns)[1]
        begin = plane.column * shape.strides[1] - shape.pads[1]
        pads = max(0, -begin), max(0, begin + width - shape.w)
        first = (plane.image * self.plan.blocks + plane.block) * shape.h
        for row in self.plan.rows(piece.first, piece.end):
            if row not in self._rows:
                self._rows[row] = self.ring.take()
                yield _Row(self._rows[row], (first + row) * shape.w + begin + pads[0], width, pads)

    def _load(self, rows: Sequence[_Row]) -> None:
        """Load rows, those that follow each other by one instruction."""
        stride, most = self.plan.shape.w, limits(self.cfg, "LOADP" if self.fill else "LOAD")
        many = most["y_size"] if stride <= most["x_stride"] else 1
        first = 0
        for k in range(1, len(rows) + 1):
            row, before = rows[min(k, len(rows) - 1)], rows[k - 1]
            follows = (row.at, row.dram, row.pads) == (before.at + row.width, before.dram + stride, before.pads)
            if k < len(rows) and follows and k - first < many:
                continue
            at, dram, width, pads = rows[first]
            self.program.load(
                Mem.INP,
                at,
                self.buffers["x"],
                dram,
                y_size=k - first,
                x_size=width - sum(pads),
                x_stride=stride,
                pads=(0, 0, *pads),
                pad_value=self.fill if any(pads) else 0,
            )
            first = k

    def _load_weights(self, blocks: int) -> None:
        rows = blocks * self.plan.shape.kernel[0] * self.plan.pitch
        first, end = self._weights, -(-rows // self.cfg.block_in)
        if end > first:
            self.program.load(Mem.WGT, self.wgt + first, self.buffers["w"], first, x_size=end - first)
            self._weights = end

    def _load_parameters(self, blocks: int) -> None:
        """Load those of the first part alone, as it waits for them; then several at a time, the last ones together."""
        first, every = self._parameters, self.plan.blocks
        if blocks > first:
            if first:
                blocks = every if every - first < 2 * _PARAMETERS else max(blocks, first + _PARAMETERS)
            self.program.load(Mem.PAR, self.par + first, self.buffers["par"], first, x_size=blocks - first)
            self._parameters = blocks

    def _products(self, piece: Piece, acc: int) -> Iterator[_Product]:
        """The products of a piece with each row of the kernel, that with most rows inside of the image first."""
        plan, ys = self.plan, range(piece.first, piece.end)
        sources = {ky: [(y, plan.source(y, ky)) for y in ys] for ky in range(plan.shape.kernel[0])}
        begun: set[int] = set()
        for ky in sorted(sources, key=lambda ky: sum(row is None for _, row in sources[ky])):
            at = [(y, self.ring.outside if row is None else self._rows[row]) for y, row in sources[ky]]
            at = [(y, src) for (y, src), (_, row) in zip(at, sources[ky]) if row is not None or plan.padded]
            for add in (False, True):
                for y, src, rows, step in _runs((y, src) for y, src in at if (y in begun) == add):
                    dst = acc + (y - piece.first) * piece.plane.columns
                    yield _Product(add, rows, step, piece.plane.columns, dst, src, piece.plane.block, ky)
            begun |= {y for y, _ in at}

    def _multiply(self, products: Iterable[_Product]) -> None:
        """Record products; those of equal loops are micro-ops of one instruction."""
        plan, shape = self.plan, self.plan.shape
        found: dict[tuple[bool, int, int, int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for p in products:
            first = self.wgt * self.cfg.block_in + (p.block * shape.kernel[0] + p.ky) * plan.pitch
            for kx, taps in plan.taps:
                wgt = (first + kx) // (self.cfg.row_taps if taps > 1 else 1)
                uop = p.dst, p.src + kx * shape.dilations[1], wgt
                found[p.add or kx > 0, taps, p.rows, p.step, p.columns].append(uop)
        for (add, taps, rows, step, columns), uops in sorted(found.items(), key=lambda item: item[0][0]):
            loops = [(rows, columns, step, 0), (columns, 1, shape.strides[1], 0)]
            self.program.gemm_uops(np.array(uops), loops, overwrite=not add, depthwise=True, taps=taps)

    def _store(self, part: Part, acc: int) -> None:
        """Store a part: whole planes by one instruction, other pieces one by one."""
        plan, (oy, ox), out = self.plan, self.plan.shape.output, self.buffers["out"]
        many = oy * ox <= limits(self.cfg, "STOREQ")["x_stride"]
        k = 0
        while k < len(part):
            piece, count = part[k], 1
            plane = piece.plane
            first = ((plane.image * plan.blocks + plane.block) * oy + piece.first) * ox + plane.column
            rows, columns, stride, step = piece.end - piece.first, plane.columns, ox, 0
            if many and piece.size == oy * ox:
                whole = [other.plane.image == plane.image and other.size == oy * ox for other in part[k:]]
                count = [*whole, False].index(False)
                rows, columns, stride, step = count, oy * ox, oy * ox, int(count > 1)
            elif plane.columns == ox:
                rows, columns, stride = 1, piece.size, piece.size
            entry, shape = self.par + plane.block, {"y_size": rows, "x_size": columns, "x_stride": stride}
            self.program.store(acc, out, first, par=entry, par_step=step, at=None, **shape)
            acc += count * piece.size
            k += count


def _runs(sources: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """(first y, its entry, number of rows, entries between two) of runs of adjacent output rows, from (y, entry)."""
    run: list[tuple[int, int]] = []
    for y, src in sources:
        step = src - run[-1][1] if run else 0
        if run and (y != run[-1][0] + 1 or step < 0 or (len(run) > 1 and step != run[1][1] - run[0][1])):
            yield _run(run)
            run = []
        run.append((y, src))
    if run:
        yield _run(run)


def _run(run: Sequence[tuple[int, int]]) -> tuple[int, int, int, int]:
    return *run[0], len(run), run[1][1] - run[0][1] if len(run) > 1 else 0
