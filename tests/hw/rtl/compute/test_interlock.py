"""hw/rtl/compute/interlock.py in the compute unit: what passes what, what waits, and the order of tokens."""

from itertools import product

import numpy as np
import pytest

from tests.hw.bench import Watch, simulate
from tests.hw.rtl.compute import unit_bench as compute
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem, Op
from tilewright.hw.rtl.latencies import memory_cycles

pytestmark = pytest.mark.circuit

TINY = PRESETS["tiny"]
HALF = TINY.acc_depth // 2
ONE = {"iter_out": 1, "iter_in": 1}
ADD = {"alu_op": int(AluOp.ADD)}
LONG = 120  # issues: more than loads, pipeline and tokens take together


def single(uop):
    return {"uop_bgn": uop, "uop_end": uop + 1}


def reload(bench, r):
    """A load of micro-ops or accumulators that are in use."""
    if r.random() < 0.5:
        bench.load(Mem.UOP, int(r.integers(0, 12)), int(r.integers(0, 12)), x_size=int(r.integers(1, 5)))
    else:
        banks, pads = max(bench.cfg.acc_banks, 2), {"y_pad_1": int(r.integers(0, 2))}
        bank = int(r.integers(0, banks))
        at = bank * bench.cfg.acc_depth // banks + int(r.integers(0, 2)) - (bank > 0)
        bench.load(Mem.ACC, at, int(r.integers(0, 12)), 1, int(r.integers(1, 3)), **pads)


@pytest.mark.parametrize("slow", [0.0, 0.6])
@pytest.mark.parametrize(
    "name", ["one bank", "odd", *(pytest.param(n, marks=pytest.mark.slow) for n in ("tiny", "four banks"))]
)
def test_random_loads_between_random_jobs(name, slow):
    """Micro-ops and accumulators change under GEMM and ALU all the time; results are those of one after the other."""
    bench = compute.Bench(compute.CONFIGS[name], seed=int(10 * slow))
    r, uops = bench.rng, 16
    bench.randomize()
    entries = compute.ENTRIES
    columns = (r.choice(bench.used, uops), r.integers(0, entries, uops), r.integers(0, entries, uops))
    bench.uops(np.stack(columns, 1))
    bench.load(Mem.UOP, x_size=uops)
    for k, at in enumerate(bench.used):
        bench.load(Mem.ACC, at, 8 + k)
    for _ in range(70):
        if r.random() < 0.45:
            reload(bench, r)
        else:
            compute.random_instruction(bench, 8)
    compute.run(bench, slow, cycles=5000)


@pytest.mark.parametrize("distance", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 5)), 5])
@pytest.mark.parametrize("kind", ["micro-ops", "accumulators"])
def test_loads_meet_jobs_at_every_distance(kind, distance):
    """A job that reads and writes x; `distance` others; a load of x; as many others; the job again."""
    x, other = 1, HALF + 1
    bench = compute.prepared("tiny", [(x, 1, 2), (other, 2, 1), (x, HALF, 0), (HALF, x, 3)])
    mul = {"alu_op": int(AluOp.MUL), "use_imm": 1, "imm": 3}
    jobs = [(Op.GEMM, single(0) | ONE), (Op.GEMM, single(0) | ONE | {"iter_in": 9}), (Op.ALU, ADD | single(2) | ONE)]
    jobs += [(Op.ALU, ADD | single(3) | ONE), (Op.ALU, mul | single(0) | ONE)]
    for turn, ((before, fields), (after, more)) in enumerate(product(jobs, jobs)):
        bench.add(before, **fields)
        for _ in range(distance):
            bench.add(Op.GEMM, **single(1) | ONE)
        if kind == "accumulators":
            bench.load(Mem.ACC, x, turn % 8)
        else:  # the same indices in another order, so that a job with the old ones computes something else
            bench.load(Mem.UOP, 0, turn % 2)
        for _ in range(distance):
            bench.add(Op.GEMM, **single(1) | ONE)
        bench.add(after, **more)
    compute.run(bench, cycles=4000)


@pytest.mark.parametrize("issues", [1, 2, 3])
@pytest.mark.parametrize("lead", range(10, 13))
def test_a_load_waits_for_jobs_that_are_held_up(issues, lead):
    """Behind multiplications in the other bank a short job stands still in each place on its way to the pipeline."""
    bench = compute.prepared("tiny", [(0, 1, 2), (HALF, 2, 1), (0, HALF, 0)])
    mul = {"alu_op": int(AluOp.MUL), "use_imm": 1, "imm": 3}
    bench.add(Op.ALU, **mul | single(1) | ONE | {"iter_in": lead})
    bench.add(Op.GEMM, **single(0) | ONE | {"iter_in": issues})
    bench.load(Mem.ACC, 0, 3)
    bench.add(Op.ALU, **mul | single(1) | ONE | {"iter_in": lead})
    bench.add(Op.ALU, **ADD | single(2) | ONE)
    bench.load(Mem.ACC, HALF, 4)
    compute.run(bench, cycles=500)


