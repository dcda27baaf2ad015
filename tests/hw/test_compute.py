"""The compute unit against the model's instructions: random sequences full of hazards, intervals, tokens, errors."""

from itertools import product

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from tilewright.hw.compute import Compute
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.execute import latency, multiply_interval, multiply_latency, visit_interval
from tilewright.hw.isa import PAR, AluOp, Isa, Mem, Op, depth
from tilewright.hw.regs import Error
from tilewright.hw.scratchpad import Scratchpad
from tilewright.hw.sequencer import LATENCY as SEQUENCER_LATENCY
from tilewright.sim.alu import alu_action
from tilewright.sim.gemm import gemm_action
from tilewright.sim.random_programs import random_parameters
from tilewright.sim.state import State
from tilewright.sim.transfer import load_action

TINY = PRESETS["tiny"]
SMALL = {"uop_bytes": 256, "inp_bytes": 1 << 10, "acc_bytes": 1 << 11}
ODD = Config(
    name="odd",
    batch=2,
    block_in=8,
    block_out=4,
    wgt_bits=4,
    uop_bytes=256,
    inp_bytes=1 << 10,
    wgt_bytes=1 << 10,
    acc_bytes=1 << 11,
    extensions=frozenset({"overwrite", "pad_value", "acc8"}),
)
CONFIGS = {
    "tiny": TINY,
    "one bank": TINY.replace(acc_banks=1),
    "slow multiplier": TINY.replace(ppu_lanes=1),
    "odd": ODD,
    "vta": PRESETS["vta"].replace(wgt_bytes=1 << 11, **SMALL),
    "pynq_z1": PRESETS["pynq_z1"].replace(wgt_bytes=1 << 11, **SMALL),
}
ENTRIES = 4  # that are used of each scratchpad, so that most visits meet a hazard
DRAM_BYTES = 1 << 13


