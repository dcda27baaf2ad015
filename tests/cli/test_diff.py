"""`tilewright diff`: what is compared and counted, a line per network, differences by operator, JSON, mistakes."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")
pytest.importorskip("tvm")

from tests.compiler import conftest
from tilewright.apps.delegate.kernel import opener
from tilewright.apps.quantise.samples import samples_of
from tilewright.cli.diff import Layer, Setup, compared
from tilewright.cli.options import Where
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError

pytest.importorskip("ai_edge_litert")
pytest.importorskip("tvm")


tflite = conftest.tflite

SHAPE = (1, 12, 12, 16)


def read(arrays):
    """Reads these arrays as the samples of a file x.npz."""
    return lambda entries: samples_of(arrays, entries[0], "x.npz")


@pytest.fixture
def net(tflite):
    """Two convolutions, a mean, and a table between them that stays with LiteRT if it is not claimed."""
    m = tflite()
    x = m.op("CONV_2D", [m.input(SHAPE), *m.weights((16, 3, 3, 16))], SHAPE, 0.05, -3, strideH=1, strideW=1)
    x = m.op("LOGISTIC", [x], SHAPE, 1 / 256, -128)
    x = m.op("QUANTIZE", [x], SHAPE, 0.05, -3)
    x = m.op("CONV_2D", [x, *m.weights((10, 3, 3, 16))], (1, 12, 12, 10), 0.05, -3, strideH=1, strideW=1)
    m.output(m.op("MEAN", [x, m.const(np.array([1, 2], np.int32))], (1, 10), 0.02, 1))
    return m.save()


@pytest.fixture
def inputs(tmp_path):
    """A file of four samples with labels."""
    x = np.random.default_rng(4).integers(-128, 128, (4, *SHAPE)).astype(np.int8)
    np.savez(tmp_path / "x.npz", inputs=x, labels=np.arange(4))
    return tmp_path / "x.npz"


def setup(load=None, claim=None, on="model"):
    return Setup(PRESETS["pynq_z1"], on, load or opener(on), 1e8, claim, 0, 2)


def test_a_layer_counts_over_runs():
    layer = Layer("conv", True)
    layer.add(np.array([1, 2, -128], np.int8), np.array([1, 0, 127], np.int8))
    layer.add(np.array([3], np.int8), np.array([3], np.int8))
    assert (layer.values, layer.differing, layer.largest) == (4, 2, 255)
    floats = Layer("softmax", False)
    floats.add(np.array([0.5, np.nan, 2], np.float32), np.array([0.25, np.nan, 2], np.float32))
    assert (floats.values, floats.differing, floats.largest) == (3, 1, 0.25)
    floats.add(np.array([True]), np.array([False]))
    assert floats.differing == 2
    infinite = Layer("mask", False)
    infinite.add(np.array([np.inf, -np.inf, 1], np.float32), np.array([np.inf, -np.inf, 1], np.float32))
    assert (infinite.values, infinite.differing, infinite.largest) == (3, 0, 0)


def test_correct_programs_are_equal(net):
    result = compared(str(net), setup(), None, None, str(net))
    assert result.equal and result.samples == 2 and (result.outputs.values, result.labelled) == (20, 0)
    assert (result.taken, result.operators, result.partitions) == (5, 5, 1)
    assert [layer.values for layer in result.layers] == [2 * 144 * 16] * 3 + [2 * 1440, 20]
    assert result.cycles == pytest.approx(1e5 * result.accelerator_ms) and result.cpu_ms > 0
    assert result.alone_ms and result.together_ms and result.alone_ms > result.together_ms > result.accelerator_ms


def test_partitions_with_operators_of_litert_between_them(net):
    result = compared(str(net), setup(claim=["CONV_2D"]), None, None, str(net))
    assert result.equal and (result.taken, result.partitions) == (2, 2)
    assert [layer.accelerated for layer in result.layers] == [True, False, False, True, False]


class Wrong:
    """A loaded program whose results are too large by 1 where they can be."""

    def __init__(self, executable):
        self.loaded = opener("model")(executable)
        self.stats, self.close = self.loaded.stats, self.loaded.close

    def run(self, inputs):
        return {name: y + (y < 127).astype(y.dtype) for name, y in self.loaded.run(inputs).items()}


def test_wrong_results_are_counted_by_operator(net):
    result = compared(str(net), setup(Wrong, ["CONV_2D"]), None, None, str(net))
    first, table, *_ = result.layers
    assert not result.equal and first.differing > first.values / 2 and first.largest == 1
    assert table.differing > 0, "what follows differs, too"
    facts = result.to_dict()
    assert facts["equal"] is False and facts["layers"][0]["differing"] == first.differing
    assert facts["kinds"]["cpu_ms"] == "measured on this machine"


def test_labels(net, inputs):
    with np.load(inputs) as data:
        arrays = dict(data)
    result = compared(str(net), setup(), read(arrays), None, "x.npz")
    assert (result.samples, result.labelled) == (4, 4) and result.labels[0] == result.labels[1] <= 4
    facts = compared(str(net), setup(), read(arrays), np.zeros(4, int), "x.npz").to_dict()
    assert facts["labels"]["reference"] == facts["labels"]["delegate"]
    with pytest.raises(InputError, match=r"x.npz: label 99: the first output has \d+ classes, 0 to \d+"):
        compared(str(net), setup(), read(arrays), np.full(4, 99), "x.npz")
    with pytest.raises(InputError, match=r"x.npz: labels of shape \(3,\) for 4 samples; give one per sample"):
        compared(str(net), setup(), read(arrays), np.arange(3), "x.npz")
    with pytest.raises(InputError, match=r"x.npz: labels of type float64; give the numbers of classes as integers"):
        compared(str(net), setup(), read(arrays), np.ones(4), "x.npz")
    with pytest.raises(InputError, match=r"x.npz: holds `y`, and lacks `t0`"):
        compared(str(net), setup(), read({"y": np.arange(3)}), None, "x.npz")


def test_a_network_that_reconstructs_its_input_has_no_labels(tflite):
    m, shape = tflite(), (1, 12, 12, 16)
    m.output(m.op("CONV_2D", [m.input(shape), *m.weights((16, 3, 3, 16))], shape, strideH=1, strideW=1))
    arrays = {"inputs": np.zeros((2, *shape), np.int8), "labels": np.arange(2)}
    assert compared(str(m.save()), setup(), read(arrays), None, "x.npz").labelled == 0


def test_operators_without_a_model_leave_times_open(tflite):
    m, shape = tflite(), (1, 12, 12, 16)
    x = m.op("CONV_2D", [m.input(shape), *m.weights((16, 3, 3, 16))], shape, 0.05, -3, strideH=1, strideW=1)
    m.output(m.op("RESIZE_BILINEAR", [x, m.input((2,), None, dtype="INT32")], (1, 1, 1, 16), 0.05, -3))
    arrays = {"t0": np.zeros(shape, np.int8), "t5": np.array([3, 3], np.int32)}
    path = str(m.save())
    names = [t.name.decode() if isinstance(t.name, bytes) else t.name for t in m.graph.tensors]
    arrays = {names[m.graph.inputs[0]]: arrays["t0"], names[m.graph.inputs[1]]: arrays["t5"]}
    result = compared(path, setup(), read(arrays), None, "x.npz")
    assert result.equal and result.alone_ms is None is result.together_ms and result.accelerator_ms > 0


def test_inputs_that_do_not_fit_are_refused(net):
    wide = {"inputs": np.full((2, 1, 12, 12, 16), 1000, np.int32)}
    with pytest.raises(InputError, match="has int32 values from 1000 to 1000; the network takes int8"):
        compared(str(net), setup(), read(wide), None, "x.npz")


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
    monkeypatch.setattr("tilewright.cli.diff.compared", None)
    refused(6, "none.tflite: no such file", "diff", net, "none.tflite")


@pytest.mark.circuit
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
        (("{digits}",), 5, "digits.onnx: diff runs TFLite's interpreter; give .tflite files"),
        (("{net}", "--inputs", "a.npz", "--inputs", "b.npz"), 9, "--inputs: 2 given for 1 network; give one for each"),
        (("{net}", "--claim", "CONV"), 9, "claim: 'CONV' is no operator of TFLite"),
        (("{net}", "--on", "gpu"), 5, "unknown device 'gpu'"),
        (("{net}", "--labels", "{x}"), 6, "expected `labels`"),
        ((), 2, "Missing argument 'NET.tflite...'"),
    ],
)
def test_mistakes(refused, net, tmp_path, arguments, status, text):
    np.savez(tmp_path / "no_labels.npz", inputs=np.zeros(1))
    known = {
        "net": net,
        "digits": Path(__file__).parents[2] / "examples/digits/digits.onnx",
        "x": tmp_path / "no_labels.npz",
    }
    refused(status, text, "diff", *(argument.format(**known) for argument in arguments))
