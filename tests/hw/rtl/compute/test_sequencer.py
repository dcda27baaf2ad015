"""hw/rtl/compute/sequencer.py: the order of issues, one per cycle, and indices beyond their scratchpads."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.hw.regs import Error
from tilewright.hw.rtl.compute.sequencer import Sequencer
from tilewright.hw.rtl.latencies import ISSUES_AHEAD, JOB_INTERVAL, SEQUENCER_LATENCY, STEP_LATENCY
from tilewright.hw.rtl.scratchpad import Scratchpad
from tilewright.sim.random_programs import ROWS

TINY = PRESETS["tiny"]
ODD = Config(
    name="odd", batch=2, block_in=8, block_out=4, wgt_bits=4,
    inp_bytes=1 << 10, wgt_bytes=1 << 10, acc_bytes=1 << 11, uop_bytes=128,
)  # fmt: skip
LOOPS = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}


class Bench:
    """A sequencer with its micro-ops."""

    def __init__(self, cfg, uops):
        self.cfg, self.isa, self.uops = cfg, Isa(cfg), uops
        self.dut, self.pad, self.module = Sequencer(cfg), Scratchpad(cfg, mem=Mem.UOP), Module()
        self.module.submodules.dut, self.module.submodules.pad = self.dut, self.pad
        wiring.connect(self.module, self.dut.uop, self.pad.read)

    def job(self, op, index=0, **fields):
        """An instruction as the compute unit hands it on."""
        words = self.isa.formats[Op(op).name].encode(op=int(op), **fields)
        return {"insn": int(words[0, 0]) | int(words[0, 1]) << 64, "index": index}

    async def fill(self, ctx):
        words = self.isa.uop.encode(
            len(self.uops), **{k: [u[i] for u in self.uops] for i, k in enumerate(("dst", "src", "wgt"))}
        )
        ctx.set(self.pad.write.en, 1)
        for at, word in enumerate(words[:, 0].tolist()):
            ctx.set(self.pad.write.addr, at)
            ctx.set(self.pad.write.data, word)
            await ctx.tick()
        ctx.set(self.pad.write.en, 0)

    def run(self, simulate, jobs, count, rng=None, cycles=2000):
        """The first `count` issues of `jobs`, and the cycle of each."""
        issues, at = [], []

        async def main(ctx):
            await self.fill(ctx)
            await simulate.put(ctx, self.dut.jobs, jobs, rng)

        async def sink(ctx):
            cycle = 0
            while len(issues) < count:
                ctx.set(self.dut.o.ready, int(rng is None or rng.random() < 0.6))
                o = self.dut.o
                _, _, valid, ready, payload = await ctx.tick().sample(o.valid, o.ready, o.payload)
                cycle += 1
                if valid and ready:
                    issues.append(payload)
                    at.append(cycle)

        async def last(ctx):
            await sink(ctx)
            ctx.set(self.dut.o.ready, 1)
            for _ in range(10):
                assert not ctx.get(self.dut.o.valid)
                await ctx.tick()
            issues.append(ctx.get(self.dut.fault.code))
            issues.append(ctx.get(self.dut.fault.index))

        simulate(self.module, main, last, cycles=cycles)
        return issues[:-2], at, tuple(issues[-2:])


def expected(uops, fields):
    for i in range(fields["iter_out"]):
        for j in range(fields["iter_in"]):
            for u in uops[fields["uop_bgn"] : fields["uop_end"]]:
                steps = zip(u, ("dst", "src", "wgt"))
                yield tuple(v + i * fields.get(f"{n}_out", 0) + j * fields.get(f"{n}_in", 0) for v, n in steps)


@pytest.mark.parametrize("cfg", [TINY, ODD], ids=lambda c: c.name)
@pytest.mark.parametrize("stalls", [False, True])
def test_order_of_issues(simulate, rng, cfg, stalls):
    uops = [tuple(int(v) for v in rng.integers(0, 3, 3)) for _ in range(8)]
    bench, jobs, want = Bench(cfg, uops), [], []
    due, first = [], 0  # the cycle of each issue; that of the latest job's first
    for _ in range(12):
        begin = int(rng.integers(0, 8))
        fields = {"uop_bgn": begin, "uop_end": int(rng.integers(begin, 9))}
        fields |= {"iter_out": int(rng.integers(0, 4)), "iter_in": int(rng.integers(0, 4))}
        steps = [f"{n}_{loop}" for n in ("dst", "src") for loop in ("out", "in")]
        fields |= {name: int(rng.integers(0, 4)) for name in steps}
        op = Op(int(rng.choice([Op.GEMM, Op.DWGEMM, Op.ALU])))
        if op != Op.ALU:
            fields |= {"wgt_out": int(rng.integers(0, 2))}
        jobs.append(bench.job(op, **fields))
        triples = list(expected(uops, fields))
        new = [(t, k == len(triples) - 1, 0) for k, t in enumerate(triples)] or [(None, True, 1)]
        begin = max(due[-1] + 1, first + JOB_INTERVAL) if due else 0
        first = begin
        due += range(begin, begin + len(new))
        want += new
    issues, at, fault = bench.run(simulate, jobs, len(want), rng if stalls else None)
    for issue, (triple, last, bubble) in zip(issues, want, strict=True):
        assert (issue.last, issue.bubble) == (last, bubble)
        assert bubble or (issue.dst, issue.src, issue.wgt) == triple
    assert fault == (Error.NONE, 0)
    if not stalls:
        assert at == [at[0] + k for k in due]  # not one cycle without an issue, but between jobs of a single one


def test_latency(simulate):
    bench = Bench(TINY, [(1, 2, 3)])
    taken = []

    async def watch(ctx):
        cycle = 0
        while True:
            _, _, job, issue = await ctx.tick().sample(bench.dut.jobs.valid, bench.dut.o.valid)
            cycle += 1
            if job or issue:
                taken.append(cycle)

    async def main(ctx):
        await bench.fill(ctx)
        ctx.set(bench.dut.o.ready, 1)
        await simulate.put(ctx, bench.dut.jobs, [bench.job(Op.GEMM, **LOOPS)])
        for _ in range(10):
            await ctx.tick()

    simulate(bench.module, main, background=[watch], cycles=40)
    assert taken == [taken[0], taken[0] + SEQUENCER_LATENCY]


def test_issues_wait_behind_the_output(simulate):
    """While the first one waits; the next micro-op is read when it has gone on, and then one in every cycle again."""
    bench = Bench(TINY, [(k, 0, 0) for k in range(12)])
    dut, reads, gone = bench.dut, [], []

    async def watch(ctx):
        cycle = 0
        while True:
            _, _, read, valid, ready, dst = await ctx.tick().sample(
                dut.uop.en, dut.o.valid, dut.o.ready, dut.o.payload.dst
            )
            cycle += 1
            if read:
                reads.append(cycle)
            if valid and ready:
                gone.append((cycle, dst))

    async def main(ctx):
        await bench.fill(ctx)
        await simulate.put(ctx, dut.jobs, [bench.job(Op.GEMM, **LOOPS | {"uop_end": 12})])
        await ctx.tick().repeat(20)
        assert len(reads) == ISSUES_AHEAD and not gone
        ctx.set(dut.o.ready, 1)
        await ctx.tick().repeat(20)

    simulate(bench.module, main, background=[watch], cycles=80)
    first = gone[0][0]
    assert gone == [(first + k, k) for k in range(12)]
    assert reads[ISSUES_AHEAD:] == [first + STEP_LATENCY + k for k in range(12 - ISSUES_AHEAD)]


@pytest.mark.parametrize(
    "op, fields, uop",
    [
        (Op.GEMM, {"iter_out": 2, "dst_out": 100}, (100, 0, 0)),
        (Op.GEMM, {"iter_in": 3, "src_in": 100}, (0, 100, 0)),
        (Op.GEMM, {"iter_in": 2, "iter_out": 2, "wgt_in": 64, "wgt_out": 64}, (0, 0, 0)),
        (Op.GEMM, {"iter_in": 16383, "src_in": 255}, (0, 0, 0)),
        (Op.DWGEMM, {"iter_out": 5, "wgt_out": 127}, (0, 0, 127)),
        (Op.DWGEMM, {"iter_in": 16383, "wgt_in": 127}, (0, 0, 0)),
        (Op.ALU, {"alu_op": AluOp.ADD}, (0, 128, 0)),
        (Op.GEMM, {"uop_end": 257}, (0, 0, 0)),
        (Op.GEMM, {"uop_bgn": 2}, (0, 0, 0)),
    ],
)
def test_an_index_beyond_its_scratchpad_is_an_error(simulate, op, fields, uop):
    """tiny has 128 accumulators, 256 inputs, 128 tiles or 512 rows of weights and 256 micro-ops."""
    bench = Bench(TINY, [uop])
    jobs = [bench.job(op, index=7, **{**LOOPS, **{k: int(v) for k, v in fields.items()}})]
    codes = []

    async def main(ctx):
        await bench.fill(ctx)
        ctx.set(bench.dut.o.ready, 1)
        await simulate.put(ctx, bench.dut.jobs, jobs)
        await ctx.tick().until(bench.dut.fault.code != Error.NONE)
        ctx.set(bench.dut.halt, 1)
        for _ in range(10):
            await ctx.tick()
        codes.append((ctx.get(bench.dut.fault.code), ctx.get(bench.dut.fault.index)))
        assert not ctx.get(bench.dut.o.valid)

    simulate(bench.module, main, cycles=600)
    assert codes == [(Error.RANGE, 7)]


def test_rows_of_weights_up_to_the_last(simulate):
    """The micro-op reaches row 127 of 512, the loops the rest."""
    bench = Bench(TINY, [(0, 0, 127)])
    loops = {"iter_out": 4, "wgt_out": 127, "iter_in": 4, "wgt_in": 1}
    issues, _, fault = bench.run(simulate, [bench.job(Op.DWGEMM, **LOOPS | loops)], 16)
    assert [v.wgt for v in issues] == [127 + 127 * i + j for i in range(4) for j in range(4)]
    assert all(v.rows and v.dot for v in issues)
    assert fault == (Error.NONE, 0)


def test_taps_up_to_the_last_input_and_the_last_group_of_rows(simulate):
    """4 of 128 inputs; of 128 groups of 4 rows, counted as rows from there on."""
    bench = Bench(ROWS, [(0, 0, 0)])
    loop = LOOPS | {"iter_in": 2, "src_in": 124, "wgt_in": 63, "wgt_out": 63, "extra_taps": 3}
    issues, _, fault = bench.run(simulate, [bench.job(Op.DWGEMM, **loop)], 2)
    assert [(v.src, v.wgt, v.extra, v.rows) for v in issues] == [(0, 0, 3, 1), (124, 252, 3, 1)]
    assert fault == (Error.NONE, 0)


@pytest.mark.parametrize("fields", [{"src_in": 125}, {"wgt_in": 32, "iter_in": 5}])
def test_taps_beyond_a_scratchpad_are_an_error(simulate, fields):
    bench = Bench(ROWS, [(0, 0, 0)])
    job = bench.job(Op.DWGEMM, index=5, **LOOPS | {"iter_in": 2, "extra_taps": 3} | fields)
    issues, _, fault = bench.run(simulate, [job], int(fields.get("iter_in", 2)))
    assert [bool(v.bubble) for v in issues] == [False] * (len(issues) - 1) + [True]
    assert fault == (Error.RANGE, 5)


@pytest.mark.parametrize("fields", [{"use_imm": 1, "alu_op": AluOp.ADD}, {"reset": 1}])
def test_unused_indices_may_be_anything(simulate, fields):
    op = Op.ALU if "alu_op" in fields else Op.GEMM
    bench = Bench(TINY, [(3, 255, 127)])
    steps = {"iter_in": 3, "src_in": 255, **({"wgt_in": 127} if op == Op.GEMM else {})}
    job = bench.job(op, **{**LOOPS, **steps, **{k: int(v) for k, v in fields.items()}})
    issues, _, fault = bench.run(simulate, [job], 3)
    assert [v.dst for v in issues] == [3, 3, 3]
    assert not any(v.bubble for v in issues)
    assert fault == (Error.NONE, 0)


def test_the_longest_loops(simulate):
    """All trips of a loop of 16383, and micro-ops up to the last of the buffer."""
    bench = Bench(TINY, [(0, 0, 0)] * 256)
    jobs = [bench.job(Op.GEMM, uop_bgn=255, uop_end=256, iter_out=1, iter_in=16383)]
    issues, at, fault = bench.run(simulate, jobs, 16383, cycles=17_000)
    assert [v.last for v in issues[-2:]] == [0, 1]
    assert np.ptp(at) == len(at) - 1
    assert fault == (Error.NONE, 0)
