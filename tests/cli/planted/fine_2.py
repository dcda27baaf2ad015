"""A matrix-vector product: every weight is used once, so that it takes as long as their load.

Nothing planted: GEMM waits most of the time, and each of its instructions makes few products, but the load port is
never idle, and no schedule can load fewer bytes. Weights come in tiles of one output block, contiguous, in two slots.
"""

from packed_matmul import Matmul

from tilewright.compiler.intrin import SLOTS, tensorize_gemm

MATMUL = Matmul(1, 512, 256)


def schedule(cfg):
    """One tile of weights per output block."""
    sch, acc, (_, w), (i, j, bi, bj, k, ki) = MATMUL.started(cfg)
    sch.reorder(j, k, i, bi, bj, ki)
    sch.compute_at(w, j)
    sch.annotate(w, SLOTS, 2)
    sch.decompose_reduction(acc, k)
    tensorize_gemm(sch, acc, cfg)
    return sch


data = MATMUL.data
