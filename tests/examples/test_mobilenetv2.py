"""examples/mobilenetv2: the whole network is one program, and exact."""

import numpy as np
import onnx
import pytest

from tilewright.compiler import reference
from tilewright.compiler.frontend import import_model
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import HostStep, LaunchStep
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.dram import PRESETS as DRAMS
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]
MACS = 300_774_272  # of the layers at 224x224, as published


@pytest.fixture(scope="module")
def maker(script):
    return script("mobilenetv2/make_model.py")


def compiled(maker, folder, cfg, **shape):
    path = folder / "mobilenetv2.onnx"
    onnx.save(maker.mobilenetv2(**shape), path)
    graph = import_model(path)
    executable = compile_graph(graph, cfg)
    host = [s.op for s in executable.steps if isinstance(s, HostStep)]
    assert host == ["quantize", "fold_windows", "unpack", "dequantize"]
    (step,) = (s for s in executable.steps if isinstance(s, LaunchStep))
    assert step.macs == graph.macs
    return graph, executable, step.launch


def run(graph, executable):
    x = np.random.default_rng(2).normal(0, 1, graph.inputs[0].shape).astype(np.float32)
    values = reference.trace(graph, {"image": x})
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        (output,) = loaded.run({"image": x}).values()
    assert output.tobytes() == values[graph.outputs[0].name].tobytes()
    assert np.std(output) > 3 * np.abs(np.diff(np.unique(output))).min()  # outputs that are all alike prove nothing


@pytest.mark.parametrize("name", ["pynq_z1", "pynq_z1_plus"])
def test_a_small_one_is_one_exact_program(maker, tmp_path, name):
    graph, executable, launch = compiled(maker, tmp_path, PRESETS[name], size=64, width=0.35, classes=40)
    verify(launch)
    run(graph, executable)


@pytest.mark.slow
def test_the_whole_one_is_exact_and_fast(maker, tmp_path):
    graph, executable, launch = compiled(maker, tmp_path, PLUS)
    assert graph.macs == MACS
    run(graph, executable)
    assert predict(launch).cycles <= 2_350_000
    _, _, striped = compiled(maker, tmp_path, PLUS.replace(load_ports=2))
    assert predict(striped, dram=DRAMS["zynq_hp4"]).cycles <= 2_100_000
