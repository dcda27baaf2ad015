"""boards/zynq/handoff.py and boards/zynq/ip.py: the .hwh file, as pynq reads it, and the driver of its overlays."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from tilewright.boards.selftest import self_test
from tilewright.boards.zynq.board import BOARDS, load_board
from tilewright.boards.zynq.handoff import TYPE, clock_divisors, handoff, port_widths
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import BoardError, FileError
from tilewright.hw.regs import REGISTERS
from tilewright.runtime.executable import Executable

TINY = PRESETS["tiny"]
WIDE = TINY.replace(name="tiny_wide", axi_bits=128)


def values(parent, tag):
    return {one.get("NAME"): one.get("VALUE") for one in parent.iter(tag)}


@pytest.mark.parametrize("name", BOARDS)
def test_the_file_names_system_address_clock_and_registers(name):
    board = load_board(name).replace(clock_mhz=62.5)
    cfg = WIDE if board.system == "zynqmp" else TINY
    root = ElementTree.fromstring(handoff(cfg, board, "x"))
    system, core = root.iter("MODULE")
    family = "zynq_ultra_ps_e" if name == "kv260" else "processing_system7"
    assert (system.get("MODTYPE"), core.get("VLNV")) == (family, TYPE)
    (memory,) = root.iter("MEMRANGE")
    assert (memory.get("INSTANCE"), memory.get("SLAVEBUSINTERFACE")) == ("core", "s_axil")
    assert [int(memory.attrib[f"{end}VALUE"], 16) - board.base for end in ("BASE", "HIGH")] == [0, 4095]
    assert values(core, "PARAMETER") == {"BOARD": name, "CLOCK_MHZ": "62.5", "MEMORY": "HP"}
    assert values(system, "PARAMETER").get("C_SAXIGP2_DATA_WIDTH") == ("128" if name == "kv260" else None)
    offsets = {one.get("NAME"): int(values(one, "PROPERTY")["ADDRESS_OFFSET"] or "") for one in core.iter("REGISTER")}
    assert offsets == {register.name: register.offset for register in REGISTERS.values()}


@pytest.mark.parametrize("name, mhz, product", [("pynq_z1", 100, 10), ("pynq_z1", 83.333, 12), ("kv260", 250, 6)])
def test_divisors_of_the_clock(name, mhz, product):
    a, b = clock_divisors(load_board(name).replace(clock_mhz=mhz))
    assert a * b == product and max(a, b) < 64


def test_files_without_widths(tmp_path):
    path = tmp_path / "x.hwh"
    with pytest.raises(FileError, match=r"x\.hwh"):
        port_widths(path)
    path.write_text("no xml")
    with pytest.raises(FileError, match="is no hardware handoff file"):
        port_widths(path)
    path.write_text(handoff(TINY, load_board("pynq_z1"), "x"))
    with pytest.raises(FileError, match="names no width of a memory port; use the file that was built with"):
        port_widths(path)
    path.write_text(handoff(WIDE.replace(load_ports=2), load_board("kv260"), "x"))
    assert port_widths(path) == {"SAXIGP2": 128, "SAXIGP3": 128}


@pytest.fixture
def accelerator(monkeypatch):
    """The driver's class, with a stand-in for pynq that has what it takes of `DefaultIP`."""

    class DefaultIP:
        def __init__(self, description):
            self.device = description["device"]

    monkeypatch.setitem(sys.modules, "pynq", SimpleNamespace(DefaultIP=DefaultIP))
    monkeypatch.delitem(sys.modules, "tilewright.boards.zynq.ip", raising=False)
    yield importlib.import_module("tilewright.boards.zynq.ip").Accelerator
    sys.modules.pop("tilewright.boards.zynq.ip", None)


def description(board, bitfile, **changes):
    facts = {"BOARD": board.name, "CLOCK_MHZ": "80", "MEMORY": "HP"} | changes
    facts = {key: value for key, value in facts.items() if value}
    return {"device": SimpleNamespace(bitfile_name=str(bitfile)), "phys_addr": board.base, "parameters": facts}


