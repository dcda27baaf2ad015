"""apps/odimo/learning/exact.py: integers in torch equal the golden interpreter's, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.apps.odimo import torch_integers as exact
from tilewright.apps.odimo.integers import to_graph
from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.hw.errors import UnsupportedError
from tilewright.hw.rounding import rescale

torch = pytest.importorskip("torch")


def test_rescaling_is_that_of_the_contract():
    rng = np.random.default_rng(0)
    acc = rng.integers(-(2**31), 2**31, 5000)
    multiplier, exponent = rng.integers(2**30, 2**31, 5000), rng.integers(-31, 3, 5000)
    found = exact.rescaled(*(torch.from_numpy(v) for v in (acc, multiplier, exponent)))
    assert np.array_equal(found.numpy(), rescale(acc, multiplier, exponent))


def test_networks_equal_the_golden_interpreter(residual):
    graph = to_graph(residual, "net")
    images = (np.random.default_rng(1).integers(-64, 65, (50, 2, 6, 6)) / 64).astype(np.float32)
    expected, _ = reference.run(graph, {"image": images})
    found = exact.scores(graph, images)
    assert found.dtype == np.float32 and np.array_equal(found, expected["scores"]) and len(np.unique(found)) > 20


def test_other_operators_are_refused(residual):
    graph = to_graph(residual, "net")
    (op,) = (op for op in graph.ops if isinstance(op, g.Reshape))
    other = g.Transpose(
        op.name, (replace(op.x, shape=(1, 8, 1, 1)),), replace(op.output, shape=(1, 8, 1, 1)), (0, 1, 2, 3)
    )
    with pytest.raises(UnsupportedError, match="operator 'flat': a Transpose is none of a trained network"):
        exact.scores(g.Graph("t", (other.x,), (other.output,), (other,)), np.zeros((1, 8, 1, 1), np.float32))
