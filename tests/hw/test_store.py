"""hw/store.py: against a plain restatement, with random stalls of bus and accumulators."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.ports import BURST_BEATS
from tilewright.hw.regs import Error
from tilewright.hw.rows import PLAN_LATENCY
from tilewright.hw.store import ADDRESS_LATENCY, DATA_LATENCY, Store

TINY = PRESETS["tiny"]
CONFIGS = {
    "tiny": TINY,
    "vta": PRESETS["vta"],
    "narrow": TINY.replace(axi_bits=32, out_bits=4, extensions=[]),
    "wide": TINY.replace(axi_bits=256, extensions=[]),
    "odd": Config(batch=2, block_in=8, block_out=4, wgt_bits=4, inp_bytes=1 << 12, wgt_bytes=1 << 12, acc_bytes=4096),
}
DRAM_BYTES = 1 << 14


def command(cfg, index, **fields):
    low, high = Isa(cfg).formats["STORE"].encode(op=Op.STORE, mem=Mem.OUT, **fields)[0]
    return {"insn": int(low) | int(high) << 64, "index": index}


def fields_of(cfg, rng):
    f = {"x_size": int(rng.integers(0, 7)), "y_size": int(rng.integers(0, 5))}
    f["x_stride"] = f["x_size"] if rng.random() < 0.4 else int(rng.integers(0, 12))
    last = DRAM_BYTES // cfg.out_entry_bytes - 60
    f |= {"sram_base": int(rng.integers(0, 100)), "dram_base": int(rng.integers(0, last))}
    return f | {"pop_prev": int(rng.random() < 0.3), "push_prev": int(rng.random() < 0.3)}


def expected(cfg, acc, commands, dram):
    mask = (1 << cfg.out_bits) - 1
    for f in commands:
        for y in range(f["y_size"]):
            for x in range(f["x_size"]):
                entry = acc[f["sram_base"] + y * f["x_size"] + x]
                low = sum((int(v) & mask) << k * cfg.out_bits for k, v in enumerate(entry))
                at = (f["dram_base"] + y * f["x_stride"] + x) * cfg.out_entry_bytes
                dram[at : at + cfg.out_entry_bytes] = np.frombuffer(low.to_bytes(cfg.out_entry_bytes, "little"), "u1")


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


@pytest.mark.parametrize("name", CONFIGS)
def test_random_stores(simulate, rng, name):
    cfg = CONFIGS[name]
    dut, lanes = Store(cfg), cfg.batch * cfg.block_out
    acc = rng.integers(-(1 << 31), 1 << 31, (cfg.acc_depth, lanes))
    todo = [fields_of(cfg, rng) for _ in range(25)]
    dram = rng.integers(0, 256, DRAM_BYTES, np.uint8)
    want = dram.copy()
    expected(cfg, acc, todo, want)

    async def source(ctx):
        await simulate.put(ctx, dut.cmd, [command(cfg, k, **f) for k, f in enumerate(todo)], rng)
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

    simulate(dut, source, gives, takes, background=[accumulators(dut, acc, rng), memory(dut, dram, rng)])
    assert np.array_equal(dram, want)


def test_one_beat_per_cycle_from_instruction_to_instruction(simulate):
    cfg, log = PRESETS["vta"], []
    dut, acc = Store(cfg), np.zeros((cfg.acc_depth, 16))
    commands = [command(cfg, k, x_size=8, y_size=2, x_stride=9, dram_base=64 * k) for k in range(6)]

    async def bench(ctx):
        await simulate.put(ctx, dut.cmd, commands)
        while not ctx.get(dut.idle):
            await ctx.tick()

    simulate(
        dut, bench, background=[accumulators(dut, acc, None), memory(dut, np.zeros(DRAM_BYTES, np.uint8), log=log)]
    )
    assert len(log) == 6 * 32
    assert log[0] == PLAN_LATENCY + DATA_LATENCY
    assert ADDRESS_LATENCY <= DATA_LATENCY
    assert log[-1] - log[0] == len(log) - 1


@pytest.mark.parametrize(
    ("fields", "broken", "code"),
    [({"dram_base": 0}, (0,), Error.WRITE_RESPONSE), ({"sram_base": 127, "x_size": 2}, (), Error.RANGE)],
)
def test_faults_name_the_instruction(simulate, fields, broken, code):
    dut, acc = Store(TINY), np.zeros((128, 4))
    commands = [command(TINY, k, x_size=1, y_size=1, dram_base=64 * k + 64) for k in range(3)]
    commands[1] = command(TINY, 1, **{"x_size": 1, "y_size": 1, "dram_base": 900} | fields)

    async def bench(ctx):
        await simulate.put(ctx, dut.cmd, commands)
        while not ctx.get(dut.idle):
            await ctx.tick()
        assert ctx.get(dut.fault.code) == code
        assert ctx.get(dut.fault.index) == 1

    answers = memory(dut, np.zeros(DRAM_BYTES, np.uint8), broken=broken)
    simulate(dut, bench, background=[accumulators(dut, acc, None), answers])


def test_after_halt_bursts_that_are_out_are_completed(simulate):
    cfg, log = PRESETS["vta"], []
    dut, acc = Store(cfg), np.zeros((cfg.acc_depth, 16))

    async def bench(ctx):
        await simulate.put(ctx, dut.cmd, [command(cfg, 0, x_size=200, y_size=1, x_stride=200, push_prev=1)])
        for _ in range(12):
            await ctx.tick()
        assert not ctx.get(dut.idle)
        ctx.set(dut.halt, 1)
        while not ctx.get(dut.idle):
            await ctx.tick()
        assert not ctx.get(dut.to_compute.valid)
        await ctx.tick()
        assert ctx.get(dut.idle)

    simulate(
        dut, bench, background=[accumulators(dut, acc, None), memory(dut, np.zeros(DRAM_BYTES, np.uint8), log=log)]
    )
    assert 0 < len(log) < 400
    assert len(log) % 16 == 0
