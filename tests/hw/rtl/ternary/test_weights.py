"""hw/rtl/ternary.py: what is written, in the code of the dot products."""

from amaranth.hdl import Signal
from amaranth.sim import Simulator

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.latencies import OPERAND_LATENCY
from tilewright.hw.rtl.ternary import Weights, coded

TWO = PRESETS["tiny_two"]


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
