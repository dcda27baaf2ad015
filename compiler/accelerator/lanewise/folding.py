"""Sums and maxima of many entries: halves of them, so that an operation seldom waits for the one before."""

from __future__ import annotations

from ....hw.isa import AluOp
from ....runtime.program import Program


def folded(program: Program, op: AluOp, base: int, rows: int, step: int, count: int, width: int = 1) -> None:
    """Combine `count` groups of `width` entries of each row into the first one; the others change.

    Rows begin `step` entries apart.
    """
    while count > 1:
        half = count // 2
        loops = [(rows, step, step), (half * width, 1, 1)]
        program.alu(op, loops, base, base + (count - half) * width)
        count -= half


def instructions(count: int) -> int:
    """How many instructions `folded` takes."""
    return (count - 1).bit_length()
