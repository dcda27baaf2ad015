"""hw/rtl/ternary.py: sums, codes of weights, issues and their cycles, accumulators, tokens."""

import itertools

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.regs import Error
from tilewright.hw.rtl.compute.accumulators import Accumulators
from tilewright.hw.rtl.latencies import (
    OPERAND_LATENCY,
    TERNARY_ISSUES_AHEAD,
    TERNARY_SEQUENCER_LATENCY,
    ternary_array_latency,
    ternary_latency,
)
from tilewright.hw.rtl.scratchpad import Scratchpad
from tilewright.hw.rtl.ternary import Ternary, TernaryDot, TernaryExecute, TernarySequencer, Weights, coded

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
                number = sum((int(v) & (1 << bits) - 1) << k * bits for k, v in enumerate(entry.reshape(-1)))
                size = len(pad.write.data)
                ctx.set(pad.write.addr, at)
                for lane in range(len(pad.write.en)):
                    ctx.set(pad.write.en, 1 << lane)
                    ctx.set(pad.write.data, number >> lane * size & (1 << size) - 1)
                    await ctx.tick()
            ctx.set(pad.write.en, 0)

    async def compare(self, ctx):
        """All accumulators, as STORE reads them."""
        store = self.accumulators.store
        for at, want in enumerate(self.acc):
            ctx.set(store.addr, at)
            ctx.set(store.en, 1)
            await ctx.tick().until(store.ready)
            ctx.set(store.en, 0)
            raw = int(ctx.get(store.data)).to_bytes(self.cfg.acc_entry_bytes, "little")
            np.testing.assert_array_equal(np.frombuffer(raw, "<i4").reshape(want.shape), want, f"accumulator {at}")


@pytest.fixture
def operands():
    """`Operands`, as a test cannot import from here."""
    return Operands


TINY = PRESETS["tiny_two"]


PAIR = TINY.replace(name="pair", block_in=2, block_out=4, extensions={"requant"})


SINGLE = TINY.replace(name="single", block_in=1, block_out=4, extensions={"requant"})


NARROW = TINY.replace(
    name="narrow", batch=2, block_in=8, ternary_blocks=2, inp_bits=4, twgt_bytes=1024, extensions={"requant"}
)


CONFIGS = [TINY, PAIR, SINGLE, NARROW, PRESETS["pynq_z1_two"]]


BITS = {0: 0, 1: 1, -1: 3}  # of a weight


def word(values, bits):
    return sum((int(v) & (1 << bits) - 1) << k * bits for k, v in enumerate(np.asarray(values).reshape(-1)))


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
                ctx.set(dot.inp, word(inp, cfg.inp_bits))
                ctx.set(wgt, word(weights, 2))
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
    assert (sums(TINY, pairs) == np.array(expected)[:, None, None, None]).all()


def test_an_entry_comes_coded_and_a_lane_is_written_alone():
    dut, half = Weights(TWO), 0x0123456789ABCDEF
    sim, found = Simulator(dut), []
    sim.add_clock(1e-8)

    async def main(ctx):
        word = Signal(64)
        ctx.set(word, half)
        expected = ctx.get(coded(TWO, word))
        ctx.set(dut.read.addr, 5)
        ctx.set(dut.write.addr, 5)
        ctx.set(dut.write.data, half)
        ctx.set(dut.read.en, 1)
        for lanes in (0b10, 0b01):
            ctx.set(dut.write.en, lanes)
            await ctx.tick()
            ctx.set(dut.write.en, 0)
            await ctx.tick().repeat(OPERAND_LATENCY)
            found.append(ctx.get(dut.read.data))
        assert found == [expected << 64, expected << 64 | expected]

    sim.add_testbench(main)
    sim.run()


def test_zeros_stay_zeros():
    """So what is not yet written is weights of 0."""
    dut = Weights(TWO)
    sim = Simulator(dut)
    sim.add_clock(1e-8)

    async def main(ctx):
        ctx.set(dut.write.data, 0)
        assert ctx.get(coded(TWO, dut.write.data)) == 0

    sim.add_testbench(main)
    sim.run()


ONE = TWO.replace(name="one_block", ternary_blocks=1, twgt_bytes=512)


LOOPS = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}


@pytest.fixture
def bench(sequencer_bench):
    """A function that makes the bench of a configuration with its micro-ops."""
    return lambda cfg, uops: sequencer_bench(cfg, TernarySequencer(cfg), Mem.TUOP, uops)


