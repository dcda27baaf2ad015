"""A bench of the compute unit, for the tests of its blocks."""

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import wiring

from tests.hw.bench import answers, assign, fill_entry, pack, put, simulate, unpack
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import PAR, AluOp, Isa, Mem, Op, depth
from tilewright.hw.rtl.compute.unit import Compute
from tilewright.hw.rtl.scratchpad import Scratchpad
from tilewright.runtime.layout import pack_table
from tilewright.sim.model.alu import alu_action
from tilewright.sim.model.gemm import gemm_action
from tilewright.sim.model.state import State
from tilewright.sim.model.transfer import load_action
from tilewright.sim.random_programs import ODD, random_parameters

TINY = PRESETS["tiny"]
SMALL = {"uop_bytes": 256, "inp_bytes": 1 << 10, "acc_bytes": 1 << 11}
CONFIGS = {
    "tiny": TINY,
    "one bank": TINY.replace(acc_banks=1),
    "four banks": TINY.replace(acc_banks=4),
    "two units": PRESETS["tiny_two"],
    "slow multiplier": TINY.replace(ppu_lanes=1),
    "odd": ODD.replace(uop_bytes=256, extensions=ODD.extensions - {"requant", "rescale"}),
    "vta": PRESETS["vta"].replace(wgt_bytes=1 << 11, **SMALL),
    "pynq_z1": PRESETS["pynq_z1"].replace(wgt_bytes=1 << 11, **SMALL),
    "functions": TINY.replace(
        name="functions", ppu_lanes=2, tables=1, extensions=TINY.extensions | {"lookup", "lane_reduce"}
    ),
}
ENTRIES = 4  # that are used of each scratchpad, so that most issues meet a hazard
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
        self.tables = self.rng.integers(-300, 300, (cfg.tables, 256)).astype(np.int32)
        # accumulators that differ between the banks
        count = max(cfg.acc_banks, 2)
        self.used = [k + bank * cfg.acc_depth // count for k in range(ENTRIES // count) for bank in range(count)]

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
            self.state.sums.settle_all()
        self.words.append(int(words[0, 0]) | int(words[0, 1]) << 64)
        self.records.append(f)

    def load(self, mem, sram_base=0, dram_base=0, y_size=1, x_size=1, **fields):
        size = {"y_size": y_size, "x_size": x_size, "x_stride": x_size}
        self.add(Op.LOAD, mem=int(mem), sram_base=sram_base, dram_base=dram_base, **size, **fields)

    async def source(self, ctx):
        """The compute queue."""
        await put(ctx, self.dut.cmd, [{"insn": word, "index": k} for k, word in enumerate(self.words)])

    def memory(self, slow=0.0):
        """Answers the mover's requests."""
        return answers(self.dut, self.dram, gives=lambda: not self.closed and self.rng.random() >= slow)

    async def fill(self, ctx):
        """Inputs and weights, random, into scratchpads and model."""
        lanes = {Mem.INP: self.state.inp, Mem.WGT: self.state.wgt}
        for mem, pad in self.pads.items():
            bits = {Mem.INP: self.cfg.inp_bits, Mem.WGT: self.cfg.wgt_bits}[mem]
            rows = len(lanes[mem]) // depth(self.cfg, mem)
            for at in range(ENTRIES):
                await fill_entry(ctx, pad.write, at, pack(lanes[mem][at * rows : (at + 1) * rows], bits))

        entries = {at: self.par[at, :, :3] for at in range(ENTRIES if "rescale" in self.cfg.extensions else 0)}
        if "lookup" in self.cfg.extensions:
            parts = [part for values in self.tables for part in pack_table(values, self.cfg)]
            entries |= {self.cfg.par_entries + k: part for k, part in enumerate(parts)}
        for at, words in entries.items():
            await fill_entry(ctx, self.dut.write_par, at, pack(words))

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
        self.state.tables[...] = self.tables

    async def read_back(self, ctx):
        """All accumulators in use, as STORE reads them."""
        store = self.dut.store
        for at in range(self.cfg.acc_depth):
            if at not in self.used and not self.state.acc[at].any():
                continue
            assign(ctx, store, addr=at, en=1)
            await ctx.tick().until(store.ready)
            ctx.set(store.en, 0)
            want = self.state.acc[at].reshape(-1)
            assert unpack(ctx.get(store.data), len(want)) == want.tolist(), f"accumulator {at}"

    async def tokens(self, ctx):
        """A test's own observer."""

    async def clock(self, ctx):
        """Counts cycles."""
        while True:
            await ctx.tick()
            self.cycles += 1


def run(bench, slow=0.0, cycles=2200):
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
        more = [AluOp.RESCALE] * 2 if "rescale" in cfg.extensions else []
        more += [AluOp.LOOKUP, AluOp.REDUCE] * 2 if "lookup" in cfg.extensions else []
        op = r.choice([AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.SHR, AluOp.MUL, *more])
        ranges = {
            AluOp.SHR: (-40, 40),
            AluOp.RESCALE: (0, ENTRIES),
            AluOp.LOOKUP: (0, cfg.tables),
            AluOp.REDUCE: (0, 2),
        }
        low, high = ranges.get(op, (-(1 << 15), 1 << 15))
        second = {"alu_op": int(op), "use_imm": int(r.integers(0, 2) or op in more)}
        second["imm"] = int(r.integers(low, high))
        bench.add(Op.ALU, **random_loops(bench, uops, uops), **second, **flags)
    elif kind == "load":
        pads = {"y_pad_0": int(r.integers(0, 2)), "x_pad_0": int(r.integers(0, 2))}
        at = int(r.choice(bench.used[:2]))
        bench.load(Mem.ACC, at, int(r.integers(0, 8)), 1, int(r.integers(0, 3)), **pads, **flags)
    else:
        bench.load(Mem.UOP, x_size=0, **flags)


def prepared(name, triples, seed=5):
    """A bench whose micro-ops are `triples` and whose accumulators in use hold random values."""
    bench = Bench(CONFIGS[name], seed)
    bench.randomize()
    bench.uops(triples)
    bench.load(Mem.UOP, x_size=len(triples))
    for k, at in enumerate(bench.used):
        bench.load(Mem.ACC, at, 8 + k)
    return bench
