"""hw/rtl/ternary.py: sums, codes of weights, issues and their cycles, accumulators, tokens."""

import itertools
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from tests.hw.bench import Watch, assign, fill_entry, instruction, pack, put, script, simulate, unpack
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.regs import Error
from tilewright.hw.rtl.compute.accumulators import Accumulators
from tilewright.hw.rtl.latencies import (
    OPERAND_LATENCY,
    TERNARY_SEQUENCER_LATENCY,
    ternary_array_latency,
    ternary_latency,
)
from tilewright.hw.rtl.scratchpad import Scratchpad
from tilewright.hw.rtl.ternary import Ternary, TernaryDot, TernaryExecute, Weights, coded

TWO = PRESETS["tiny_two"]

ENTRIES = 4  # that are used of inputs and weights


class Operands:
    """The scratchpads of a unit with random inputs and weights, the accumulators, and what these must hold."""

    def __init__(self, module: Module, cfg, rng):
        self.cfg = cfg
        self.inp = rng.integers(-(1 << cfg.inp_bits - 1), 1 << cfg.inp_bits - 1, (ENTRIES, cfg.batch, cfg.block_in))
        self.bits = rng.integers(0, 4, (ENTRIES, cfg.ternary_blocks, cfg.block_out, cfg.block_in))
        self.acc = np.zeros((cfg.acc_depth, cfg.batch, cfg.block_out), np.int32)
        module.submodules.inp = self.inputs = Scratchpad(cfg, mem=Mem.INP)
        module.submodules.weights = self.weights = Weights(cfg)
        module.submodules.accumulators = self.accumulators = Accumulators(cfg)

    def connect(self, m: Module, inp, wgt, read, write):
        """Join a unit's ports."""
        wiring.connect(m, inp, self.inputs.read)
        wiring.connect(m, wgt, self.weights.read)
        wiring.connect(m, read, self.accumulators.ternary_read)
        wiring.connect(m, write, self.accumulators.ternary_write)

    def execute(self, dst, src, wgt, *, reset=False, overwrite=False):
        """One issue, on what the accumulators must hold."""
        w = (self.bits[wgt] & 1) * (1 - (self.bits[wgt] & 2))
        for t in range(self.cfg.ternary_blocks):
            entry = self.acc[dst + t * self.cfg.plane_depth]
            product = (self.inp[src] @ w[t].T).astype(np.int32)
            entry[...] = 0 if reset else product + (0 if overwrite else entry)

    async def fill(self, ctx):
        """Inputs and weights into their scratchpads."""
        for pad, values, bits in ((self.inputs, self.inp, self.cfg.inp_bits), (self.weights, self.bits, 2)):
            for at, entry in enumerate(values):
                await fill_entry(ctx, pad.write, at, pack(entry, bits))

    async def compare(self, ctx):
        """All accumulators, as STORE reads them."""
        store = self.accumulators.store
        for at, want in enumerate(self.acc):
            assign(ctx, store, addr=at, en=1)
            await ctx.tick().until(store.ready)
            ctx.set(store.en, 0)
            assert unpack(ctx.get(store.data), want.size) == want.reshape(-1).tolist(), f"accumulator {at}"


PAIR = TWO.replace(name="pair", block_in=2, block_out=4, extensions={"requant"})

SINGLE = TWO.replace(name="single", block_in=1, block_out=4, extensions={"requant"})

NARROW = TWO.replace(
    name="narrow", batch=2, block_in=8, ternary_blocks=2, inp_bits=4, twgt_bytes=1024, extensions={"requant"}
)

CONFIGS = [TWO, PAIR, SINGLE, NARROW, PRESETS["pynq_z1_two"]]

BITS = {0: 0, 1: 1, -1: 3}  # of a weight


