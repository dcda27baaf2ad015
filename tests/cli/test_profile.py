"""`--profile`: the metrics of a run and of its launches, their files, their table, mistakes."""

import csv
import json
from types import SimpleNamespace
from typing import cast

import click
import numpy as np
import pytest

from tilewright.cli.profile import (
    Profile,
    configs_of,
    launches_of,
    profile,
    rows,
    table_rows,
    write_timeline,
)
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.hw.metrics import metrics
from tilewright.runtime.device import Stats, open_device
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import Loaded
from tilewright.sim.random_programs import Recorder, record_random


@pytest.fixture(scope="session")
def ran():
    """Runs a random program of a configuration and a seed: (executable, reports)."""

    def run(cfg, seed, count):
        recorder = Recorder(cfg, seed)
        record_random(recorder, count)
        executable = Executable.from_launch(recorder.program.finish())
        with Loaded(executable, open_device("timing", cfg)) as loaded:
            loaded.run(recorder.inputs)
            return executable, loaded.reports

    return run


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


TINY = PRESETS["tiny"]


@pytest.fixture(scope="module")
def runs(run):
    return launches_of(*run)


def test_the_second_launch_begins_where_the_first_ends(runs, tmp_path):
    (done,) = runs
    write_timeline(str(tmp_path / "one.json"), runs, "one", "timing")
    write_timeline(str(tmp_path / "two.json"), 2 * runs, "two", "timing")
    one, two = (json.loads((tmp_path / f"{name}.json").read_text())["traceEvents"] for name in ("one", "two"))
    for phase in "XC":
        first, both = (sorted((e["ts"], e["name"]) for e in events if e["ph"] == phase) for events in (one, two))
        assert both == sorted([*first, *((ts + done.stats.cycles, name) for ts, name in first)])


def test_a_launch_without_cycles_of_instructions_is_refused(runs, tmp_path):
    bare = runs[0]._replace(stats=Stats())
    with pytest.raises(UnsupportedError, match="device 'board' has no cycles of instructions; use timing or rtl"):
        write_timeline(str(tmp_path / "t.json"), [bare], "bare", "board")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def given(double_tw, tmp_path):
    """Arguments of `run` for a program and two inputs."""
    np.savez(tmp_path / "x.npz", inputs=np.arange(2 * 8 * 16, dtype=np.int32).reshape(2, 8, 1, 16) % 50)
    return "run", double_tw, "--inputs", tmp_path / "x.npz"


def test_json_and_csv_hold_the_same(tilewright, given, tmp_path):
    files = [tmp_path / "p.json", tmp_path / "p.csv"]
    done = tilewright(*given, "--on", "timing", "--profile", files[0], "--profile", files[1])
    assert done.status == 0, done.err
    assert [f"profile written to {path}" in done.out for path in files] == [True, True]
    found = json.loads(files[0].read_text())
    assert found["device"] == "timing" and found["config"] == "pynq_z1" and found["inputs"] == 2
    names = [name for name, metric in metrics(PRESETS["pynq_z1"]).items() if "timing" in metric.by]
    assert list(found["metrics"]) == list(found["declared"]) == names
    assert found["metrics"]["cycles"] == sum(row.get("cycles", 0) for row in found["layers"]) > 0
    assert found["metrics"]["instructions"] == sum(found["metrics"]["by_instruction"].values())
    with files[1].open() as file:
        table = list(csv.DictReader(file))
    whole = {(row["metric"], row["bin"]): float(row["value"]) for row in table if not row["launch"]}
    for name, value in found["metrics"].items():
        for one, count in value.items() if isinstance(value, dict) else [("", value)]:
            assert whole[name, one] == count
    assert {row["launch"] for row in table} == {"", *(each["launch"] for each in found["launches"])}


def test_a_table_on_any_device(tilewright, printed, given):
    done = tilewright(*given, "--profile", "-")
    assert done.status == 0 and "micro_ops" in done.out and "compute_busy" not in done.out
    found = printed(*given, "--on", "timing", "--profile", "-")
    assert found["profile"] == [] and found["metrics"]["compute_busy"] > 0


def test_a_program_without_launches_has_none(tmp_path, capsys):
    executable = cast(Executable, SimpleNamespace(cfg=PRESETS["tiny"], name="host", steps=[]))
    paths = [str(tmp_path / "p.json"), str(tmp_path / "p.csv"), "-"]
    profile = Profile(paths, "model", {})
    profile.add_run(executable, [])
    found = profile.write("host", {"device": "model"})
    assert found == {"profile": paths[:2], "metrics": {}}
    assert json.loads((tmp_path / "p.json").read_text())["metrics"] == {}
    assert (tmp_path / "p.csv").read_text() == "launch,metric,kind,unit,bin,value\n"
    profile.say(found)
    assert "metric" in capsys.readouterr().out


def test_a_timeline_with_levels(tilewright, given, tmp_path):
    path = tmp_path / "p.trace"
    done = tilewright(*given, "--on", "timing", "--profile", path)
    assert done.status == 0 and "ui.perfetto.dev" in done.out
    events = json.loads(path.read_text())["traceEvents"]
    assert {"X", "C", "M"} == {event["ph"] for event in events}
    assert {"tokens COMPUTE -> STORE", "queue of compute"} <= {event["name"] for event in events if event["ph"] == "C"}


@pytest.mark.parametrize(
    "name, on, message",
    [
        ("p.txt", "model", "must end in .json or .csv or .trace; give another name"),
        ("nowhere/p.json", "model", "does not exist; make it first"),
        ("", "model", "is a folder; give a file name"),
        ("x.npz", "model", "is also --inputs and would be overwritten"),
        ("p.trace", "model", "device 'model' has no cycles of instructions; use timing or rtl, or .json"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_file(tilewright, given, tmp_path, name, on, message):
    before = sorted(tmp_path.iterdir())
    done = tilewright(*given, "--on", on, "--profile", tmp_path / name)
    assert done.status != 0 and not done.out
    assert message in done.err and done.err.count("\n") == 1 and len(done.err) <= 400
    assert sorted(tmp_path.iterdir()) == before


def test_every_verb_that_runs_programs_has_the_option():
    from tilewright.cli.app import VERBS, command

    verbs = {verb: command.get_command(click.Context(command), verb) for verb in VERBS}
    having = {verb for verb, found in verbs.items() if found and "profiles" in {p.name for p in found.params}}
    assert having == {"run", "generate", "replay", "bench", "diff"}