class Bench:
    """A compute unit with its scratchpads, a memory, and the model's state beside it."""

    def __init__(self, cfg, seed=1):
        self.cfg, self.isa, self.rng = cfg, Isa(cfg), np.random.default_rng(seed)
        self.dram = self.rng.integers(0, 256, DRAM_BYTES, np.uint8)
        self.state = State(cfg, self.dram)
        self.dut, self.words, self.records, self.cycles = Compute(cfg), [], [], 0
        self.closed = False  # the memory answers nothing
        self.module = Module()
        self.module.submodules.dut = self.dut
        self.pads = {mem: Scratchpad(cfg, mem=mem) for mem in (Mem.INP, Mem.WGT)}
        for mem, pad in self.pads.items():
            self.module.submodules[mem.name] = pad
            wiring.connect(self.module, getattr(self.dut, mem.name.lower()), pad.read)
        self.par = np.zeros((ENTRIES, cfg.block_out, 4), np.uint32)
        # accumulators that differ between the banks
        self.used = [k + bank * cfg.acc_depth // 2 for k in range(ENTRIES // 2) for bank in (0, 1)]

    def uops(self, triples):
        """Micro-ops from the beginning of the DRAM on."""
        dst, src, wgt = np.asarray(triples).T
        words = self.isa.uop.encode(len(triples), dst=dst, src=src, wgt=wgt)[:, 0].astype("<u4")
        self.dram[: words.nbytes] = words.view(np.uint8)

    def add(self, op, **fields):
        """One more instruction; the model executes it at once."""
        name = Op(op).name
        words = self.isa.formats[name].encode(op=int(op), **fields)
        f = self.isa.decode(words)[0]
        action = {
            Op.GEMM: gemm_action,
            Op.DWGEMM: gemm_action,
            Op.ALU: alu_action,
            Op.LOAD: load_action,
            Op.LOADP: load_action,
        }.get(op)
        if action:
            action(self.state, f)()
        self.words.append(int(words[0, 0]) | int(words[0, 1]) << 64)
        self.records.append(f)

    def load(self, mem, sram_base=0, dram_base=0, y_size=1, x_size=1, **fields):
        size = {"y_size": y_size, "x_size": x_size, "x_stride": x_size}
        self.add(Op.LOAD, mem=int(mem), sram_base=sram_base, dram_base=dram_base, **size, **fields)

    async def source(self, ctx):
        """The compute queue."""
        for k, word in enumerate(self.words):
            ctx.set(self.dut.cmd.payload, {"insn": word, "index": k})
            ctx.set(self.dut.cmd.valid, 1)
            await ctx.tick().until(self.dut.cmd.ready)
            ctx.set(self.dut.cmd.valid, 0)

    def memory(self, slow=0.0):
        """Answers the mover's requests."""
        dut, size = self.dut, self.cfg.axi_bits // 8

        async def bench(ctx):
            todo = []
            ctx.set(dut.req.ready, 1)
            while True:
                valid = bool(todo) and not self.closed and self.rng.random() >= slow
                ctx.set(dut.beats.valid, int(valid))
                if valid:
                    raw = self.dram[todo[0] * size : (todo[0] + 1) * size].tobytes()
                    ctx.set(dut.beats.payload, {"data": int.from_bytes(raw, "little"), "error": 0})
                _, _, asked, request, taken = await ctx.tick().sample(dut.req.valid, dut.req.payload, dut.beats.ready)
                if valid and taken:
                    todo.pop(0)
                if asked:
                    todo.extend(range(request.addr, request.addr + request.beats))

        return bench

    async def fill(self, ctx):
        """Inputs and weights, random, into scratchpads and model."""
        lanes = {Mem.INP: self.state.inp, Mem.WGT: self.state.wgt}
        for mem, pad in self.pads.items():
            bits = {Mem.INP: self.cfg.inp_bits, Mem.WGT: self.cfg.wgt_bits}[mem]
            rows = len(lanes[mem]) // depth(self.cfg, mem)
            for at in range(ENTRIES):
                values = lanes[mem][at * rows : (at + 1) * rows].reshape(-1).tolist()
                entry = sum((v & (1 << bits) - 1) << k * bits for k, v in enumerate(values))
                ctx.set(pad.write.addr, at)
                for chunk in range(-(-len(values) * bits // len(pad.write.data))):
                    ctx.set(pad.write.data, entry >> chunk * len(pad.write.data))
                    lane = len(pad.write.data) * len(pad.write.en) // (len(values) * bits)
                    ctx.set(pad.write.en, ((1 << lane) - 1) << chunk * lane)
                    await ctx.tick()
                ctx.set(pad.write.en, 0)

        for at in range(ENTRIES if "rescale" in self.cfg.extensions else 0):
            write, bits = self.dut.write_par, self.cfg.axi_bits
            entry = int.from_bytes(self.par[at, :, :3].astype("<u4").tobytes(), "little")
            ctx.set(write.addr, at)
            for beat in range(len(write.en)):
                ctx.set(write.en, 1 << beat)
                ctx.set(write.data, entry >> beat * bits & (1 << bits) - 1)
                await ctx.tick()
            ctx.set(write.en, 0)

    def randomize(self):
        """Random inputs, weights and parameters in the model's first entries; `fill` copies them."""
        cfg = self.cfg
        for array, bits, rows in (
            (self.state.inp, cfg.inp_bits, cfg.batch),
            (self.state.wgt, cfg.wgt_bits, cfg.block_out),
        ):
            used = array[: ENTRIES * rows]
            used[...] = self.rng.integers(-(1 << bits - 1), 1 << bits - 1, used.shape)
        self.par[..., :3] = random_parameters(cfg, self.rng, ENTRIES)
        for name, values in PAR.decode(self.par.reshape(-1, 4).view(np.uint64)).items():
            self.state.par[name][:ENTRIES] = values.reshape(ENTRIES, -1)

    async def read_back(self, ctx):
        """All accumulators in use, as STORE reads them."""
        store = self.dut.store
        for at in range(self.cfg.acc_depth):
            if at not in self.used and not self.state.acc[at].any():
                continue
            ctx.set(store.addr, at)
            ctx.set(store.en, 1)
            await ctx.tick().until(store.ready)
            ctx.set(store.en, 0)
            raw = int(ctx.get(store.data)).to_bytes(self.cfg.acc_entry_bytes, "little")
            np.testing.assert_array_equal(np.frombuffer(raw, "<i4"), self.state.acc[at], f"accumulator {at}")

    async def tokens(self, ctx):
        """A test's own observer."""

    async def clock(self, ctx):
        """Counts cycles."""
        while True:
            await ctx.tick()
            self.cycles += 1


def run(simulate, bench, slow=0.0, cycles=2200):
    """All instructions, then compare; returns cycles from the first one to rest, and the tokens given."""
    dut, given, span = bench.dut, {"load": 0, "store": 0}, []

    async def main(ctx):
        await bench.fill(ctx)
        for token in (dut.from_load, dut.from_store):
            ctx.set(token.valid, 1)
        start = bench.cycles
        await bench.source(ctx)
        await ctx.tick().until(dut.idle)
        span.append(bench.cycles - start)
        assert not ctx.get(dut.fault.code)
        await bench.read_back(ctx)

    def sink(name):
        async def taker(ctx):
            channel = getattr(dut, f"to_{name}")
            while True:
                ctx.set(channel.ready, int(bench.rng.random() >= slow))
                _, _, valid, ready = await ctx.tick().sample(channel.valid, channel.ready)
                given[name] += valid & ready

        return taker

    simulate(
        bench.module,
        main,
        background=[bench.clock, bench.tokens, bench.memory(slow), sink("load"), sink("store")],
        cycles=cycles,
    )
    assert given["load"] == sum(f["push_prev"] for f in bench.records)
    assert given["store"] == sum(f["push_next"] for f in bench.records)
    return span[0]


def random_loops(bench, first, count):
    """Trips around some of the micro-ops `first` to `first + count`, with small steps."""
    r = bench.rng
    begin = first + int(r.integers(0, count))
    fields = {"uop_bgn": begin, "uop_end": int(r.integers(begin, first + count + 1))}
    fields |= {"iter_out": int(r.integers(0, 4)), "iter_in": int(r.integers(1, 4))}
    return fields | {name: int(r.integers(0, 2)) for name in ("dst_out", "dst_in", "src_out", "src_in")}


def random_instruction(bench, uops):
    cfg, r = bench.cfg, bench.rng
    flags = {name: int(r.random() < 0.2) for name in ("push_prev", "push_next", "pop_prev", "pop_next")}
    kind = r.choice(["gemm", "alu", "load", "nop"], p=[0.4, 0.45, 0.1, 0.05])
    if kind == "gemm":
        special = {"reset": int(r.random() < 0.1), "wgt_in": int(r.integers(0, 2))}
        if "overwrite" in cfg.extensions and not special["reset"]:
            special["overwrite"] = int(r.random() < 0.2)
        op = Op.DWGEMM if "depthwise" in cfg.extensions and r.random() < 0.3 else Op.GEMM
        bench.add(op, **random_loops(bench, 0, uops), **special, **flags)
    elif kind == "alu":
        rescale = [AluOp.RESCALE] * 2 if "rescale" in cfg.extensions else []
        op = r.choice([AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.SHR, AluOp.MUL, *rescale])
        low, high = {AluOp.SHR: (-40, 40), AluOp.RESCALE: (0, ENTRIES)}.get(op, (-(1 << 15), 1 << 15))
        second = {"alu_op": int(op), "use_imm": int(r.integers(0, 2) or op == AluOp.RESCALE)}
        second["imm"] = int(r.integers(low, high))
        bench.add(Op.ALU, **random_loops(bench, uops, uops), **second, **flags)
    elif kind == "load":
        pads = {"y_pad_0": int(r.integers(0, 2)), "x_pad_0": int(r.integers(0, 2))}
        at = int(r.choice(bench.used[:2]))
        bench.load(Mem.ACC, at, int(r.integers(0, 8)), 1, int(r.integers(0, 3)), **pads, **flags)
    else:
        bench.load(Mem.UOP, x_size=0, **flags)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", range(2))
def test_random_instructions(simulate, name, seed):
    bench = Bench(CONFIGS[name], seed)
    r, uops = bench.rng, 6
    bench.randomize()
    dst, wgt = r.choice(bench.used, 2 * uops), r.integers(0, ENTRIES, 2 * uops)
    src = np.concatenate([r.integers(0, ENTRIES, uops), r.choice(bench.used, uops)])
    bench.uops(np.stack([dst, src, wgt], 1))
    bench.load(Mem.UOP, x_size=2 * uops)
    for k, at in enumerate(bench.used):
        bench.load(Mem.ACC, at, 8 + k)
    for _ in range(40):
        random_instruction(bench, uops)
    run(simulate, bench, slow=0.4 * seed)


ALU = {"alu_op": int(AluOp.ADD), "uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}


def prepared(name, triples, seed=5):
    """A bench whose micro-ops are `triples` and whose accumulators in use hold random values."""
    bench = Bench(CONFIGS[name], seed)
    bench.randomize()
    bench.uops(triples)
    bench.load(Mem.UOP, x_size=len(triples))
    for k, at in enumerate(bench.used):
        bench.load(Mem.ACC, at, 8 + k)
    return bench


@pytest.mark.parametrize("name", ["tiny", "one bank"])
@pytest.mark.parametrize("distance", range(1, 7))
def test_a_result_is_read_again_at_every_distance(simulate, name, distance):
    """Writer of x; `distance - 1` others; readers of x as destination and as source, by GEMM and by ALU."""
    x, y, far = 0, 1, CONFIGS[name].acc_depth - 1
    # lists: 0 writes x; 1 others; 2 reads and writes x; 3 reads x for y; 4 the same from the other bank
    bench = prepared(name, [(x, 1, 2), (2, 3, 1), (x, 3, 3), (y, x, 0), (far, x, 0)])
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
    run(simulate, bench, cycles=700)


@pytest.mark.parametrize("name", ["tiny", "one bank", "slow multiplier", "odd"])
def test_intervals(simulate, name):
    """Each instruction twice; between the tokens of the two are exactly the cycles of the second one's visits."""
    cfg, trips = CONFIGS[name], 7
    mul, imm = {"alu_op": int(AluOp.MUL)}, {"use_imm": 1, "imm": 3}
    assert visit_interval(cfg) == 1
    assert visit_interval(cfg, tensor=True) == 3 - cfg.acc_banks
    assert visit_interval(cfg, tensor=True, same_bank=True) == 2
    # micro-ops 0 to 2 for GEMM; 3 reads another bank, 4 the same
    cases = [
        (Op.GEMM, 0, 3, {}, 3),
        (Op.ALU, 4, 5, imm, 1),
        (Op.ALU, 3, 4, {}, visit_interval(cfg, tensor=True)),
        (Op.ALU, 4, 5, {}, 2),
        # the same accumulator again and again, then others
        (Op.ALU, 4, 5, mul | imm, multiply_interval(cfg)),
        (Op.ALU, 4, 5, mul, multiply_interval(cfg) + 1),
        (Op.ALU, 5, 6, mul | imm | {"dst_in": 1}, visit_interval(cfg, multiply=True)),
        (Op.ALU, 5, 6, mul | {"dst_in": 1}, visit_interval(cfg, multiply=True, tensor=True, same_bank=True)),
    ]
    bench = prepared(name, [(0, 1, 0), (0, 2, 1), (1, 0, 0), (0, cfg.acc_depth // 2, 0), (0, 1, 0), (0, 9, 0)])
    for op, begin, end, fields, _ in cases:
        for _ in range(2):
            loops = {"uop_bgn": begin, "uop_end": end, "iter_out": 1, "iter_in": trips}
            bench.add(op, push_next=1, **loops, **fields)
    at = []

    async def watch(ctx):
        async for _, _, given in ctx.tick().sample(bench.dut.to_store.valid):
            if given:
                at.append(bench.cycles)

    bench.tokens = watch
    run(simulate, bench, cycles=1200)
    assert [b - a for a, b in zip(at[::2], at[1::2], strict=True)] == [trips * case[-1] for case in cases]


def test_instructions_follow_each_other_without_a_gap(simulate):
    """One GEMM of 40 visits takes as long as 20 of 2, each of which waits for a token and gives one."""
    flags = {"pop_prev": 1, "push_next": 1, "push_prev": 1}
    one, many = prepared("tiny", [(0, 1, 0), (0, 2, 1)]), prepared("tiny", [(0, 1, 0), (0, 2, 1)])
    one.add(Op.GEMM, uop_end=2, iter_out=1, iter_in=20)
    for _ in range(20):
        many.add(Op.GEMM, uop_end=2, iter_out=1, iter_in=1, **flags)
    assert run(simulate, many) - run(simulate, one) <= 1


@pytest.mark.parametrize("name", ["tiny", "slow multiplier", "odd"])
@pytest.mark.parametrize("op", [Op.GEMM, Op.ALU])
def test_latency(simulate, name, op):
    """From a visit's handshake to its write, seen by the token that it gives; ALU multiplies."""
    bench = prepared(name, [(0, 1, 0)])
    fields, cycles = ({"alu_op": int(AluOp.MUL), "use_imm": 1}, multiply_latency) if op == Op.ALU else ({}, latency)
    dut, visits, tokens = bench.dut, [], []

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
        visits.append(bench.cycles)

    simulate(bench.module, main, jobs, background=[bench.clock, bench.memory()], cycles=300)
    assert tokens[0] - visits[0] == SEQUENCER_LATENCY + cycles(bench.cfg)


def test_a_full_channel_keeps_tokens(simulate):
    """Tokens that nobody takes yet are owed, and instructions wait when they are too many; none is lost."""
    bench = prepared("tiny", [(0, 1, 0)])
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

    async def count(ctx):
        await bench.source(ctx)

    simulate(bench.module, main, count, background=[bench.memory()], cycles=1500)


def test_an_index_out_of_range_is_a_fault(simulate):
    bench = Bench(TINY)
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


def test_store_reads_between_visits(simulate):
    """STORE reads a bank in the cycles in which the pipeline does not, and waits in the others."""
    bench = prepared("tiny", [(0, 1, 0)])
    bench.add(Op.GEMM, uop_end=1, iter_out=1, iter_in=60)
    store, far = bench.dut.store, TINY.acc_depth // 2
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
