"""Runs inside the simulator (see test_core_cocotb.py): random programs through AXI that stalls at random."""

import mmap
import os
import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, First, RisingEdge, Timer
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiRamRead, AxiRamWrite, AxiReadBus, AxiWriteBus

from tilewright.hw.config import PRESETS
from tilewright.hw.regs import REGISTERS, Error
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import random_case

CFG = PRESETS[os.environ["CORE_CONFIG"]]
SEEDS = range(int(os.environ["CORE_SEEDS"]))
SIZE = 1 << 20


def pauses(seed):
    """Whether a channel pauses, cycle after cycle: at random, now and then for long."""
    rng = random.Random(seed)
    eighths = rng.randrange(8)
    while True:
        for _ in range(rng.randrange(60) if rng.randrange(200) == 0 else 1):
            yield rng.randrange(8) < eighths


class Bench:
    """The core with registers and memory attached."""

    def __init__(self, dut):
        self.dut = dut
        cocotb.start_soon(Clock(dut.clk, 10, unit="ns", impl="gpi").start())
        self.dram = mmap.mmap(-1, SIZE)
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.reads = AxiRamRead(AxiReadBus.from_prefix(dut, "m_load0"), dut.clk, dut.rst, mem=self.dram)
        self.writes = AxiRamWrite(AxiWriteBus.from_prefix(dut, "m_store0"), dut.clk, dut.rst, mem=self.dram)
        side, readback = self.registers.write_if, self.registers.read_if
        assert side and readback
        self.channels = [self.reads.ar_channel, self.reads.r_channel]
        self.channels += [self.writes.aw_channel, self.writes.w_channel, self.writes.b_channel]
        self.channels += [side.aw_channel, side.w_channel, side.b_channel, readback.ar_channel, readback.r_channel]
        for part in (self.reads, self.writes, side, readback):
            part.log.setLevel("WARNING")

    async def reset(self, seed):
        """Reset, and let every channel stall in its own way."""
        self.dut.rst.value = 1
        await ClockCycles(self.dut.clk, 4)
        self.dut.rst.value = 0
        await ClockCycles(self.dut.clk, 4)
        for k, channel in enumerate(self.channels):
            channel.set_pause_generator(pauses(100 * seed + k))

    def fill(self, image):
        """Set all of memory."""
        self.dram[:] = image.tobytes()

    def memory(self):
        """All of memory."""
        return np.frombuffer(self.dram[:], np.uint8)

    async def write(self, name, value):
        await self.registers.write_dword(REGISTERS[name].offset, value)

    async def read(self, name):
        return await self.registers.read_dword(REGISTERS[name].offset)

    async def run(self, address, count):
        """Start the program and wait for its end."""
        await self.write("INSN_COUNT", count)
        await self.write("INSN_ADDR_LO", address)
        await self.write("INSN_ADDR_HI", 0)
        await self.write("WATCHDOG", 20000)
        await self.write("CONTROL", 1)
        await ClockCycles(self.dut.clk, 2)  # `done` falls with the edge that ends the write's response
        if not self.dut.done.value:
            ended = RisingEdge(self.dut.done)
            assert await First(ended, Timer(20, "ms")) is ended, "the core is not done"


@cocotb.test()
async def registers_answer(dut):
    bench = Bench(dut)
    await bench.reset(1)
    assert await bench.read("FINGERPRINT_LO") == CFG.fingerprint & 0xFFFFFFFF
    assert await bench.read("FINGERPRINT_HI") == CFG.fingerprint >> 32
    for name in ("INSN_COUNT", "INSN_ADDR_LO", "WATCHDOG"):
        await bench.write(name, 0x89ABCDEF)
        await bench.registers.write(REGISTERS[name].offset + 1, b"\x01")  # one byte alone
        assert await bench.read(name) == 0x89AB01EF
    await bench.write("VERSION", 0)
    assert await bench.read("VERSION") >> 16 == 0x7E11


@cocotb.test()
async def random_programs_equal_the_model(dut):
    bench = Bench(dut)
    for seed in SEEDS:
        dut._log.warning(f"seed {seed}")
        image, address, count = random_case(CFG, seed)
        assert len(image) == SIZE
        expected = image.copy()
        ModelDevice(CFG).run_image(expected, address, count)
        await bench.reset(seed)
        bench.fill(image)
        await bench.run(address, count)
        assert await bench.read("ERROR") == Error.NONE
        where = np.flatnonzero(bench.memory() != expected)
        assert not len(where), f"seed {seed}: {len(where)} bytes differ, the first at {where[0]:#x}"


@cocotb.test()
async def a_missing_token_ends_in_the_watchdog_and_the_next_program_runs(dut):
    bench = Bench(dut)
    await bench.reset(3)
    image, address, count = random_case(CFG, 1)
    expected = image.copy()
    ModelDevice(CFG).run_image(expected, address, count)
    stuck = image.copy()
    stuck[address] |= 0x10  # pop_next of the first instruction, which is a load
    bench.fill(stuck)
    await bench.run(address, count)
    assert (await bench.read("ERROR"), await bench.read("ERROR_INSN")) == (Error.WATCHDOG, 0)
    assert await bench.read("CONTROL") == 6
    bench.fill(image)
    await bench.run(address, count)
    assert await bench.read("ERROR") == Error.NONE
    np.testing.assert_array_equal(bench.memory(), expected)
