"""cli/profile/values.py: the metrics of a run and of its launches, and their rows."""

import pytest

from tilewright.cli.profile.values import declared, profile, rows, table_rows
from tilewright.hw.config import PRESETS
from tilewright.hw.metrics import metrics
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import Loaded
from tilewright.sim.random_programs import Recorder, record_random

TINY = PRESETS["tiny"]


@pytest.fixture(scope="module")
def run():
    """An executable and the reports of its run."""
    recorder = Recorder(TINY, 4)
    record_random(recorder, 15)
    executable = Executable.from_launch(recorder.program.finish())
    with Loaded(executable, open_device("timing", TINY)) as loaded:
        loaded.run(recorder.inputs)
        return executable, loaded.reports


def test_a_run_of_one_launch_has_its_metrics(run):
    executable, reports = run
    found = profile(*run)
    (launch,) = found["launches"]
    assert launch == {"launch": executable.steps[0].name, "metrics": found["metrics"]}
    assert found["metrics"]["cycles"] == reports[0].stats.cycles
    assert list(found["metrics"]) == [name for name, metric in metrics(TINY).items() if "timing" in metric.by]


def test_rows_hold_every_value(run):
    values = profile(*run)["metrics"]
    found = list(rows(TINY, values))
    back: dict = {}
    for name, kind, unit, one, value in found:
        assert (kind, unit) == (metrics(TINY)[name].kind.value, metrics(TINY)[name].unit)
        if one:
            back.setdefault(name, {})[one] = value
        else:
            back[name] = value
    assert back == {name: value for name, value in values.items() if value != {}}
    shown = {row[0]: row[1] for row in table_rows(TINY, values)}
    assert list(shown) == list(values) and shown["cycles"] == f"{values['cycles']:,}"
    assert shown["by_instruction"] == ", ".join(f"{k}: {n:,}" for k, n in values["by_instruction"].items())


def test_meanings_are_those_declared():
    assert declared(TINY, ["cycles"]) == {
        "cycles": {
            "kind": "counter",
            "unit": "cycles",
            "doc": "cycles from start to done",
            "by": ("timing", "rtl", "rtl_fast", "board"),
        }
    }
