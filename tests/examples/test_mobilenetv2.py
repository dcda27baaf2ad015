"""examples/mobilenetv2: the whole network is one program, and exact."""

import numpy as np
import pytest

from tilewright.compiler.graph import reference
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.dram import PRESETS as DRAMS
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]
MACS = 300_774_272  # of the layers at 224x224, as published


@pytest.fixture(scope="module")
def maker(script):
    return script("mobilenetv2/make_model.py")


@pytest.fixture
def compiled(maker, one_program):
    return lambda cfg, **shape: one_program(maker.mobilenetv2(**shape), cfg)


def run(graph, executable):
    x = np.random.default_rng(2).normal(0, 1, graph.inputs[0].shape).astype(np.float32)
    values = reference.trace(graph, {"image": x})
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        (output,) = loaded.run({"image": x}).values()
    assert output.tobytes() == values[graph.outputs[0].name].tobytes()
    assert np.std(output) > 3 * np.abs(np.diff(np.unique(output))).min()  # outputs that are all alike prove nothing


@pytest.mark.circuit
@pytest.mark.parametrize("name", ["pynq_z1", "pynq_z1_plus"])
def test_a_small_one_is_one_exact_program(compiled, name):
    graph, executable, launch = compiled(PRESETS[name], size=64, width=0.35, classes=40)
    verify(launch)
    run(graph, executable)


@pytest.mark.slow
def test_the_whole_one_is_exact_and_fast(compiled):
    graph, executable, launch = compiled(PLUS)
    assert graph.macs == MACS
    run(graph, executable)
    assert predict(launch).cycles <= 2_350_000
    _, _, striped = compiled(PLUS.replace(load_ports=2))
    assert predict(striped, dram=DRAMS["zynq_hp4"]).cycles <= 2_100_000
