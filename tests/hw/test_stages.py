"""hw/stages.py: the figures of the documentation are those of the modules, whose own tests measure them."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.rtl.latencies import NOTHING_LATENCY
from tilewright.hw.rtl.load import Load
from tilewright.hw.stages import load_interval, stages, table


@pytest.mark.parametrize("cfg", PRESETS.values(), ids=lambda cfg: cfg.name)
def test_every_stage_has_a_latency_and_an_interval(cfg):
    assert all(s.latency >= 1 and s.interval >= 1 for s in stages(cfg))
    assert len(table(cfg).splitlines()) == len(stages(cfg)) + 2


def test_intervals_of_loads():
    vta, tiny = PRESETS["vta"], PRESETS["tiny"]
    assert [load_interval(vta, mem) for mem in (Mem.UOP, Mem.WGT, Mem.INP, Mem.ACC, Mem.ACC8)] == [1, 32, 2, 8, 2]
    assert [load_interval(tiny, mem) for mem in (Mem.UOP, Mem.WGT, Mem.INP, Mem.ACC, Mem.ACC8)] == [1, 2, 1, 2, 1]
    two = vta.replace(load_ports=2)
    assert [load_interval(two, mem) for mem in (Mem.UOP, Mem.WGT, Mem.INP, Mem.ACC)] == [1, 16, 1, 8], "from both ports"
    assert [load_interval(cfg, Mem.PAR) for cfg in (PRESETS["pynq_z1"], tiny)] == [24, 6]


def test_latency_of_a_nop(simulate):
    dut = Load(PRESETS["tiny"])
    low, high = Isa(dut.cfg).formats["LOAD"].encode(op=Op.LOAD, mem=Mem.INP, push_next=1)[0]

    async def bench(ctx):
        ctx.set(dut.cmd.payload.insn, int(low) | int(high) << 64)
        ctx.set(dut.cmd.valid, 1)
        await ctx.tick()
        ctx.set(dut.cmd.valid, 0)
        cycles = 1
        while not ctx.get(dut.to_compute.valid):
            await ctx.tick()
            cycles += 1
        assert cycles == NOTHING_LATENCY

    simulate(dut, bench)
