"""A blocked matrix product with one slot for each operand.

Planted: inputs and weights are loaded per step of the reduction into a single tile each, without virtual threads.
Slow because a load has to wait until GEMM has read the tile before, and GEMM for the load: the two alternate, although
the scratchpads have room for several tiles.
Cycles: 12,718; better: 7,779; factor 1.6 (`better` asks for two slots, by annotation).
"""

from packed_matmul import Matmul
from versions import versions

from tilewright.compiler.intrin import SLOTS, tensorize_gemm

MATMUL = Matmul(40, 512, 64)
STEP = 4


def matmul(cfg, slots):
    """Steps of the reduction outermost; both operands are loaded in each."""
    sch, acc, (x, w), (i, j, bi, bj, k, ki) = MATMUL.started(cfg)
    steps, k = sch.split(k, [None, STEP])
    sch.reorder(steps, k, i, j, bi, bj, ki)
    for block in (x, w):
        sch.compute_at(block, steps)
        if slots > 1:
            sch.annotate(block, SLOTS, slots)
    sch.decompose_reduction(acc, steps)
    tensorize_gemm(sch, acc, cfg)
    return sch


schedule, better = versions(matmul, slots=(1, 2))
data = MATMUL.data
