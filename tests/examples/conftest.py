"""Fixtures of the examples: their scripts as modules."""

from pathlib import Path

import onnx
import pytest

from tests.modules import module_of
from tilewright.compiler.frontend import import_model
from tilewright.compiler.network import compile_graph
from tilewright.runtime.executable import HostStep, LaunchStep

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def script():
    """A function that imports a script of the examples by its path in their folder."""
    return lambda path: module_of(EXAMPLES / path)


@pytest.fixture
def one_program(tmp_path):
    """A function that compiles a model of one launch: (graph, executable, launch)."""

    def compiled(model, cfg):
        onnx.save(model, tmp_path / "model.onnx")
        graph = import_model(tmp_path / "model.onnx")
        executable = compile_graph(graph, cfg)
        host = [s.op for s in executable.steps if isinstance(s, HostStep)]
        assert host == ["chain", "chain"]  # quantised and laid out, unpacked and dequantised
        (step,) = (s for s in executable.steps if isinstance(s, LaunchStep))
        assert step.macs == graph.macs
        return graph, executable, step.launch

    return compiled
