"""cli/profile/values.py: the metrics of a run and of its launches, and their rows."""

import pytest

from tilewright.cli.profile.values import configs_of, declared, launches_of, profile, rows, table_rows
from tilewright.hw.config import PRESETS
from tilewright.hw.metrics import metrics

TINY = PRESETS["tiny"]


@pytest.fixture(scope="module")
def run(ran):
    """An executable and the reports of its run."""
    return ran(TINY, 4, 15)


def test_a_run_of_one_launch_has_its_metrics(run):
    executable, reports = run
    found = profile(launches_of(*run))
    (launch,) = found["launches"]
    assert launch == {"launch": executable.steps[0].name, "metrics": found["metrics"]}
    assert found["metrics"]["cycles"] == reports[0].stats.cycles
    assert list(found["metrics"]) == [name for name, metric in metrics(TINY).items() if "timing" in metric.by]


def test_rows_hold_every_value(run):
    values = profile(launches_of(*run))["metrics"]
    found = list(rows([TINY], values))
    back: dict = {}
    for name, kind, unit, one, value in found:
        assert (kind, unit) == (metrics(TINY)[name].kind.value, metrics(TINY)[name].unit)
        if one:
            back.setdefault(name, {})[one] = value
        else:
            back[name] = value
    assert back == {name: value for name, value in values.items() if value != {}}
    shown = {row[0]: row[1] for row in table_rows([TINY], values)}
    assert list(shown) == list(values) and shown["cycles"] == f"{values['cycles']:,}"
    assert shown["by_instruction"] == ", ".join(f"{k}: {n:,}" for k, n in values["by_instruction"].items())


def test_meanings_are_those_declared():
    assert declared([TINY], ["cycles"]) == {
        "cycles": {
            "kind": "counter",
            "unit": "cycles",
            "doc": "cycles from start to done",
            "by": ("timing", "rtl", "rtl_fast", "board"),
        }
    }


def test_launches_of_several_configurations_have_the_metrics_of_all(run, ran):
    two = PRESETS["tiny_two"]
    runs = [*launches_of(*run), *launches_of(*ran(two, 6, 10))]
    assert configs_of([*runs, *runs]) == [TINY, two]
    found = profile(runs)
    one, other = (each["metrics"] for each in found["launches"])
    assert found["metrics"]["cycles"] == one["cycles"] + other["cycles"]
    assert found["metrics"]["ternary_busy"] == other["ternary_busy"] and "ternary_busy" not in one
    assert set(found["metrics"]) == set(metrics(TINY, two)) & {*one, *other}
    assert found["metrics"]["acc_high"] == max(one["acc_high"], other["acc_high"])
    bins = list(found["metrics"]["read_bursts"])
    assert bins == sorted(bins, key=int)
    assert [row[0] for row in table_rows(configs_of(runs), found["metrics"])] == list(found["metrics"])


def test_no_launch_has_no_metrics():
    assert profile([]) == {"metrics": {}, "launches": []} and not list(rows([], {}))
