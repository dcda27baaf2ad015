"""examples/resnet18: the whole network is one program, and exact."""

import numpy as np
import pytest

from tilewright.compiler.graph import Dequantize, Quantize, reference
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]


@pytest.fixture(scope="module")
def maker(script):
    return script("resnet18/make_model.py")


@pytest.fixture
def compiled(maker, one_program):
    return lambda **shape: one_program(maker.resnet18(**shape), CFG)


def run(graph, executable):
    x = np.random.default_rng(2).normal(0, 1, graph.inputs[0].shape).astype(np.float32)
    expected, _ = reference.run(graph, {"image": x})
    with Loaded(executable, open_device("model", CFG)) as loaded:
        outputs = loaded.run({"image": x})
    for name, value in expected.items():
        assert outputs[name].tobytes() == value.tobytes()
    values = reference.trace(graph, {"image": x})
    kinds = (Quantize, Dequantize)
    spreads = [np.std(values[op.output.name].astype(float)) for op in graph.ops if not isinstance(op, kinds)]
    assert min(spreads) > 3  # activations that are all alike would prove nothing


@pytest.mark.circuit
def test_a_small_one_is_one_exact_program(compiled):
    graph, executable, launch = compiled(size=64, width=16, classes=40)
    verify(launch)
    run(graph, executable)


@pytest.mark.slow
def test_the_whole_one_is_exact_and_fast(compiled):
    graph, executable, launch = compiled()
    run(graph, executable)
    assert predict(launch).cycles <= 1.03 * 7_441_960  # the sum of its layers' rooflines
