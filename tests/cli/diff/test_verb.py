"""`tilewright diff` as a command: a line per network, differences by operator, JSON, mistakes."""

import json

import numpy as np
import pytest

from tilewright.cli.where import Where


def test_a_line_per_network(tilewright, net, inputs):
    done = tilewright("diff", net, net, "--inputs", inputs, "--inputs", inputs)
    assert done.status == 0, done.err
    lines = [line for line in done.out.splitlines() if line.strip().startswith("model")]
    assert len(lines) == 2 and all("5 of 5" in line and "0 of 40" in line for line in lines)
    accelerator = "accelerator: model, simulated, if it closes at 100 MHz"
    assert f"measured; A9: a Cortex-A9 at 650 MHz, modelled; {accelerator}" in done.out


def test_json(printed, net):
    found = printed("diff", net, "--claim", "CONV_2D", "--samples", 1, "--on", "timing", "--profile", "-")
    (network,) = found["networks"]
    assert (found["device"], found["config"], found["clock_mhz"]) == ("timing", "pynq_z1", 100.0)
    assert network["equal"] and network["partitions"] == 2 and network["cycles"] > 1000
    assert found["metrics"]["cycles"] == network["cycles"]
    assert [layer["operator"] for layer in network["layers"]][:2] == ["conv_2d_0", "logistic_1"]


def test_differences_are_status_1(tilewright, net, monkeypatch):
    class Zeros:
        stats = None

        def __init__(self, executable):
            self.outputs = executable.outputs

        def run(self, inputs):
            return {t.name: np.zeros(t.shape, t.dtype) for t in self.outputs}

        def close(self):
            pass

    monkeypatch.setattr(Where, "open", lambda self, executable: Zeros(executable))
    done = tilewright("diff", net, "--claim", "CONV_2D")
    assert done.status == 1
    assert "model: operators whose results differ, in order" in done.out
    assert "conv_2d_0" in done.out and "accelerator" in done.out and "LiteRT" in done.out


def test_crumbs_stay_with_litert(tilewright, net):
    done = tilewright("diff", net, "--min-macs", 10**9, "--samples", 1)
    assert done.status == 0 and "0 of 5" in done.out


def test_all_networks_are_there_before_the_first_is_compared(refused, net, monkeypatch):
    monkeypatch.setattr("tilewright.cli.diff.compare.compared", None)
    refused(6, "none.tflite: no such file", "diff", net, "none.tflite")


def test_labels_of_another_file(tilewright, net, inputs, tmp_path):
    right = 0
    for label in range(10):  # each of the samples belongs to one class
        np.savez(tmp_path / "labels.npz", labels=np.full(4, label))
        done = tilewright("diff", net, "--inputs", inputs, "--labels", tmp_path / "labels.npz", "--json")
        assert done.status == 0, done.err
        right += json.loads(done.out)["networks"][0]["labels"]["reference"]
    assert right == 4


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("none.tflite",), 6, "none.tflite: no such file"),
        (("net.onnx",), 5, "net.onnx: diff runs TFLite's interpreter; give .tflite files"),
        (("{net}", "--inputs", "a.npz", "--inputs", "b.npz"), 9, "--inputs: 2 given for 1 network; give one for each"),
        (("{net}", "--claim", "CONV"), 9, "claim: 'CONV' is no operator of TFLite"),
        (("{net}", "--on", "gpu"), 5, "unknown device 'gpu'"),
        (("{net}", "--labels", "{x}"), 6, "expected `labels`"),
        ((), 2, "Missing argument 'NET.tflite...'"),
    ],
)
def test_mistakes(refused, net, tmp_path, arguments, status, text):
    np.savez(tmp_path / "no_labels.npz", inputs=np.zeros(1))
    known = {"net": net, "x": tmp_path / "no_labels.npz"}
    refused(status, text, "diff", *(argument.format(**known) for argument in arguments))
