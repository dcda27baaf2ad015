"""Add two vectors on the accelerator: from a tensor expression to instructions, and the result.

Run it: python examples/vector_add.py [FILE.npz]

The accelerator adds in its accumulators: `acc[d] = acc[d] + acc[s]`, 16 numbers (one entry) per step. So both vectors
are loaded into accumulators, added there, and the low 8 bits of each sum are stored.
"""

from __future__ import annotations

import sys

import numpy as np

import tilewright as tw
from tilewright.compiler.intrin import ACC
from tilewright.compiler.tvm_compat import Schedule, te
from tilewright.runtime.disasm import disassemble

CFG = tw.load_config("vta")
LENGTH, TILE = 4096, 64  # numbers; entries of CFG.lanes = 16 numbers per tile


def expression(cfg: tw.Config):
    """`c = int8(a + b)` on int32 vectors, in entries of (batch, block_out)."""
    shape = (LENGTH // cfg.lanes, cfg.batch, cfg.block_out)
    a, b = te.placeholder(shape, "int32", "a"), te.placeholder(shape, "int32", "b")
    total = te.compute(shape, lambda *i: a(*i) + b(*i), name="total")
    # STORE writes the low 8 bits of accumulators, which this cast expresses.
    c = te.compute(shape, lambda *i: total(*i).astype("int8"), name="c")
    return te.create_prim_func([a, b, c])


def schedule(cfg: tw.Config = CFG) -> Schedule:
    """Tiles of TILE entries: load a, load b, add, store."""
    sch = Schedule(expression(cfg))
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
    """Build, show, run and check; write inputs and outputs to the file that is named."""
    sch = schedule()
    print("--- the schedule ---")
    print(sch.mod["main"].script())

    program = tw.build(sch, CFG, name="vector_add")
    launch = program.finish()
    print(f"--- {len(launch.insn)} instructions ---")
    # pop_* waits for a token of a neighbouring queue, push_* sends one; the compiler derives both.
    print("\n".join(disassemble(launch)))

    rng = np.random.default_rng(0)
    shape = program.buffers["a"].shape
    a, b = (rng.integers(-64, 64, shape, np.int32) for _ in range(2))
    outputs, stats = tw.run(program, {"a": a, "b": b})
    assert np.array_equal(outputs["c"], a + b)
    print(f"--- {LENGTH} sums equal numpy's; {stats.insns.total()} instructions, {stats.uops} micro-ops ---")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], a=a, b=b, outputs=outputs["c"])


if __name__ == "__main__":
    main()
