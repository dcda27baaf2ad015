"""States of a graph: what fits, and what the golden interpreter carries from run to run."""

import numpy as np
import pytest

from tilewright.compiler.graph import Add, Graph, Reshape, State, Tensor, reference
from tilewright.compiler.graph.reference import compare, initial_state
from tilewright.compiler.graph.simplify import simplify
from tilewright.compiler.memory import Lifetime, graph_buffers
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded

X, S, Y = Tensor("x", (1, 4)), Tensor("s", (1, 4)), Tensor("y", (1, 4))
FIRST = np.array([[1, 2, 3, 4]], np.int8)
SUM = Graph("sum", (X,), (Y,), (Add("add", (X, S), Y),), (State(S, FIRST, Y),))
ONE = {"x": np.full((1, 4), 10, np.int8)}


def test_a_run_starts_from_the_initial_values_or_the_given():
    expected = FIRST + 10
    np.testing.assert_array_equal(reference.run(SUM, ONE)[0]["y"], expected)
    state = initial_state(SUM)
    for k in range(1, 4):
        np.testing.assert_array_equal(reference.run(SUM, ONE, state=state)[0]["y"], FIRST + 10 * k)
    np.testing.assert_array_equal(state["s"], FIRST + 30)
    np.testing.assert_array_equal(SUM.states[0].initial, [[1, 2, 3, 4]])


def test_batches_are_runs_one_after_the_other():
    outputs, _ = reference.run(SUM, {"x": np.full((3, 4), 10, np.int8)})
    np.testing.assert_array_equal(outputs["y"], np.concatenate([FIRST + 10 * k for k in (1, 2, 3)]))


def test_compare_with_state():
    state = {"s": FIRST + 10}
    assert compare(SUM, ONE, {"y": FIRST + 20}, state=dict(state)).difference is None
    assert compare(SUM, ONE, {"y": FIRST + 10}, state=state).difference is not None


@pytest.mark.parametrize("config", ["pynq_z1", "vta"])
def test_compiled(config):
    with Loaded(compile_graph(SUM, PRESETS[config]), open_device("model", PRESETS[config])) as loaded:
        found = [loaded.run(ONE)["y"] for _ in range(3)]
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate([FIRST + 10 * k for k in (1, 2, 3)]))


def test_next_values_are_computed_though_nothing_reads_them():
    z = Tensor("z", (2, 2))
    ops = (Add("add", (X, S), Y), Reshape("view", (X,), z))
    graph = Graph("g", (X,), (z,), ops, (State(S, FIRST, Y),))
    assert simplify(graph).ops == ops and graph.wanted == (z, Y)
    executable = compile_graph(graph, PRESETS["pynq_z1"])
    assert {t.name for t in executable.states} == {"s"} and "y" in executable.tensors


def test_next_values_may_be_an_input_a_constant_or_a_state():
    k, t = Tensor("k", (1, 4), data=np.full((1, 4), 7, np.int8)), Tensor("t", (1, 4))
    for new, expected in ((X, 20), (k, 17), (S, 11), (t, 15)):
        states = (State(S, FIRST, new), State(t, np.full((1, 4), 5, np.int8), t))
        graph = Graph("g", (X,), (Y,), (Add("add", (X, S), Y),), states)
        with Loaded(compile_graph(graph, PRESETS["pynq_z1"]), open_device("model", PRESETS["pynq_z1"])) as loaded:
            assert [int(loaded.run(ONE)["y"][0, 0]) for _ in range(2)] == [11, expected]


def test_states_are_alive_at_every_step():
    ops = (Add("first", (X, S), Y), Add("last", (Y, X), Tensor("z", (1, 4))))
    graph = Graph("g", (X,), (ops[1].output,), ops, (State(S, FIRST, Y),))
    found = {b.name: b for b in graph_buffers(graph)}
    assert found["s"] == Lifetime("s", 4, 0, 1) and found["first"] == Lifetime("first", 4, 0, 1)


def test_impossible_states():
    with pytest.raises(InputError, match=r"state 's' is int8 \(1, 4\), its next values, 'y', are int8 \(4, 1\)"):
        State(S, FIRST, Tensor("y", (4, 1)))
    with pytest.raises(InputError, match=r"its initial values are int16 \(1, 4\), must be int8 \(1, 4\)"):
        State(S, FIRST.astype(np.int16), Y)
    with pytest.raises(InputError, match="no operator produces 'n', the next values of 's'"):
        Graph("g", (X,), (Y,), SUM.ops, (State(S, FIRST, Tensor("n", (1, 4))),))
    with pytest.raises(InputError, match="two tensors are named 'x'"):
        Graph("g", (X,), (Y,), SUM.ops, (State(S, FIRST, Y), State(X, FIRST, Y)))
