"""boards/zynq/build.py: the build directory, its scripts, and the tools that are run or missing."""

import json
import os
import re
import shutil
import subprocess

import pytest

from tilewright.boards.zynq import build
from tilewright.boards.zynq.board import load_board
from tilewright.hw.config import PRESETS

pytest.importorskip("amaranth")
from tilewright.boards.zynq.build import Build, run_build, way_to_build, write_build
from tilewright.hw.errors import ExecutionError, FileError, UnsupportedError

TINY, PYNQ_Z1 = PRESETS["tiny"], load_board()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_build(
        TINY, PYNQ_Z1.replace(clock_mhz=50, base=0x4000_0000), tmp_path_factory.mktemp("build") / "a" / "b"
    )


@pytest.fixture
def path(tmp_path, monkeypatch):
    """An empty PATH, and a function that puts a program on it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("PRJXRAY_DB", "CHIPDB"):
        monkeypatch.delenv(name, raising=False)

    def put(*names, script="#!/bin/sh\n"):
        for name in names:
            (tmp_path / name).write_text(script)
            (tmp_path / name).chmod(0o755)

    return put


def test_the_directory_is_whole(written):
    name = written.name
    assert name == f"tilewright_pynq_z1_tiny_{TINY.fingerprint:016x}_hp"
    assert {p.name for p in written.folder.iterdir()} == {
        *(f"{name}{end}" for end in (".v", ".xdc", ".tcl", ".hwh", "_open.xdc", "_core.v", "_bd.v", "_bd.tcl")),
        *(f"build_{name}{end}.sh" for end in ("", "_open", "_bd")),
    }
    for script in written.scripts.values():
        assert os.access(written.folder / script, os.X_OK)


def test_parameters_reach_the_files(written):
    constraints = (written.folder / f"{written.name}.xdc").read_text()
    assert 'create_clock -name fclk0 -period 20.0 [get_nets "fclk0"]' in constraints
    assert "set_property LOC R14" in constraints and "LVCMOS33" in constraints
    assert "create_project -force -name" in (text := (written.folder / f"{written.name}.tcl").read_text())
    assert "-part xc7z020clg400-1" in text and f"write_bitstream -force -bin_file {written.name}.bit" in text
    for check in ("FCLK0 is not constrained", "timing is missed by"):  # before the bitstream is written
        assert 0 < text.index(check) < text.index("write_bitstream")
    top = written.verilog.read_text()
    assert "PS7 ps (" in top and '(* DONT_TOUCH = "true" *)' in top and "BUFG bufg (" in top
    assert f"module {written.name}(" in top
    assert "40000000" in (written.folder / f"{written.name}_bd.tcl").read_text()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be created"):
        write_build(TINY, PYNQ_Z1, tmp_path / "file" / "x")


def test_a_configuration_that_does_not_fit_writes_nothing(tmp_path):
    with pytest.raises(UnsupportedError, match="Config.axi_bits = 32"):
        write_build(TINY.replace(axi_bits=32), PYNQ_Z1, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_vivado_comes_first(path):
    path("vivado", "yosys")
    assert way_to_build(TINY, PYNQ_Z1) == "vivado"


@pytest.mark.parametrize("nextpnr", ["nextpnr-xilinx", "nextpnr-himbaechel"])
def test_the_open_tools_need_all_their_parts(path, monkeypatch, nextpnr):
    with pytest.raises(UnsupportedError) as caught:
        way_to_build(TINY, PYNQ_Z1)
    assert "install Vivado" in str(caught.value)
    assert "yosys, fasm2frames, xc7frames2bit, nextpnr-xilinx or nextpnr-himbaechel, the variable" in str(caught.value)
    path("yosys", "fasm2frames", "xc7frames2bit", nextpnr)
    monkeypatch.setenv("PRJXRAY_DB", "db")
    with pytest.raises(UnsupportedError, match="of which the variable CHIPDB is missing"):
        way_to_build(TINY, PYNQ_Z1)
    monkeypatch.setenv("CHIPDB", "db.bin")
    assert way_to_build(TINY, PYNQ_Z1) == "open"


def made(tmp_path, script):
    (tmp_path / "go.sh").write_text(script)
    return Build("x", tmp_path, {"vivado": "go.sh"})


def test_a_script_that_makes_a_bitstream(tmp_path):
    assert run_build(made(tmp_path, "echo fine; touch x.bit"), "vivado") == tmp_path / "x.bit"
    assert (tmp_path / "build.log").read_text() == "fine\n"


@pytest.mark.parametrize(
    "script, text",
    [
        (
            "echo a; echo 'ERROR: [Place 30] no room'; echo b; exit 3",
            "go.sh failed with status 3: ERROR: .Place 30. no",
        ),
        ("echo a; echo b; exit 1", "go.sh failed with status 1: b; see .*build.log"),
        ("exit 1", "failed with status 1: no message"),
        ("echo done", "failed with status 0: done"),
    ],
)
def test_a_script_that_does_not(tmp_path, script, text):
    with pytest.raises(ExecutionError, match=text):
        run_build(made(tmp_path, script), "vivado")


def register(data, out):
    """A flip-flop as nextpnr writes it."""
    return {
        "type": "SLICE_FFX",
        "parameters": {},
        "attributes": {"X_ORIG_TYPE": "FDRE"},
        "port_directions": {"D": "input", "Q": "output"},
        "connections": {"D": [data], "Q": [out]},
    }


@pytest.fixture
def open_tools(written, path, tmp_path, monkeypatch):
    """Stand-ins for the open tools, which say what they were called with.

    nextpnr's has routed two registers in a ring with a wire of a given delay, xc7frames2bit's writes the bitstream.
    """
    path("yosys", "fasm2frames", script='#!/bin/sh\necho "$(/usr/bin/basename $0) $*"\n')
    path("xc7frames2bit", script=f'#!/bin/sh\necho "xc7frames2bit $*"\n: > {written.name}.bit\n')
    copies = "; ".join(f"cp {tmp_path / 'routed'}.{end} {written.name}_routed.{end}" for end in ("json", "sdf"))
    path("nextpnr-himbaechel", script=f'#!/bin/sh\necho "nextpnr-himbaechel $*"; {copies}\n')
    nets = {name: {"hide_name": 0, "bits": [k], "attributes": {"ROUTING": "w"}} for k, name in enumerate("ab")}
    module = {"cells": {"x": register(0, 1), "y": register(1, 0)}, "ports": {}, "netnames": nets}
    (tmp_path / "routed.json").write_text(json.dumps({"modules": {"top": module}}))
    monkeypatch.setenv("PRJXRAY_DB", "/db")
    monkeypatch.setenv("CHIPDB", "/chip.bin")
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")

    def run(ps):
        wires = [f"(INTERCONNECT {a}/Q {b}/D (1:1:{ps}) (1:1:{ps}))\n" for a, b in ("xy", "yx")]
        (tmp_path / "routed.sdf").write_text("".join(wires))
        try:
            return run_build(written, "open")
        finally:
            written.bitstream.unlink(missing_ok=True)
            for end in ("json", "sdf"):
                (written.folder / f"{written.name}_routed.{end}").unlink()

    return run


def test_the_open_script_calls_its_tools_in_order(written, open_tools):
    """With a wire of 19 ns the clock of 50 MHz is met: 19.222 and 0.478, 0.05 and 0.25 ns of cells and skew are 20."""
    assert open_tools(19_222) == written.bitstream
    said = (written.folder / "build.log").read_text()
    tools = ("yosys", "nextpnr-himbaechel", "fasm2frames", "xc7frames2bit")
    assert [line.split()[0] for line in said.splitlines() if line.startswith(tools)] == list(tools)
    assert "--device xc7z020clg400-1 --chipdb /chip.bin" in said and "--freq 50" in said
    assert "--db-root /db/zynq7" in said and f"--output_file {written.name}.bit" in said
    (written.folder / "build.log").unlink()


def test_a_design_that_misses_its_clock_gets_no_bitstream(written, open_tools):
    with pytest.raises(
        ExecutionError, match="reaches 49.9 MHz after routing, not 50 MHz, from . to [xy].D; no bitstream"
    ):
        open_tools(19_252)
    assert "fasm2frames" not in (written.folder / "build.log").read_text()
    (written.folder / "build.log").unlink()


CORE = """module x_core(clk, rst, m_load0_araddr, m_load0_arready, m_store0_awaddr, s_axil_awaddr, done);
  input clk;
  input rst;
  output [39:0] m_load0_araddr;
  input m_load0_arready;
  output [39:0] m_store0_awaddr;
  input [11:0] s_axil_awaddr;
  output done;
