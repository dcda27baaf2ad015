"""One over a square root on the ALU: the tables and steps of Newton's method of runtime/kernels/roots.py."""

from __future__ import annotations

from dataclasses import dataclass

from ....hw.config import Config
from ....hw.isa import AluOp
from ....hw.rtl.latencies import issue_interval, multiply_interval
from ....runtime.kernels import roots
from ..direct import lookup
from ..recording import Recording

COPIES = 4  # of the argument: the index of each table, and one for each step
_PRODUCTS = 3 * roots.STEPS + 1  # one after the other, with the functions


@dataclass(frozen=True)
class Tables:
    """The numbers of the two tables on chip."""

    high: int
    low: int


def needs(cfg: Config) -> str:
    """Reason why `cfg` computes no roots; empty if it does."""
    missing = sorted({"acc8", "lookup", "lane_reduce", "overwrite", "requant", "rescale"} - cfg.extensions)
    if missing:
        return f"it needs the extension{'s' * (len(missing) > 1)} {', '.join(missing)}"
    if cfg.tables < 2:
        return f"it needs 2 tables; {cfg.name} has {cfg.tables}"
    if cfg.batch != 1 or cfg.block_in != cfg.block_out:
        return f"batch {cfg.batch}, blocks {cfg.block_in} and {cfg.block_out}: it needs batch 1 and equal blocks"
    return ""


def cycles(count: int, cfg: Config) -> float:
    """Estimate for `count` entries."""
    return _PRODUCTS * (multiply_interval(cfg) + count * issue_interval(cfg, multiply=True)) + 6 * (count + 2)


def tables(rec: Recording, name: str) -> Tables:
    """Load the tables, or find them on chip; `name` is for their constants."""
    return Tables(lookup.loaded(rec, f"{name}.high", roots.HIGH), lookup.loaded(rec, f"{name}.low", roots.LOW))


def inverse_root(rec: Recording, found: Tables, base: int, count: int) -> int:
    """Replace `COPIES` times `count` accumulators from `base` on, copies of the arguments, one after the other.

    Returns the first of the `count` accumulators with the results.
    """
    program = rec.program
    high, low, *steps = (base + k * count for k in range(COPIES))
    each, both = [(count, 1, 0)], [(count, 1, 1)]
    program.alu(AluOp.SHR, each, high, imm=roots.HIGH_SHIFT)
    program.alu(AluOp.SHR, each, low, imm=roots.LOW_SHIFT)
    program.alu(AluOp.ADD, [(2 * count, 1, 0)], high, imm=-128)
    program.alu(AluOp.LOOKUP, each, high, imm=found.high)
    program.alu(AluOp.LOOKUP, each, low, imm=found.low)
    program.alu(AluOp.MUL, [(roots.STEPS * count, 1, 0)], steps[0], imm=-1)
    program.alu(AluOp.ADD, both, high, low)
    for step in steps:
        # Of a negative number the complement is shifted, -1 - a, so that it rounds as a does: sums, not products.
        program.alu(AluOp.MUL, both, step, high)
        _shift_negative(rec, step, count, roots.SQUARE_SHIFT, 1)
        program.alu(AluOp.MUL, both, step, high)
        _shift_negative(rec, step, count, roots.HALF_SHIFT, roots.THREE + 1)
        program.alu(AluOp.MUL, both, high, step)
        program.alu(AluOp.SHR, each, high, imm=roots.STEP_SHIFT)
    return high


def _shift_negative(rec: Recording, base: int, count: int, bits: int, more: int) -> None:
    """Replace a by `~(-a >> bits) + more`, of `count` accumulators from `base` on."""
    rec.program.alu(AluOp.ADD, [(count, 1, 0)], base, imm=-1)
    rec.program.alu(AluOp.SHR, [(count, 1, 0)], base, imm=bits)
    rec.program.alu(AluOp.ADD, [(count, 1, 0)], base, imm=more)
