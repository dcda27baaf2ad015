"""`tilewright odimo`: digits for two units, the files of a front, and what the command refuses.

Training needs torch and scikit-learn: `make test-torch` has an environment with them.
"""

import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.apps.odimo.front import Front, Plan, Point
from tilewright.apps.odimo.task import Task
from tilewright.cli.odimo import plot, write_front
from tilewright.hw.config import load_config
from tilewright.hw.errors import ExecutionError, UnsupportedError


@pytest.fixture
def front():
    points = [
        Point(name, seed, accuracy + seed, accuracy, cycles, 1.0, 0.5, 10, 10, f"{name}.tw", {})
        for name, accuracy, cycles in (("all-8bit", 98.0, 1000), ("lambda 0.2", 97.0, 600), ("min-cost", 90.0, 590))
        for seed in (0, 1)
    ]
    return Front(Plan(Task(), load_config("tiny_two"), (0.2,), (0, 1)), tuple(points), {})


FULL = ["all-8bit", "lambda 0.2", "lambda 0.7", "all-ternary", "io-8bit", "min-cost"]


@pytest.fixture
def trains():
    for name in ("torch", "sklearn", "tvm", "matplotlib"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"training needs {name}; make test-torch has it")


def points(outcome):
    found = json.loads(outcome.out)
    assert all(point["equal"] == point["images"] == 597 for point in found["points"])
    return found, {one["name"]: one for one in found["means"]}


def test_a_smoke_run_of_digits(tilewright, tmp_path, trains):
    """An epoch of each phase: the device has torch's integers for all images, a second start takes what is there."""
    arguments = ["odimo", "--epochs", "1,1,1", "--seeds", "1", "--lambda", "5", "--jobs", "1", "-o", str(tmp_path)]
    first = tilewright(*arguments, "--json")
    assert first.status == 0, first.err
    found, means = points(first)
    assert list(means) == ["all-8bit", "lambda 5", "all-ternary", "io-8bit", "min-cost"]
    assert means["all-ternary"]["cycles"] < means["all-8bit"]["cycles"]
    assert all((tmp_path / point["program"]).exists() for point in found["points"])
    again = tilewright(*arguments)
    assert again.status == 0 and "597 of 597" in again.out and "not measured" in again.out


def test_a_smoke_run_of_types(tilewright, tmp_path, trains):
    """An epoch of each phase, standard channels against depthwise ones: integers equal, fewer cycles than standard."""
    arguments = ["--choice", "type", "--config", "tiny", "--epochs", "1,1,1", "--seeds", "1", "--lambda", "5"]
    arguments += ["--jobs", "1", "-o", str(tmp_path)]
    first = tilewright("odimo", *arguments, "--json")
    assert first.status == 0, first.err
    found, means = points(first)
    assert found["choice"] == "type" and list(means) == ["all-conv", "lambda 5", "all-depthwise", "min-cost"]
    assert means["lambda 5"]["cycles"] < means["all-conv"]["cycles"]
    assert all((tmp_path / point["program"]).exists() for point in found["points"])
    again = tilewright("odimo", *arguments)
    assert again.status == 0 and "of all-conv %" in again.out and "depthwise channels %" in again.out
    assert "energy" not in again.out


@pytest.mark.slow
def test_a_reduced_run_of_digits(tilewright, tmp_path, trains):
    """One seed, ten epochs a phase: cycles fall with lambda, by two fifths; accuracies stay above 85 %."""
    arguments = ["--epochs", "10,10,10", "--seeds", "1", "--lambda", "0.2", "--lambda", "0.7", "-o", str(tmp_path)]
    outcome = tilewright("odimo", *arguments, "--json")
    assert outcome.status == 0, outcome.err
    _, means = points(outcome)
    assert list(means) == FULL
    cycles = [means[name]["cycles"] for name in FULL[:3]]
    assert 0.6 * cycles[0] > cycles[1] >= cycles[2] >= means["min-cost"]["cycles"]
    assert min(means[name]["accuracy"] for name in FULL[:3]) > 85