@pytest.mark.parametrize("cfg", [TWO, ONE], ids=lambda c: c.name)
@pytest.mark.parametrize("stalls", [False, True])
def test_order_of_issues(simulate, rng, bench, cfg, stalls):
    """In every bank; not one cycle without an issue, but between jobs of a single one."""
    uops = [(int(bank) * cfg.bank_depth, *(int(v) for v in rng.integers(0, 3, 2))) for bank in [*range(4)] * 2]
    dut = bench(cfg, uops)
    for _ in range(12):
        begin = int(rng.integers(0, 8))
        fields = {"uop_bgn": begin, "uop_end": int(rng.integers(begin, 9))}
        fields |= {"iter_out": int(rng.integers(0, 4)), "iter_in": int(rng.integers(0, 4))}
        fields |= {name: int(rng.integers(0, 2)) for name in ("dst_out", "dst_in", "wgt_out", "wgt_in")}
        fields |= {name: int(rng.integers(0, 9)) for name in ("src_out", "src_in")}
        dut.expect(Op.TERNARY, fields)
    issues, at, fault = dut.run(simulate, dut.jobs, len(dut.want), rng if stalls else None)
    for issue, (triple, last) in zip(issues, dut.want, strict=True):
        assert issue.last == last
        if triple is None:
            assert issue.banks == 0
        else:
            found = (issue.banks.bit_length() - 1) * cfg.bank_depth + issue.place, issue.src, issue.wgt
            assert found == triple and issue.banks.bit_count() == 1
    assert fault == (Error.NONE, 0)
    if not stalls:
        assert at == [at[0] + k for k in dut.due]


def test_latency(simulate, bench):
    dut = bench(TWO, [(1, 2, 3)])
    entry, issue = dut.entry_and_issue(simulate, dut.job(Op.TERNARY, **LOOPS))
    assert issue == entry + TERNARY_SEQUENCER_LATENCY


def test_issues_wait_behind_the_output(simulate, bench):
    """All step on with it."""
    dut = bench(TWO, [(0, k, 0) for k in range(12)])
    waited, later, gone = dut.held_back(simulate, dut.job(Op.TERNARY, **LOOPS | {"uop_end": 12}), "src")
    assert len(waited) == TERNARY_ISSUES_AHEAD
    first = gone[0][0]
    assert gone == [(first + k, k) for k in range(12)]
    assert later == [first + k for k in range(12 - TERNARY_ISSUES_AHEAD)]


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
def test_an_index_beyond_its_scratchpad_or_plane_is_an_error(simulate, bench, cfg, fields, uop):
    dut = bench(cfg, [uop])
    job = dut.job(Op.TERNARY, index=7, **{**LOOPS, **fields})
    assert dut.fault_of(simulate, job) == (Error.RANGE, 7)


def test_reset_reads_nothing_so_other_indices_may_be_anything(simulate, bench):
    dut = bench(TWO, [(3, 255, 127)])
    job = dut.job(Op.TERNARY, **{**LOOPS, "iter_in": 3, "src_in": 255, "wgt_in": 127, "reset": 1})
    issues, _, fault = dut.run(simulate, [job], 3)
    assert [(v.place, v.banks, v.reset, v.clear) for v in issues] == [(3, 1, 1, 1)] * 3
    assert fault == (Error.NONE, 0)


@pytest.mark.circuit
def test_the_longest_loops(simulate, bench):
    """All trips of a loop of 16383, and micro-ops up to the last of the buffer."""
    dut = bench(TWO, [(0, 0, 0)] * 256)
    jobs = [dut.job(Op.TERNARY, uop_bgn=255, uop_end=256, iter_out=1, iter_in=16383)]
    issues, at, fault = dut.run(simulate, jobs, 16383, cycles=17_000)
    assert [v.last for v in issues[-2:]] == [0, 1]
    assert np.ptp(at) == len(at) - 1
    assert fault == (Error.NONE, 0)


ROWS = TWO.replace(
    name="rows", batch=2, block_in=8, ternary_blocks=2, twgt_bytes=1 << 10, acc_bytes=1 << 12, extensions={"requant"}
)


PIPELINE_SINGLE = TWO.replace(name="single", block_in=1, twgt_bytes=256, extensions={"requant"})


def pipeline_bench(cfg, operands, seed=1):
    m = Module()
    m.submodules.dut = dut = TernaryExecute(cfg)
    held = operands(m, cfg, np.random.default_rng(seed))
    held.connect(m, dut.inp, dut.wgt, dut.read, dut.write)
    return m, dut, held


