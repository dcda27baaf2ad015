"""Transposed convolutions: every phase of the output is a convolution of the input with some of the kernel's taps.

Output row `y` is reached by the taps `k` with `y + top - k` a multiple of the stride. Rows of one phase, `y` modulo the
stride, share their taps; columns alike. Micro-ops write accumulators in the order of the output, a phase apart, so that
one store takes a tile. Taps between pixels add nothing, so each phase has biases of its own: the ALU adds
them, unless all are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, product

import numpy as np

from ....hw.config import Config
from ....hw.errors import ScheduleError
from ....hw.isa import AluOp, Mem
from ....runtime import layout
from ....runtime.program import Program
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

    def count(self, outputs: int, phase: int) -> int:
        """Number of the first `outputs` outputs, from a multiple of the stride on, that have a phase."""
        return max(0, -(-(outputs - phase) // self.stride))


class _Plan:
    """Sizes of a tile: rows of the output, all its columns, one block of channels."""

    def __init__(self, op: g.QConvTranspose2d, cfg: Config):
        self.rows, self.columns = Phases.of(op, 0), Phases.of(op, 1)
        if not all(phase for axis in (self.rows, self.columns) for phase in axis.phases):
            raise ScheduleError(f"stride {op.strides} is larger than the kernel {op.weight.shape[2:]}")
        if not {"overwrite", "requant", "pad_value"} <= cfg.extensions or cfg.batch > 1:
            raise ScheduleError("transposed convolutions need overwrite, requant and pad_value, and batch 1")
        self.phases = list(product(range(self.rows.stride), range(self.columns.stride)))
        self.blocks, self.outputs = -(-op.x.shape[1] // cfg.block_in), -(-len(op.weight) // cfg.block_out)
        self.oy, self.ox = op.output.shape[2:]
        low, high = self.columns.reach
        self.left, self.width = low, -(-self.ox // self.columns.stride) + high - low
        self.taps = self.blocks * op.weight[0, 0].size
        self.half = (cfg.acc_depth - len(self.phases)) // 2
        stride = self.rows.stride
        fitting = [n for n in range(stride, self.oy + stride, stride) if self._fits(n, cfg)]
        if not fitting or 2 * self.taps > cfg.wgt_depth or self.taps > cfg.uop_depth // 2:
            raise ScheduleError(f"{stride} rows of the output and two blocks of weights do not fit {cfg.name}")
        self.size = min(max(fitting), stride * -(-self.oy // (4 * stride)))
        self.inputs = self.blocks * self.height(self.size) * self.width

    def height(self, outputs: int) -> int:
        """Input rows that `outputs` output rows read."""
        low, high = self.rows.reach
        return -(-outputs // self.rows.stride) + high - low

    def _fits(self, outputs: int, cfg: Config) -> bool:
        inputs = self.blocks * self.height(outputs) * self.width
        return outputs * self.ox <= self.half and 2 * inputs <= cfg.inp_depth


def lower(rec: Recording, op: g.QConvTranspose2d) -> None:
    """Append a transposed convolution. Raises `ScheduleError` if it does not fit the scratchpads."""
    cfg, program, plan = rec.cfg, rec.program, _Plan(op, rec.cfg)
    weights = rec.constant(f"{op.name}.w", layout.pack_weights(op.weight, cfg))
    sums = _sums(op, plan)
    equal = (sums == sums[0]).all()  # then the store adds the biases
    own = (op.bias - op.x.zero_point * sums[0]).astype(np.int32) if equal else np.zeros(len(op.weight), np.int32)
    parameters = channel_parameters(rec, op, own)
    biases = None if equal else rec.constant(f"{op.name}.bias", _biases(op, sums, cfg))
    out, size = rec.activations[op.output.name], plan.size * plan.ox
    with on_chip(rec) as chip:
        wgt, inp, par = chip.slots(Mem.WGT, plan.taps), chip.slots(Mem.INP, plan.inputs), chip.region(Mem.PAR, 1)
        slots = cycle(zip(inp, chip.banks(size, size, plan.half)))
        bias_at = chip.region(Mem.ACC, len(plan.phases), cfg.acc_depth - len(plan.phases))
        for o in range(plan.outputs):
            program.load(Mem.WGT, wgt[o % 2], weights, o * plan.taps, x_size=plan.taps)
            program.load(Mem.PAR, par, parameters, o)
            if biases is not None:
                program.load(Mem.ACC, bias_at, biases, o * len(plan.phases), x_size=len(plan.phases))
            for n, first in product(range(op.x.shape[0]), range(0, plan.oy, plan.size)):
                rows, (base, acc) = min(plan.size, plan.oy - first), next(slots)
                _load(rec, op, plan, base, (n, first, rows))
                _products(rec, op, plan, (acc, base, wgt[o % 2]), rows)
                if biases is not None:
                    _add_biases(program, plan, (acc, bias_at), rows)
                offset = ((n * plan.outputs + o) * plan.oy + first) * plan.ox
                program.store(acc, out, offset, x_size=rows * plan.ox, par=par)


def _load(rec: Recording, op: g.QConvTranspose2d, plan: _Plan, base: int, tile: tuple[int, int, int]) -> None:
    """Load the input of output rows `tile` (image, first, count): all blocks of channels, padded."""
    (n, first, count), (h, w) = tile, op.x.shape[2:]
    top = first // plan.rows.stride + plan.rows.reach[0]
    height = plan.height(count)
    before, left = max(0, -top), max(0, -plan.left)
    y, x = max(0, top), max(0, plan.left)
    rows, columns = min(h, top + height) - y, min(w, plan.left + plan.width) - x
    after, right = height - before - rows, plan.width - left - columns
    if min(rows, columns) < 1 or max(before, after, left, right) > most_padding(rec.cfg):
        raise ScheduleError(
            f"padding {(before, after, left, right)} around {rows}x{columns} pixels is too much: at most "
            f"{most_padding(rec.cfg)} per side, around at least one pixel"
        )
    pads = (before, after, left, right)
    fill = op.x.zero_point if any(pads) else 0
    for block in range(plan.blocks):
        offset = ((n * plan.blocks + block) * h + y) * w + x
        where = {"y_size": rows, "x_size": columns, "x_stride": w, "pads": pads, "pad_value": fill}
        rec.program.load(Mem.INP, base + block * height * plan.width, rec.activations[op.x.name], offset, **where)


def _products(rec: Recording, op: g.QConvTranspose2d, plan: _Plan, bases: tuple[int, int, int], rows: int) -> None:
    """The micro-ops of one tile, one or two instructions per phase."""
    (acc, inp, wgt), (kh, kw) = bases, op.weight.shape[2:]
    height, (low_y, _), (low_x, _) = plan.height(rows), plan.rows.reach, plan.columns.reach
    for (ry, down), (rx, across) in product(enumerate(plan.rows.phases), enumerate(plan.columns.phases)):
        counts = plan.rows.count(rows, ry), plan.columns.count(plan.ox, rx)
        if not min(counts):
            continue
        uops = [
            (
                acc + ry * plan.ox + rx,
                inp + (block * height + dy - low_y) * plan.width + dx - low_x,
                wgt + (block * kh + ky) * kw + kx,
            )
            for block, (ky, dy), (kx, dx) in product(range(plan.blocks), down, across)
        ]
        loops = [(counts[0], plan.rows.stride * plan.ox, plan.width, 0), (counts[1], plan.columns.stride, 1, 0)]
        rec.program.gemm_uops(np.array(uops[:1]), loops, overwrite=True)
        if uops[1:]:
            rec.program.gemm_uops(np.array(uops[1:]), loops)


def _add_biases(program: Program, plan: _Plan, bases: tuple[int, int], rows: int) -> None:
    """Add the biases of each phase to its accumulators; `bases` are (accumulators, biases)."""
    acc, bias_at = bases
    for k, (ry, rx) in enumerate(plan.phases):
        count = plan.rows.count(rows, ry), plan.columns.count(plan.ox, rx)
        if min(count):
            loops = [(count[0], plan.rows.stride * plan.ox, 0), (count[1], plan.columns.stride, 0)]
            program.alu(AluOp.ADD, loops, acc + ry * plan.ox + rx, bias_at + k)


def _sums(op: g.QConvTranspose2d, plan: _Plan) -> np.ndarray:
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