@pytest.mark.slow
def test_a_killed_run_repeats_no_finished_job(tmp_path, trains):
    """SIGKILL once three jobs are stored: the next start leaves their rows as they are, and writes the front."""
    command = [str(Path(sys.executable).with_name("tilewright")), "odimo", "--epochs", "1,1,1", "--seeds", "2"]
    command += ["--lambda", "5", "-o", str(tmp_path)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while time.monotonic() < until and len(stored(tmp_path)) < 3:
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    before = stored(tmp_path)
    assert len(before) >= 3 and not (tmp_path / "front.json").exists()
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    assert before == stored(tmp_path)[: len(before)]
    found = json.loads((tmp_path / "front.json").read_text())
    assert len(found["points"]) == 10 and all((tmp_path / point["program"]).exists() for point in found["points"])


def stored(folder):
    """(row, key) of the results in a folder's database; a key that is written again gets another row."""
    if not (folder / "results.db").exists():
        return []
    try:
        with sqlite3.connect(f"file:{folder / 'results.db'}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT rowid, key FROM results ORDER BY rowid").fetchall()
    except sqlite3.OperationalError:  # the table is not there yet
        return []


@pytest.mark.slow
def test_a_reduced_run_of_types(tilewright, tmp_path, trains):
    """One seed, ten epochs a phase: cycles fall with lambda, and a mixture is better than depthwise channels alone."""
    arguments = ["--choice", "type", "--config", "tiny", "--epochs", "10,10,10", "--seeds", "1", "-o", str(tmp_path)]
    outcome = tilewright("odimo", *arguments, "--lambda", "0.03", "--lambda", "0.2", "--json")
    assert outcome.status == 0, outcome.err
    _, means = points(outcome)
    cycles = [means[name]["cycles"] for name in ("all-conv", "lambda 0.03", "lambda 0.2", "min-cost")]
    assert cycles[0] > cycles[1] > cycles[2] >= cycles[3]
    assert means["lambda 0.03"]["accuracy"] > means["all-depthwise"]["accuracy"]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--epochs", "3,4"], 2, "--epochs 3,4: give three whole numbers"),
        (["--epochs", "a,b,c"], 2, "--epochs a,b,c: give three whole numbers"),
        (["--lambda", "-1"], 2, "--lambda"),
        (["--jobs", "0"], 2, "--jobs"),
        (["--config", "none"], 3, "none"),
        (["--choice", "size"], 2, "--choice"),
        (["--choice", "type", "--objective", "energy"], 2, "--objective energy: types run on one unit"),
        (["--model", "nothing.py"], 6, "nothing.py: no such file"),
        (["-o", "/dev/null/x"], 6, "no folder can be made there"),
    ],
)
def test_what_it_refuses(refused, tmp_path, arguments, status, text):
    refused(status, text, "odimo", "-o", tmp_path, *arguments)


def test_it_says_which_rounding_contract_its_integers_have(tilewright, tmp_path, front, monkeypatch):
    monkeypatch.setattr("tilewright.apps.odimo.front.explore", lambda *_: front)
    done = tilewright("odimo", "-o", tmp_path, "--jobs", "1")
    assert done.status == 0, done.err
    (row,) = (line.split() for line in done.out.splitlines() if line.startswith((" lambda", "lambda")))
    assert row[:7] == [
        "lambda",
        "0.2",
        "97.50",
        "97.00",
        "98.00",
        "600.00",
        "60.00",
    ]  # cycles, and in per cent of int8's
    assert "\nrounding contract: double (two roundings, as TensorFlow Lite Micro)\n" in done.out


def test_a_scheduler_that_does_not_answer(refused, tmp_path):
    pytest.importorskip("distributed")
    refused(11, "tcp://127.0.0.1:x: does not answer", "odimo --scheduler tcp://127.0.0.1:x -o", tmp_path)


def test_points_are_trained_by_the_workers_of_a_scheduler(tilewright, tmp_path, monkeypatch):
    """Which process trains; what is trained, and that it is the same wherever, other tests say."""
    distributed = pytest.importorskip("distributed")
    front = pytest.importorskip("tilewright.apps.odimo.front")

    def explore(plan, folder, store, workers, on_point):
        raise ExecutionError(f"trained by process {workers.submit(os.getpid).result()}")

    monkeypatch.setattr(front, "explore", explore)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as there:
        (worker,) = there.workers.values()
        done = tilewright("odimo", "-o", tmp_path, "--scheduler", there.scheduler_address)
        assert f"trained by process {worker.pid}" in done.err and worker.pid != os.getpid()


def test_files_of_a_front(front, tmp_path):
    pytest.importorskip("matplotlib")
    written = write_front(front, tmp_path)
    assert [path.name for path in written] == ["front.json", "front.png", "front.svg"]
    assert json.loads(written[0].read_text()) == json.loads(json.dumps(front.to_json()))
    assert written[1].read_bytes().startswith(b"\x89PNG") and "lambda 0.2" in written[2].read_text()
    first = written[2].read_bytes()
    assert plot(front, written[2]).read_bytes() == first


def test_pictures_need_matplotlib(front, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match=r"pictures need matplotlib .*; pip install 'tilewright\[plots\]'"):
        plot(front, tmp_path / "front.svg")
