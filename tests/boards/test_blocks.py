"""boards/synthesis.py: blocks of Verilog, which of them are alike, and what is synthesised again."""

import json
import re

import pytest

from tilewright.boards import synthesis as module
from tilewright.boards.synthesis import Resources, blocks, synthesise_blocks
from tilewright.hw.config import PRESETS

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
