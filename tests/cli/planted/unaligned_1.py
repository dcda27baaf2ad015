"""A matrix product that loads its inputs one block of the inner dimension at a time.

Planted: in memory a row of `x` has all its blocks side by side; every step takes one block of all rows, so its load
has as many rows as the matrix, of a single entry of 16 bytes, which lie 512 bytes apart.
Slow because each of these rows is a burst of 2 beats, where one of 16 takes hardly longer: the memory answers a limited
number of bursts at a time, and GEMM waits for it, in spite of two slots.
Cycles: 25,786; better: 12,561; factor 2.1 (`better` has tiles of rows instead, whose loads are contiguous).
"""

from packed_matmul import Matmul
from versions import versions

from tilewright.compiler.intrin import SLOTS, tensorize_gemm

MATMUL = Matmul(128, 512, 32)
TILE = 16


def matmul(cfg, by_rows):
    """Weights on chip as a whole; inputs in tiles of rows, or in steps of the inner dimension."""
    sch, acc, (x, _), (i, j, bi, bj, k, ki) = MATMUL.started(cfg)
    if by_rows:
        tiles, i = sch.split(i, [None, TILE])
        sch.reorder(tiles, k, i, j, bi, bj, ki)
        sch.compute_at(x, tiles)
        sch.reverse_compute_at(sch.get_sblock("y"), tiles)
    else:
        sch.reorder(k, i, j, bi, bj, ki)
        sch.compute_at(x, k)
    sch.annotate(x, SLOTS, 2)
    sch.decompose_reduction(acc, k)
    tensorize_gemm(sch, acc, cfg)
    return sch


schedule, better = versions(matmul, by_rows=(False, True))
data = MATMUL.data
