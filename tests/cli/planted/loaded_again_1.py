"""A matrix product that loads its weights again for every tile of rows.

Planted: the weights are loaded inside the loop over tiles of rows, step by step, although all of them fit on chip.
Slow because the same 128 entries are read from memory eight times: with 16 rows in a tile, their load takes longer than
the products that use them, so GEMM waits for weights that it had before.
Cycles: 41,827; better: 23,508; factor 1.8 (`better` loads them once, before all loops).
"""

from packed_matmul import Matmul
from versions import versions

from tilewright.compiler.intrin import SLOTS, tensorize_gemm

MATMUL = Matmul(128, 512, 64)
TILE, STEP = 16, 4


def matmul(cfg, once):
    """Tiles of rows, in each steps of the reduction, two slots for what is loaded inside them."""
    sch, acc, (x, w), (i, j, bi, bj, k, ki) = MATMUL.started(cfg)
    tiles, i = sch.split(i, [None, TILE])
    steps, k = sch.split(k, [None, STEP])
    sch.reorder(tiles, steps, k, i, j, bi, bj, ki)
    sch.compute_at(x, tiles)
    sch.annotate(x, SLOTS, 2)
    if not once:
        sch.compute_at(w, steps)
        sch.annotate(w, SLOTS, 2)
    sch.reverse_compute_at(sch.get_sblock("y"), tiles)
    sch.decompose_reduction(acc, steps)
    tensorize_gemm(sch, acc, cfg)
    return sch


schedule, better = versions(matmul, once=(False, True))
data = MATMUL.data
