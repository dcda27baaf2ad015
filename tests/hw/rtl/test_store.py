"""hw/rtl/store.py and store_data.py: stores and their post-processing, with random stalls."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring

from tests.hw.bench import DRAM_BYTES, Take, Watch, answers, instruction, offer, pack, put, script, simulate
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import PAR, Mem, Op
from tilewright.hw.regs import Error
from tilewright.hw.rounding import requantise
from tilewright.hw.rtl.compute.alu import Rescale
from tilewright.hw.rtl.latencies import (
    BEHIND_LATENCY,
    BURST_BEATS,
    ROW_LATENCY,
    STORE_ADDRESS_LATENCY,
    STORE_DATA_LATENCY,
    groups,
    ppu_latency,
    quantised_data_latency,
)
from tilewright.hw.rtl.store import Store, StoreOrder
from tilewright.hw.rtl.store_data import Ppu
from tilewright.sim.random_programs import random_parameters

TINY = PRESETS["tiny"]

CONFIGS = {
    "tiny": TINY,
    "vta": PRESETS["vta"],
    "narrow": TINY.replace(axi_bits=32, out_bits=4, extensions=[]),
    "wide": TINY.replace(axi_bits=256, extensions=[]),
    "odd": Config(batch=2, block_in=8, block_out=4, wgt_bits=4, inp_bytes=1 << 12, wgt_bytes=1 << 12, acc_bytes=4096),
    "one lane": TINY.replace(ppu_lanes=1),
    "lanes over channels": TINY.replace(batch=4, ppu_lanes=8, inp_bytes=1 << 12, acc_bytes=1 << 13),
    "several entries in a beat": TINY.replace(axi_bits=128, ppu_lanes=4),
}


def command(cfg, index, kind="STORE", **fields):
    op, mem = {"STORE": (Op.STORE, Mem.OUT), "STOREQ": (Op.STORE, Mem.OUTQ), "LOAD": (Op.LOAD, Mem.PAR)}[kind]
    return {"insn": instruction(cfg, kind, op=op, mem=mem, **fields), "index": index}


def fields_of(cfg, rng):
    f = {"x_size": int(rng.integers(0, 7)), "y_size": int(rng.integers(0, 5))}
    f["x_stride"] = f["x_size"] if rng.random() < 0.4 else int(rng.integers(0, 12))
    last = DRAM_BYTES // cfg.out_entry_bytes - 60
    f |= {"sram_base": int(rng.integers(0, 100)), "dram_base": int(rng.integers(0, last))}
    return f | {"pop_prev": int(rng.random() < 0.3), "push_prev": int(rng.random() < 0.3)}


def mixed(cfg, rng):
    """(kind, fields) of a STORE, or with extension `requant` of a STORE or LOAD with parameters."""
    kind = str(rng.choice(["STORE", "STOREQ", "LOAD"], p=[0.3, 0.5, 0.2])) if "requant" in cfg.extensions else "STORE"
    f = fields_of(cfg, rng)
    if kind == "STOREQ":
        f |= {"par_base": int(rng.integers(0, cfg.par_entries - 4)), "par_step": int(rng.integers(0, 2))}
    if kind == "LOAD":
        f |= {"x_size": int(rng.integers(0, 3)), "y_size": int(rng.integers(0, 3))}
        f |= {"sram_base": int(rng.integers(0, 4)), "dram_base": int(rng.integers(0, 10))}
        f |= {"x_pad_0": 3, "y_pad_1": 2}  # PAR has none
    return kind, f


def rows_of(kind, f):
    """(row, column, entry in DRAM) of every entry that is moved."""
    for y in range(f["y_size"]):
        for x in range(f["x_size"]):
            yield y, y * f["x_size"] + x, f["dram_base"] + y * f["x_stride"] + x


def expected(cfg, acc, commands, dram, source):
    """What `commands`, (kind, fields), make of `dram`; `source` are the PAR entries, (entries, block_out, 3)."""
    par = np.zeros((cfg.par_entries, cfg.block_out, 3), np.uint32)
    for kind, f in commands:
        for y, k, to in rows_of(kind, f):
            if kind == "LOAD":
                par[f["sram_base"] + k] = source[to]
                continue
            entry = acc[f["sram_base"] + k]
            if kind == "STOREQ":
                entry = quantised(cfg, entry, par[f["par_base"] + y * f["par_step"]])
            low, at = pack(entry, cfg.out_bits), to * cfg.out_entry_bytes
            dram[at : at + cfg.out_entry_bytes] = np.frombuffer(low.to_bytes(cfg.out_entry_bytes, "little"), "u1")


def quantised(cfg, entry, par):
    """int8 of an accumulator entry under `par`, uint32 (block_out, 3)."""
    words = np.zeros((cfg.block_out, 4), np.uint32)
    words[:, :3] = par
    p = {name: np.tile(column, cfg.batch) for name, column in PAR.decode(words.view(np.uint64)).items()}
    total = (entry.astype(np.int64) + p["bias"]).astype(np.int32)
    return requantise(total, p["multiplier"], p["exponent"], p["zero_point"], p["low"], p["high"], p["mode"])


def complete(cfg):
    """(module, store unit, multipliers): the store unit with the multipliers that are in the compute unit, or None."""
    m, dut = Module(), Store(cfg)
    m.submodules.dut = dut
    if "requant" not in cfg.extensions:
        return m, dut, None
    m.submodules.rescale = rescale = Rescale(cfg)
    wiring.connect(m, dut.requantise, rescale.ppu)
    wiring.connect(m, dut.write_par, rescale.write)
    return m, dut, rescale


def parameters(dut, rescale, source, rng=None):
    """Answer the requests for PAR; the ALU multiplies in between."""

    async def multiply(ctx):
        while True:
            ctx.set(rescale.alu.en, int(rng is not None and rng.random() < 0.4))
            await ctx.tick()

    return [answers(dut, source.reshape(-1).view(np.uint8)), multiply]


def accumulators(dut, acc, rng):
    async def bench(ctx):
        while True:
            ctx.set(dut.acc.ready, int(rng is None or rng.random() < 0.7))
            _, _, en, ready, addr = await ctx.tick().sample(dut.acc.en, dut.acc.ready, dut.acc.addr)
            if en and ready:
                data = acc[addr % len(acc)].astype("<i4").tobytes()
                ctx.set(dut.acc.data, int.from_bytes(data, "little"))

    return bench


def memory(dut, dram, rng=None, broken=(), latency=8, log=None):
    """Takes addresses and data, checks the rules, answers in order; data becomes visible with the answer."""
    size, axi = dut.cfg.axi_bits // 8, dut.axi

    async def bench(ctx):
        bursts, beats, answers, cycle = [], [], [], 0  # data may come before their address
        while True:
            for ready in (axi.awready, axi.wready):
                ctx.set(ready, int(rng is None or rng.random() < 0.6))
            answer = bool(answers) and answers[0][0] <= cycle
            ctx.set(axi.bvalid, int(answer))
            ctx.set(axi.bresp, 2 * int(answer and answers[0][1] in broken))
            names = ("awvalid", "awready", "awaddr", "awlen", "wvalid", "wready", "wdata", "wstrb", "wlast", "bready")
            _, _, *values = await ctx.tick().sample(*(getattr(axi, name) for name in names))
            s = dict(zip(names, values))
            if s["awvalid"] and s["awready"]:
                assert s["awaddr"] % size == 0
                assert s["awaddr"] // size % BURST_BEATS + s["awlen"] < BURST_BEATS
                bursts.append([s["awaddr"], s["awlen"] + 1, s["awaddr"]])
            if s["wvalid"] and s["wready"]:
                beats.append((s["wdata"], s["wstrb"], s["wlast"]))
                if log is not None:
                    log.append(cycle)
            while beats and bursts:
                (data, strobes, last), burst = beats.pop(0), bursts[0]
                burst[1] -= 1
                assert last == (burst[1] == 0)
                assert strobes
                for k in range(size):
                    if strobes >> k & 1:
                        dram[burst[0] + k] = data >> 8 * k & 255
                burst[0] += size
                if not burst[1]:
                    answers.append((cycle + latency, bursts.pop(0)[2]))
            if answer and s["bready"]:
                answers.pop(0)
            cycle += 1

    return bench


def stored(cfg, commands, cycles, *, acc=None, par=None, rng=None, broken=(), watch=(), steps=None):
    """The store unit after `commands`, or after the testbench `steps`: (unit, cycles with data on the bus, the fault).

    All accumulators and parameters are zero unless given; `watch` makes testbenches that see the unit.
    """
    (module, dut, rescale), log, fault = complete(cfg), [], []

    async def until_idle(ctx):
        await put(ctx, dut.cmd, commands)
        while not ctx.get(dut.idle):
            await ctx.tick()
        fault.extend((ctx.get(dut.fault.code), ctx.get(dut.fault.index)))

    acc = np.zeros((cfg.acc_depth, cfg.lanes)) if acc is None else acc
    dram = np.zeros(DRAM_BYTES, np.uint8)
    background = [accumulators(dut, acc, rng), memory(dut, dram, broken=broken, log=log)]
    if rescale:
        background += parameters(dut, rescale, np.zeros((4, cfg.block_out, 3), np.uint32) if par is None else par, rng)
    background += [each(dut) for each in watch]
    simulate(module, *(steps(dut) if steps else [until_idle]), background=background, cycles=cycles)
    return dut, log, tuple(fault)


@pytest.mark.circuit
@pytest.mark.parametrize("name", CONFIGS)
def test_random_stores(rng, name):
    cfg = CONFIGS[name]
    (module, dut, rescale), lanes = complete(cfg), cfg.lanes
    acc = rng.integers(-(1 << 31), 1 << 31, (cfg.acc_depth, lanes)) >> rng.integers(0, 24, (cfg.acc_depth, lanes))
    commands = [mixed(cfg, rng) for _ in range(15)]
    source_of_par = random_parameters(cfg, rng, 32).astype(np.uint32)
    if rescale:
        commands.insert(0, ("LOAD", {"x_size": 8, "y_size": 1, "x_stride": 8, "dram_base": 3, "sram_base": 0}))
    todo = [{"pop_prev": 0, "push_prev": 0} | f for _, f in commands]
    dram = rng.integers(0, 256, DRAM_BYTES, np.uint8)
    want = dram.copy()
    expected(cfg, acc, commands, want, source_of_par)

    async def source(ctx):
        await put(ctx, dut.cmd, [command(cfg, k, kind, **f) for k, (kind, f) in enumerate(commands)], rng)
        while not ctx.get(dut.idle):
            await ctx.tick()

    async def gives(ctx):
        for _ in range(sum(f["pop_prev"] for f in todo)):
            ctx.set(dut.from_compute.valid, 1)
            await ctx.tick().until(dut.from_compute.ready)
            ctx.set(dut.from_compute.valid, int(rng.random() < 0.5))
            if not ctx.get(dut.from_compute.valid):
                await ctx.tick()
        ctx.set(dut.from_compute.valid, 0)

    async def takes(ctx):
        for _ in range(sum(f["push_prev"] for f in todo)):
            ctx.set(dut.to_compute.ready, 0)
            while rng.random() < 0.5:
                await ctx.tick()
            ctx.set(dut.to_compute.ready, 1)
            await ctx.tick().until(dut.to_compute.valid)
        ctx.set(dut.to_compute.ready, 0)

    background = [accumulators(dut, acc, rng), memory(dut, dram, rng)]
    background += parameters(dut, rescale, source_of_par, rng) if rescale else []
    simulate(module, source, gives, takes, background=background, cycles=1500)
    assert np.array_equal(dram, want)


def test_one_beat_per_cycle_from_instruction_to_instruction():
    cfg = PRESETS["vta"]
    commands = [command(cfg, k, x_size=8, y_size=2, x_stride=9, dram_base=64 * k) for k in range(6)]
    _, log, _ = stored(cfg, commands, 500)
    assert log[0] == ROW_LATENCY + STORE_DATA_LATENCY
    assert STORE_ADDRESS_LATENCY <= STORE_DATA_LATENCY
    assert log[-1] - log[0] == len(log) - 1 == 6 * 32 - 1


def test_a_load_behind_open_writes_is_known_a_cycle_late():
    dut = StoreOrder(TINY)
    rows = [
        ({"stored": 1, "row": 1, "sending": 1, "addr": 8, "beats": 4}, {}),
        ({"stored": 0, "row": 0}, {}, 3),
        ({"sending": 0}, {}, 0),
    ]
    for first, may in ((11, 0), (12, 1), (11, 0)):
        rows += [
            ({"first": first, "waits": 0}, {"may": 0}, 0),
            ({}, {}, BEHIND_LATENCY),
            ({"waits": 1}, {"may": may}, 0),
        ]
    simulate(dut, script(dut, *rows, ({"answered": 1}, {}), ({}, {"may": 1}, 0)))


@pytest.mark.circuit
def test_requantising_takes_no_longer():
    """One beat per cycle, in full bursts where rows are adjacent though their parameters differ."""
    cfg, lengths = PRESETS["pynq_z1"], []
    shape = {"x_size": 4, "y_size": 8, "x_stride": 4, "par_step": 3}
    commands = [command(cfg, k, "STOREQ", dram_base=64 * k, **shape) for k in range(4)]

    def watch(dut):
        lengths.append(Watch(dut.axi.awvalid & dut.axi.awready, dut.axi.awlen))
        return lengths[0]

    _, log, _ = stored(cfg, commands, 600, watch=[watch])
    assert log[0] == ROW_LATENCY + quantised_data_latency(cfg)
    assert log[-1] - log[0] == len(log) - 1 == 4 * 64 - 1
    assert [length + 1 for sent, length in lengths[0].rows if sent] == [16] * 16


@pytest.mark.circuit
@pytest.mark.parametrize("cfg", [TINY, CONFIGS["lanes over channels"]])
def test_parameters_beyond_the_scratchpad_are_a_fault(rng, cfg):
    """Row 2 of the second instruction."""
    shape = {"x_size": 2, "y_size": 3, "x_stride": 2, "par_base": cfg.par_entries - 3}
    commands = [command(cfg, k, "STOREQ", par_step=k + 1, dram_base=8 * k, **shape) for k in range(3)]
    assert stored(cfg, commands, 400, rng=rng)[2] == (Error.RANGE, 1)


@pytest.mark.parametrize(
    ("fields", "broken", "code"),
    [({"dram_base": 0}, (0,), Error.WRITE_RESPONSE), ({"sram_base": 127, "x_size": 2}, (), Error.RANGE)],
)
def test_faults_name_the_instruction(fields, broken, code):
    commands = [command(TINY, k, x_size=1, y_size=1, dram_base=64 * k + 64) for k in range(3)]
    commands[1] = command(TINY, 1, **{"x_size": 1, "y_size": 1, "dram_base": 900} | fields)
    assert stored(TINY, commands, 400, broken=broken)[2] == (code, 1)


def test_after_halt_bursts_that_are_out_are_completed():
    cfg = PRESETS["vta"]
    one = command(cfg, 0, x_size=200, y_size=1, x_stride=200, push_prev=1)

    def steps(dut):
        async def bench(ctx):
            await put(ctx, dut.cmd, [one])
            await ctx.tick().repeat(12)
            assert not ctx.get(dut.idle)
            ctx.set(dut.halt, 1)
            while not ctx.get(dut.idle):
                await ctx.tick()
            assert not ctx.get(dut.to_compute.valid)
            await ctx.tick()
            assert ctx.get(dut.idle)

        return [bench]

    _, log, _ = stored(cfg, [], 500, steps=steps)
    assert 0 < len(log) < 400 and len(log) % 16 == 0


@pytest.mark.circuit
def test_tokens_of_both_neighbours_together():
    """With unit ternary a STORE waits for both, and gives both in one cycle; LOAD of PAR gives them as well."""
    cfg = PRESETS["tiny_two"]
    flags = dict.fromkeys(("pop_prev", "pop_next", "push_prev", "push_next"), 1)
    one = {"x_size": 1, "y_size": 1}
    commands = [command(cfg, 0, **one, **flags), command(cfg, 1, "LOAD", **one, push_next=1), command(cfg, 2, **flags)]
    given = []

    def watch(dut):
        given.append(Watch(dut.to_compute.valid & dut.to_compute.ready, dut.to_ternary.valid & dut.to_ternary.ready))
        return given[0]

    def steps(dut):
        rows = [
            ({"from_compute.valid": 1}, {}, 5),
            ({}, {"activity.token_wait": 1, "from_compute.ready": 0}, 0),
            ({"from_ternary.valid": 1}, {"from_compute.ready": 1, "from_ternary.ready": 1}, 0),
            ({"to_ternary.ready": 1}, {"to_ternary.valid": 0}, 40),  # the compute channel is full
            ({"to_compute.ready": 1}, {}, 60),
            ({}, {"idle": 1}, 0),
        ]
        return [offer(dut.cmd, commands), script(dut, *rows)]

    stored(cfg, [], 300, watch=[watch], steps=steps)
    assert [row for row in given[0].rows if any(row)] == [(1, 1), (0, 1), (1, 1)]


PPU_CONFIGS = {
    "one group": TINY,
    "two groups": TINY.replace(ppu_lanes=2),
    "four groups": TINY.replace(ppu_lanes=1),
    "batch": TINY.replace(batch=2, ppu_lanes=4, inp_bytes=1 << 12, acc_bytes=1 << 13),
}

TAG = data.StructLayout({"part": 3, "ends": 1})


def built(cfg):
    """(module, unit, multipliers); all parameters are zero, so that outputs are the zero points: 0."""
    m, dut, rescale = Module(), Ppu(cfg, tag=TAG), Rescale(cfg)
    m.submodules.dut, m.submodules.rescale = dut, rescale
    wiring.connect(m, dut.port, rescale.ppu)
    return m, dut, rescale


async def identity(ctx, rescale):
    """Parameters of entry 0 that leave small values as they are: one half of the multiplier's range, exponent 1."""
    channel = (1 << 30) << 32 | 1 << 63 | 128 << 77 | 127 << 85
    entry = sum(channel << 96 * c for c in range(rescale.cfg.block_out))
    for beat in range(len(rescale.write.en)):
        ctx.set(rescale.write.en, 1 << beat)
        ctx.set(rescale.write.data, entry >> beat * 64 & (1 << 64) - 1)
        await ctx.tick()
    ctx.set(rescale.write.en, 0)