def issue(cfg, dst, src=0, wgt=0, *, reset=0, overwrite=0, last=0):
    bank, place = divmod(dst, cfg.bank_depth)
    flags = {"reset": reset, "clear": reset | overwrite, "last": last}
    return {"banks": 1 << bank, "place": place, "src": src, "wgt": wgt, **flags}


async def put(ctx, dut, payload):
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
def test_every_issue_finds_what_those_before_it_left(simulate, operands, rng, cfg, gaps, entries):
    """On few accumulators, so that results are taken from every stage; without gaps none waits."""
    m, dut, held = pipeline_bench(cfg, operands)
    places = [int(rng.integers(0, 4)) * cfg.bank_depth + int(rng.integers(0, 2)) for _ in range(entries)]

    async def main(ctx):
        await held.fill(ctx)
        for _ in range(100):
            dst, src, wgt = int(rng.choice(places)), int(rng.integers(0, 4)), int(rng.integers(0, 4))
            kind = {"reset": int(rng.random() < 0.08)}
            kind["overwrite"] = int(not kind["reset"] and rng.random() < 0.1)
            held.execute(dst, src, wgt, **kind)
            assert await put(ctx, dut, issue(cfg, dst, src, wgt, **kind)) == 0
            if rng.random() < gaps:
                await ctx.tick().repeat(int(rng.integers(1, 5)))
        await ctx.tick().repeat(20)
        await held.compare(ctx)

    simulate(m, main, cycles=900)


def test_sums_wrap(simulate, operands):
    m, dut, held = pipeline_bench(TWO, operands)
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
            await put(ctx, dut, issue(TWO, 0))
        await ctx.tick().repeat(20)
        assert (held.acc[0] < 0).all()
        await held.compare(ctx)

    simulate(m, main, cycles=900)


@pytest.mark.parametrize("cfg", [TWO, PIPELINE_SINGLE], ids=lambda cfg: cfg.name)
def test_latency_and_the_banks_in_use(simulate, operands, cfg):
    """A bank is in use from the cycle behind its issue to that of its write, with which the instruction ends."""
    m, dut, _ = pipeline_bench(cfg, operands)
    seen = []

    async def watch(ctx):
        while True:
            _, _, busy, write, retire = await ctx.tick().sample(dut.busy, dut.write.en, dut.retire)
            seen.append((busy, write, retire))

    async def main(ctx):
        await ctx.tick().repeat(2)
        seen.clear()
        await put(ctx, dut, issue(cfg, 2 * cfg.bank_depth, last=1))
        await ctx.tick().repeat(20)

    simulate(m, main, background=[watch], cycles=100)
    end = ternary_latency(cfg)
    assert seen[: end + 2] == [(0, 0, 0)] + [(4, 0, 0)] * (end - 1) + [(4, 4, 1), (0, 0, 0)]


def test_an_issue_waits_while_compute_uses_its_bank(simulate, operands):
    m, dut, _ = pipeline_bench(TWO, operands)

    async def main(ctx):
        ctx.set(dut.compute_busy, 0b1011)
        assert await put(ctx, dut, issue(TWO, 2 * TWO.bank_depth)) == 0
        assert await put(ctx, dut, {"banks": 0, "last": 1}) == 0  # an instruction without issues uses none
        ctx.set(dut.issues.payload, issue(TWO, TWO.bank_depth))
        ctx.set(dut.issues.valid, 1)
        for _ in range(12):
            assert not ctx.get(dut.issues.ready)
            await ctx.tick()
        assert ctx.get(dut.busy) == 0
        ctx.set(dut.compute_busy, 0b1001)
        assert ctx.get(dut.issues.ready)

    simulate(m, main, cycles=900)


def test_a_reset_reads_nothing(simulate, operands):
    m, dut, _ = pipeline_bench(TWO, operands)
    reads = []

    async def watch(ctx):
        while True:
            _, _, *found = await ctx.tick().sample(dut.inp.en, dut.wgt.en, dut.read.en)
            reads.append(any(found))

    async def main(ctx):
        await put(ctx, dut, issue(TWO, 0, reset=1))
        await ctx.tick().repeat(15)
        assert not any(reads)
        await put(ctx, dut, issue(TWO, 0, overwrite=1))
        await ctx.tick().repeat(15)
        assert sum(reads) == 2  # inputs, weights; no accumulators

    simulate(m, main, background=[watch], cycles=100)


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
