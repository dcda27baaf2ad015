"""hw/rtl/scratchpad.py: lanes of writes, and reads."""

import pytest

from tests.hw.bench import assign, random_bits, simulate, written
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Mem
from tilewright.hw.rtl.latencies import OPERAND_LATENCY, SCRATCHPAD_LATENCY
from tilewright.hw.rtl.ports import address_bits, entry_bits, word_bits
from tilewright.hw.rtl.scratchpad import Inputs, Scratchpad

TINY = PRESETS["tiny"]
ODD = Config(name="odd", batch=2, block_in=8, block_out=4, wgt_bits=4, wgt_bytes=1 << 10, acc_bytes=1 << 11)


@pytest.mark.parametrize("cfg", [TINY, ODD], ids=lambda c: c.name)
@pytest.mark.parametrize("mem", [Mem.UOP, Mem.INP, Mem.WGT])
def test_scratchpad(rng, cfg, mem):
    pad = Scratchpad(cfg, mem=mem)
    latency = SCRATCHPAD_LATENCY if mem == Mem.UOP else OPERAND_LATENCY
    memory, depth = {}, min(4, 1 << address_bits(cfg, mem))

    async def bench(ctx):
        shown, lanes = [None] * latency, len(pad.write.en)
        for _ in range(200):
            at, en, word = int(rng.integers(depth)), random_bits(rng, lanes), random_bits(rng, word_bits(cfg, mem))
            addr, read = int(rng.integers(depth)), int(rng.random() < 0.7)
            assign(ctx, pad.write, addr=at, en=en, data=word)
            assign(ctx, pad.read, addr=addr, en=read)
            shown = [memory.get(addr, 0) if read else shown[0], *shown[:-1]]
            memory[at] = written(cfg, mem, memory.get(at, 0), en, word)
            await ctx.tick()
            if shown[-1] is not None:
                assert ctx.get(pad.read.data) == shown[-1]

    simulate(pad, bench, cycles=300)


@pytest.mark.parametrize("block", [4, 8])
def test_inputs_with_their_neighbours(rng, block):
    """Entries from any address on, beside writes; behind the last one come the first."""
    cfg = TINY.replace(
        block_in=block, block_out=block, wgt_bytes=1 << 12, acc_bytes=1 << 12, inp_bytes=16 * block,
        axi_bits=32, extensions=TINY.extensions | {"depthwise_rows"},
    )  # fmt: skip
    pad, bits, depth = Inputs(cfg), entry_bits(cfg, Mem.INP), 16
    memory = [0] * depth

    async def bench(ctx):
        shown = [None] * OPERAND_LATENCY
        for _ in range(300):
            at, en, data = int(rng.integers(depth)), random_bits(rng, len(pad.write.en)), random_bits(rng, 32)
            addr, read = int(rng.integers(depth)), int(rng.random() < 0.7)
            assign(ctx, pad.write, addr=at, en=en, data=data)
            assign(ctx, pad.read, addr=addr, en=read)
            entries = [memory[(addr + t) % depth] for t in range(cfg.row_taps)]
            shown = [entries if read else shown[0], *shown[:-1]]
            memory[at] = written(cfg, Mem.INP, memory[at], en, data)
            await ctx.tick()
            if shown[-1] is not None:
                near = ctx.get(pad.read.near)
                found = [near >> t * bits & (1 << bits) - 1 for t in range(cfg.row_taps - 1)]
                assert [ctx.get(pad.read.data), *found] == shown[-1]

    simulate(pad, bench, cycles=400)
