"""A bench of cocotb around the core: registers and memory through cocotbext-axi, an implementation of AXI not ours.

`Bench` runs inside the simulator; `run_tests` builds the simulation and runs a module of tests in it.
"""

from __future__ import annotations

import mmap
import os
import random
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..hw.circuit import check_one_clock
from ..hw.config import Config
from ..hw.errors import ExecutionError
from ..hw.needs import need
from ..hw.regs import registers
from .rtl import verilator

_TOP = "bench"
_FLAGS = "-O3 --no-timing -Wno-fatal -Wno-lint --x-assign fast --x-initial fast --noassert --no-public-flat-rw"
FLAGS = [*_FLAGS.split(), "-CFLAGS", "-O1"]
WATCHDOG = 20_000  # cycles without progress after which a program ends
_END_MS = 20  # simulated time in which every program ends, at 10 ns per cycle


class Bench:
    """The core of `cfg` in the simulator: its handle `dut`, its registers, and memory `dram` of `size` bytes.

    `channels` are the channels of its buses, `registers` is cocotbext-axi's master.
    """

    def __init__(self, dut: Any, cfg: Config, size: int = 1 << 20):
        import cocotb
        from cocotb.clock import Clock
        from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiRamRead, AxiRamWrite, AxiReadBus, AxiWriteBus

        check_one_clock(cfg, "this bench")
        self.dut, self.cfg, self.dram = dut, cfg, mmap.mmap(-1, size)
        cocotb.start_soon(Clock(dut.clk, 10, unit="ns", impl="gpi").start())
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.channels, parts = [], [self.registers.write_if, self.registers.read_if]
        for k in range(cfg.load_ports):
            parts.append(AxiRamRead(AxiReadBus.from_prefix(dut, f"m_load{k}"), dut.clk, dut.rst, mem=self.dram))
        for k in range(cfg.store_ports):
            parts.append(AxiRamWrite(AxiWriteBus.from_prefix(dut, f"m_store{k}"), dut.clk, dut.rst, mem=self.dram))
        for part in parts:
            part.log.setLevel("WARNING")
            channels = (getattr(part, f"{name}_channel", None) for name in ("ar", "r", "aw", "w", "b"))
            self.channels += [channel for channel in channels if channel]

    async def reset(self, seed: int | None = None) -> None:
        """Reset the core for four cycles. With `seed`, every channel stalls at random from then on."""
        from cocotb.triggers import ClockCycles

        for value in (1, 0):
            self.dut.rst.value = value
            await ClockCycles(self.dut.clk, 4)
        for k, channel in enumerate(self.channels if seed is not None else ()):
            channel.set_pause_generator(pauses(f"{seed} {k}"))

    async def write(self, name: str, value: int) -> None:
        """Write a register of hw/regs.py."""
        await self.registers.write_dword(registers(self.cfg)[name].offset, value)

    async def read(self, name: str) -> int:
        """Read a register of hw/regs.py."""
        return await self.registers.read_dword(registers(self.cfg)[name].offset)

    async def run(self, image: np.ndarray, address: int, count: int) -> np.ndarray:
        """Execute `count` instructions at `address` of `image`, uint8 (n,), as memory; returns it as it is afterwards.

        What went wrong is in the registers ERROR and ERROR_INSN. Raises `ExecutionError` for an image that is larger
        than memory, and where the core hangs.
        """
        from cocotb.triggers import ClockCycles, First, RisingEdge, Timer

        if image.nbytes > len(self.dram):
            size = f"{image.nbytes:,} bytes, memory has {len(self.dram):,}"
            raise ExecutionError(f"Bench.run: the image has {size}; make the bench with size={image.nbytes}")
        self.dram[: image.nbytes] = image.tobytes()
        values = {"INSN_COUNT": count, "INSN_ADDR_LO": address, "INSN_ADDR_HI": 0, "WATCHDOG": WATCHDOG, "CONTROL": 1}
        for name, value in values.items():
            await self.write(name, value)
        await ClockCycles(self.dut.clk, 2)  # `done` falls with the edge that ends the write's response
        if not self.dut.done.value:
            ended = RisingEdge(self.dut.done)
            if await First(ended, Timer(_END_MS, "ms")) is not ended:
                raise ExecutionError(f"Bench.run: the core is not done after {_END_MS} simulated ms; see its watchdog")
        return np.frombuffer(self.dram[: image.nbytes], np.uint8)


