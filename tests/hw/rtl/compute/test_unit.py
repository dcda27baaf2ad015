"""The compute unit against the model's instructions: random sequences full of hazards, intervals, tokens, errors."""

from itertools import product

import numpy as np
import pytest

from tests.hw.bench import Watch, simulate
from tests.hw.rtl.compute import unit_bench as compute
from tilewright.hw.isa import AluOp, Mem, Op
from tilewright.hw.regs import Error
from tilewright.hw.rtl.latencies import (
    SEQUENCER_LATENCY,
    issue_interval,
    issue_latency,
    multiply_interval,
    multiply_latency,
)

pytestmark = pytest.mark.circuit

CONFIGS = ("tiny", "one bank", "four banks", "slow multiplier", "odd", "vta", "pynq_z1", "functions")
LARGE = {"vta"}  # tens of seconds to simulate in Python


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in CONFIGS])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_random_instructions(name, seed):
    bench = compute.Bench(compute.CONFIGS[name], seed)
    r, uops = bench.rng, 6
    bench.randomize()
    dst, wgt = r.choice(bench.used, 2 * uops), r.integers(0, compute.ENTRIES, 2 * uops)
    src = np.concatenate([r.integers(0, compute.ENTRIES, uops), r.choice(bench.used, uops)])
    bench.uops(np.stack([dst, src, wgt], 1))
    bench.load(Mem.UOP, x_size=2 * uops)
    for k, at in enumerate(bench.used):
        bench.load(Mem.ACC, at, 8 + k)
    for _ in range(40):
        compute.random_instruction(bench, uops)
    compute.run(bench, slow=0.4 * seed)


