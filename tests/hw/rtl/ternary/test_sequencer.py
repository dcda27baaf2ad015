"""hw/rtl/ternary/sequencer.py: the order of issues, one per cycle, and indices beyond their scratchpads or planes."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.regs import Error
from tilewright.hw.rtl.latencies import JOB_INTERVAL, TERNARY_ISSUES_AHEAD, TERNARY_SEQUENCER_LATENCY
from tilewright.hw.rtl.scratchpad import Scratchpad
from tilewright.hw.rtl.ternary.sequencer import TernarySequencer

TWO = PRESETS["tiny_two"]  # 4 banks of 4 planes of 8 accumulators, 256 inputs, 128 entries of weights, 256 micro-ops
ONE = TWO.replace(name="one_block", ternary_blocks=1, twgt_bytes=512)
LOOPS = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}


class Bench:
    """A sequencer with its micro-ops."""

    def __init__(self, cfg, uops):
        self.cfg, self.isa, self.uops = cfg, Isa(cfg), uops
        self.dut, self.pad, self.module = TernarySequencer(cfg), Scratchpad(cfg, mem=Mem.TUOP), Module()
        self.module.submodules.dut, self.module.submodules.pad = self.dut, self.pad
        wiring.connect(self.module, self.dut.uop, self.pad.read)

    def job(self, index=0, **fields):
        """An instruction as the unit hands it on."""
        words = self.isa.formats["TERNARY"].encode(op=int(Op.TERNARY), **fields)
        return {"insn": int(words[0, 0]) | int(words[0, 1]) << 64, "index": index}

    async def fill(self, ctx):
        columns = {k: [u[i] for u in self.uops] for i, k in enumerate(("dst", "src", "wgt"))}
        words = self.isa.uop.encode(len(self.uops), **columns)
        ctx.set(self.pad.write.en, 1)
        for at, word in enumerate(words[:, 0].tolist()):
            ctx.set(self.pad.write.addr, at)
            ctx.set(self.pad.write.data, word)
            await ctx.tick()
        ctx.set(self.pad.write.en, 0)

    def run(self, simulate, jobs, count, rng=None, cycles=2000):
        """The first `count` issues of `jobs`, the cycle of each, and the fault."""
        issues, at, fault = [], [], []

        async def main(ctx):
            await self.fill(ctx)
            await simulate.put(ctx, self.dut.jobs, jobs, rng)

        async def sink(ctx):
            cycle, o = 0, self.dut.o
            while len(issues) < count:
                ctx.set(o.ready, int(rng is None or rng.random() < 0.6))
                _, _, valid, ready, payload = await ctx.tick().sample(o.valid, o.ready, o.payload)
                cycle += 1
                if valid and ready:
                    issues.append(payload)
                    at.append(cycle)
            ctx.set(o.ready, 1)
            for _ in range(10):
                assert not ctx.get(o.valid)
                await ctx.tick()
            fault.extend((ctx.get(self.dut.fault.code), ctx.get(self.dut.fault.index)))

        simulate(self.module, main, sink, cycles=cycles)
        return issues, at, tuple(fault)


def expected(uops, fields):
    for i in range(fields["iter_out"]):
        for j in range(fields["iter_in"]):
            for u in uops[fields["uop_bgn"] : fields["uop_end"]]:
                steps = zip(u, ("dst", "src", "wgt"))
                yield tuple(v + i * fields.get(f"{n}_out", 0) + j * fields.get(f"{n}_in", 0) for v, n in steps)


@pytest.mark.parametrize("cfg", [TWO, ONE], ids=lambda c: c.name)
@pytest.mark.parametrize("stalls", [False, True])
def test_order_of_issues(simulate, rng, cfg, stalls):
    """In every bank; not one cycle without an issue, but between jobs of a single one."""
    uops = [(int(bank) * cfg.bank_depth, *(int(v) for v in rng.integers(0, 3, 2))) for bank in [*range(4)] * 2]
    bench, jobs, want = Bench(cfg, uops), [], []
    due, first = [], 0  # the cycle of each issue; that of the latest job's first
    for _ in range(12):
        begin = int(rng.integers(0, 8))
        fields = {"uop_bgn": begin, "uop_end": int(rng.integers(begin, 9))}
        fields |= {"iter_out": int(rng.integers(0, 4)), "iter_in": int(rng.integers(0, 4))}
        fields |= {name: int(rng.integers(0, 2)) for name in ("dst_out", "dst_in", "wgt_out", "wgt_in")}
        fields |= {name: int(rng.integers(0, 9)) for name in ("src_out", "src_in")}
        jobs.append(bench.job(**fields))
        triples = list(expected(uops, fields))
        new = [(t, k == len(triples) - 1) for k, t in enumerate(triples)] or [(None, True)]
        begin = max(due[-1] + 1, first + JOB_INTERVAL) if due else 0
        first = begin
        due += range(begin, begin + len(new))
        want += new
    issues, at, fault = bench.run(simulate, jobs, len(want), rng if stalls else None)
    for issue, (triple, last) in zip(issues, want, strict=True):
        assert issue.last == last
        if triple is None:
            assert issue.banks == 0
        else:
            found = (issue.banks.bit_length() - 1) * cfg.bank_depth + issue.place, issue.src, issue.wgt
            assert found == triple and issue.banks.bit_count() == 1
    assert fault == (Error.NONE, 0)
    if not stalls:
        assert at == [at[0] + k for k in due]


def test_latency(simulate):
    bench = Bench(TWO, [(1, 2, 3)])
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
        await simulate.put(ctx, bench.dut.jobs, [bench.job(**LOOPS)])
        await ctx.tick().repeat(10)

    simulate(bench.module, main, background=[watch], cycles=40)
    assert taken == [taken[0], taken[0] + TERNARY_SEQUENCER_LATENCY]


def test_issues_wait_behind_the_output(simulate):
    """All step on with it."""
    bench = Bench(TWO, [(0, k, 0) for k in range(12)])
    dut, reads, gone = bench.dut, [], []

    async def watch(ctx):
        cycle = 0
        while True:
            _, _, read, valid, ready, src = await ctx.tick().sample(
                dut.uop.en, dut.o.valid, dut.o.ready, dut.o.payload.src
            )
            cycle += 1
            if read:
                reads.append(cycle)
            if valid and ready:
                gone.append((cycle, src))

    async def main(ctx):
        await bench.fill(ctx)
        await simulate.put(ctx, dut.jobs, [bench.job(**LOOPS | {"uop_end": 12})])
        await ctx.tick().repeat(20)
        assert len(reads) == TERNARY_ISSUES_AHEAD and not gone
        ctx.set(dut.o.ready, 1)
        await ctx.tick().repeat(20)

    simulate(bench.module, main, background=[watch], cycles=80)
    first = gone[0][0]
    assert gone == [(first + k, k) for k in range(12)]
    assert reads[TERNARY_ISSUES_AHEAD:] == [first + k for k in range(12 - TERNARY_ISSUES_AHEAD)]


BEYOND = [
    (TWO, {"iter_out": 2, "dst_out": 100}, (100, 0, 0)),
    (TWO, {"iter_out": 2, "dst_out": 8}, (0, 0, 0)),  # in the second plane
    (TWO, {}, (63, 0, 0)),  # the last of the second bank's last plane
    (TWO, {"iter_in": 3, "src_in": 100}, (0, 100, 0)),
    (TWO, {"iter_in": 2, "iter_out": 2, "wgt_in": 64, "wgt_out": 64}, (0, 0, 0)),
    (TWO, {"iter_in": 16383, "src_in": 255}, (0, 0, 0)),
    (TWO, {"iter_in": 16383, "wgt_in": 127}, (0, 0, 0)),
    (TWO, {"uop_end": 257}, (0, 0, 0)),
    (TWO, {"uop_bgn": 2}, (0, 0, 0)),
    (TWO, {"reset": 1, "iter_in": 2, "dst_in": 127}, (1, 0, 0)),
    (ONE.replace(twgt_bytes=256), {}, (0, 0, 64)),  # of as many entries of ternary weights, fewer than a micro-op names
    (ONE.replace(twgt_bytes=256), {"wgt_in": 64, "iter_in": 2}, (0, 0, 0)),
]


@pytest.mark.parametrize("cfg, fields, uop", BEYOND)
def test_an_index_beyond_its_scratchpad_or_plane_is_an_error(simulate, cfg, fields, uop):
    bench = Bench(cfg, [uop])
    codes = []

    async def main(ctx):
        await bench.fill(ctx)
        ctx.set(bench.dut.o.ready, 1)
        await simulate.put(ctx, bench.dut.jobs, [bench.job(index=7, **{**LOOPS, **fields})])
        await ctx.tick().until(bench.dut.fault.code != Error.NONE)
        ctx.set(bench.dut.halt, 1)
        await ctx.tick().repeat(10)
        codes.append((ctx.get(bench.dut.fault.code), ctx.get(bench.dut.fault.index)))
        assert not ctx.get(bench.dut.o.valid)

    simulate(bench.module, main, cycles=600)
    assert codes == [(Error.RANGE, 7)]


def test_reset_reads_nothing_so_other_indices_may_be_anything(simulate):
    bench = Bench(TWO, [(3, 255, 127)])
    job = bench.job(**{**LOOPS, "iter_in": 3, "src_in": 255, "wgt_in": 127, "reset": 1})
    issues, _, fault = bench.run(simulate, [job], 3)
    assert [(v.place, v.banks, v.reset, v.clear) for v in issues] == [(3, 1, 1, 1)] * 3
    assert fault == (Error.NONE, 0)


def test_the_longest_loops(simulate):
    """All trips of a loop of 16383, and micro-ops up to the last of the buffer."""
    bench = Bench(TWO, [(0, 0, 0)] * 256)
    jobs = [bench.job(uop_bgn=255, uop_end=256, iter_out=1, iter_in=16383)]
    issues, at, fault = bench.run(simulate, jobs, 16383, cycles=17_000)
    assert [v.last for v in issues[-2:]] == [0, 1]
    assert np.ptp(at) == len(at) - 1
    assert fault == (Error.NONE, 0)
