"""hw/rtl/ternary.py: instructions, their tokens, what is counted, and the end after a fault."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.regs import Error
from tilewright.hw.rtl.latencies import TERNARY_SEQUENCER_LATENCY, ternary_latency
from tilewright.hw.rtl.scratchpad import Scratchpad
from tilewright.hw.rtl.ternary import Ternary

TWO = PRESETS["tiny_two"]
LOOPS = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}
UOPS = [(bank * TWO.bank_depth + place, src, wgt) for bank in range(4) for place, src, wgt in ((0, 1, 2), (1, 3, 0))]


class Bench:
    """The unit with its scratchpads; its tokens come and go as `slow` lets them."""

    def __init__(self, operands, slow=0.0):
        self.rng, self.slow, self.given, self.span = np.random.default_rng(5), slow, [], 0
        m = self.module = Module()
        m.submodules.dut = dut = self.dut = Ternary(TWO)
        m.submodules.uops = self.pad = Scratchpad(TWO, mem=Mem.TUOP)
        wiring.connect(m, dut.uop, self.pad.read)
        self.held = operands(m, TWO, self.rng)
        self.held.connect(m, dut.inp, dut.twgt, dut.read, dut.write)
        self.words = []

    def add(self, **fields):
        fields = LOOPS | fields
        words = Isa(TWO).formats["TERNARY"].encode(op=int(Op.TERNARY), **fields)
        self.words.append(int(words[0, 0]) | int(words[0, 1]) << 64)
        kind = {name: bool(fields.get(name)) for name in ("reset", "overwrite")}
        for i in range(fields["iter_out"]):
            for dst, src, wgt in UOPS[fields["uop_bgn"] : fields["uop_end"]]:
                self.held.execute(dst, src + i * fields.get("src_out", 0), wgt, **kind)

    async def fill(self, ctx):
        await self.held.fill(ctx)
        words = Isa(TWO).uop.encode(len(UOPS), **dict(zip(("dst", "src", "wgt"), np.array(UOPS).T)))[:, 0]
        for at, word in enumerate(words.tolist()):
            ctx.set(self.pad.write.en, 1)
            ctx.set(self.pad.write.addr, at)
            ctx.set(self.pad.write.data, word)
            await ctx.tick()
        ctx.set(self.pad.write.en, 0)

    async def source(self, ctx):
        """The queue."""
        cmd = self.dut.cmd
        for k, word in enumerate(self.words):
            ctx.set(cmd.payload, {"insn": word, "index": k})
            ctx.set(cmd.valid, 1)
            await ctx.tick().until(cmd.ready)
            ctx.set(cmd.valid, 0)

    def channel(self, name):
        async def ends(ctx):
            push, pop = getattr(self.dut, f"to_{name}"), getattr(self.dut, f"from_{name}")
            while True:
                ctx.set(push.ready, int(self.rng.random() >= self.slow))
                ctx.set(pop.valid, int(self.rng.random() >= self.slow))
                _, _, valid, ready = await ctx.tick().sample(push.valid, push.ready)
                if valid and ready:
                    self.given.append(name)

        return ends

    def run(self, simulate, cycles=600):
        async def main(ctx):
            await self.fill(ctx)
            assert ctx.get(self.dut.idle)
            await self.source(ctx)
            while not ctx.get(self.dut.idle):
                self.span += 1
                await ctx.tick()
            assert ctx.get(self.dut.fault.code) == Error.NONE
            await self.held.compare(ctx)

        simulate(self.module, main, background=[self.channel("store"), self.channel("load")], cycles=cycles)


@pytest.mark.parametrize("slow", [0.0, 0.7])
def test_instructions_in_order_and_their_tokens(simulate, operands, slow):
    bench = Bench(operands, slow)
    bench.add(uop_end=8, reset=1)
    want = []
    for k in range(14):
        begin = k % 5
        flags = {"pop_prev": k & 1, "pop_next": k >> 1 & 1, "push_prev": k >> 2 & 1, "push_next": k % 3 == 0}
        bench.add(uop_bgn=begin, uop_end=begin + k % 4, iter_out=1 + k % 3, overwrite=k == 9, **flags)
        want += [name for name, flag in (("load", "push_next"), ("store", "push_prev")) if flags[flag]]
    bench.run(simulate)
    assert sorted(bench.given) == sorted(want)


def test_tokens_come_when_the_last_issue_is_written(simulate, operands):
    bench = Bench(operands)
    bench.add(uop_end=8, push_prev=1)
    at = {}

    async def watch(ctx):
        cycle, dut = 0, bench.dut
        while True:
            _, _, taken, given, write, ended = await ctx.tick().sample(
                dut.cmd.ready, dut.to_store.valid, dut.write.en, dut.activity.ended
            )
            cycle += 1
            for name, happens in (("taken", taken), ("given", given), ("write", write), ("ended", ended)):
                if happens:
                    at[name] = cycle

    async def main(ctx):
        await bench.fill(ctx)
        ctx.set(bench.dut.to_store.ready, 1)
        await bench.source(ctx)
        await ctx.tick().repeat(30)

    simulate(bench.module, main, background=[watch], cycles=120)
    assert at["given"] == at["write"] == at["ended"]
    assert at["given"] - at["taken"] == TERNARY_SEQUENCER_LATENCY + 7 + ternary_latency(TWO)


def test_a_token_without_room_keeps_the_next_ones(simulate, operands):
    """Until there is room; then both channels get them together."""
    bench = Bench(operands)
    bench.add(push_prev=1, push_next=1)
    bench.add(push_next=1)
    dut, given = bench.dut, []

    async def watch(ctx):
        while True:
            _, _, store, load = await ctx.tick().sample(dut.to_store.valid, dut.to_load.valid & dut.to_load.ready)
            given.append((store, load))

    async def main(ctx):
        await bench.fill(ctx)
        ctx.set(dut.to_load.ready, 1)
        await bench.source(ctx)
        await ctx.tick().repeat(30)
        assert not any(load for _, load in given) and given[-1] == (1, 0) and not ctx.get(dut.idle)
        ctx.set(dut.to_store.ready, 1)
        given.clear()
        await ctx.tick().repeat(4)
        assert given == [(1, 1), (0, 1), (0, 0), (0, 0)] and ctx.get(dut.idle)

    simulate(bench.module, main, background=[watch], cycles=150)


def test_what_it_waits_for(simulate, operands):
    """Tokens are counted as such, the compute unit's banks are not; nothing is read from DRAM."""
    bench = Bench(operands)
    bench.add(pop_next=1)
    dut = bench.dut

    async def main(ctx):
        await bench.fill(ctx)
        ctx.set(dut.cmd.payload, {"insn": bench.words[0], "index": 0})
        ctx.set(dut.cmd.valid, 1)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.activity.token_wait) and not ctx.get(dut.activity.busy) and not ctx.get(dut.cmd.ready)
        ctx.set(dut.compute_busy, 1)
        ctx.set(dut.from_load.valid, 1)
        assert ctx.get(dut.cmd.ready) and ctx.get(dut.from_load.ready) and not ctx.get(dut.from_store.ready)
        await ctx.tick()
        ctx.set(dut.cmd.valid, 0)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.activity.busy) and not ctx.get(dut.activity.token_wait) and ctx.get(dut.busy) == 0
        ctx.set(dut.compute_busy, 0)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.busy) == 1
        await ctx.tick().repeat(20)
        assert ctx.get(dut.idle) and not ctx.get(dut.activity.busy)

    simulate(bench.module, main, cycles=120)


def test_after_a_fault_and_a_halt_it_comes_to_rest(simulate, operands):
    """Whatever waits inside; nothing more is taken."""
    bench = Bench(operands)
    bench.add()
    bench.words += [bench.words[0]] * 3
    beyond = Isa(TWO).formats["TERNARY"].encode(op=int(Op.TERNARY), **LOOPS | {"iter_in": 9, "dst_in": 1})
    bench.words.insert(1, int(beyond[0, 0]) | int(beyond[0, 1]) << 64)
    dut = bench.dut

    async def source(ctx):
        await bench.source(ctx)

    async def main(ctx):
        await bench.fill(ctx)
        await ctx.tick().until(dut.fault.code != Error.NONE)
        ctx.set(dut.halt, 1)
        await ctx.tick().repeat(30)
        assert (ctx.get(dut.fault.code), ctx.get(dut.fault.index)) == (Error.RANGE, 1)
        assert ctx.get(dut.idle)

    simulate(bench.module, main, background=[source], cycles=300)
