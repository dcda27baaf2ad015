"""tools/synth.py: what grew is named and decides the exit status."""

import json

import pytest
from click.testing import CliRunner

from tilewright.boards import timing
from tilewright.boards.synthesis import Resources
from tilewright.boards.timing import TimedCore, Timing
from tilewright.hw.config import PRESETS
from tools import synth


def core(cfg, logic_ns=4.0, uncovered=0, lut=100):
    timing = Timing(
        logic_ns=logic_ns, levels=9, estimate_ns=8.0, paths=[], logic_paths=[], histogram=[], logic_histogram=[],
        ends=0, uncovered={"URAM288": uncovered} if uncovered else {}, dsp_registers={}, dsp_full=2,
        bram_registered=1, bram=4,
    )  # fmt: skip
    return TimedCore(cfg.name, Resources(lut, 10, 2.5, 2), timing)


@pytest.fixture
def record(monkeypatch, tmp_path):
    """A record of one configuration, in a file of its own."""
    file = tmp_path / "record.json"
    file.write_text(json.dumps({"tiny": synth.figures(core(PRESETS["tiny"]))}))
    monkeypatch.setattr(synth, "RECORD", file)
    return file


def run(monkeypatch, *options, **changes):
    monkeypatch.setattr(timing, "time_core", lambda cfg, report: core(cfg, **changes))
    return CliRunner().invoke(synth.command, options, standalone_mode=False)


GREW = [
    (dict(logic_ns=4.06), "tiny: logic_ns grew from 4 to 4.06, by more than 0.05"),
    (dict(lut=301), "tiny: lut grew from 100 to 301, by more than 200"),
    (dict(uncovered=1), "tiny: uncovered grew from 0 to 1, by more than 0"),
]


@pytest.mark.parametrize(
    "changes, line, status",
    [({}, "no figure grew", 0), (dict(logic_ns=4.04, lut=300), "no figure grew", 0), (dict(logic_ns=3.0), "", 0)]
    + [(changes, line, 1) for changes, line in GREW],
)
def test_figures_that_grow_by_more_than_their_tolerance_fail(record, monkeypatch, changes, line, status):
    done = run(monkeypatch, **changes)
    assert done.return_value == status and line in done.output and "recorded" in done.output


def test_an_update_is_recorded(record, monkeypatch):
    assert run(monkeypatch, "--update", logic_ns=5.0).return_value == 0
    assert json.loads(record.read_text())["tiny"]["logic_ns"] == 5.0


def test_json(record, monkeypatch):
    found = json.loads(run(monkeypatch, "--json", "--config", "tiny", logic_ns=5.0).output)
    assert found["record"]["tiny"]["logic_ns"] == 4.0 and found["found"]["tiny"]["logic_ns"] == 5.0
    assert len(found["grown"]) == 1


def test_the_record_has_three_presets_without_uncovered_cells():
    figures = json.loads(synth.RECORD.read_text())
    assert set(figures) == {"tiny", "pynq_z1", "pynq_z1_two"}
    assert all(one["uncovered"] == 0 and one.keys() >= synth.MAY_GROW.keys() for one in figures.values())
