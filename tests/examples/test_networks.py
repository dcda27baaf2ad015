"""The networks that examples make are one program each, and exact."""

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Dequantize, Quantize, reference
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import HostStep
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.dram import PRESETS as DRAMS
from tilewright.sim.timing import predict

PYNQ, PLUS = PRESETS["pynq_z1"], PRESETS["pynq_z1_plus"]


@pytest.fixture
def one_program(script, tmp_path):
    """A function that makes a network of the examples and compiles it to one launch: (graph, executable, launch)."""

    def compiled(name, cfg, **shape):
        onnx.save(getattr(script(f"{name}/make_model.py"), name)(**shape), tmp_path / "model.onnx")
        graph = import_model(tmp_path / "model.onnx")
        executable = compile_graph(graph, cfg)
        host = [s.op for s in executable.steps if isinstance(s, HostStep)]
        # quantised and laid out, or checked where that is faster on the device; unpacked and dequantised
        assert host == ["expect_numbers" if name == "mobilenetv2" and shape else "chain", "chain"]
        (step,) = executable.launches
        assert step.macs == graph.macs
        return graph, executable, step.launch

    return compiled


def check(graph, executable):
    """Run on the model; the outputs are the golden interpreter's, of values that are not all alike."""
    x = np.random.default_rng(2).normal(0, 1, graph.inputs[0].shape).astype(np.float32)
    values = reference.trace(graph, {"image": x})
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        (output,) = loaded.run({"image": x}).values()
    assert output.tobytes() == values[graph.outputs[0].name].tobytes()
    assert np.std(output) > 3 * np.abs(np.diff(np.unique(output))).min()
    spreads = [np.std(values[op.output.name]) for op in graph.ops if not isinstance(op, (Quantize, Dequantize))]
    assert min(spreads) > 1


@pytest.mark.circuit
@pytest.mark.parametrize(
    "name, cfg, shape",
    [
        ("mobilenetv2", PYNQ, {"width": 0.35}),
        ("mobilenetv2", PLUS, {"width": 0.35}),
        ("resnet18", PYNQ, {"width": 16}),
    ],
)
def test_a_small_network_is_one_exact_program(one_program, name, cfg, shape):
    graph, executable, launch = one_program(name, cfg, size=64, classes=40, **shape)
    verify(launch)
    check(graph, executable)


@pytest.mark.slow
def test_mobilenetv2_is_exact_and_fast(one_program):
    graph, executable, launch = one_program("mobilenetv2", PLUS)
    assert graph.macs == 300_774_272  # of the layers at 224x224, as published
    check(graph, executable)
    assert predict(launch).cycles <= 2_350_000
    _, _, striped = one_program("mobilenetv2", PLUS.replace(load_ports=2))
    assert predict(striped, dram=DRAMS["zynq_hp4"]).cycles <= 2_100_000


@pytest.mark.slow
def test_resnet18_is_exact_and_fast(one_program):
    graph, executable, launch = one_program("resnet18", PYNQ)
    check(graph, executable)
    assert predict(launch).cycles <= 1.03 * 7_441_960  # the sum of its layers' rooflines
