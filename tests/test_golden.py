"""Golden programs and networks of tests/data: every byte, on everything that executes programs."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import LaunchStep
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.replay import replay_case

DATA = Path(__file__).parent / "data"
PROGRAMS = sorted((DATA / "programs").glob("*.npz"))
NETWORKS = sorted((DATA / "networks").glob("*.tflite"))


def test_the_files_are_there():
    assert len(PROGRAMS) == 7 and len(NETWORKS) == 2


@pytest.mark.parametrize("on", ["spec", "model"])
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program(path, on):
    result = replay_case(path, on)
    assert result.passed, result.detail


@pytest.mark.circuit
def test_programs_on_the_circuit():
    pytest.importorskip("amaranth")
    for path in PROGRAMS:
        if path.stem.startswith("tiny"):
            result = replay_case(path, "rtl")
            assert result.passed, result.detail


@pytest.mark.parametrize("preset", ["vta", "pynq_z1", "tiny"])
@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
def test_network(path, preset):
    pytest.importorskip("tvm")
    from tilewright.compiler.network import compile_model

    executable = compile_model(path, PRESETS[preset])
    launches = [step for step in executable.steps if isinstance(step, LaunchStep)]
    assert launches
    for step in launches:
        verify(step.launch)
    with np.load(path.with_suffix(".npz")) as data, Loaded(executable, open_device("model", executable.cfg)) as loaded:
        (x,) = executable.inputs
        for k, sample in enumerate(data["inputs"]):
            (found,) = loaded.run({x.name: sample}).values()
            assert np.array_equal(found, data["outputs"][k]), f"sample {k}"
