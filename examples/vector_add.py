"""Add two vectors on the accelerator: from a tensor expression to instructions, and the result.

Run it: python examples/vector_add.py

The accelerator adds in its accumulators: `acc[d] = acc[d] + acc[s]`, 16 numbers (one entry) per step. So both vectors
are loaded into accumulators, added there, and the low 8 bits of each sum are stored.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler import build
from tilewright.compiler.intrin import ACC
from tilewright.compiler.tvm_compat import Schedule, te
from tilewright.hw.config import PRESETS
from tilewright.runtime.disasm import disassemble
from tilewright.runtime.loader import run

CFG = PRESETS["vta"]
LENGTH, TILE = 4096, 64  # numbers; entries of CFG.lanes = 16 numbers per tile


def expression():
    """`c = int8(a + b)` on int32 vectors, in entries of (batch, block_out)."""
    shape = (LENGTH // (CFG.lanes), CFG.batch, CFG.block_out)
    a, b = te.placeholder(shape, "int32", "a"), te.placeholder(shape, "int32", "b")
    total = te.compute(shape, lambda *i: a(*i) + b(*i), name="total")
    # STORE writes the low 8 bits of accumulators, which this cast expresses.
    c = te.compute(shape, lambda *i: total(*i).astype("int8"), name="c")
    return te.create_prim_func([a, b, c])


def schedule() -> Schedule:
    """Tiles of TILE entries: load a, load b, add, store."""
    sch = Schedule(expression())
    total, c = sch.get_sblock("total"), sch.get_sblock("c")
    # 1. Scopes: the sum is in the accumulators, and so are copies of a and b.
    sch.set_scope(total, 0, ACC)
    a, b = sch.cache_read(total, 0, ACC), sch.cache_read(total, 1, ACC)
    # 2. Tiles: one loop over tiles, in which everything for a tile happens.
    tiles, _ = sch.split(sch.get_loops(c)[0], [None, TILE])
    for block in (total, a, b):
        sch.compute_at(block, tiles)
    # 3. Nothing else: every perfect loop nest that is left becomes one instruction.
    return sch


def main() -> None:
    """Build, show, run and check."""
    sch = schedule()
    print("--- the schedule ---")
    print(sch.mod["main"].script())

    program = build(sch, CFG, name="vector_add")
    launch = program.finish()
    print(f"--- {len(launch.insn)} instructions ---")
    # pop_* waits for a token of a neighbouring queue, push_* sends one; the compiler derives both.
    print("\n".join(disassemble(launch)))

    rng = np.random.default_rng(0)
    shape = program.buffers["a"].shape
    a, b = (rng.integers(-64, 64, shape, np.int32) for _ in range(2))
    outputs, stats = run(program, {"a": a, "b": b})
    assert np.array_equal(outputs["c"], a + b)
    print(f"--- {LENGTH} sums equal numpy's; {stats.insns.total()} instructions, {stats.uops} micro-ops ---")


if __name__ == "__main__":
    main()
