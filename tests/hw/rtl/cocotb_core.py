"""Runs inside the simulator (see test_core_cocotb.py): random programs through AXI that stalls at random."""

import os

import cocotb
import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.hw.regs import REGISTERS, Error
from tilewright.sim.bench import Bench
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import random_case

CFG = PRESETS["tiny"]
SEEDS = range(int(os.environ["CORE_SEEDS"]))


@cocotb.test()
async def registers_answer(dut):
    bench = Bench(dut, CFG)
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
    bench = Bench(dut, CFG)
    for seed in SEEDS:
        dut._log.warning(f"seed {seed}")
        image, address, count = random_case(CFG, seed)
        expected = image.copy()
        ModelDevice(CFG).run_image(expected, address, count)
        await bench.reset(seed)
        where = np.flatnonzero(await bench.run(image, address, count) != expected)
        assert await bench.read("ERROR") == Error.NONE
        assert not len(where), f"seed {seed}: {len(where)} bytes differ, the first at {where[0]:#x}"


@cocotb.test()
async def a_missing_token_ends_in_the_watchdog_and_the_next_program_runs(dut):
    bench = Bench(dut, CFG)
    await bench.reset(3)
    image, address, count = random_case(CFG, 1)
    expected = image.copy()
    ModelDevice(CFG).run_image(expected, address, count)
    stuck = image.copy()
    stuck[address] |= 0x10  # pop_next of the first instruction, which is a load
    await bench.run(stuck, address, count)
    assert (await bench.read("ERROR"), await bench.read("ERROR_INSN")) == (Error.WATCHDOG, 0)
    assert await bench.read("CONTROL") == 6
    np.testing.assert_array_equal(await bench.run(image, address, count), expected)
    assert await bench.read("ERROR") == Error.NONE
