"""Products of matrices on the ALU, one matrix per lane: entries times entries, and their sums.

Rows of the first operand are multiplied by all of the second one, whose elements are entries with a lane per matrix.
Several rows at a time each have a copy of it, or matrices of their own: (1, heads, rows, 1, elements).
"""

from __future__ import annotations

from dataclasses import dataclass

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime.buffer import Buffer
from ... import cost
from ... import graph as g
from ..direct.on_chip import OnChip, on_chip
from ..recording import Recording
from . import depthwise
from .folding import folded, instructions

_APART = 16  # sums that are added to in turns, so that none waits for the one before


def in_lanes(op: g.Operator, block: int) -> bool:
    """True of Deeploy's products that need fewer cycles here: of matrices that are narrower than a block.

    In other networks softmax and norms are along lanes, and the products are of images (accelerator/matrices/).
    """
    if not isinstance(op, g.ShiftMatMul) or op.images:
        return False
    x, y, out = (t.shape for t in (*op.inputs, op.output))
    if {len(x), len(y), len(out)} not in ({4}, {5}) or x[:-2] != y[:-2] or x[0] != 1:
        return False
    elements = op.inner if op.transposed else out[-1]  # of a head
    narrow = elements < block or (x[1] % block == 0 and min(op.inner, out[-1]) < block)
    return (len(x) == 4 or x[3] == 1) and narrow


def refusal(op: g.BatchMatMul, cfg: Config) -> str:
    """Reason why the accelerator cannot compute it; empty if it can."""
    missing = sorted({"acc8", "requant"} - cfg.extensions)
    if missing:
        return f"it needs the extension{'s' * (len(missing) > 1)} {', '.join(missing)}"
    if any(t.data is not None for t in op.inputs):
        return "a constant operand"
    if cfg.batch > 1 or cfg.block_in != cfg.block_out:
        return f"batch {cfg.batch}, blocks {cfg.block_in} and {cfg.block_out}: it needs batch 1 and equal blocks"
    if depthwise.together(op, cfg):
        return ""
    plan, most = Plan(op, cfg), cfg.acc_depth // 4
    if plan.inner > most or plan.width > most:
        return f"{plan.inner} elements, {plan.width} columns: at most {most}"
    return ""


