"""What is compared and counted: correct programs, a wrong one, labels, times."""

import numpy as np
import pytest

from tilewright.apps.delegate.kernel import opener
from tilewright.cli.diff.compare import Layer, Setup, compared
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError


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
    result = compared(str(net), setup(), arrays, None, "x.npz")
    assert (result.samples, result.labelled) == (4, 4) and result.labels[0] == result.labels[1] <= 4
    facts = compared(str(net), setup(), arrays, np.zeros(4, int), "x.npz").to_dict()
    assert facts["labels"]["reference"] == facts["labels"]["delegate"]
    with pytest.raises(InputError, match=r"x.npz: label 99: the first output has \d+ classes, 0 to \d+"):
        compared(str(net), setup(), arrays, np.full(4, 99), "x.npz")
    with pytest.raises(InputError, match=r"x.npz: labels of shape \(3,\) for 4 samples; give one per sample"):
        compared(str(net), setup(), arrays, np.arange(3), "x.npz")
    with pytest.raises(InputError, match=r"x.npz: labels of type float64; give the numbers of classes as integers"):
        compared(str(net), setup(), arrays, np.ones(4), "x.npz")
    with pytest.raises(InputError, match=r"x.npz: holds y, expected `inputs` or `t0`"):
        compared(str(net), setup(), {"y": np.arange(3)}, None, "x.npz")


def test_a_network_that_reconstructs_its_input_has_no_labels(tflite):
    m, shape = tflite(), (1, 12, 12, 16)
    m.output(m.op("CONV_2D", [m.input(shape), *m.weights((16, 3, 3, 16))], shape, strideH=1, strideW=1))
    arrays = {"inputs": np.zeros((2, *shape), np.int8), "labels": np.arange(2)}
    assert compared(str(m.save()), setup(), arrays, None, "x.npz").labelled == 0


def test_operators_without_a_model_leave_times_open(tflite):
    m, shape = tflite(), (1, 12, 12, 16)
    x = m.op("CONV_2D", [m.input(shape), *m.weights((16, 3, 3, 16))], shape, 0.05, -3, strideH=1, strideW=1)
    m.output(m.op("RESIZE_BILINEAR", [x, m.input((2,), None, dtype="INT32")], (1, 1, 1, 16), 0.05, -3))
    arrays = {"t0": np.zeros(shape, np.int8), "t5": np.array([3, 3], np.int32)}
    path = str(m.save())
    names = [t.name.decode() if isinstance(t.name, bytes) else t.name for t in m.graph.tensors]
    arrays = {names[m.graph.inputs[0]]: arrays["t0"], names[m.graph.inputs[1]]: arrays["t5"]}
    result = compared(path, setup(), arrays, None, "x.npz")
    assert result.equal and result.alone_ms is None is result.together_ms and result.accelerator_ms > 0


def test_inputs_that_do_not_fit_are_refused(net):
    wide = {"inputs": np.full((2, 1, 12, 12, 16), 1000, np.int32)}
    with pytest.raises(InputError, match="values 1000..1000 do not fit int8"):
        compared(str(net), setup(), wide, None, "x.npz")