def sums(cfg, pairs):
    """What `TernaryDot` makes of (inputs, bits of weights), one pair per cycle."""
    m, wgt, en, found = Module(), Signal(cfg.twgt_entry_bits), Signal(), []
    m.submodules.dot = dot = TernaryDot(cfg)
    m.d.comb += dot.en.eq(en)
    m.d.sync += dot.wgt.eq(coded(cfg, wgt))  # which stands there a cycle after the inputs
    sim = Simulator(m)
    sim.add_clock(1e-6)

    async def drive(ctx):
        for k in range(len(pairs) + ternary_array_latency(cfg)):
            ctx.set(en, k < len(pairs))
            if k < len(pairs):
                inp, weights = pairs[k]
                ctx.set(dot.inp, pack(inp, cfg.inp_bits))
                ctx.set(wgt, pack(weights, 2))
            if k >= ternary_array_latency(cfg):
                found.append([-term.value if term.minus else term.value for term in ctx.get(dot.sums)])
            await ctx.tick()

    sim.add_testbench(drive)
    sim.run()
    return np.array(found).reshape(len(pairs), cfg.ternary_blocks, cfg.batch, cfg.block_out)


def values(bits):
    return (bits & 1) * (1 - (bits & 2))


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.name)
def test_sums_are_those_of_numpy(cfg):
    """Random operands, also a weight of bits 10, which is 0, and the extremes, whose sums need every bit."""
    rng, low = np.random.default_rng(1), -(1 << cfg.inp_bits - 1)
    high = -low - 1
    shape = cfg.ternary_blocks, cfg.block_out, cfg.block_in
    pairs = [(rng.integers(low, high + 1, (cfg.batch, cfg.block_in)), rng.integers(0, 4, shape)) for _ in range(20)] + [
        (np.full((cfg.batch, cfg.block_in), x), np.full(shape, BITS[w]))
        for x, w in itertools.product((low, 0, high), BITS)
    ]
    signs = np.resize([1, -1, -1], cfg.block_in)
    pairs.append((np.where(signs > 0, high, low)[None].repeat(cfg.batch, 0), np.broadcast_to(signs & 3, shape)))
    expected = [np.einsum("bi,tci->tbc", inp, values(np.asarray(bits))) for inp, bits in pairs]
    assert (sums(cfg, pairs) == expected).all()


def test_all_weights_of_a_pair():
    """Every pair of 2 bits, on inputs that tell them apart."""
    inputs = np.array([[5, -77, 0, 0]])
    pairs = []
    for first, second in itertools.product(range(4), range(4)):
        weights = np.zeros((4, 4, 4), int)
        weights[..., :2] = first, second
        pairs.append((inputs, weights))
    expected = [5 * values(w[0, 0, 0]) - 77 * values(w[0, 0, 1]) for _, w in pairs]
    assert (sums(TWO, pairs) == np.array(expected)[:, None, None, None]).all()


def test_an_entry_comes_coded_and_a_lane_is_written_alone():
    """What is not yet written is weights of 0."""
    dut, half, found = Weights(TWO), 0x0123456789ABCDEF, []

    async def main(ctx):
        data = dut.write.data
        ctx.set(data, 0)
        assert ctx.get(coded(TWO, data)) == 0
        ctx.set(data, half)
        expected = ctx.get(coded(TWO, data))
        assign(ctx, dut.read, addr=5, en=1)
        ctx.set(dut.write.addr, 5)
        for lanes in (0b10, 0b01):
            ctx.set(dut.write.en, lanes)
            await ctx.tick()
            ctx.set(dut.write.en, 0)
            await ctx.tick().repeat(OPERAND_LATENCY)
            found.append(ctx.get(dut.read.data))
        assert found == [expected << 64, expected << 64 | expected]

    simulate(dut, main)


LOOPS = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}
ROWS = TWO.replace(
    name="rows", batch=2, block_in=8, ternary_blocks=2, twgt_bytes=1 << 10, acc_bytes=1 << 12, extensions={"requant"}
)

PIPELINE_SINGLE = TWO.replace(name="single", block_in=1, twgt_bytes=256, extensions={"requant"})


