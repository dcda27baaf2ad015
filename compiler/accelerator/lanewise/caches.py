"""Caches as networks exchange them, (1, heads, positions, elements), with a row more for each head, and as images.

The launch reads the cache and writes the longer one as they lie in the host's memory. There an entry has a few
positions of one head, and the heads of the longer cache begin in the middle of entries: products with matrices of zeros
and ones shift lanes. For the image, whose lanes are heads, the entries of 16 heads are taken as weights, and products
with one-hot inputs transpose them. Where heads of the cache do not begin an entry, as those of few positions, both are
moves of channels.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem
from ....runtime.buffer import Buffer
from ... import cost
from ... import graph as g
from ...kernels import language
from ...kernels.channels import Move, Moved, move_channels
from ..direct.on_chip import KEPT, OnChip, on_chip
from ..recording import Recording
from ..stand_ins import RowsJoined


def joined(graph: g.Graph, block: int) -> g.Graph:
    """`graph` with its concatenations of this kind: of an input that nothing else reads, to an output."""
    inputs, ops = {t.name for t in graph.inputs}, []
    for op in graph.ops:
        alone = op.x.name in inputs and len(graph.readers[op.x.name]) == 1 and op.output in graph.outputs
        if isinstance(op, g.Concat) and alone and _fits(op, block):
            ops.append(RowsJoined(op.name, op.inputs, op.output, op.axis))
        else:
            ops.append(op)
    return replace(graph, ops=tuple(ops))


def _fits(op: g.Concat, block: int) -> bool:
    if op.axis != 2 or len(op.inputs) != 2 or len(op.x.shape) != 4:
        return False
    row, (n, heads, _, width) = op.inputs[1].shape, op.x.shape
    whole = heads % block == 0 and block % width == 0
    return n == 1 and row == (1, heads, 1, width) and whole and op.x.dtype == "int8"


def refusal(op: RowsJoined, cfg: Config) -> str:
    """Reason why the accelerator cannot do it; empty if it can."""
    if "overwrite" not in cfg.extensions or cfg.batch > 1:
        return f"batch {cfg.batch}, extensions {', '.join(sorted(cfg.extensions))}: it needs batch 1 and overwrite"
    if _few(op, cfg):
        fit = not any(language.why_not(move_channels, move, cfg) for move in _moves(op, cfg.block_in))
        return "" if fit else f"{op.x.shape[2]} positions of {op.x.shape[3]} elements: moves that do not fit"
    plan = Plan(op, cfg)
    if len(plan.matrices) > cfg.wgt_depth // KEPT:
        return f"{plan.width} elements: {len(plan.matrices)} matrices, at most {cfg.wgt_depth // KEPT}"
    needs = plan.each, plan.each + 3 * plan.width + cfg.inp_depth // KEPT
    if needs[0] > cfg.acc_depth // 2 or needs[1] > cfg.inp_depth or plan.tiles > cfg.wgt_depth // 2:
        return f"{op.x.shape[2]} positions: more than fit the scratchpads"
    return ""


def cycles(op: RowsJoined, cfg: Config) -> float:
    """Estimated cycles: each part waits for the one before, two loads, two products, two stores."""
    if _few(op, cfg):
        return sum(language.cycles(move_channels, move, cfg) for move in _moves(op, cfg.block_in))
    plan = Plan(op, cfg)
    each = 4 * cost.moved(cfg, plan.each * cfg.out_entry_bytes) + 3 * plan.each
    return plan.blocks * (each + 4 * cost.round_trip())


class Plan:
    """Of `blocks` blocks of heads: `each` entries of the cache, in `tiles` tiles of weights.

    `groups` positions of `width` elements are in an entry. `matrices` are those that shift lanes by c positions, what
    they push to the next entry, those that keep one position, and those that transpose a row of heads.
    """

    def __init__(self, op: RowsJoined, cfg: Config):
        _, heads, count, self.width = op.x.shape
        self.lanes = cfg.block_in
        self.blocks, self.groups = heads // self.lanes, self.lanes // self.width
        self.tiles = count * self.width // self.lanes  # entries of a head, too
        self.each = self.tiles * self.lanes
        self.matrices = _matrices(self.lanes, self.width)

    def shift(self, positions: int, spilt: bool = False) -> int:
        """The number of the matrix that shifts by so many positions, or gives what is `spilt`."""
        return positions + spilt * self.groups

    def one(self, position: int) -> int:
        """The number of the matrix that keeps one position."""
        return 2 * self.groups + position

    def heads(self, entry: int, element: int) -> int:
        """The number of the matrix that takes `element` of all heads to their places in `entry`."""
        return 3 * self.groups + entry * self.width + element


@lru_cache(maxsize=16)
def _matrices(lanes: int, width: int) -> np.ndarray:
    groups, lane, eye = lanes // width, np.arange(lanes), np.eye(lanes, dtype=np.int8)
    shifted = [np.roll(eye, c * width, 0) for c in range(groups)]
    inside = [lane >= c * width for c in range(groups)]
    found = [m * here[:, None] for m, here in zip(shifted, inside)]
    found += [m * ~here[:, None] for m, here in zip(shifted, inside)]
    found += [eye * (lane // width == c)[:, None] for c in range(groups)]
    for entry in range(width):
        for element in range(width):
            head = np.where(lane % width == element, entry * groups + lane // width, -1)
            found.append(head[:, None] == lane)
    return np.stack(found).astype(np.int8)


def lower(rec: Recording, op: RowsJoined) -> None:
    """Append it for each block of heads, or as two moves."""
    if _few(op, rec.cfg):
        for move, target in zip(_moves(op, rec.cfg.block_in), (rec.plain[op.name][1], rec.activations[op.output.name])):
            buffers = rec.plain[op.name][0], rec.operand(op, 1), target
            rec.activations |= dict(zip((t.name for t in (*move.inputs, move.output)), buffers))
            language.lower(move_channels, rec, move)
        return
    plan = Plan(op, rec.cfg)
    for block in range(plan.blocks):
        with on_chip(rec) as chip:
            _Block(rec, op, plan, chip).record(block)


def _few(op: RowsJoined, cfg: Config) -> bool:
    """True where heads of the cache do not begin an entry."""
    return op.x.shape[2] * op.x.shape[3] % cfg.block_in != 0


@lru_cache(maxsize=64)
def _moves(op: RowsJoined, block: int) -> tuple[Moved, Moved]:
    """The longer cache as the host has it and as an image, both as vectors, from those of the cache and the row."""
    _, heads, count, width = op.x.shape
    sources = np.empty((heads, count + 1, width, 2), int)
    sources[:, :count, :, 0], sources[:, count, :, 0] = 0, 1
    sources[:, :count, :, 1] = np.arange(op.x.nbytes).reshape(heads, count, width)
    sources[:, count, :, 1] = _in_lanes(np.arange(heads * width).reshape(-1, block), (heads, 1, width))[:, 0]
    by_block = sources.reshape(heads // block, block, count + 1, width, 2).transpose(0, 2, 3, 1, 4)
    inputs = tuple(g.Tensor(f"{op.name}.{what}", (1, t.nbytes)) for what, t in zip(("cache", "row"), op.inputs))
    found = []
    for what, places in (("plain", sources), ("lanes", by_block)):
        y = g.Tensor(f"{op.name}.{what}", (1, op.output.nbytes))
        move = Move(tuple((int(k), int(c)) for k, c in places.reshape(-1, 2)))
        found.append(Moved(y.name, inputs, y, move))
    return found[0], found[1]


def _in_lanes(places: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """The elements of an image, (heads, rows, width), of its entries, whose lanes are heads."""
    heads, rows, width = shape
    entries = places.reshape(heads // places.shape[1], rows, width, -1)
    return entries.transpose(0, 3, 1, 2).reshape(shape)


class _Block:
    """Records the caches of a block of heads."""

    def __init__(self, rec: Recording, op: RowsJoined, plan: Plan, chip: OnChip):
        self.rec, self.op, self.plan, self.program = rec, op, plan, rec.program
        half, (each, width) = rec.cfg.acc_depth // 2, (plan.each, plan.width)
        self.size = each + width  # entries of the longer cache
        self.together = plan.lanes // plan.groups if self.size + 2 * width <= half else 1
        parts = self.size * self.together * plan.groups // plan.lanes
        self.first, self.second = chip.banks(each, parts + 2 * width, half)
        self.rows = self.second + parts
        self.wgt = chip.kept(Mem.WGT, f"{op.name}.matrices", plan.matrices, len(plan.matrices))
        identity = np.eye(plan.lanes, dtype=np.int8)
        self.one_hot = chip.kept(Mem.INP, f"{op.name}.identity", identity, plan.lanes)
        self.inp = chip.region(Mem.INP, each + 2 * width)
        self.tiles = chip.region(Mem.WGT, plan.tiles)
        self.new, self.plain = self.inp + each, self.inp + each + width

    def record(self, block: int) -> None:
        """Append the longer cache as it lies, and as an image."""
        plan, program, (source, target) = self.plan, self.program, self.rec.plain[self.op.name]
        each, width, identity = plan.each, plan.width, self.wgt + plan.shift(0)
        image = self.rec.activations[self.op.output.name]
        program.load(Mem.INP, self.inp, source, block * each, x_size=each)
        loops = [(plan.lanes, 1, plan.tiles, 0), (plan.tiles, plan.lanes, 1, 0)]
        program.gemm(loops, self.first, self.inp, identity, overwrite=True)
        tiles = self._stored(self.first, each, "tiles")
        program.load(Mem.WGT, self.tiles, tiles, 0, x_size=plan.tiles)
        program.load(Mem.INP, self.new, self.rec.operand(self.op, 1), block * width, x_size=width)
        self._transposed_row()
        self._longer(target, block * self.size)
        loops = [(plan.tiles, plan.lanes, 0, 1), (plan.lanes, 1, 1, 0)]
        program.gemm(loops, self.first, self.one_hot, self.tiles, overwrite=True)
        program.store(self.first, image, block * self.size, x_size=each)
        program.gemm([(width, 1, 1, 0)], self.rows + width, self.new, identity, overwrite=True)
        program.store(self.rows + width, image, block * self.size + each, x_size=width)

    def _stored(self, acc: int, count: int, what: str) -> Buffer:
        out = self.rec.buffer(f"{self.op.name}.{what}", (count, 1, self.plan.lanes), kind="temp")
        self.program.store(acc, out, 0, x_size=count)
        return out

    def _transposed_row(self) -> None:
        """The new row with heads one after the other, as inputs."""
        plan, width = self.plan, self.plan.width
        for element in range(width):
            uops = [(self.rows + k, self.new + element, self.wgt + plan.heads(k, element)) for k in range(width)]
            self.program.gemm_uops(np.array(uops), [], overwrite=not element)
        row = self._stored(self.rows, width, "row")
        self.program.load(Mem.INP, self.plain, row, 0, x_size=width)

    def _longer(self, target: Buffer, place: int) -> None:
        """The longer cache in the order of the host, `groups` heads at a time, which begin an entry, or all of them."""
        plan, program, tiles = self.plan, self.program, self.plan.tiles
        heads = plan.groups * tiles
        for first in range(0, plan.lanes // plan.groups, self.together):
            size, count = heads + 1, self.together
            inp, row = self.inp + first * heads, self.plain + first
            shifts = [(c * tiles, c * tiles, plan.shift(c)) for c in range(plan.groups)]
            shifts += [(c * tiles + 1, c * tiles, plan.shift(c, True)) for c in range(1, plan.groups)]
            rows = [((c + 1) * tiles, 0, plan.one(c)) for c in range(plan.groups)]
            base = (self.second, inp, self.wgt)
            program.gemm([(count * size, 1, 0, 0)], self.second, reset=True)
            program.gemm_uops(np.array(shifts) + base, [(count, size, heads, 0), (tiles, 1, 1, 0)])
            base = (self.second, row, self.wgt)
            program.gemm_uops(np.array(rows) + base, [(count, size, 1, 0)])
            program.store(self.second, target, place + first * size, x_size=count * size)
