"""boards/synthesis.py: resources from counts of cells, without the tools, which take minutes."""

import pytest

from tilewright.boards.synthesis import Resources, count, need
from tilewright.hw.errors import UnsupportedError


def test_a_block_includes_its_parts_as_often_as_it_has_them():
    cells = {
        "\\top": {"top.core.engine": 1, "LUT6": 1},
        "top.core.engine": {"top.core.engine.lane$2": 2, "FDRE": 3},
        "top.core.engine.lane$2": {"DSP48E1": 1, "RAMB18E1": 1, "RAMB36E1": 1},
    }
    found = count("tiny", "top", cells)
    assert found.config == "tiny"
    assert found.modules["engine.lane"].dsp == 1
    assert found.modules["engine"] == Resources(0, 3, 3.0, 2)
    assert found.total == Resources(1, 3, 3.0, 2)


def test_a_missing_tool_says_what_to_install():
    with pytest.raises(UnsupportedError, match="synthesis needs no-such-tool, which is not installed; pip install"):
        need("json", "no_such_tool")
