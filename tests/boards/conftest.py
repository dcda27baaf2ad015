"""A board without a board: what pynq offers, with the simulated circuit behind registers and memory.

CPU caches and DRAM are apart: a buffer is what the CPU sees; the circuit sees the DRAM, and only flush and invalidate
copy between them. What the CPU wrote and did not flush reaches the DRAM when the circuit has ended: too late, and over
its results, as evicted cache lines do. Memory starts as garbage on both sides.
"""

from typing import Any

import numpy as np
import pytest

from tilewright.boards.netlist import Netlist, read
from tilewright.boards.zynq.board import load_board
from tilewright.hw.config import ISA_VERSION, PRESETS, Config
from tilewright.hw.isa import AluOp, Mem
from tilewright.hw.regs import MAGIC, REGISTERS
from tilewright.runtime.program import Program
from tilewright.sim.model.device import ModelDevice

PYNQ_Z1 = load_board()
AT = {register.offset: name for name, register in REGISTERS.items()}
DDR = 1 << 29
FIRST = 0x1000_0000  # address of the first buffer
STEP = 20_000  # cycles between two looks at CONTROL


class Buffer(np.ndarray):
    """The CPU's view of one contiguous buffer; like XRT's, it is synchronised as a whole."""

    board: Any
    device_address: Any

    def __array_finalize__(self, other):
        self.board = getattr(other, "board", None)
        self.device_address = getattr(other, "device_address", None)

    def flush(self):
        self.board.sync(self, to_dram=True)

    def invalidate(self):
        self.board.sync(self, to_dram=False)

    def freebuffer(self):
        del self.board.buffers[self.device_address]


class Modelled:
    """What `sim.rtl.Simulation` offers, by the behavioural model: a program is done at the first look."""

    def __init__(self, cfg: Config):
        self.model = ModelDevice(cfg)
        self.image = np.zeros(0, np.uint8)
        self.values = dict.fromkeys(REGISTERS, 0) | {"VERSION": MAGIC << 16 | ISA_VERSION}
        self.values |= {"FINGERPRINT_LO": cfg.fingerprint & 0xFFFFFFFF, "FINGERPRINT_HI": cfg.fingerprint >> 32}

    def use(self, image):
        self.image = image

    def reset(self):
        self.values["CONTROL"] = 0

    def read(self, name):
        return self.values[name]

    def write(self, name, value):
        self.values[name] = value if name != "CONTROL" else value & 1

    def run(self, cycles):
        self.model.run_image(self.image, self.values["INSN_ADDR_LO"], self.values["INSN_COUNT"])
        self.values["CONTROL"] = 2
        return True