endmodule
module other(a);
  input a;
endmodule
"""


@pytest.mark.parametrize(
    "cfg, board, ports",
    [
        (TINY, PYNQ_Z1, {"S_AXI_HP0": ["m_load0", "m_store0"]}),
        (TINY.replace(load_ports=2), PYNQ_Z1, {"S_AXI_HP0": ["m_load0", "m_store0"], "S_AXI_HP2": ["m_load1"]}),
        (PRESETS["pynq_z1"], PYNQ_Z1.replace(memory="ACP"), {"S_AXI_ACP": ["m_load0", "m_store0"]}),
    ],
)
def test_ports_clock_and_addresses_of_the_block_design(cfg, board, ports):
    assert {port.block: masters for port, masters in build.memory_ports(cfg, board).items()} == ports
    text = build.block_design(cfg, board, "x")
    for port, masters in ports.items():
        assert f"CONFIG.PCW_USE_{port} 1" in text and f"$ps/{port}_ACLK" in text
        assert f"CONFIG.NUM_SI {len(masters)} " in text
        for master in masters:
            assert f"get_bd_intf_pins $core/{master}]" in text
            assert f"-offset 0x00000000 -range 512M -target_address_space [get_bd_addr_spaces $core/{master}]" in text
    assert "create_project -force x_bd x_bd -part xc7z020clg400-1" in text
    assert "CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ 100 " in text
    assert "-offset 0x43c00000 -range 4K -target_address_space [get_bd_addr_spaces $ps/Data]" in text
    assert text.count("x.bit") == 1 and text.count("x.hwh") == 1
    assert ("PCW_USE_DEFAULT_ACP_USER_VAL 1" in text) == board.coherent


DOUBLE = TINY.replace(name="double", array_clock=2)


@pytest.mark.circuit
def test_two_clocks_come_from_one_oscillator(tmp_path):
    written = write_build(DOUBLE, PYNQ_Z1, tmp_path)
    top = written.verilog.read_text()
    cell = re.search(r"MMCME2_BASE #\((.*?)\) doubler \((.*?)\);", top, re.S)
    assert cell, "no MMCM"
    parameters = dict(re.findall(r"\.(\w+)\((.*?)\)", cell[1]))
    assert float(parameters["CLKIN1_PERIOD"]) == 10 and float(parameters["CLKFBOUT_MULT_F"]) == 12
    assert float(parameters["CLKOUT0_DIVIDE_F"]) == 12 and int(parameters["CLKOUT1_DIVIDE"].split("'d")[-1], 0) == 6
    text = (tmp_path / f"{written.name}_bd.tcl").read_text()
    assert (
        "$doubler/clk_out1] [get_bd_pins $core/clk]" in text and "$doubler/clk_out2] [get_bd_pins $core/clk2x]" in text
    )
    assert text.count("$ps/FCLK_CLK0]") == 1  # all else has the clocks of the doubler
    assert "clk2x" in (tmp_path / f"{written.name}_bd.v").read_text()


def test_a_clock_that_cannot_be_doubled_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="Board.clock_mhz = 5: array_clock 2 needs .* of 10 to 232 MHz"):
        write_build(DOUBLE, PYNQ_Z1.replace(clock_mhz=5), tmp_path / "new")


@pytest.mark.parametrize("cfg", [TINY, DOUBLE], ids=lambda cfg: cfg.name)
def test_brackets_of_the_scripts_are_balanced(cfg):
    text = build.block_design(cfg, PYNQ_Z1, "x")
    for opening, closing in ("[]", "{}"):
        assert text.count(opening) == text.count(closing)
    assert not re.search(r"\\\s*\n\s*\n", text)  # a continued line that ends in nothing


STUBS = """
proc get_property {name object} { return [expr {$name eq "PROGRESS" ? "100%" : $::slack}] }
proc glob {args} { return found }
proc file {args} {}
proc quit {} { puts finished }
proc unknown {name args} { puts "$name $args"; return $name }
"""


@pytest.mark.skipif(not shutil.which("tclsh"), reason="tclsh is missing")
@pytest.mark.parametrize("slack, ends", [(0.1, "finished"), (-0.2, "ERROR: timing is missed by -0.2 ns")])
def test_tcl_reads_the_block_design_to_its_end(tmp_path, slack, ends):
    """With stand-ins for Vivado's commands, which print what they are called with."""
    text = build.block_design(TINY.replace(load_ports=2), PYNQ_Z1, "x")
    (tmp_path / "x.tcl").write_text(f"set slack {slack}\n{STUBS}{text}")
    done = subprocess.run(["tclsh", "x.tcl"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    said = done.stdout.splitlines() + done.stderr.splitlines()
    assert any(line.startswith(ends) for line in said) and (done.returncode == 0) == (slack > 0)
    calls = [line.split()[0] for line in said if line]
    assert calls.count("connect_bd_intf_net") == 2 + 3 + 2 and calls.count("assign_bd_address") == 1 + 3
    assert "create_bd_cell -type ip -vlnv xilinx.com:ip:processing_system7 ps" in said


@pytest.mark.parametrize("memory, cache", [("HP", "0011"), ("ACP", "1111")])
def test_the_wrapper_declares_every_bus(memory, cache):
    text = build.block_wrapper(CORE, "x", TINY, PYNQ_Z1.replace(memory=memory))
    assert (
        'module tilewright #(parameter BOARD = "pynq_z1", CLOCK_MHZ = "100", MEMORY = ' in text
        and "x_core core (" in text
    )
    assert (
        'X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 m_load0 ARADDR", X_INTERFACE_PARAMETER = "PROTOCOL AXI3'
        in text
    )
    assert "output [39:0] m_load0_araddr" in text and "input m_load0_arready" in text
    assert "READ_WRITE_MODE READ_ONLY" in text and "READ_WRITE_MODE WRITE_ONLY" in text
    assert '"ASSOCIATED_BUSIF m_load0:m_store0:s_axil, ASSOCIATED_RESET rst"' in text
    assert f"assign m_load0_arcache = 4'b{cache};" in text and f"assign m_store0_awcache = 4'b{cache};" in text
    assert ".done(done)" in text and "other" not in text


def test_the_open_tools_get_pins_alone():
    xdc = "# a\nset_property LOC R14 [x]\ncreate_clock -name c\nset_property IOSTANDARD y [x]\n"
    assert build.open_constraints(xdc) == "set_property LOC R14 [x]\nset_property IOSTANDARD y [x]\n"
