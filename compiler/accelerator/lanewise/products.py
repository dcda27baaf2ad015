"""Products of matrices on the ALU, one matrix per lane: entries times entries, and their sums.

A row of the first operand is multiplied by all of the second one, whose elements are entries with a lane per matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime.buffer import Buffer
from ... import cost
from ... import graph as g
from ..direct.on_chip import on_chip
from ..recording import Recording
from .folding import folded, instructions

_APART = 16  # sums that are added to in turns, so that none waits for the one before


def in_lanes(op: g.Operator, block: int) -> bool:
    """True of products that need fewer cycles here: few rows of matrices that are narrower than a block."""
    if not isinstance(op, g.BatchMatMul) or op.images or {len(t.shape) for t in (*op.inputs, op.output)} != {4}:
        return False
    x, y = (t.shape for t in op.inputs)
    narrow = min(op.inner, op.output.shape[3]) < block
    return narrow and x[:2] == y[:2] == (1, x[1]) and x[1] % block == 0 and x[2] == 1


def refusal(op: g.BatchMatMul, cfg: Config) -> str:
    """Reason why the accelerator cannot compute it; empty if it can."""
    missing = sorted({"acc8", "requant"} - cfg.extensions)
    if missing:
        return f"it needs the extension{'s' * (len(missing) > 1)} {', '.join(missing)}"
    if any(t.data is not None for t in op.inputs):
        return "a constant operand"
    plan = Plan(op, cfg)
    if cfg.batch > 1 or cfg.block_in != cfg.block_out or plan.inner > cfg.acc_depth // 4:
        return f"batch {cfg.batch}, {plan.inner} elements: it needs batch 1 and at most {cfg.acc_depth // 4} elements"
    if plan.width > cfg.acc_depth // 4 or plan.sums + plan.inner > cfg.acc_depth // 2:
        return f"{plan.width} columns: at most {cfg.acc_depth // 4}"
    return ""


def cycles(op: g.BatchMatMul, cfg: Config) -> float:
    """Estimated cycles of compute, the first load and the last store."""
    plan = Plan(op, cfg)
    entries = plan.inner * plan.width
    each = entries * (1 + issue_interval(cfg, multiply=True)) + plan.sums + 15 * instructions(plan.apart)
    loads = cost.moved(cfg, (entries + plan.inner) * cfg.inp_entry_bytes)
    return plan.matrices * plan.rows * max(each, loads) + 2 * cost.ROUND_TRIP + 2 * multiply_interval(cfg)


@dataclass(frozen=True)
class Plan:
    """Extents of a product: blocks of `matrices`, `rows` by `inner` and `inner` by `width`.

    The second operand is read in chunks of `chunk` of its rows, which are `across` wide. `apart` sums of each element
    of the result are added in the end.
    """

    matrices: int
    rows: int
    inner: int
    width: int
    across: int
    chunk: int
    apart: int

    def __init__(self, op: g.BatchMatMul, cfg: Config):
        (_, channels, rows, inner), width = op.x.shape, op.output.shape[3]
        down, across = op.inputs[1].shape[2:]
        facts = {"matrices": -(-channels // cfg.block_in), "rows": rows, "inner": inner, "width": width}
        facts |= {"across": across, "chunk": min(down, cfg.acc_depth // 4 // across or 1)}
        facts["apart"] = 1 if op.transposed else min(down, -(-_APART // width))
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    @property
    def sums(self) -> int:
        """Entries of all sums."""
        return self.apart * self.width


def lower(rec: Recording, op: g.BatchMatMul) -> None:
    """Append the product, row by row."""
    cfg, plan = rec.cfg, Plan(op, rec.cfg)
    multiplier, exponent = op.multipliers
    facts = {"multiplier": multiplier, "exponent": exponent, "zero_point": op.output.zero_point, "contract": "double"}
    parameters = rec.parameters(f"{op.name}.par", bias=0, **facts, low=-128, high=127)
    x, y, out = rec.operand(op, 0), rec.operand(op, 1), rec.activations[op.output.name]
    size = plan.inner * plan.width
    with on_chip(rec) as chip:
        par = chip.constant(Mem.PAR, parameters)
        for k in range(plan.matrices * plan.rows):
            first, second = chip.banks(2 * plan.chunk * plan.across, plan.sums + plan.inner, cfg.acc_depth // 2)
            _row(rec, op, (x, k * plan.inner), (y, k // plan.rows * size), (first, second))
            rec.program.store(second, out, k * plan.width, x_size=plan.width, par=par)


def _row(
    rec: Recording, op: g.BatchMatMul, x: tuple[Buffer, int], y: tuple[Buffer, int], banks: tuple[int, int]
) -> None:
    """Append the sums of one row, from the first entry of the second bank on."""
    program, plan, (first, sums) = rec.program, Plan(op, rec.cfg), banks
    row, down = sums + plan.sums, plan.inner * plan.width // plan.across
    program.gemm([(plan.sums, 1, 0, 0)], sums, reset=True)
    program.load(Mem.ACC8, row, *x, x_size=plan.inner)
    if zero := op.x.zero_point:
        program.alu(AluOp.ADD, [(plan.inner, 1, 0)], row, imm=-zero)
    for k, begin in enumerate(range(0, down, plan.chunk)):
        count, base = min(plan.chunk, down - begin), first + k % 2 * plan.chunk * plan.across
        size = count * plan.across
        program.load(Mem.ACC8, base, y[0], y[1] + begin * plan.across, x_size=size)
        if zero := op.inputs[1].zero_point:
            program.alu(AluOp.ADD, [(size, 1, 0)], base, imm=-zero)
        if op.transposed:
            program.alu(AluOp.MUL, [(count, plan.inner, 0), (plan.inner, 1, 1)], base, row)
            program.alu(AluOp.ADD, [(plan.inner, 0, 1), (count, 1, plan.inner)], sums + begin, base)
            continue
        program.alu(AluOp.MUL, [(count, plan.width, 1), (plan.width, 1, 0)], base, row + begin)
        whole = count // plan.apart
        if whole:
            program.alu(AluOp.ADD, [(whole, 0, plan.sums), (plan.sums, 1, 1)], sums, base)
        if left := (count - whole * plan.apart) * plan.width:
            program.alu(AluOp.ADD, [(left, 1, 1)], sums, base + whole * plan.sums)
    folded(program, AluOp.ADD, sums, 1, 0, plan.apart, plan.width)
