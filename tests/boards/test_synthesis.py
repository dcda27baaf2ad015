"""boards/synthesis.py: resources from counts of cells, without the tools, which take minutes."""

import pytest

from tilewright.boards.synthesis import AVAILABLE, Resources, count, least
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError

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
    assert least(PRESETS["pynq_z1_two"]) == Resources(bram=96, dsp=128)
    assert least(PRESETS["vta"]).dsp == 256 > AVAILABLE.dsp
    assert least(PRESETS["tiny"]) == Resources(bram=1.5, dsp=16)