@pytest.mark.parametrize("name, cfg", [("pynq_z1", TINY), ("kv260", WIDE)])
def test_an_overlay_runs_programs_without_a_second_download(accelerator, fake_pynq, tmp_path, name, cfg):
    board, bitfile = load_board(name), tmp_path / "x.bit"
    bitfile.write_bytes(b"bits")
    bitfile.with_suffix(".hwh").write_text(handoff(cfg, board, "x"))
    (tmp_path / "meminfo").write_text("CmaFree: 65536 kB\n")
    fake = fake_pynq(cfg, base=board.base, modelled=True)
    fake.calls.append("download")  # the overlay's
    core = accelerator(description(board, bitfile))
    launch, inputs, expected = self_test(cfg)
    with core.load(launch, pynq=fake, meminfo=tmp_path / "meminfo") as program:
        np.testing.assert_array_equal(program.run(inputs)["y"], expected["y"])
        whole = program.executable
        Executable(cfg, "net", whole.tensors, list(whole.steps)).save(tmp_path / "program.tw")
    with core.load(tmp_path / "program.tw", pynq=fake, meminfo=tmp_path / "meminfo") as program:
        np.testing.assert_array_equal(program.run(inputs)["y"], expected["y"])
    assert fake.calls.count("download") == 1 and fake.Clocks.fclk0 == 80
    assert bool(fake.set_up) == (name == "kv260")
    assert type(core).bindto == (TYPE,)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"BOARD": "mine"}, "the bitstream is for board 'mine': give load.. a Board; known are arty_z7_20"),
        ({"CLOCK_MHZ": ""}, "the .hwh file has no parameter 'CLOCK_MHZ' of the core: build the bitstream again"),
    ],
)
def test_files_that_do_not_say_the_board(accelerator, tmp_path, changes, text):
    with pytest.raises(BoardError, match=text):
        accelerator(description(load_board(), tmp_path / "x.bit", **changes)).board()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BOARDS)
def test_pynq_itself_binds_the_driver(tmp_path, name):
    """`pynq.Overlay` on a device of this test: pynq reads the file, finds the driver and makes it."""
    pynq = pytest.importorskip("pynq")
    metadata = pytest.importorskip("pynqmetadata.frontends").Metadata
    try:
        parser = importlib.import_module("pynq.metadata.runtime_metadata_parser")  # pynq 3
    except ImportError:
        parser = importlib.import_module("pynqmetadata.views.runtime")
    ip = importlib.import_module("tilewright.boards.zynq.ip")
    board = load_board(name)
    (tmp_path / "x.bit").write_bytes(b"bits")
    (tmp_path / "x.hwh").write_text(handoff(WIDE if board.system == "zynqmp" else TINY, board, "x"))

    class Twin(pynq.Device):
        def __init__(self):
            super().__init__("twin")
            self.capabilities = {"REGISTER_RW": True}

        def get_bitfile_metadata(self, bitfile, partial=False):
            return parser.RuntimeMetadataParser(metadata(input=Path(bitfile).with_suffix(".hwh")))

        def read_registers(self, address, length):
            return address.to_bytes(8, "little")[:length]

    overlay = pynq.Overlay(str(tmp_path / "x.bit"), download=False, device=Twin())
    overlay.is_loaded = lambda: True
    core = overlay.core
    assert type(core) is ip.Accelerator and core.board() == board
    assert core.mmio.read(REGISTERS["CONTROL"].offset) == board.base + REGISTERS["CONTROL"].offset
    clock = overlay.clock_dict[0]
    assert clock["enable"] == 1 and clock["divisor0"] * clock["divisor1"] == (6 if name == "kv260" else 10)
    assert clock.get("frequency", board.clock_mhz) == board.clock_mhz  # pynq 3 has divisors alone