class FakePynq:
    """`pynq`, with the circuit of `cfg` behind it; `faults` are addresses that answer with a bus error.

    `calls` tells what was used. `dead`: the core never ends a run; `deaf`: it ignores a reset too. `missing` are names
    of operations that do nothing: mutations. `library` is another simulation with the ports of a core; with
    `modelled` the behavioural model is in the circuit's place.
    """

    def __init__(
        self,
        cfg: Config,
        *,
        base: int = PYNQ_Z1.base,
        faults=(1, 0),
        missing=(),
        contiguous=64 << 20,
        library=None,
        modelled=False,
    ):
        self.base, self.missing, self.contiguous = base, missing, contiguous
        self.ddr = np.zeros(DDR, np.uint8)  # the kernel gives its pages when they are touched
        self.sim = Modelled(cfg) if modelled else _simulation(library, cfg, faults)
        self.sim.use(self.ddr)
        self.buffers: dict[int, tuple[Buffer, np.ndarray]] = {}
        self.calls: list[str] = []
        self.dead = self.deaf = self.resetting = False
        self.set_up: dict[int, int] = {}  # registers of the processing system that were written
        self.wrong: dict[str, int] = {}  # registers that read as something else
        self.dawdle = 0  # looks at CONTROL of a run that see it running
        self.top = FIRST
        self.Clocks = Clocks()

    def Bitstream(self, name, dtbo=None, partial=False, device=None):
        assert type(name) is str
        return Download(self, name)

    def MMIO(self, base_addr, length=4, device=None):
        assert "download" in self.calls, "registers before the bitstream is loaded: the CPU would hang"
        assert length % 4096 == 0
        if base_addr != self.base:
            return PortSettings(self, base_addr)
        return Registers(self)

    def allocate(self, shape, dtype="u4", target=None, **kwargs):
        assert "download" in self.calls, "XRT knows no memory before a bitstream is loaded"
        n = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if sum(len(view) for view, _ in self.buffers.values()) + n > self.contiguous:
            raise RuntimeError("BO allocation failed")
        buffer = np.full(n, 0x5A, np.uint8).view(Buffer)
        buffer.board, buffer.device_address = self, self.top
        self.ddr[self.top : self.top + n] = 0xA5
        self.buffers[self.top] = buffer, np.array(buffer)
        self.top += -(-n // 4096) * 4096 + 4096
        return buffer

    def sync(self, view, to_dram):
        name = "flush" if to_dram else "invalidate"
        self.calls.append(name)
        if name in self.missing:
            return
        buffer, clean = self.buffers[view.device_address]
        at = slice(view.device_address, view.device_address + len(buffer))
        if to_dram:
            self.ddr[at] = buffer
        else:
            buffer[:] = self.ddr[at]
        clean[:] = buffer

    def evict(self):
        for address, (buffer, clean) in self.buffers.items():
            dirty = np.flatnonzero(buffer != clean)
            self.ddr[address + dirty] = buffer[dirty]
            clean[:] = buffer


def _simulation(library, cfg, faults):
    from tilewright.sim.rtl.device import Simulation, build_core, load_library

    return Simulation(load_library(library or build_core(cfg)), faults=faults)


class Clocks:
    fclk0 = 50.0
    divides_to = staticmethod(lambda mhz: mhz)

    @property
    def fclk0_mhz(self):
        return self.fclk0

    @fclk0_mhz.setter
    def fclk0_mhz(self, mhz):
        self.fclk0 = self.divides_to(mhz)


class Download:
    def __init__(self, board, name):
        self.board, self.name = board, name

    def download(self):
        self.board.calls.append("download")
        self.board.dead = self.board.deaf = False
        self.board.sim.reset()


class PortSettings:
    """Registers of a memory port; the boot software has left it 32 bits wide."""

    def __init__(self, board, base):
        self.board, self.base = board, base

    def read(self, offset=0, length=4):
        return self.board.set_up.get(self.base + offset, 0x3B2)

    def write(self, offset, data):
        self.board.set_up[self.base + offset] = data


class Registers:
    def __init__(self, board):
        self.board = board

    def read(self, offset=0, length=4):
        board, name = self.board, AT[offset]
        if name in board.wrong:
            return board.wrong[name]
        if board.dead:
            if name == "CONTROL":
                board.sim.run(STEP)  # time goes by for the circuit, too: it drains its buses
            return 0 if name != "CONTROL" or (board.resetting and not board.deaf) else 1
        if name == "CONTROL" and board.dawdle:
            board.dawdle -= 1
            return 1
        if name == "CONTROL" and board.sim.read("CONTROL") & 1 and board.sim.run(STEP):
            board.evict()
        return board.sim.read(name)

    def write(self, offset, data):
        if type(data) is not int:
            raise ValueError("Data type must be int or bytes.")
        if AT[offset] == "CONTROL":
            self.board.resetting = bool(data & 2)
            self.board.calls.append("reset" if data & 2 else "start")
        self.board.sim.write(AT[offset], data)


@pytest.fixture
def fake_pynq():
    """The class; the circuit is built when the first is made."""
    return FakePynq


@pytest.fixture
def powered(tmp_path):
    """Makes (driver, fake board) of a configuration: `powered(cfg, timeout=2)`.

    The circuit is that of `circuit`; the behavioural model of `cfg` is in its place where none is named.
    """
    from tilewright.boards.zynq.driver import PynqDevice

    def make(
        cfg=PRESETS["tiny"],
        *,
        circuit=None,
        fake=None,
        meminfo="CmaTotal: 131072 kB\nCmaFree: 65536 kB\n",
        handoff=None,
        **options,
    ):
        (tmp_path / "x.bit").write_bytes(b"bits")
        if handoff:
            (tmp_path / "x.hwh").write_bytes(handoff.read_bytes())
        (tmp_path / "meminfo").write_text(f"MemTotal: 500000 kB\n{meminfo}")
        settings = {"modelled": circuit is None and "library" not in (fake or {})} | (fake or {})
        board = FakePynq(circuit or cfg, **settings)
        options = {"bitstream": tmp_path / "x.bit", "watchdog": 2000, **options}
        return PynqDevice(cfg, pynq=board, meminfo=tmp_path / "meminfo", **options), board

    return make


@pytest.fixture
def double():
    """Records y = x + x over 8 entries of a configuration: 32-bit accumulators in, the low bits out."""

    def make(cfg: Config = PRESETS["tiny"]):
        p = Program(cfg, "double")
        x = p.buffer("x", (8, cfg.batch, cfg.block_out), 32)
        y = p.buffer("y", (8, cfg.batch, cfg.block_out), cfg.out_bits, kind="output")
        p.load(Mem.ACC, 0, x, 0, x_size=8)
        p.alu(AluOp.ADD, [(8, 1, 1)])
        p.store(0, y, 0, x_size=8)
        return p.finish()

    return make


def behind_pynq(board: FakePynq):
    """(module, device): pynq's own MMIO, allocate and buffers, with `board` as the device below them."""
    import ctypes
    from types import SimpleNamespace

    pynq = pytest.importorskip("pynq")
    PynqBuffer = pytest.importorskip("pynq.buffer").PynqBuffer

    class Twin(pynq.Device):
        def __init__(self):
            super().__init__("twin")
            self.capabilities = {"REGISTER_RW": True}

        def read_registers(self, address, length):
            return Registers(board).read(address - board.base).to_bytes(4, "little")[:length]

        def write_registers(self, address, data):
            Registers(board).write(address - board.base, int.from_bytes(bytes(data), "little"))

        def allocate(self, shape, dtype, **kwargs):
            below = board.allocate(shape, dtype)
            buffer = PynqBuffer(
                shape, dtype, device=self, device_address=below.device_address, bo=below, coherent=False
            )
            buffer[:] = below
            return buffer

        def flush(self, bo, offset, ptr, size):
            ctypes.memmove(bo.ctypes.data, ptr - offset, len(bo))
            bo.flush()

        def invalidate(self, bo, offset, ptr, size):
            bo.invalidate()
            ctypes.memmove(ptr - offset, bo.ctypes.data, len(bo))

    module = SimpleNamespace(Bitstream=board.Bitstream, Clocks=board.Clocks, MMIO=pynq.MMIO, allocate=pynq.allocate)
    return module, Twin()


@pytest.fixture
def with_pynq():
    """`behind_pynq`; a test that asks for it is skipped where pynq is not installed."""
    return behind_pynq


OUTPUTS = {
    "Q": 1, "O": 1, "CO": 4, "P": 48, "PCOUT": 48, "DOADO": 32, "DOBDO": 32, "DOA": 1, "DOB": 1, "DOC": 1, "DOD": 1
}  # fmt: skip


class Circuit:
    """A small netlist, made by hand: a flat module: cells are added one by one, nets are named by any word."""

    def __init__(self) -> None:
        self.nets: dict[str, int] = {}
        self.module: dict = {"ports": {}, "cells": {}, "netnames": {}}

    def bit(self, net: str) -> int | str:
        """The number of `net`; constants stay as they are."""
        return net if net in "01x" else self.nets.setdefault(net, 2 + len(self.nets))

    def add(self, name: str, kind: str, parameters: dict | None = None, **pins: str) -> "Circuit":
        """A cell; `pins` are nets, several separated by spaces; ports that tests use as outputs drive."""
        outputs = [port for port in pins if port in OUTPUTS and not (kind == "CARRY4" and port not in ("O", "CO"))]
        self.module["cells"][name] = {
            "type": kind,
            "parameters": parameters or {},
            "attributes": {"src": f"hw/rtl/{name}.py:1"},
            "port_directions": {port: "output" if port in outputs else "input" for port in pins},
            "connections": {port: [self.bit(net) for net in nets.split()] for port, nets in pins.items()},
        }
        return self

    def ports(self, inputs: str = "", outputs: str = "") -> "Circuit":
        """Ports of the circuit, named as their nets."""
        for direction, names in (("input", inputs), ("output", outputs)):
            for net in names.split():
                self.module["ports"][net] = {"direction": direction, "bits": [self.bit(net)]}
        return self

    def document(self) -> dict:
        """As Yosys writes it; every net has its word as a public name."""
        names = {net: {"hide_name": 0, "bits": [bit], "attributes": {}} for net, bit in self.nets.items()}
        return {"modules": {"t": self.module | {"netnames": names}}}

    def netlist(self) -> Netlist:
        """The circuit, read."""
        return read(self.document(), "t")


@pytest.fixture
def new() -> type[Circuit]:
    """Makes an empty circuit."""
    return Circuit
