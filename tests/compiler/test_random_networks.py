"""Random small networks: every value is that of LiteRT's reference kernels, and the plan of their memory is sound.

They have no dense layers, which LiteRT rounds in another way (see test_tflite_ops.py).
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler import reference
from tilewright.compiler.memory import graph_buffers, plan
from tilewright.compiler.tflite import import_tflite

ANY_SEED = given(st.integers(0, 2**32 - 1))
# the function-scoped fixtures only name a folder
EXAMPLES = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


def check(m, litert_outputs):
    m.graph.outputs = [t for t in m.shapes if t not in m.graph.inputs]  # every value
    path = m.save()
    graph = import_tflite(path)
    (name,) = (t.name for t in graph.inputs)
    for _ in range(2):
        x = m.rng.integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
        mine, _ = reference.run(graph, {name: x})
        for t, expected in zip(graph.outputs, litert_outputs(path, x), strict=True):
            assert np.array_equal(mine[t.name], expected), t.name
    found = plan(graph_buffers(graph, in_place=True))
    assert found.bound <= found.nbytes <= found.greedy


@settings(max_examples=40, **EXAMPLES)
@ANY_SEED
def test_every_value_is_exact(random_network, litert_outputs, seed):
    check(random_network(seed, dense=False), litert_outputs)


@pytest.mark.slow
@settings(max_examples=600, **EXAMPLES)
@ANY_SEED
def test_every_value_is_exact_in_many(random_network, litert_outputs, seed):
    check(random_network(seed, layers=12, dense=False), litert_outputs)
