"""Models in the making, and Relax functions, made of ONNX files by TVM's importer."""

import importlib

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.frontend.relax import import_relax
from tilewright.compiler.graph import reference


@pytest.fixture
def m(qdq):
    """An empty `QdqModel`."""
    return qdq()


@pytest.fixture
def relax_graph():
    """The graph of the Relax function that a file becomes."""

    def run(path):
        model = onnx.load(path)
        function = importlib.import_module("tvm.relax.frontend.onnx").from_onnx(model, keep_params_in_input=False)[
            "main"
        ]
        return import_relax(function, [v.name for v in model.graph.output], "relax")

    return run


@pytest.fixture
def same_as_onnx(relax_graph):
    """Asserts that a file's Relax function gives the operators and integers of the file itself; gives its graph."""

    def run(m):
        path = m.save()
        mine, theirs = relax_graph(path), import_onnx(path)
        assert sorted(type(op).__name__ for op in mine.ops) == sorted(type(op).__name__ for op in theirs.ops)
        x = {t.name: m.rng.normal(0, 3, t.shape).astype(np.float32) for t in mine.inputs}
        ours, others = (reference.run(graph, x)[0] for graph in (mine, theirs))
        for name, value in others.items():
            assert np.array_equal(ours[name], value)
        return mine

    return run
