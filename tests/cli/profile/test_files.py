"""cli/profile/files.py: --profile, its files, its table, its mistakes, here of `run`; and that every run has it."""

import csv
import json
from types import SimpleNamespace
from typing import cast

import click
import numpy as np
import pytest

from tilewright.cli.profile.files import Profile
from tilewright.hw.config import PRESETS
from tilewright.hw.metrics import metrics
from tilewright.runtime.executable import Executable


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
