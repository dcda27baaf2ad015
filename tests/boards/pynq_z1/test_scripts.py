"""boards/pynq_z1/build.py: the block design says what the platform says."""

import re
import shutil
import subprocess

import pytest

from tilewright.boards.pynq_z1 import build
from tilewright.boards.pynq_z1.board import Board
from tilewright.hw.config import PRESETS

TINY = PRESETS["tiny"]
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
        (TINY, Board(), {"S_AXI_HP0": ["m_load0", "m_store0"]}),
        (TINY.replace(load_ports=2), Board(), {"S_AXI_HP0": ["m_load0", "m_store0"], "S_AXI_HP2": ["m_load1"]}),
        (PRESETS["pynq_z1"], Board(memory="ACP"), {"S_AXI_ACP": ["m_load0", "m_store0"]}),
    ],
)
def test_ports_clock_and_addresses_of_the_block_design(cfg, board, ports):
    assert build.memory_ports(cfg, board) == ports
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


def test_brackets_of_the_scripts_are_balanced():
    text = build.block_design(TINY, Board(), "x")
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
    text = build.block_design(TINY.replace(load_ports=2), Board(), "x")
    (tmp_path / "x.tcl").write_text(f"set slack {slack}\n{STUBS}{text}")
    done = subprocess.run(["tclsh", "x.tcl"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    said = done.stdout.splitlines() + done.stderr.splitlines()
    assert any(line.startswith(ends) for line in said) and (done.returncode == 0) == (slack > 0)
    calls = [line.split()[0] for line in said if line]
    assert calls.count("connect_bd_intf_net") == 2 + 3 + 2 and calls.count("assign_bd_address") == 1 + 3
    assert "create_bd_cell -type ip -vlnv xilinx.com:ip:processing_system7 ps7" in said


@pytest.mark.parametrize("memory, cache", [("HP", "0011"), ("ACP", "1111")])
def test_the_wrapper_declares_every_bus(memory, cache):
    text = build.block_wrapper(CORE, "x", Board(memory=memory))
    assert "module x_bd (" in text and "x_core core (" in text
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
