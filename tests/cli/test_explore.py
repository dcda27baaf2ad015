"""`tilewright explore` as a command: table, JSON, a configuration, a plot, mistakes."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.hw.config import load_config

NET = str(Path(__file__).parents[1] / "data/networks/classifier.tflite")


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"acc_bytes": [512, 1024, 2048], "queue_depth": [8, 64]}))
    return path


@pytest.fixture
def explore(tilewright, space, tmp_path):

    def run(*arguments):
        study = f"sqlite:///{tmp_path}/study.db"
        return tilewright("explore", NET, "--config", "tiny", "--space", space, "--study", study, *arguments)

    return run


@pytest.mark.circuit
def test_a_table_and_then_json(explore, tmp_path):
    done = explore("--trials", 6, "-o", tmp_path / "front.svg")
    assert done.status == 0, done.err
    assert "6 trials of 6 combinations" in done.out and "cycles simulated by the timing model" in done.out
    assert (tmp_path / "front.svg").read_text().startswith("<?xml")
    found = json.loads(explore("--trials", 6, "--json").out)
    assert found["trials"] == 6 and found["objectives"] == ["latency_us", "bram", "dsp"]
    assert {"config", "cycles", "bram", "dsp"} <= found["front"][0].keys() and found["pruned"] == []
    cycles = [one["cycles"] for one in found["every"]]
    assert min(cycles) in [one["cycles"] for one in found["front"]]


@pytest.mark.circuit
def test_a_configuration_of_the_front(explore, tmp_path):
    path = tmp_path / "chosen.json"
    done = explore("--trials", 3, "--apply", 0, "-o", path)
    assert done.status == 0 and "the configuration of trial 0" in done.out
    assert load_config(str(path)).name == "chosen"
    assert load_config(str(path)).fingerprint == load_config("tiny").fingerprint


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (["--objective", "speed"], 9, "--objective speed: must be one of latency_us, "),
        (["--apply", 1], 9, "--apply K and -o FILE.json belong together"),
        (["-o", "x.json"], 9, "--apply K and -o FILE.json belong together"),
        (["-o", "x.pdf"], 5, "-o x.pdf: must end in .json, .png or .svg"),
        (["--study", "nothing"], 6, "study nothing: cannot be used"),
        (["--apply", 7, "-o", "y.json"], 9, "--apply 7: trial 7 is none of the study's, 0 to 1"),
    ],
)
def test_mistakes(explore, tmp_path, monkeypatch, options, status, text):
    monkeypatch.chdir(tmp_path)
    done = explore("--trials", 2, *options)
    assert (done.status, text in done.err) == (status, True), done.err
    assert not (tmp_path / "y.json").exists()


def test_sizes_of_a_network_that_has_open_ones(tilewright, tmp_path):
    """The product of a larger picture takes more of the host's time; other sizes are another measurement."""
    onnx = pytest.importorskip("onnx")
    image, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in ("image", "y"))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Mul", ["image", "image"], ["y"])], "g", [image], [y])
    path = tmp_path / "net.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    (tmp_path / "space.json").write_text('{"queue_depth": [8]}')
    study = ("--study", f"sqlite:///{tmp_path}/study.db", "--name", "x", "--space", tmp_path / "space.json")
    run = ("explore", path, "--config", "tiny", *study, "--json")
    small, large = (
        json.loads(tilewright(*run, "--trials", k + 1, "--shape", f"image={n},4").out) for k, n in enumerate((2, 9000))
    )
    assert [one["host_us"] for one in small["every"]] < [one["host_us"] for one in large["every"][1:]]
    done = tilewright(*run, "--shape", "x=1,4")
    assert done.status == 9 and "'x'" in done.err


@pytest.mark.slow
def test_a_killed_run_loses_no_finished_trial(space, tmp_path):
    base = tmp_path / "study.db"
    command = [str(Path(sys.executable).with_name("tilewright")), "explore", NET, "--config", "tiny", "--trials", "20"]
    command += ["--space", str(space), "--study", f"sqlite:///{base}", "--json"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    finished = "SELECT COUNT(*) FROM trials WHERE state = 'COMPLETE'"
    until = time.monotonic() + 60
    while time.monotonic() < until and count(base, finished) < 2:
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    before = count(base, finished)
    assert before >= 2
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert found["trials"] == 20 and found["repeated"] >= before


def count(base, query):
    if not base.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{base}?mode=ro", uri=True) as connection:
            return connection.execute(query).fetchone()[0]
    except sqlite3.OperationalError:
        return 0