ALU = {"alu_op": int(AluOp.ADD), "uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}


@pytest.mark.parametrize("name", ["tiny", "one bank"])
@pytest.mark.parametrize("distance", range(1, 7))
def test_a_result_is_read_again_at_every_distance(name, distance):
    """Writer of x; `distance - 1` others; readers of x as destination and as source, by GEMM and by ALU."""
    x, y, far = 0, 1, compute.CONFIGS[name].acc_depth - 1
    # lists: 0 writes x; 1 others; 2 reads and writes x; 3 reads x for y; 4 the same from the other bank
    bench = compute.prepared(name, [(x, 1, 2), (2, 3, 1), (x, 3, 3), (y, x, 0), (far, x, 0)])
    others, alone = {"uop_bgn": 1, "uop_end": 2, "iter_out": 1, "iter_in": 1}, {"iter_out": 1, "iter_in": 1}
    mul = {"alu_op": int(AluOp.MUL), "use_imm": 1, "imm": -3}
    writers = [(Op.GEMM, alone | {"uop_end": 1})]
    rescale = {"alu_op": int(AluOp.RESCALE), "use_imm": 1, "imm": 2}
    writers += [(Op.ALU, ALU | fields) for fields in ({"use_imm": 1, "imm": 77}, {}, mul, rescale)]
    for (op, fields), reader, reads in product(writers, (2, 3, 4), (Op.GEMM, Op.ALU)):
        bench.add(op, **fields)
        for _ in range(distance - 1):
            bench.add(Op.GEMM, **others)
        bench.add(reads, **(alone if reads == Op.GEMM else ALU) | {"uop_bgn": reader, "uop_end": reader + 1})
    compute.run(bench, cycles=700)


@pytest.mark.parametrize("name", ["tiny", "one bank", "slow multiplier", "odd", "functions"])
def test_intervals(name):
    """Each instruction twice; between the tokens of the two are exactly the cycles of the second one's issues."""
    cfg, trips = compute.CONFIGS[name], 8  # of as many accumulators: more than are multiplied at a time
    mul, imm = {"alu_op": int(AluOp.MUL)}, {"use_imm": 1, "imm": 3}
    assert issue_interval(cfg) == 1
    assert issue_interval(cfg, tensor=True) == 3 - cfg.acc_banks
    assert issue_interval(cfg, tensor=True, same_bank=True) == 2
    # micro-ops 0 to 2 for GEMM; 3 reads another bank, 4 the same
    cases = [
        (Op.GEMM, 0, 3, {}, 3),
        (Op.ALU, 4, 5, imm, 1),
        (Op.ALU, 3, 4, {}, issue_interval(cfg, tensor=True)),
        (Op.ALU, 4, 5, {}, 2),
        # the same accumulator again and again, then others
        (Op.ALU, 4, 5, mul | imm, multiply_interval(cfg)),
        (Op.ALU, 4, 5, mul, multiply_interval(cfg) + 1),
        (Op.ALU, 5, 6, mul | imm | {"dst_in": 1}, issue_interval(cfg, multiply=True)),
        (Op.ALU, 5, 6, mul | {"dst_in": 1}, issue_interval(cfg, multiply=True, tensor=True, same_bank=True)),
    ]
    for op in (AluOp.LOOKUP, AluOp.REDUCE) if name == "functions" else ():
        function = {"alu_op": int(op), "use_imm": 1}
        cases.append((Op.ALU, 4, 5, function, multiply_interval(cfg)))
        cases.append((Op.ALU, 5, 6, function | {"dst_in": 1}, issue_interval(cfg, multiply=True)))
    bench = compute.prepared(name, [(0, 1, 0), (0, 2, 1), (1, 0, 0), (0, cfg.acc_depth // 2, 0), (0, 1, 0), (0, 9, 0)])
    for op, begin, end, fields, _ in cases:
        for _ in range(2):
            loops = {"uop_bgn": begin, "uop_end": end, "iter_out": 1, "iter_in": trips}
            bench.add(op, push_next=1, **loops, **fields)
    bench.tokens = given = Watch(bench.dut.to_store.valid)
    compute.run(bench, cycles=1800)
    at = given.at()
    assert [b - a for a, b in zip(at[::2], at[1::2], strict=True)] == [trips * case[-1] for case in cases]


def test_instructions_follow_each_other_without_a_gap():
    """One GEMM of 40 issues takes as long as 20 of 2, each of which waits for a token and gives one."""
    flags = {"pop_prev": 1, "push_next": 1, "push_prev": 1}
    one, many = compute.prepared("tiny", [(0, 1, 0), (0, 2, 1)]), compute.prepared("tiny", [(0, 1, 0), (0, 2, 1)])
    one.add(Op.GEMM, uop_end=2, iter_out=1, iter_in=20)
    for _ in range(20):
        many.add(Op.GEMM, uop_end=2, iter_out=1, iter_in=1, **flags)
    assert compute.run(many) - compute.run(one) <= 1


@pytest.mark.parametrize("name", ["tiny", "slow multiplier", "odd"])
@pytest.mark.parametrize("op", [Op.GEMM, Op.ALU])
def test_latency(name, op):
    """From an issue's handshake to its write, seen by the token that it gives; ALU multiplies."""
    bench = compute.prepared(name, [(0, 1, 0)])
    fields, cycles = {}, issue_latency
    if op == Op.ALU:
        fields, cycles = {"alu_op": int(AluOp.MUL), "use_imm": 1}, multiply_latency
    dut, issues, tokens = bench.dut, [], []

    async def main(ctx):
        await bench.source(ctx)
        await ctx.tick().until(dut.idle)
        bench.words = []
        bench.add(op, uop_end=1, iter_out=1, iter_in=1, push_next=1, **fields)
        await bench.source(ctx)
        await ctx.tick().until(dut.to_store.valid)
        tokens.append(bench.cycles)

    async def jobs(ctx):
        await ctx.tick().until(dut.cmd.valid & dut.cmd.ready & (dut.cmd.payload.insn[:3] == op))
        issues.append(bench.cycles)

    simulate(bench.module, main, jobs, background=[bench.clock, bench.memory()], cycles=300)
    assert tokens[0] - issues[0] == SEQUENCER_LATENCY + cycles(bench.cfg)


def test_a_full_channel_keeps_tokens():
    """Tokens that nobody takes yet are owed, and instructions wait when they are too many; none is lost."""
    bench = compute.prepared("tiny", [(0, 1, 0)])
    for _ in range(150):
        bench.add(Op.GEMM, uop_end=1, iter_out=1, iter_in=1, push_next=1, push_prev=1)
    dut, taken = bench.dut, []

    async def main(ctx):
        await ctx.tick().repeat(400)
        assert ctx.get(dut.cmd.valid)
        assert not ctx.get(dut.idle)
        for port in (dut.to_load, dut.to_store):
            ctx.set(port.ready, 1)
        while len(taken) < 150:
            _, _, valid = await ctx.tick().sample(dut.to_store.valid)
            taken.extend([1] * valid)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.idle)

    simulate(bench.module, main, bench.source, background=[bench.memory()], cycles=1500)


def test_an_index_out_of_range_is_a_fault():
    bench = compute.Bench(compute.TINY)
    bench.uops([(127, 0, 0)])
    bench.load(Mem.UOP, x_size=1)
    words = bench.isa.formats["ALU"].encode(op=int(Op.ALU), **ALU | {"iter_in": 2, "dst_in": 1, "use_imm": 1})
    bench.words += [int(words[0, 0]) | int(words[0, 1]) << 64] * 2
    dut, faults = bench.dut, []

    async def main(ctx):
        await ctx.tick().until(dut.fault.code != Error.NONE)
        ctx.set(dut.halt, 1)
        await ctx.tick().until(dut.idle)
        faults.append((ctx.get(dut.fault.code), ctx.get(dut.fault.index)))

    simulate(bench.module, main, background=[bench.source, bench.memory()], cycles=300)
    assert faults == [(Error.RANGE, 1)]


def test_store_reads_between_issues():
    """STORE reads a bank in the cycles in which the pipeline does not, and waits in the others."""
    bench = compute.prepared("tiny", [(0, 1, 0)])
    bench.add(Op.GEMM, uop_end=1, iter_out=1, iter_in=60)
    store, far = bench.dut.store, compute.TINY.acc_depth // 2
    ready = {0: [], far: []}

    async def main(ctx):
        await bench.source(ctx)
        await ctx.tick().repeat(20)
        for k in range(40):
            at = (0, far)[k % 2]
            ctx.set(store.addr, at)
            ctx.set(store.en, 1)
            _, _, answer = await ctx.tick().sample(store.ready)
            ready[at].append(answer)

    simulate(bench.module, main, background=[bench.memory()], cycles=400)
    assert not any(ready[0])
    assert all(ready[far])
