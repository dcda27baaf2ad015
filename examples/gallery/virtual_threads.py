"""What do virtual threads gain?
=============================

A vector addition waits: a tile is loaded, added, stored, and only then is the next one loaded into the same entries
of the scratchpad. *Virtual threads* give each of two or four tiles entries of its own, so that one is loaded while
another is stored. This page writes the addition once, builds it for one, two and four threads, and looks at where the
cycles go. All cycles are simulated, by the timing model.
"""

import matplotlib.pyplot as plt
import numpy as np

import tilewright as tw
from tilewright.compiler.intrin import ACC
from tilewright.compiler.tvm_compat import Schedule, te

CFG = tw.load_config("vta")
ENTRIES, TILE = 256, 8  # entries of 16 numbers: of the vectors, and of a tile

# %%
# The computation
# ---------------
# What is computed, as a tensor expression. It says nothing about the accelerator but the shape of an entry.


def expression():
    """`c = int8(a + b)` on int32 vectors."""
    shape = (ENTRIES, CFG.batch, CFG.block_out)
    a, b = te.placeholder(shape, "int32", "a"), te.placeholder(shape, "int32", "b")
    total = te.compute(shape, lambda *i: a(*i) + b(*i), name="total")
    c = te.compute(shape, lambda *i: total(*i).astype("int8"), name="c")
    return te.create_prim_func([a, b, c])


# %%
# The schedule
# ------------
# Then how. Virtual threads are one line, ``bind``, on a loop whose iterations do not depend on each other. The compiler
# makes a copy of the instructions for each, interleaves them, and finds the tokens between them.


def schedule(threads):
    """Tiles of `TILE` entries, divided between `threads` virtual threads."""
    sch = Schedule(expression())
    total, c = sch.get_sblock("total"), sch.get_sblock("c")
    sch.set_scope(total, 0, ACC)
    a, b = sch.cache_read(total, 0, ACC), sch.cache_read(total, 1, ACC)
    tiles, _ = sch.split(sch.get_loops(c)[0], [None, TILE])
    if threads > 1:
        thread, tiles = sch.split(tiles, [threads, None])
        sch.bind(thread, "vthread.x")
    for block in (total, a, b):
        sch.compute_at(block, tiles)
    return sch


names = {1: "1 thread", 2: "2 threads", 4: "4 threads"}
programs = {threads: tw.build(schedule(threads), CFG, name=f"add_{threads}") for threads in names}

# %%
# The values
# ----------
# They are the same for any number of threads, and equal to numpy's.

a, b = (np.arange(ENTRIES * 16, dtype=np.int32).reshape(ENTRIES, 1, 16) % n for n in (50, 60))
for threads, program in programs.items():
    outputs, stats = tw.run(program, {"a": a, "b": b})
    print(f"{names[threads]}:", stats.insns.total(), "instructions, equal:", np.array_equal(outputs["c"], a + b))

# %%
# The cycles
# ----------
# Every byte of `a` and `b` is loaded through a port of 8 bytes, which takes 4,096 cycles at least. The dashed line is
# that bound. Four threads come closest. What is left are the additions, because the unit that adds also loads
# accumulators, and the latency of memory.

timings = {threads: tw.predict(program) for threads, program in programs.items()}
bound = 2 * a.nbytes // (CFG.axi_bits // 8)
plt.figure(figsize=(6, 3))
plt.bar(list(names.values()), [timing.cycles for timing in timings.values()], width=0.5)
plt.axhline(bound, color="black", linestyle="--", label="bytes / width of the port")
plt.ylabel("cycles, simulated")
plt.legend()
plt.tight_layout()

# %%
# Where they go
# -------------
# The first thousand cycles of the unit that loads and adds, above, and of the one that stores, below, for each number
# of threads: with one they take turns.

figure, axes = plt.subplots(len(timings), 1, sharex=True, figsize=(8, 5))
for ax, (threads, timing) in zip(axes, timings.items()):
    for row, queue in enumerate((2, 1)):
        mine = timing.queue == queue
        bars = np.stack([timing.start[mine], timing.end[mine] + 1 - timing.start[mine]], axis=1)
        ax.broken_barh(bars, (row - 0.4, 0.8), color=f"C{row}")
    ax.set_yticks([0, 1], ["store", "compute"])
    ax.set_title(names[threads], fontsize=9, loc="left")
axes[-1].set_xlim(0, 1000)
axes[-1].set_xlabel("cycle, simulated")
figure.tight_layout()

# %%
# The report
# ----------
# Everything about one program on one page: a click on a row of the table zooms the timeline.

tw.report(tw.Executable.from_launch(programs[4].finish()))
