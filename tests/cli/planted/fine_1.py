"""A small matrix product in a single tile: everything is loaded, computed and stored once.

Nothing planted: no load can overlap the only GEMM, which needs all of it, and one slot is all that a single tile uses.
"""

from packed_matmul import Matmul

from tilewright.compiler.intrin import tensorize_gemm

MATMUL = Matmul(32, 64, 32)


def schedule(cfg):
    """No tiles."""
    sch, acc, _, (i, j, bi, bj, k, ki) = MATMUL.started(cfg)
    sch.reorder(k, i, j, bi, bj, ki)
    sch.decompose_reduction(acc, k)
    tensorize_gemm(sch, acc, cfg)
    return sch


data = MATMUL.data
