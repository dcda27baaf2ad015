"""Transposed convolutions: every phase of the output is a convolution of the input with some of the kernel's taps.

Output row `y` is reached by the taps `k` with `y + top - k` a multiple of the stride. Rows of one phase, `y` modulo the
stride, share their taps; columns alike. Micro-ops write accumulators in the order of the output, a phase apart, so that
one store takes a tile. Taps between pixels add nothing, so each phase has biases of its own: the ALU adds
them, unless all are equal. Where the weights of one block of the output do not fit, products of some blocks of the
input are added to those of others: the sums stay in the accumulators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, product

import numpy as np

from ....hw.config import Config
from ....hw.errors import ScheduleError
from ....hw.isa import AluOp, Mem
from ....hw.units import striped
from ....runtime import layout
from ....runtime.buffer import Buffer
from ....runtime.program import Program
from ... import cost
from ... import graph as g
from ...limits import most_padding
from ..recording import Recording, channel_parameters
from .on_chip import on_chip


@dataclass(frozen=True)
class Phases:
    """One dimension of the convolution. `phases` holds per phase (tap, offset of its input pixel) of each tap.

    Output `stride * t + phase` reads input `t + offset` for each tap.
    """

    stride: int
    phases: tuple[tuple[tuple[int, int], ...], ...]

    @staticmethod
    def of(op: g.QConvTranspose2d, k: int) -> Phases:
        """Dimension `k` of the image: 0 for rows, 1 for columns."""
        stride, before, taps = op.strides[k], op.pads[k], op.weight.shape[2 + k]
        found = []
        for phase in range(stride):
            mine = [tap for tap in range(taps) if (phase + before - tap) % stride == 0]
            found.append(tuple((tap, (phase + before - tap) // stride) for tap in mine))
        return Phases(stride, tuple(found))

    @property
    def reach(self) -> tuple[int, int]:
        """(smallest, largest) offset of an input pixel."""
        offsets = [offset for phase in self.phases for _, offset in phase]
        return min(offsets), max(offsets)

    def inputs(self, outputs: int) -> int:
        """Number of input pixels that `outputs` outputs, from a multiple of the stride on, reach."""
        low, high = self.reach
        return -(-outputs // self.stride) + high - low

    def window(self, first: int, outputs: int, size: int) -> tuple[int, int, int, int]:
        """(first pixel, padding before, pixels, padding after) of these inputs of `outputs` outputs from `first` on.

        `first` is a multiple of the stride, `size` that of the input.
        """
        low, count = first // self.stride + self.reach[0], self.inputs(outputs)
        begin, end = max(0, low), min(size, low + count)
        return begin, max(0, -low), end - begin, max(0, low + count - size)

    def count(self, outputs: int, phase: int) -> int:
        """Number of the first `outputs` outputs, from a multiple of the stride on, that have a phase."""
        return max(0, -(-(outputs - phase) // self.stride))


class Plan:
    """Tiles of the output, one block of channels each, and the `chunk` of input blocks whose weights are on chip.

    A tile is `size` rows and `wide` columns, all of them where they fit. Its products of one chunk add to those of the
    chunk before. `cycles` is the estimate for the whole operator. Raises `ScheduleError` if nothing fits.
    """

    def __init__(self, op: g.QConvTranspose2d, cfg: Config):
        self.rows, self.columns = Phases.of(op, 0), Phases.of(op, 1)
        if not {"overwrite", "requant", "pad_value"} <= cfg.extensions or cfg.batch > 1:
            raise ScheduleError("transposed convolutions need overwrite, requant and pad_value, and batch 1")
        self.phases = list(product(range(self.rows.stride), range(self.columns.stride)))
        self.blocks, self.outputs = -(-op.x.shape[1] // cfg.block_in), -(-len(op.weight) // cfg.block_out)
        self.oy, self.ox = op.output.shape[2:]
        self.kernel = op.weight[0, 0].size
        self.half = (cfg.acc_depth - len(self.phases)) // 2
        most = min(cfg.wgt_depth, cfg.uop_depth) // (2 * self.kernel)
        chunks = sorted({-(-self.blocks // k) for k in range(1, self.blocks + 1)}, reverse=True)
        fitting = (self._tile(chunk, cfg) for chunk in chunks if chunk <= most)
        found = next((tile for tile in fitting if tile), None)
        if found is None:
            raise ScheduleError(
                f"{self.rows.stride}x{self.columns.stride} pixels of the output, and twice the weights "
                f"{op.weight.shape[2:]} of one block, do not fit {cfg.name}"
            )
        self.chunk, self.size, self.wide = found
        self.inputs = self.chunk * self.height(self.size) * self.width(self.wide)
        self.cycles = self._cycles(op, cfg)

    def height(self, outputs: int) -> int:
        """Input rows that `outputs` output rows read."""
        return self.rows.inputs(outputs)

    def width(self, outputs: int) -> int:
        """Input columns that `outputs` output columns read."""
        return self.columns.inputs(outputs)

    def _tile(self, chunk: int, cfg: Config) -> tuple[int, int, int] | None:
        """(chunk, rows, columns) of the widest tile; None if none fits."""
        (down, across), both = (self.rows.stride, self.columns.stride), -(-self.ox // self.columns.stride)
        for wide in sorted({-(-both // k) for k in range(1, both + 1)}, reverse=True):
            columns = min(self.ox, wide * across)
            inputs = cfg.inp_depth // (2 * chunk * self.width(columns))
            most = min(self.half // columns, (inputs - self.height(down) + 1) * down)
            if most >= down:
                # Loaded weights that serve one tile only are worth the largest; else small ones hide their loads, and
                # smaller ones stores, where these take longer than the products: nothing hides the last.
                products = chunk * self.kernel / len(self.phases)
                tiles = 8 if cost.moved(cfg, cfg.out_entry_bytes) > products else 4
                if chunk < self.blocks:
                    tiles = -(-self.oy // (most // down * down))
                return chunk, min(most // down, -(-self.oy // (tiles * down))) * down, columns
        return None

    def _cycles(self, op: g.QConvTranspose2d, cfg: Config) -> float:
        tiles = op.x.shape[0] * -(-self.oy // self.size) * -(-self.ox // self.wide)
        chunks, port = -(-self.blocks // self.chunk), striped(cfg)
        outputs = self.size * self.wide
        step = self.chunk * self.kernel * outputs / len(self.phases)
        step = cost.computed(step, 2 * len(self.phases))
        weights = cost.moved(port, self.chunk * self.kernel * cfg.wgt_entry_bytes)
        inputs = cost.moved(port, self.inputs * cfg.inp_entry_bytes)
        each = max(step, inputs + (weights if chunks > 1 else 0))
        added = cost.computed(outputs) if len(self.phases) > 1 else 0
        tile = max(chunks * each + added, cost.moved(cfg, outputs * cfg.out_entry_bytes))
        return self.outputs * max(tiles * tile, weights) + weights + inputs

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """(first row, first column, rows, columns) of each tile."""
        for y, x in product(range(0, self.oy, self.size), range(0, self.ox, self.wide)):
            yield y, x, min(self.size, self.oy - y), min(self.wide, self.ox - x)


def refusal(op: g.QConvTranspose2d, cfg: Config) -> str:
    """Reason why `cfg` cannot compute `op`; empty if it can."""
    try:
        plan_of(op, cfg)
    except ScheduleError as exc:
        return str(exc)
    return ""


@cost.cached(64)
def plan_of(op: g.QConvTranspose2d, cfg: Config) -> Plan:
    """The plan of a transposed convolution. Raises `ScheduleError` if it does not fit the scratchpads."""
    return Plan(op, cfg)


def lower(rec: Recording, op: g.QConvTranspose2d) -> None:
    """Append a transposed convolution. Raises `ScheduleError` if it does not fit the scratchpads."""
    cfg, program, plan = rec.cfg, rec.program, plan_of(op, rec.cfg)
    weights = rec.constant(f"{op.name}.w", layout.pack_weights(op.weight, cfg))
    sums = _sums(op, plan)
    equal = (sums == sums[0]).all()  # then the store adds the biases
    own = (op.bias - op.x.zero_point * sums[0]).astype(np.int32) if equal else np.zeros(len(op.weight), np.int32)
    parameters = channel_parameters(rec, op, own)
    biases = None if equal else rec.constant(f"{op.name}.bias", _biases(op, sums, cfg))
    out, size = rec.activations[op.output.name], plan.size * plan.wide
    chunks = [range(c, min(c + plan.chunk, plan.blocks)) for c in range(0, plan.blocks, plan.chunk)]
    with on_chip(rec) as chip:
        wgt, inp = chip.slots(Mem.WGT, plan.chunk * plan.kernel), chip.slots(Mem.INP, plan.inputs)
        par, (bases, slots) = chip.region(Mem.PAR, 1), (cycle(inp), cycle(wgt))
        accs = cycle(chip.banks(size, size, plan.half))
        bias_at = chip.region(Mem.ACC, len(plan.phases), cfg.acc_depth - len(plan.phases))
        for o in range(plan.outputs):
            whole = len(chunks) == 1  # then weights are loaded once per block of the output
            slot = _load_weights(program, plan, next(slots), weights, (o, chunks[0])) if whole else 0
            program.load(Mem.PAR, par, parameters, o)
            if biases is not None:
                program.load(Mem.ACC, bias_at, biases, o * len(plan.phases), x_size=len(plan.phases))
            for n, tile in product(range(op.x.shape[0]), plan):
                acc, (y, x, *extents) = next(accs), tile
                for blocks in chunks:
                    if not whole:
                        slot = _load_weights(program, plan, next(slots), weights, (o, blocks))
                    base = next(bases)
                    _load(rec, op, plan, (base, n, blocks), tile)
                    _products(rec, op, plan, (acc, base, slot), (blocks, extents[0], extents[1]))
                if biases is not None:
                    _add_biases(program, plan, (acc, bias_at), (extents[0], extents[1]))
                offset = ((n * plan.outputs + o) * plan.oy + y) * plan.ox + x
                rows, columns = (1, extents[0] * extents[1]) if extents[1] == plan.ox else extents
                program.store(acc, out, offset, y_size=rows, x_size=columns, x_stride=plan.ox, par=par)


def _load_weights(program: Program, plan: Plan, slot: int, weights: Buffer, part: tuple[int, range]) -> int:
    """Load the weights of `part`, (block of the output, blocks of the input), to `slot`, which is returned."""
    o, blocks = part
    first = (o * plan.blocks + blocks.start) * plan.kernel
    program.load(Mem.WGT, slot, weights, first, x_size=len(blocks) * plan.kernel)
    return slot


def _load(
    rec: Recording,
    op: g.QConvTranspose2d,
    plan: Plan,
    source: tuple[int, int, range],
    tile: tuple[int, int, int, int],
) -> None:
    """Load the input of a tile to `source`, (first entry, image, blocks of channels), padded."""
    (base, n, blocks), (h, w), (y, x, *extents) = source, op.x.shape[2:], tile
    axes = (plan.rows, y, extents[0], h), (plan.columns, x, extents[1], w)
    (top, before, rows, after), (left, ahead, columns, behind) = (axis.window(*facts) for axis, *facts in axes)
    pads = before, after, ahead, behind
    if min(rows, columns) < 1 or max(pads) > most_padding(rec.cfg):
        raise ScheduleError(
            f"padding {pads} around {rows}x{columns} pixels is too much: at most "
            f"{most_padding(rec.cfg)} per side, around at least one pixel"
        )
    fill, area = op.x.zero_point if any(pads) else 0, plan.height(extents[0]) * plan.width(extents[1])
    for k, block in enumerate(blocks):
        offset = ((n * plan.blocks + block) * h + top) * w + left
        where = {"y_size": rows, "x_size": columns, "x_stride": w, "pads": pads, "pad_value": fill}
        rec.program.load(Mem.INP, base + k * area, rec.activations[op.x.name], offset, **where)


def _products(
    rec: Recording,
    op: g.QConvTranspose2d,
    plan: Plan,
    bases: tuple[int, int, int],
    work: tuple[range, int, int],
) -> None:
    """The micro-ops of (blocks of channels, rows, columns) of a tile, one or two instructions per phase."""
    (acc, inp, wgt), (blocks, rows, wide), (kh, kw) = bases, work, op.weight.shape[2:]
    height, width, low_y, low_x = plan.height(rows), plan.width(wide), plan.rows.reach[0], plan.columns.reach[0]
    for (ry, down), (rx, across) in product(enumerate(plan.rows.phases), enumerate(plan.columns.phases)):
        counts = plan.rows.count(rows, ry), plan.columns.count(wide, rx)
        if not min(counts):
            continue
        first = acc + ry * wide + rx
        uops = [
            (first, inp + (block * height + dy - low_y) * width + dx - low_x, wgt + (block * kh + ky) * kw + kx)
            for block, (ky, dy), (kx, dx) in product(range(len(blocks)), down, across)
        ]
        loops = [(counts[0], plan.rows.stride * wide, width, 0), (counts[1], plan.columns.stride, 1, 0)]
        if blocks.start == 0:
            if uops:
                rec.program.gemm_uops(np.array(uops[:1]), loops, overwrite=True)
            else:  # no tap of the kernel reaches these pixels
                rec.program.gemm(loops, first, reset=True)
            uops = uops[1:]
        if uops:
            rec.program.gemm_uops(np.array(uops), loops)


def _add_biases(program: Program, plan: Plan, bases: tuple[int, int], extents: tuple[int, int]) -> None:
    """Add the biases of each phase to its accumulators; `bases` are (accumulators, biases)."""
    (acc, bias_at), (rows, wide) = bases, extents
    for k, (ry, rx) in enumerate(plan.phases):
        count = plan.rows.count(rows, ry), plan.columns.count(wide, rx)
        if min(count):
            loops = [(count[0], plan.rows.stride * wide, 0), (count[1], plan.columns.stride, 0)]
            program.alu(AluOp.ADD, loops, acc + ry * wide + rx, bias_at + k)


def _sums(op: g.QConvTranspose2d, plan: Plan) -> np.ndarray:
    """int64 (phases, output channels): the sum of the weights of the taps of each phase."""
    found = []
    for ry, rx in plan.phases:
        down, across = ([tap for tap, _ in axis.phases[r]] for axis, r in ((plan.rows, ry), (plan.columns, rx)))
        found.append(op.weight[:, :, down][:, :, :, across].sum((1, 2, 3), dtype=np.int64))
    return np.stack(found)


def _biases(op: g.QConvTranspose2d, sums: np.ndarray, cfg: Config) -> np.ndarray:
    """int32 (output blocks, phases, 1, block_out): biases without the zero point of the taps of each phase."""
    found = [layout.pack_bias((op.bias - op.x.zero_point * each).astype(np.int32), cfg) for each in sums]
    return np.ascontiguousarray(np.stack(found, axis=1))