@pytest.mark.parametrize("name", PPU_CONFIGS)
def test_entries_and_tags_stay_in_order(rng, name):
    cfg = PPU_CONFIGS[name]
    (module, dut, rescale), count = built(cfg), 60
    values = rng.integers(-128, 128, (count, cfg.lanes))
    tags = [{"part": int(p), "ends": int(e)} for p, e in rng.integers(0, (8, 2), (count, 2))]
    taken = Take(dut.o, count, rng)

    async def source(ctx):
        await identity(ctx, rescale)
        await put(ctx, dut.i, [{"data": pack(v), "par": 0, "tag": t} for v, t in zip(values, tags)], rng)

    async def sink(ctx):
        await taken(ctx)
        await ctx.tick()
        assert ctx.get(dut.idle)

    async def alu(ctx):
        while True:
            ctx.set(rescale.alu.en, int(rng.random() < 0.3))
            await ctx.tick()

    simulate(module, source, sink, background=[alu], cycles=3000)
    assert [item.data for item in taken.values] == [pack(v, 8) for v in values]
    assert [{"part": item.tag.part, "ends": item.tag.ends} for item in taken.values] == tags


@pytest.mark.parametrize("name", PPU_CONFIGS)
def test_latency_and_interval(name):
    cfg = PPU_CONFIGS[name]
    (module, dut, _), count = built(cfg), 40
    valid = Watch(dut.o.valid)
    source = offer(dut.i, [{"data": 0, "par": 0, "tag": {"part": 0, "ends": 0}}] * count)
    ready = script(dut, ({"o.ready": 1}, {}, ppu_latency(cfg) + count * groups(cfg)))
    simulate(module, source, ready, background=[valid], cycles=400)
    assert valid.at() == [ppu_latency(cfg) + k * groups(cfg) for k in range(count)]


def test_what_nobody_takes_is_kept():
    """The multipliers never wait, so the unit stops to begin entries in time."""
    module, dut, rescale = built(TINY)
    taken = Take(dut.o, 50)

    async def source(ctx):
        await identity(ctx, rescale)
        entries = [{"data": pack([k] * 4, 32), "par": 0, "tag": {"part": k % 8, "ends": 0}} for k in range(50)]
        await put(ctx, dut.i, entries)

    async def sink(ctx):
        await ctx.tick().repeat(100)
        await taken(ctx)

    simulate(module, source, sink, cycles=400)
    assert [(item.data, item.tag.part) for item in taken.values] == [(pack([k] * 4, 8), k % 8) for k in range(50)]
