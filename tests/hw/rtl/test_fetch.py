"""hw/rtl/fetch.py: order, routing, and what it refuses: what the instruction set's declaration refuses."""

import numpy as np
import pytest

from tests.hw.bench import Take, Watch, answers, assign, simulate
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import INSN_BYTES, Isa, Mem, Op
from tilewright.hw.regs import Error
from tilewright.hw.rtl.fetch import Fetch, decode
from tilewright.hw.units import units
from tilewright.sim.random_programs import ROWS

TINY = PRESETS["tiny"]
BASE = 0x1230


def words_of(cfg, count, rng):
    """A legal program without tokens."""
    formats = Isa(cfg).formats
    kinds = [("LOAD", {"mem": Mem.INP}), ("LOAD", {"mem": Mem.UOP}), ("STORE", {"mem": Mem.OUT}), ("GEMM", {})]
    rows = []
    for _ in range(count - 1):
        name, fields = kinds[int(rng.integers(0, len(kinds)))]
        size = {} if name == "GEMM" else {"x_size": int(rng.integers(0, 1 << 16))}
        rows.append(formats[name].encode(op=Op[name], **fields, **size))
    return np.concatenate([*rows, formats["FINISH"].encode(op=Op.FINISH)])


def number(row):
    return int(row[0]) | int(row[1]) << 64


def image_of(words):
    """Memory with the instructions at BASE."""
    return np.concatenate([np.zeros(BASE, np.uint8), words.view(np.uint8).reshape(-1), np.zeros(64, np.uint8)])


async def start(ctx, dut, count, addr=BASE):
    assign(ctx, dut, addr=addr, count=count, start=1)
    await ctx.tick()
    ctx.set(dut.start, 0)


@pytest.mark.parametrize("axi_bits", [32, 64, 128, 256, 512])
def test_every_instruction_reaches_its_queue_in_order(rng, axi_bits):
    cfg = TINY.replace(axi_bits=axi_bits)
    dut, words, isa = Fetch(cfg), words_of(cfg, 41, rng), Isa(cfg)
    expected = {unit.queue: [] for unit in units(cfg)}
    for k, f in enumerate(isa.decode(words)):
        expected[isa.queue(f)].append((k, number(words[k])))
    got = {u.queue: Take(getattr(dut, u.name), len(expected[u.queue]), rng) for u in units(cfg)}

    async def begin(ctx):
        await start(ctx, dut, len(words))

    memory = answers(dut, image_of(words), gives=lambda: rng.random() < 0.7)
    simulate(dut, begin, *got.values(), background=[memory])
    assert {queue: [(c.index, c.insn) for c in taken.values] for queue, taken in got.items()} == expected


def test_one_instruction_per_128_bits(rng):
    dut = Fetch(TINY)
    words = np.concatenate([np.tile(Isa(TINY).formats["GEMM"].encode(op=Op.GEMM), (20, 1)), words_of(TINY, 1, rng)])
    seen = Watch(dut.compute.valid)

    async def bench(ctx):
        ctx.set(dut.compute.ready, 1)
        await start(ctx, dut, len(words))
        while len(seen.at()) < len(words):
            await ctx.tick()
        assert ctx.get(dut.idle)

    simulate(dut, bench, background=[answers(dut, image_of(words)), seen])
    assert set(np.diff(seen.at())) == {2}


@pytest.mark.circuit
@pytest.mark.parametrize(
    ("change", "code", "index"),
    [
        ("opcode", Error.UNDECODABLE, 3),
        ("early finish", Error.UNDECODABLE, 3),
        ("no finish", Error.UNDECODABLE, 9),
        ("no instruction", Error.UNDECODABLE, 0),
        ("address", Error.RANGE, 0),
        ("bus", Error.READ_RESPONSE, 3),
    ],
)
def test_faults(rng, change, code, index):
    dut, words = Fetch(TINY), words_of(TINY, 10, rng)
    if change == "opcode":
        words[3, 0] |= np.uint64(7)
    if change == "early finish":
        words[3] = words[-1]
    if change == "no finish":
        words[-1] = words[0]
    broken = {(BASE + 3 * INSN_BYTES) // 8} if change == "bus" else ()

    async def bench(ctx):
        for unit in units(TINY):
            ctx.set(getattr(dut, unit.name).ready, 1)
        await start(ctx, dut, 0 if change == "no instruction" else 10, BASE + 8 * (change == "address"))
        await ctx.tick().repeat(60)
        assert (ctx.get(dut.fault.code), ctx.get(dut.fault.index)) == (code, index)
        assert not any(ctx.get(getattr(dut, unit.name).valid) for unit in units(TINY))

    simulate(dut, bench, background=[answers(dut, image_of(words), broken=broken)])


@pytest.mark.parametrize("cfg", [TINY, PRESETS["vta"], Config(name="plain"), ROWS], ids=lambda c: c.name)
def test_refuses_what_the_declaration_refuses(rng, cfg):
    from amaranth.hdl import Module, Signal
    from amaranth.sim import Simulator

    m, word, isa = Module(), Signal(128), Isa(cfg)
    bad, queue = decode(m, cfg, word, word[:3] == Op.FINISH)
    words = rng.integers(0, 1 << 63, (1500, 2), np.int64).astype(np.uint64)
    words[::2, 0] &= ~np.uint64(0b1111 << 3)  # half of them without flags
    words[::5, 1] &= ~np.uint64(0xFFFF << 16)  # some of them with x_size = 0
    words[::7, 0] |= np.uint64(1 << 63)
    imm = isa.formats["ALU"].fields["imm"].lo - 64
    words[::3, 1] &= ~np.uint64(0xFFFE << imm & (1 << 64) - 1)  # some of them with immediates of 0 or 1
    decoded = isa.decode(words)

    async def bench(ctx):
        for k, f in enumerate(decoded):
            ctx.set(word, number(words[k]))
            refused = isa.undecodable(f) is not None
            assert ctx.get(bad) == refused, isa.disassemble(f)
            if not refused:
                assert ctx.get(queue) == isa.queue(f)
            await ctx.delay(1e-9)

    sim = Simulator(m)
    sim.add_testbench(bench)
    sim.run()
