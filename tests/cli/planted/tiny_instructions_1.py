"""A matrix product whose instructions are marked at the innermost loop.

Planted: the loop over blocks of columns is annotated with `INSTRUCTION`, as in a schedule where it was the whole tile.
Slow because an instruction begins there: each makes four products and waits as long as one that makes thousands; its
micro-ops are loaded for it alone.
Cycles: 9,654; better: 2,965; factor 3.3 (`better` has no mark: one instruction makes all products).
"""

from packed_matmul import Matmul
from versions import versions

from tilewright.compiler.intrin import INSTRUCTION, tensorize_gemm

MATMUL = Matmul(32, 128, 64)


def matmul(cfg, marked):
    """Operands on chip as a whole, steps of the reduction outermost."""
    sch, acc, _, (i, j, bi, bj, k, ki) = MATMUL.started(cfg)
    sch.reorder(k, i, j, bi, bj, ki)
    sch.decompose_reduction(acc, k)
    if marked:
        sch.annotate(j, INSTRUCTION, 1)
    tensorize_gemm(sch, acc, cfg)
    return sch


schedule, better = versions(matmul, marked=(True, False))
data = MATMUL.data
