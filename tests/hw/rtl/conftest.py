"""A bench of a sequencer, which the tests of those of both units share."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from tilewright.hw.isa import Isa
from tilewright.hw.regs import Error
from tilewright.hw.rtl.latencies import JOB_INTERVAL
from tilewright.hw.rtl.scratchpad import Scratchpad


def _expected(uops, fields):
    for i in range(fields["iter_out"]):
        for j in range(fields["iter_in"]):
            for u in uops[fields["uop_bgn"] : fields["uop_end"]]:
                steps = zip(u, ("dst", "src", "wgt"))
                yield tuple(v + i * fields.get(f"{n}_out", 0) + j * fields.get(f"{n}_in", 0) for v, n in steps)


class SequencerBench:
    """The sequencer `dut` with its micro-ops, in `mem`."""

    def __init__(self, cfg, dut, mem, uops):
        self.isa, self.uops = Isa(cfg), uops
        self.dut, self.pad, self.module = dut, Scratchpad(cfg, mem=mem), Module()
        self.module.submodules.dut, self.module.submodules.pad = self.dut, self.pad
        wiring.connect(self.module, self.dut.uop, self.pad.read)
        self.jobs, self.want, self.due, self._first = [], [], [], 0

    def job(self, op, index=0, **fields):
        """An instruction as the unit hands it on."""
        words = self.isa.formats[op.name].encode(op=int(op), **fields)
        return {"insn": int(words[0, 0]) | int(words[0, 1]) << 64, "index": index}

    def expect(self, op, fields):
        """One more of `jobs`; its issues, (indices or None, whether it is the last), are in `want`.

        `due` are their cycles where nothing stalls: each has one, but jobs of a single issue follow each other later.
        """
        self.jobs.append(self.job(op, **fields))
        triples = [*_expected(self.uops, fields)]
        issues = [(t, k == len(triples) - 1) for k, t in enumerate(triples)] or [(None, True)]
        self._first = max(self.due[-1] + 1, self._first + JOB_INTERVAL) if self.due else 0
        self.due += range(self._first, self._first + len(issues))
        self.want += issues

    async def fill(self, ctx):
        """Write the micro-ops."""
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

    def entry_and_issue(self, simulate, job):
        """The cycles in which `job`, of one issue, enters and in which its issue is there."""
        taken = []

        async def watch(ctx):
            cycle = 0
            while True:
                _, _, entry, issue = await ctx.tick().sample(self.dut.jobs.valid, self.dut.o.valid)
                cycle += 1
                if entry or issue:
                    taken.append(cycle)

        async def main(ctx):
            await self.fill(ctx)
            ctx.set(self.dut.o.ready, 1)
            await simulate.put(ctx, self.dut.jobs, [job])
            await ctx.tick().repeat(10)

        simulate(self.module, main, background=[watch], cycles=40)
        return taken

    def held_back(self, simulate, job, index):
        """`job` while the output waits for 20 cycles and goes on then.

        Returns the cycles in which micro-ops are read while it waits, and later; cycle and `index` of each issue.
        """
        reads, gone, waited = [], [], []

        async def watch(ctx):
            cycle, dut = 0, self.dut
            while True:
                sampled = ctx.tick().sample(dut.uop.en, dut.o.valid, dut.o.ready, dut.o.payload[index])
                _, _, read, valid, ready, value = await sampled
                cycle += 1
                if read:
                    reads.append(cycle)
                if valid and ready:
                    gone.append((cycle, value))

        async def main(ctx):
            await self.fill(ctx)
            await simulate.put(ctx, self.dut.jobs, [job])
            await ctx.tick().repeat(20)
            assert not gone
            waited.extend(reads)
            ctx.set(self.dut.o.ready, 1)
            await ctx.tick().repeat(20)

        simulate(self.module, main, background=[watch], cycles=80)
        return waited, reads[len(waited) :], gone

    def fault_of(self, simulate, job):
        """Code and index of the fault of `job`; nothing is at the output behind it."""
        codes = []

        async def main(ctx):
            await self.fill(ctx)
            ctx.set(self.dut.o.ready, 1)
            await simulate.put(ctx, self.dut.jobs, [job])
            await ctx.tick().until(self.dut.fault.code != Error.NONE)
            ctx.set(self.dut.halt, 1)
            await ctx.tick().repeat(10)
            codes.append((ctx.get(self.dut.fault.code), ctx.get(self.dut.fault.index)))
            assert not ctx.get(self.dut.o.valid)

        simulate(self.module, main, cycles=600)
        return codes[0]


@pytest.fixture
def sequencer_bench():
    """The class of benches."""
    return SequencerBench
