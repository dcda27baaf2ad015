"""Blocked matrix product with two virtual threads: loads of one run while the other computes.

Run it: python examples/matmul_vthread.py [FILE.npz]

`y = clip(x @ w.T >> 8)` in int8. The rows of x are divided between two virtual threads. Both use the same weights,
which are loaded once; each has its own tile of x on chip. So while the GEMM unit works on the tile of thread 0, the
load unit may fill that of thread 1, and the other way round: virtual threads are double buffering.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

import tilewright as tw
from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_gemm
from tilewright.compiler.tvm_compat import Schedule, te, tirx
from tilewright.hw.isa import Isa, Mem, Op, Queue
from tilewright.runtime import layout
from tilewright.runtime.disasm import disassemble
from tilewright.runtime.launch import Launch

CFG = tw.load_config("vta")
ROWS, INNER, COLUMNS = 32, 128, 64  # x is (ROWS, INNER), w (COLUMNS, INNER)
STEP = 2  # blocks of INNER that are on chip at a time
THREADS = 2


def expression(cfg: tw.Config):
    """The product and its epilogue on packed tensors (runtime/layout.py)."""
    rows, inner, columns = ROWS // cfg.batch, INNER // cfg.block_in, COLUMNS // cfg.block_out
    x = te.placeholder((rows, inner, cfg.batch, cfg.block_in), "int8", "x")
    w = te.placeholder((columns, inner, cfg.block_out, cfg.block_in), "int8", "w")
    k, ki = te.reduce_axis((0, inner), "k"), te.reduce_axis((0, cfg.block_in), "ki")

    def product(i, j, bi, bj):
        return te.sum(x[i, k, bi, ki].astype("int32") * w[j, k, bj, ki].astype("int32"), axis=[k, ki])

    def number(value):
        return tirx.const(value, "int32")

    acc = te.compute((rows, columns, cfg.batch, cfg.block_out), product, name="acc")
    shifted = te.compute(acc.shape, lambda *i: acc(*i) >> number(8), name="shifted")
    low = te.compute(acc.shape, lambda *i: te.max(shifted(*i), number(-128)), name="low")
    clipped = te.compute(acc.shape, lambda *i: te.min(low(*i), number(127)), name="clipped")
    y = te.compute(acc.shape, lambda *i: clipped(*i).astype("int8"), name="y")
    return te.create_prim_func([x, w, y])


def schedule(cfg: tw.Config = CFG, threads: int = THREADS) -> Schedule:
    """Threads over rows, steps over the inner dimension, one GEMM instruction per step and thread."""
    sch = Schedule(expression(cfg))
    acc = sch.get_sblock("acc")
    # 1. Scopes: accumulators, and copies of x and w in their scratchpads.
    x, w = sch.cache_read(acc, 0, INP), sch.cache_read(acc, 1, WGT)
    for name in ("acc", "shifted", "low", "clipped"):
        sch.set_scope(sch.get_sblock(name), 0, ACC)
    # 2. Loops: threads outermost, then steps of the reduction; inside, what one GEMM instruction covers.
    i, j, bi, bj, k, ki = sch.get_loops(acc)
    thread, i = sch.split(i, [threads, None])
    steps, k = sch.split(k, [None, STEP])
    sch.reorder(thread, steps, k, i, j, bi, bj, ki)
    if threads > 1:
        sch.bind(thread, "vthread.x")
    # 3. Loads: x in every step; w once, it does not depend on the thread. The epilogue runs after all steps.
    for name in ("shifted", "low", "clipped", "y"):
        sch.reverse_compute_at(sch.get_sblock(name), thread, preserve_unit_loops=True)
    sch.compute_at(x, steps, preserve_unit_loops=True)
    sch.compute_at(w, thread, preserve_unit_loops=True)
    # 4. The multiply-accumulates of one entry become the GEMM intrinsic (last: loop handles are invalid after it).
    sch.decompose_reduction(acc, steps)
    tensorize_gemm(sch, acc, cfg)
    return sch


def may_finish_during(launch: Launch, blocked: int) -> set[int]:
    """Instructions that can finish before instruction `blocked` has, by their tokens."""
    isa = Isa(launch.cfg)
    insns = isa.decode(launch.insn)
    queues = {q: [k for k, f in enumerate(insns) if isa.queue(f) == q] for q in Queue}
    tokens: Counter = Counter()
    done: set[int] = set()
    progress = True
    while progress:
        progress = False
        for queue, waiting in queues.items():
            if not waiting or waiting[0] == blocked:
                continue
            f = insns[waiting[0]]
            neighbours = [(step, queue + step) for step in (-1, 1)]
            pops = [(n, queue) for step, n in neighbours if f["pop_prev" if step < 0 else "pop_next"]]
            if all(tokens[channel] for channel in pops):
                tokens.subtract(pops)
                tokens.update((queue, n) for step, n in neighbours if f["push_prev" if step < 0 else "push_next"])
                done.add(waiting.pop(0))
                progress = True
    return done


def overlaps(launch: Launch) -> list[tuple[int, int, list[int]]]:
    """For every accumulating GEMM: its index, its thread, and the loads of the other thread that may run beside it.

    Two instructions may run side by side if each can finish while the other has not.
    """
    insns = Isa(launch.cfg).decode(launch.insn)
    per_thread = ROWS // CFG.batch // THREADS * STEP  # entries of x that a thread has on chip
    gemms = [k for k, f in enumerate(insns) if f["op"] == Op.GEMM and not f["reset"]]
    loads = [k for k, f in enumerate(insns) if f["op"] == Op.LOAD and f["mem"] == Mem.INP]
    during = {k: may_finish_during(launch, k) for k in gemms + loads}
    out = []
    for position, gemm in enumerate(gemms):
        thread = position % THREADS  # the scopes of the threads alternate
        others = [k for k in loads if insns[k]["sram_base"] // per_thread != thread]
        out.append((gemm, thread, [k for k in others if k in during[gemm] and gemm in during[k]]))
    return out


def main() -> None:
    """Build, show, run and check; write inputs and outputs to the file that is named."""
    program = tw.build(schedule(), CFG, name="matmul")
    launch = program.finish()
    lines = disassemble(launch)
    print(f"--- {len(lines)} instructions ---")
    print("\n".join(lines))
    print("--- what the tokens let overlap ---")
    for gemm, thread, loads in overlaps(launch):
        print(f"while {gemm} (GEMM of thread {thread}) computes, free to run: loads {loads} of thread {1 - thread}")

    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 128, (ROWS, INNER), np.int8), rng.integers(-128, 128, (COLUMNS, INNER), np.int8)
    inputs = {"x": layout.pack_dense_activations(x, CFG), "w": layout.pack_dense_weights(w, CFG)}
    outputs, stats = tw.run(program, inputs)
    y = layout.unpack_dense_activations(outputs["y"], COLUMNS)
    assert np.array_equal(y, np.clip((x.astype(np.int32) @ w.astype(np.int32).T) >> 8, -128, 127))
    print(
        f"--- {y.size} results equal numpy's; {stats.macs} multiply-accumulates, {stats.insns.total()} instructions ---"
    )
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], x=inputs["x"], w=inputs["w"], outputs=outputs["y"])


if __name__ == "__main__":
    main()
