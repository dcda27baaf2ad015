"""A small matrix product in a single tile: everything is loaded, computed and stored once.

Nothing planted: no load can overlap the only GEMM, which needs all of it, and one slot is all that a single tile uses.
"""

from packed_matmul import Matmul

from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_gemm
from tilewright.compiler.tvm_compat import Schedule

MATMUL = Matmul(32, 64, 32)


def schedule(cfg):
    """No tiles."""
    sch = Schedule(MATMUL.expression(cfg))
    acc = sch.get_sblock("acc")
    sch.cache_read(acc, 0, INP)
    sch.cache_read(acc, 1, WGT)
    sch.set_scope(acc, 0, ACC)
    i, j, bi, bj, k, ki = sch.get_loops(acc)
    sch.reorder(k, i, j, bi, bj, ki)
    sch.decompose_reduction(acc, k)
    tensorize_gemm(sch, acc, cfg)
    return sch


data = MATMUL.data
