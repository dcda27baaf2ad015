"""A matrix product whose reduction is not decomposed.

Planted: `schedule` reorders the reduction outermost and tensorizes, but never calls `decompose_reduction`.
Slow because the initialisation stays inside the nest, under a condition on the reduction's loop. So no perfect nest is
left but that of a single entry, and each of its steps becomes an instruction (and a load of micro-ops) of its own,
with a reset of its own in the first step.
Cycles: 18,895; better: 2,069; factor 9.1 (`better` decomposes at the loop `k`, around all outputs).
"""

from packed_matmul import Matmul
from versions import versions

from tilewright.compiler.intrin import tensorize_gemm

MATMUL = Matmul(16, 128, 64)


def matmul(cfg, decomposed):
    """Operands on chip as a whole, steps of the reduction outermost."""
    sch, acc, _, (i, j, bi, bj, k, ki) = MATMUL.started(cfg)
    sch.reorder(k, i, j, bi, bj, ki)
    if decomposed:
        sch.decompose_reduction(acc, k)
    tensorize_gemm(sch, acc, cfg)
    return sch


schedule, better = versions(matmul, decomposed=(False, True))
data = MATMUL.data