def pauses(seed: str) -> Iterator[bool]:
    """Whether a channel pauses, cycle after cycle: at random, now and then for long."""
    rng = random.Random(seed)
    eighths = rng.randrange(8)
    while True:
        for _ in range(rng.randrange(60) if rng.randrange(200) == 0 else 1):
            yield rng.randrange(8) < eighths


def run_tests(cfg: Config, module: str, environment: Mapping[str, str] | None = None) -> int:
    """Run the tests of cocotb in `module` on the core of `cfg`; returns how many passed.

    `module` is found on sys.path; several are joined by commas. They see the variables of `environment`. The simulation
    is built once and kept; it prints a table of the tests. Raises `ExecutionError` where one fails, `UnsupportedError`
    where a tool is missing.
    """
    need("a bench of cocotb", "rtl,dev", "amaranth", "verilator", "cocotb", "cocotbext.axi")
    import cocotb_tools.config
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    from ..hw.rtl.verilog import to_verilog, top_name

    core = to_verilog(cfg)
    bench = with_ids(core, top_name(cfg), cfg)

    def build(folder: Path) -> None:
        sources = [folder / "core.v", folder / "bench.v"]
        for path, text in zip(sources, (core, bench)):
            path.write_text(text)
        made = {"hdl_toplevel": _TOP, "build_dir": folder, "timescale": ("1ns", "1ps"), "build_args": FLAGS}
        runner.build(sources=sources, **made, log_file=folder / "build.log")
        for file in folder.iterdir():
            if file.name != _TOP:
                file.unlink()

    # the program finds cocotb's libraries by their path: another installation needs another program
    libraries = str(cocotb_tools.config.libs_dir)
    key = {"sources": [core, bench], "flags": FLAGS, "libraries": libraries} | verilator.identity("cocotb")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder, _environment(verilator.environment()):
        runner = get_runner("verilator")
        built = verilator.cached("cocotb", key, build)
        with suppress(SystemExit):  # how the runner ends where the simulator does, and in pytest where a test fails
            results = runner.test(
                hdl_toplevel=_TOP,
                hdl_toplevel_lang="verilog",
                test_module=module,
                build_dir=built,
                test_dir=folder,
                extra_env=dict(environment or {}),
            )
            tests, failures = get_results(results)
            if not failures:
                return tests
    raise ExecutionError(f"tests of {module} failed; what the simulator printed says why")


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables of this process, which the runner's processes inherit, for a while."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def with_ids(verilog: str, name: str, cfg: Config) -> str:
    """A module `bench` around the core `name`: cocotbext-axi needs identifiers, which the core leaves out, and lengths
    of 8 bits.

    Only its ports are visible to the simulator's interface; else every signal of the core were, at ten times the cost.
    """
    declared = re.search(rf"^module {name}\(.*?^endmodule", verilog, re.M | re.S)
    assert declared
    lines = re.findall(r"^  (input|output) (\[\d+:0\] )?(\w+);", declared[0], re.M)
    buses = [(f"m_load{k}", "ar", "r") for k in range(cfg.load_ports)]
    buses += [(f"m_store{k}", "aw", "b") for k in range(cfg.store_ports)]
    ids = [("output", "", f"{bus}_{asks}id") for bus, asks, _ in buses]
    ids += [("input", "", f"{bus}_{answers}id") for bus, _, answers in buses]
    outer = ", ".join(
        f"{way} {'[7:0] ' if port.endswith('len') else width}{port} /*verilator public_flat_rw*/"
        for way, width, port in [*lines, *ids]
    )
    inner = ", ".join(f".{port}({port}{'[3:0]' if port.endswith('len') else ''})" for _, _, port in lines)
    tied = ", ".join(f"{bus}_{asks}id = 0, {bus}_{asks}len[7:4] = 0" for bus, asks, _ in buses)
    return f"module bench({outer});\n{name} core({inner});\nassign {tied};\nendmodule\n"
