"""What runs on the board, on an emulated ARM with indices of 32 bits: the same bytes as here."""

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / "build" / "arm" / "python"
SCRIPT = Path(__file__).parent / "on_arm.py"
NETWORKS = [ROOT / "examples" / "digits" / "digits.onnx"]
NETWORKS += sorted((ROOT.parent / "shared" / "models").glob("*.tflite"))


def compiled(path, host_alone):
    """(the network's executable, random inputs for it)."""
    from tilewright.compiler.frontend import import_model
    from tilewright.compiler.network import compile_for

    graph = import_model(path)
    refused = {"accelerator": {op.name: "the test wants the host" for op in graph.ops}} if host_alone else {}
    executable = compile_for(graph, PRESETS["pynq_z1"], refused=refused).executable
    rng = np.random.default_rng(3)
    draw = {"f": lambda t: rng.normal(size=t.shape).astype(t.dtype), "i": lambda t: rng.integers(-128, 128, t.shape)}
    return executable, {t.name: draw[np.dtype(t.dtype).kind](t).astype(t.dtype) for t in executable.inputs}


def compare(tmp_path, python, machine, path, host_alone):
    """Run the network on model and driver by `python`, which says that it is on `machine`, and on the model here."""
    pytest.importorskip("tvm")
    executable, inputs = compiled(path, host_alone)
    executable.save(tmp_path / "net.tw")
    np.savez(tmp_path / "net.npz", **inputs)
    done = subprocess.run([python, SCRIPT, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(machine)
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        wanted = loaded.run(inputs)
    for device in ("model", "board"):
        with np.load(tmp_path / f"net.{device}.npz") as found:
            assert set(found) == set(wanted)
            for name, array in wanted.items():
                assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
                assert found[name].tobytes() == array.tobytes(), (device, name)


@pytest.fixture
def arm():
    if not PYTHON.exists():
        pytest.skip("no emulated ARM: `make test-arm` makes one")
    return PYTHON


@pytest.mark.parametrize("host_alone", [False, True], ids=["both", "host"])
@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
def test_networks_give_the_same_bytes_on_an_arm(tmp_path, arm, path, host_alone):
    compare(tmp_path, arm, "armv7l", path, host_alone)


def test_networks_give_the_same_bytes_through_the_driver(tmp_path):
    compare(tmp_path, sys.executable, platform.machine(), NETWORKS[0], False)