WAITS = {
    "for what the ALU reads in the other bank": (
        [(0, HALF, 0)],
        [(Op.ALU, ADD | {"iter_in": 60, "src_in": 1}), (HALF + 56, 0, 4), (Op.ALU, ADD | {"iter_in": 60, "src_in": 1})],
    ),
    "for both banks where it is in both": (
        [(HALF + 1, 1, 2)],
        [(Op.GEMM, {"iter_in": 60}), (HALF - 1, 0, 3), (Op.GEMM, {})],
    ),
    "in order where there are more than the interlock has room for": (
        [(0, 1, 0)],
        [(Op.GEMM, {"iter_in": LONG}), *((1 - k % 2, k % 8, 1 + k % 2) for k in range(9)), (Op.GEMM, {})],
    ),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_load_waits(name):
    """Between jobs; loads are (entry, address in DRAM, entries)."""
    uops, steps = WAITS[name]
    bench = compute.prepared("tiny", uops)
    for step in steps:
        if isinstance(step[0], Op):
            bench.add(step[0], **single(0) | ONE | step[1])
        else:
            bench.load(Mem.ACC, *step[:2], x_size=step[2])
    compute.run(bench, cycles=800)


def span(before, load, after):
    """Cycles from rest to rest of a long GEMM with micro-op `before`, `load`, and a long GEMM with micro-op `after`."""
    bench = compute.prepared("tiny", [(0, 1, 0), (HALF, 2, 1), (1, 2, 1)])
    bench.load(Mem.UOP, 8, 1, x_size=1)
    bench.add(Op.GEMM, **single(before) | ONE | {"iter_in": LONG})
    if load:
        mem, at, count = load
        bench.load(mem, at, 0, x_size=count)
    bench.add(Op.GEMM, **single(after) | ONE | {"iter_in": LONG})
    return compute.run(bench, cycles=800)


MICRO_OP, NEAR, FAR = (Mem.UOP, 8, 3), (Mem.ACC, 2, 6), (Mem.ACC, HALF, 6)


@pytest.mark.parametrize(
    ("before", "load", "after", "hidden"),
    [
        (0, FAR, 1, True),  # behind a GEMM in the other bank
        (1, NEAR, 0, True),
        (0, FAR, 0, True),  # no one waits for it
        (0, NEAR, 0, False),  # the same bank, though other accumulators
        (0, MICRO_OP, 0, True),
        (0, MICRO_OP, 8, True),
        (8, MICRO_OP, 0, True),  # the GEMM before has to end, that behind need not wait
        (8, MICRO_OP, 8, False),
    ],
)
def test_what_touches_other_memory_overlaps(before, load, after, hidden):
    """Where the load is hidden, the program takes as long as without it."""
    more = span(before, load, after) - span(before, None, after)
    assert more <= 0 if hidden else more >= 3
    if (load, after) == (NEAR, 0) and not hidden:
        assert more <= 2 * memory_cycles(TINY) + 6 * 2


@pytest.mark.slow
def test_a_job_over_both_banks_is_seen_as_such():
    """Its first trip is in one bank; its steps reach the other, whose load waits for it."""
    cycles = {}
    for step, side in product((0, HALF), ("out", "in")):
        bench = compute.prepared("tiny", [(0, 1, 0), (HALF, 2, 1)])
        trips = {"iter_out": 2, "iter_in": LONG // 2} if side == "out" else {"iter_out": LONG // 2, "iter_in": 2}
        bench.add(Op.GEMM, **single(0) | trips | {f"dst_{side}": step})
        bench.load(Mem.ACC, HALF + 1, 0, x_size=6)
        cycles[step, side] = compute.run(bench, cycles=800)
    for side in ("out", "in"):
        assert cycles[HALF, side] >= cycles[0, side] + 10


@pytest.mark.parametrize("load", [FAR, MICRO_OP], ids=["accumulators", "micro-ops"])
def test_tokens_come_in_order(load):
    """A GEMM that has passed a load gives its token after the load is written; then both come, one by one."""
    bench = compute.prepared("tiny", [(0, 1, 0)])
    setup = len(bench.words)
    mem, at, count = load
    bench.load(mem, at, 0, x_size=count, push_next=1)
    bench.add(Op.GEMM, **single(0) | ONE, push_next=1)
    bench.add(Op.FINISH, push_next=1)
    dut, words, given = bench.dut, bench.words, Watch(bench.dut.to_store.valid)

    async def main(ctx):
        ctx.set(dut.to_store.ready, 1)
        bench.words = words[:setup]
        await bench.source(ctx)
        await ctx.tick().until(dut.idle)
        bench.words, bench.closed = words[setup:], True
        await bench.source(ctx)
        await ctx.tick().repeat(60)
        assert not given.at() and not ctx.get(dut.idle)
        bench.closed = False
        await ctx.tick().until(dut.idle)
        assert np.diff(given.at()).tolist() == [1, 1]

    simulate(bench.module, main, background=[given, bench.memory()], cycles=600)