def cycles(op: g.BatchMatMul, cfg: Config) -> float:
    """Estimated cycles of compute or loads, the first load and the last store."""
    if depthwise.together(op, cfg):
        return depthwise.cycles(op, cfg)
    plan = Plan(op, cfg)
    entries, tiles = plan.entries, -(-plan.rows // plan.together)
    each = entries * (1.5 + issue_interval(cfg, multiply=True)) + plan.sums
    loads = cost.moved(cfg, (entries + plan.inner + plan.width) * cfg.inp_entry_bytes)
    waits = 2 * cost.round_trip() + 2 * multiply_interval(cfg) + 15 * instructions(plan.apart)
    return plan.blocks * (plan.rows * max(each, loads) + tiles * waits)


@dataclass(frozen=True)
class Plan:
    """Extents of a product of `blocks` of heads: `rows` by `inner` and `inner` by `width`.

    The second operand, `own` of each row or the same for all, is read in chunks of `chunk` of its rows, which are
    `across` wide; where one is enough, for `together` rows at a time. `apart` sums of each element of the result are
    added in the end.
    """

    blocks: int
    rows: int
    own: bool
    inner: int
    width: int
    across: int
    chunk: int
    together: int
    apart: int

    def __init__(self, op: g.BatchMatMul, cfg: Config):
        (_, channels, rows, *_, inner), width = op.x.shape, op.output.shape[-1]
        (down, across), most = op.inputs[1].shape[-2:], cfg.acc_depth // 4
        facts = {"blocks": -(-channels // cfg.block_in), "rows": rows, "own": len(op.x.shape) == 5, "across": across}
        apart = 1 if op.transposed else min(down, -(-_APART // width))
        room = min(most // (down * across), most // (apart * width), most // inner)
        facts |= {"inner": inner, "width": width, "chunk": min(down, most // across), "apart": apart}
        for name, value in (facts | {"together": max(1, min(rows, room))}).items():
            object.__setattr__(self, name, value)

    @property
    def sums(self) -> int:
        """Entries of all sums of a row."""
        return self.apart * self.width

    @property
    def entries(self) -> int:
        """Of a matrix of the second operand."""
        return self.inner * self.width


def lower(rec: Recording, op: g.BatchMatMul) -> None:
    """Append the product, some rows at a time, on the multiplier array where that fits."""
    if depthwise.together(op, rec.cfg):
        depthwise.lower(rec, op)
        return
    plan = Plan(op, rec.cfg)
    multiplier, exponent = op.multipliers
    facts = {"multiplier": multiplier, "exponent": exponent, "zero_point": op.output.zero_point, "contract": "double"}
    parameters = rec.parameters(f"{op.name}.par", bias=0, **facts, low=-128, high=127)
    x, y, out = rec.operand(op, 0), rec.operand(op, 1), rec.activations[op.output.name]
    with on_chip(rec) as chip:
        par = chip.constant(Mem.PAR, parameters)
        for block in range(plan.blocks):
            for row in range(0, plan.rows, plan.together):
                first, count = block * plan.rows + row, min(plan.together, plan.rows - row)
                matrix = (first if plan.own else block) * plan.entries
                sums = _Rows(rec, op, chip, count).record((x, first * plan.inner), (y, matrix))
                rec.program.store(sums, out, first * plan.width, x_size=count * plan.width, par=par)


class _Rows:
    """Records the sums of `count` rows: products in one bank, `sums` and the `row` of x in the other."""

    def __init__(self, rec: Recording, op: g.BatchMatMul, chip: OnChip, count: int):
        self.op, self.program, self.plan, self.count = op, rec.program, Plan(op, rec.cfg), count
        plan, half = self.plan, rec.cfg.acc_depth // 2
        self.size = plan.chunk * plan.across * count
        self.several = plan.chunk < plan.entries // plan.across  # chunks, in two slots in turns
        products = self.size * (1 + self.several)
        self.products, self.sums = chip.banks(products, count * (plan.sums + plan.inner), half)
        self.row = self.sums + count * plan.sums

    def record(self, x: tuple[Buffer, int], y: tuple[Buffer, int]) -> int:
        """Append all; the first of the entries with the sums, those of a row after those of the one before."""
        plan, program, count = self.plan, self.program, self.count
        down = plan.entries // plan.across
        program.gemm([(count * plan.sums, 1, 0, 0)], self.sums, reset=True)
        program.load(Mem.ACC8, self.row, *x, x_size=count * plan.inner)
        self._centred(self.row, count * plan.inner, self.op.x.zero_point)
        for k, begin in enumerate(range(0, down, plan.chunk)):
            chunk, base = min(plan.chunk, down - begin), self.products + k % 2 * self.several * self.size
            each = chunk * plan.across
            stride = plan.entries if plan.own else 0
            place = y[1] + begin * plan.across
            program.load(Mem.ACC8, base, y[0], place, y_size=count, x_size=each, x_stride=stride)
            self._centred(base, count * each, self.op.inputs[1].zero_point)
            if self.op.transposed:
                self._by_columns(base, begin, chunk)
            else:
                self._by_rows(base, begin, chunk)
        if plan.apart > 1:
            folded(program, AluOp.ADD, self.sums, count, plan.sums, plan.apart, plan.width)
            loops = [(count, plan.width, plan.sums), (plan.width, 1, 1)]
            if count > 1:  # to be stored as they follow one another
                program.gemm([(count * plan.width, 1, 0, 0)], self.products, reset=True)
                program.alu(AluOp.ADD, loops, self.products, self.sums)
                return self.products
        return self.sums

    def _by_columns(self, base: int, begin: int, chunk: int) -> None:
        """Products and sums of `chunk` columns of the result: rows of the second operand."""
        plan, count = self.plan, self.count
        each = chunk * plan.inner
        loops = [(count, each, plan.inner), (chunk, plan.inner, 0), (plan.inner, 1, 1)]
        self.program.alu(AluOp.MUL, loops, base, self.row)
        loops = [(plan.inner, 0, 1), (count, plan.width, each), (chunk, 1, plan.inner)]
        self.program.alu(AluOp.ADD, loops, self.sums + begin, base)

    def _by_rows(self, base: int, begin: int, chunk: int) -> None:
        """Products of `chunk` elements of a row with rows of the second operand, and their sums."""
        plan, count, program = self.plan, self.count, self.program
        each = chunk * plan.width
        loops = [(count, each, plan.inner), (chunk, plan.width, 1), (plan.width, 1, 0)]
        program.alu(AluOp.MUL, loops, base, self.row + begin)
        whole = chunk // plan.apart
        if whole:
            loops = [(whole, 0, plan.sums), (count, plan.sums, each), (plan.sums, 1, 1)]
            program.alu(AluOp.ADD, loops, self.sums, base)
        if left := (chunk - whole * plan.apart) * plan.width:
            program.alu(AluOp.ADD, [(count, plan.sums, each), (left, 1, 1)], self.sums, base + whole * plan.sums)

    def _centred(self, base: int, count: int, zero_point: int) -> None:
        if zero_point:
            self.program.alu(AluOp.ADD, [(count, 1, 0)], base, imm=-zero_point)
