"""`run --check`: equal runs, and the report on one that differs."""

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.cli.options import Choices, Where
from tilewright.cli.run import check_run, need_network
from tilewright.hw.config import load_config
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded

pytest.importorskip("onnx")
DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL = str(DIGITS / "digits.onnx")


@pytest.fixture
def inputs(tmp_path):
    """Two of the digits, in a file."""
    with np.load(DIGITS / "inputs.npz") as data:
        np.savez(tmp_path / "x.npz", inputs=data["inputs"][:2])
    return tmp_path / "x.npz"


def test_a_run_that_equals_the_golden_interpreter(tilewright, inputs):
    done = tilewright("run", MODEL, "--inputs", inputs, "--check")
    assert done.status == 0, done.err
    assert "golden interpreter (single): 2 of 2 results equal; on input 0 all 8 operators are equal" in done.out


def test_other_outputs_in_the_file_fail_the_check(tilewright, inputs, tmp_path):
    done = tilewright("run", MODEL, "--inputs", inputs, "-o", tmp_path / "y.npz", "--check", "--contract", "double")
    assert done.status == 0 and "golden interpreter (double): 2 of 2" in done.out
    with np.load(tmp_path / "x.npz") as x, np.load(tmp_path / "y.npz") as y:
        outputs = y["outputs"].copy()
        outputs[1, 0, 3] += 1
        np.savez(tmp_path / "z.npz", inputs=x["inputs"], outputs=outputs)
    done = tilewright("run", MODEL, "--inputs", tmp_path / "z.npz", "--check", "--contract", "double", "--json")
    found = json.loads(done.out)
    assert done.status == 1
    assert (found["outputs_equal"], found["values_equal"], found["values"]) == (1, 19, 20)
    assert found["check"]["equal"] and found["check"]["difference"] is None


class Faulty(Where):
    """A place to run whose device changes one element of one tensor."""

    @contextmanager
    def open(self, executable):
        with Loaded(executable, open_device("model", executable.cfg)) as loaded:
            run = loaded.run

            def faulty(sample):
                result = run(sample)
                if "conv2" in result:
                    result["conv2"] = result["conv2"].copy()
                    result["conv2"][0, 1, 2, 3] ^= 1
                return result

            vars(loaded)["run"] = faulty
            yield loaded


def test_the_first_operator_and_element_that_differ(inputs):
    with np.load(inputs) as data:
        samples = [{"image": x} for x in data["inputs"]]
    results = [{"logits": np.zeros((1, 10), np.float32)}] * 2
    where = Faulty("model")
    found: dict[str, Any] = check_run(MODEL, load_config("tiny"), Choices(), where, samples, results)
    assert not found["equal"] and found["results_equal"] == 0
    assert found["difference"]["operator"] == "conv2" and found["difference"]["index"] == (0, 1, 2, 3)
    assert "on input 0 operator 3 of 8 differs: QConv2d 'conv2': 1 of" in found["text"]


def test_programs_have_no_golden_values(refused, double_tw, tmp_path):
    np.savez(tmp_path / "x.npz", inputs=np.zeros((8, 1, 16), np.int32))
    run = ("run", double_tw, "--inputs", tmp_path / "x.npz")
    refused(5, "MODEL must be a network, .onnx, .tflite, .pt2, .bin", *run, "--check")
    refused(5, "--contract single is only for networks", *run, "--contract", "single")
    with pytest.raises(UnsupportedError):
        need_network("x.py:f")


def growing():
    """y = x + s, and s becomes y: a network, and what it gives for inputs of 5."""
    from tilewright.compiler.graph import Add, Graph, State, Tensor

    x, state, y = (Tensor(name, (1, 4)) for name in ("x", "s", "y"))
    first = np.zeros((1, 4), np.int8)
    return Graph("growing", (x,), (y,), (Add("add", (x, state), y),), (State(state, first, y),))


@pytest.mark.parametrize("reset, expected", [(False, [5, 10, 15]), (True, [5, 5, 5])])
def test_state_is_kept_or_reset(monkeypatch, reset, expected):
    cfg, samples = load_config("pynq_z1"), [{"x": np.full((1, 4), 5, np.int8)}] * 3
    monkeypatch.setattr("tilewright.cli.run.read_graph", lambda model, cfg, choices: growing())
    where = Where("model")
    results = [{"y": np.full((1, 4), value, np.int8)} for value in expected]
    found = check_run("x.tflite", cfg, Choices(), where, samples, results, reset)
    assert found["equal"], found["text"]
    found = check_run("x.tflite", cfg, Choices(), where, samples, results, not reset)
    assert (found["results_equal"], found["input"], found["difference"]) == (1, 1, None)