def pipeline(cfg, seed=1):
    m = Module()
    m.submodules.dut = dut = TernaryExecute(cfg)
    held = Operands(m, cfg, np.random.default_rng(seed))
    held.connect(m, dut.inp, dut.wgt, dut.read, dut.write)
    return m, dut, held


def issue(cfg, dst, src=0, wgt=0, *, reset=0, overwrite=0, last=0):
    bank, place = divmod(dst, cfg.bank_depth)
    flags = {"reset": reset, "clear": reset | overwrite, "last": last}
    return {"banks": 1 << bank, "place": place, "src": src, "wgt": wgt, **flags}


async def put_issue(ctx, dut, payload):
    """One issue; returns the cycles that it waited."""
    ctx.set(dut.issues.payload, payload)
    ctx.set(dut.issues.valid, 1)
    waited = 0
    while not ctx.get(dut.issues.ready):
        await ctx.tick()
        waited += 1
    await ctx.tick()
    ctx.set(dut.issues.valid, 0)
    return waited


@pytest.mark.parametrize("cfg", [TWO, ROWS, PIPELINE_SINGLE], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("gaps", [0.0, 0.4])
@pytest.mark.parametrize("entries", [1, 3])
def test_every_issue_finds_what_those_before_it_left(rng, cfg, gaps, entries):
    """On few accumulators, so that results are taken from every stage; without gaps none waits."""
    m, dut, held = pipeline(cfg)
    places = [int(rng.integers(0, 4)) * cfg.bank_depth + int(rng.integers(0, 2)) for _ in range(entries)]

    async def main(ctx):
        await held.fill(ctx)
        for _ in range(100):
            dst, src, wgt = int(rng.choice(places)), int(rng.integers(0, 4)), int(rng.integers(0, 4))
            kind: dict[str, Any] = {"reset": int(rng.random() < 0.08)}
            kind["overwrite"] = int(not kind["reset"] and rng.random() < 0.1)
            held.execute(dst, src, wgt, **kind)
            assert await put_issue(ctx, dut, issue(cfg, dst, src, wgt, **kind)) == 0
            if rng.random() < gaps:
                await ctx.tick().repeat(int(rng.integers(1, 5)))
        await ctx.tick().repeat(20)
        await held.compare(ctx)

    simulate(m, main, cycles=900)


def test_sums_wrap():
    m, dut, held = pipeline(TWO)
    held.inp[0], held.bits[0] = -128, 3
    held.bits[0, 1] = 1
    held.acc[:32:8] = 0
    trips = 40

    async def main(ctx):
        await held.fill(ctx)
        write = held.accumulators.write
        ctx.set(write.data, sum(0x7FFF_FF00 << 32 * k for k in range(4)))
        ctx.set(write.en, 1)
        await ctx.tick()
        ctx.set(write.en, 0)
        held.acc[0] = 0x7FFF_FF00
        with np.errstate(over="ignore"):
            for _ in range(trips):
                held.execute(0, 0, 0)
        for _ in range(trips):
            await put_issue(ctx, dut, issue(TWO, 0))
        await ctx.tick().repeat(20)
        assert (held.acc[0] < 0).all()
        await held.compare(ctx)

    simulate(m, main, cycles=900)


@pytest.mark.parametrize("cfg", [TWO, PIPELINE_SINGLE], ids=lambda cfg: cfg.name)
def test_latency_and_the_banks_in_use(cfg):
    """A bank is in use from the cycle behind its issue to that of its write, with which the instruction ends."""
    m, dut, _ = pipeline(cfg)
    seen, end = Watch(dut.issues.valid & dut.issues.ready, dut.busy, dut.write.en, dut.retire), ternary_latency(cfg)

    async def main(ctx):
        await put_issue(ctx, dut, issue(cfg, 2 * cfg.bank_depth, last=1))
        await ctx.tick().repeat(20)

    simulate(m, main, background=[seen], cycles=100)
    rows = [row[1:] for row in seen.rows[seen.at()[0] :][: end + 2]]
    assert rows == [(0, 0, 0)] + [(4, 0, 0)] * (end - 1) + [(4, 4, 1), (0, 0, 0)]


def test_an_issue_waits_while_compute_uses_its_bank():
    m, dut, _ = pipeline(TWO)

    async def main(ctx):
        ctx.set(dut.compute_busy, 0b1011)
        assert await put_issue(ctx, dut, issue(TWO, 2 * TWO.bank_depth)) == 0
        assert await put_issue(ctx, dut, {"banks": 0, "last": 1}) == 0  # an instruction without issues uses none
        ctx.set(dut.issues.payload, issue(TWO, TWO.bank_depth))
        ctx.set(dut.issues.valid, 1)
        for _ in range(12):
            assert not ctx.get(dut.issues.ready)
            await ctx.tick()
        assert ctx.get(dut.busy) == 0
        ctx.set(dut.compute_busy, 0b1001)
        assert ctx.get(dut.issues.ready)

    simulate(m, main, cycles=900)


def test_a_reset_reads_nothing():
    m, dut, _ = pipeline(TWO)
    reads = Watch(dut.inp.en | dut.wgt.en | dut.read.en.any())

    async def main(ctx):
        await put_issue(ctx, dut, issue(TWO, 0, reset=1))
        await ctx.tick().repeat(15)
        assert not reads.at()
        await put_issue(ctx, dut, issue(TWO, 0, overwrite=1))
        await ctx.tick().repeat(15)
        assert len(reads.at()) == 2  # inputs, weights; no accumulators

    simulate(m, main, background=[reads], cycles=100)


UOPS = [(bank * TWO.bank_depth + place, src, wgt) for bank in range(4) for place, src, wgt in ((0, 1, 2), (1, 3, 0))]


class Bench:
    """The unit with its scratchpads; its tokens come and go as `slow` lets them."""

    def __init__(self, slow=0.0):
        self.rng, self.slow, self.given, self.span = np.random.default_rng(5), slow, [], 0
        m = self.module = Module()
        m.submodules.dut = dut = self.dut = Ternary(TWO)
        m.submodules.uops = self.pad = Scratchpad(TWO, mem=Mem.TUOP)
        wiring.connect(m, dut.uop, self.pad.read)
        self.held = Operands(m, TWO, self.rng)
        self.held.connect(m, dut.inp, dut.twgt, dut.read, dut.write)
        self.words = []

    def add(self, **fields):
        fields = LOOPS | fields
        self.words.append(instruction(TWO, "TERNARY", op=Op.TERNARY, **fields))
        kind = {name: bool(fields.get(name)) for name in ("reset", "overwrite")}
        for i in range(fields["iter_out"]):
            for dst, src, wgt in UOPS[fields["uop_bgn"] : fields["uop_end"]]:
                self.held.execute(dst, src + i * fields.get("src_out", 0), wgt, **kind)

    async def fill(self, ctx):
        await self.held.fill(ctx)
        words = Isa(TWO).uop.encode(len(UOPS), **dict(zip(("dst", "src", "wgt"), np.array(UOPS).T)))[:, 0]
        for at, word in enumerate(words.tolist()):
            assign(ctx, self.pad.write, en=1, addr=at, data=word)
            await ctx.tick()
        ctx.set(self.pad.write.en, 0)

    async def source(self, ctx):
        """The queue."""
        await put(ctx, self.dut.cmd, [{"insn": word, "index": k} for k, word in enumerate(self.words)])

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

    def run(self, cycles=600):
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
def test_instructions_in_order_and_their_tokens(slow):
    bench = Bench(slow)
    bench.add(uop_end=8, reset=1)
    want = []
    for k in range(14):
        begin = k % 5
        flags = {"pop_prev": k & 1, "pop_next": k >> 1 & 1, "push_prev": k >> 2 & 1, "push_next": k % 3 == 0}
        bench.add(uop_bgn=begin, uop_end=begin + k % 4, iter_out=1 + k % 3, overwrite=k == 9, **flags)
        want += [name for name, flag in (("load", "push_next"), ("store", "push_prev")) if flags[flag]]
    bench.run()
    assert sorted(bench.given) == sorted(want)


def test_tokens_come_when_the_last_issue_is_written():
    bench = Bench()
    bench.add(uop_end=8, push_prev=1)
    dut = bench.dut
    seen = Watch(dut.cmd.ready & dut.cmd.valid, dut.to_store.valid, dut.write.en, dut.activity.ended)

    async def main(ctx):
        await bench.fill(ctx)
        ctx.set(dut.to_store.ready, 1)
        await bench.source(ctx)
        await ctx.tick().repeat(30)

    simulate(bench.module, main, background=[seen], cycles=120)
    taken, given, write, ended = (seen.at(column)[-1] for column in range(4))
    assert given == write == ended == taken + TERNARY_SEQUENCER_LATENCY + 7 + ternary_latency(TWO)


def test_a_token_without_room_keeps_the_next_ones():
    """Until there is room; then both channels get them together."""
    bench = Bench()
    bench.add(push_prev=1, push_next=1)
    bench.add(push_next=1)
    dut = bench.dut
    given = Watch(dut.to_store.valid, dut.to_load.valid & dut.to_load.ready)

    async def main(ctx):
        await bench.fill(ctx)
        ctx.set(dut.to_load.ready, 1)
        await bench.source(ctx)
        await ctx.tick().repeat(30)
        assert not given.at(1) and given.rows[-1] == (1, 0) and not ctx.get(dut.idle)
        ctx.set(dut.to_store.ready, 1)
        given.rows.clear()
        await ctx.tick().repeat(4)
        assert given.rows == [(1, 1), (0, 1), (0, 0), (0, 0)] and ctx.get(dut.idle)

    simulate(bench.module, main, background=[given], cycles=150)


def test_what_it_waits_for():
    """Tokens are counted as such, the compute unit's banks are not; nothing is read from DRAM."""
    bench = Bench()
    bench.add(pop_next=1)
    dut = bench.dut
    waits = {"activity.token_wait": 1, "activity.busy": 0, "cmd.ready": 0}
    taken = {"cmd.ready": 1, "from_load.ready": 1, "from_store.ready": 0}
    rows = [
        ({"cmd.payload": {"insn": bench.words[0], "index": 0}, "cmd.valid": 1}, {}, 3),
        ({}, waits, 0),
        ({"compute_busy": 1, "from_load.valid": 1}, taken),
        ({"cmd.valid": 0}, {}, 20),
        ({}, {"activity.busy": 1, "activity.token_wait": 0, "busy": 0}, 0),
        ({"compute_busy": 0}, {}, 3),
        ({}, {"busy": 1}, 0),
        ({}, {}, 20),
        ({}, {"idle": 1, "activity.busy": 0}, 0),
    ]

    async def main(ctx):
        await bench.fill(ctx)
        await script(dut, *rows)(ctx)

    simulate(bench.module, main, cycles=120)


def test_after_a_fault_and_a_halt_it_comes_to_rest():
    """Whatever waits inside; nothing more is taken."""
    bench = Bench()
    bench.add()
    bench.words += [bench.words[0]] * 3
    bench.words.insert(1, instruction(TWO, "TERNARY", op=Op.TERNARY, **LOOPS | {"iter_in": 9, "dst_in": 1}))
    dut = bench.dut

    async def main(ctx):
        await bench.fill(ctx)
        await ctx.tick().until(dut.fault.code != Error.NONE)
        ctx.set(dut.halt, 1)
        await ctx.tick().repeat(30)
        assert (ctx.get(dut.fault.code), ctx.get(dut.fault.index)) == (Error.RANGE, 1)
        assert ctx.get(dut.idle)

    simulate(bench.module, main, background=[bench.source], cycles=300)
