"""Recurrent operators: what fits together, and what they take from the scales. States, what runs carry over."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import Add, Graph, Reshape, State, Tensor, reference
from tilewright.compiler.graph.ranges import problem
from tilewright.compiler.graph.recurrent import product_scale
from tilewright.compiler.graph.reference import compare, initial_state
from tilewright.compiler.graph.simplify import simplify
from tilewright.compiler.memory import Lifetime, graph_buffers
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded

GATES, HIDDEN = g.Tensor("g", (1, 3, 8), "int16", 2.0**-12), g.Tensor("h", (1, 2), scale=0.01, zero_point=5)
CELLS, WIDE = g.Tensor("c", (1, 2), "int16", 2.0**-11), g.Tensor("w", (1, 4, 2), "int16", 0.01, 5)
LSTM = g.Lstm(
    "lstm", (GATES, HIDDEN, CELLS), WIDE, np.ones((8, 2), np.int8), np.zeros(8, np.int32), np.full(8, 0.5), 0.25
)


def test_an_lstm_counts_its_work():
    assert (LSTM.macs, LSTM.functions, LSTM.cell_bits) == (48, 30, 4)
    (gates, exponents), hidden = LSTM.multipliers
    assert set(gates.tolist()) == {1 << 30} and set(exponents.tolist()) == {0} and hidden == (1 << 30, -1)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"inputs": (GATES, HIDDEN)}, "the number of inputs is 2, expected 3"),
        ({"inputs": (HIDDEN, HIDDEN, CELLS)}, "the conversion is"),
        ({"inputs": (GATES, HIDDEN, replace(CELLS, scale=0.3))}, "the cells' scale is 0.6, expected 0.5"),
        (
            {"inputs": (GATES, HIDDEN, replace(CELLS, scale=0.5))},
            "the number of integer bits of the cells, from 0 to 6",
        ),
        ({"output": replace(WIDE, shape=(1, 3, 2))}, "the output's shape is"),
        ({"factor": float("nan")}, "scales sums by nan; it must be at least 0"),
        ({"coupled": True}, "the gates' shape is"),
    ],
)
def test_impossible_lstms(changes, text):
    with pytest.raises(InputError, match=text):
        replace(LSTM, **changes)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"inputs": (GATES, HIDDEN)}, "the number of inputs is 2, expected 3"),
        ({"output": HIDDEN}, "the conversion is"),
        ({"inputs": (GATES, g.Tensor("o", (1, 8), "int32"), CELLS)}, "the shapes of gates and sums is"),
        ({"output": WIDE}, "the output's shape is"),
        ({"factor": 2.0**30}, "whether R is by less than 2"),
    ],
)
def test_impossible_steps(changes, text):
    gates, own = replace(GATES, shape=(1, 1, 8)), g.Tensor("o", (1, 8), "int32")
    step = g.LstmStep("step", (gates, own, CELLS), replace(WIDE, shape=(1, 2, 2)), 0.25)
    assert (step.macs, step.functions, step.cell_bits, step.multipliers) == (0, 10, 4, (1 << 30, -1))
    with pytest.raises(InputError, match=text):
        replace(step, **changes)


def test_parts_of_its_result():
    y = g.Tensor("y", (1, 3, 2), scale=0.01, zero_point=5)
    g.LstmOutputs("o", (WIDE,), y)
    with pytest.raises(InputError, match="the output's shape, scale and zero point"):
        g.LstmOutputs("o", (WIDE,), replace(y, zero_point=4))
    with pytest.raises(InputError, match=r"the output's shape is \(1, 2\), expected \(1, 1, 2\)"):
        g.LstmCells("o", (WIDE,), CELLS)


def test_dense_and_filter():
    x, y = g.Tensor("x", (2, 3), scale=0.5), g.Tensor("y", (2, 4), "int16")
    op = g.Dense16("d", (x,), y, np.ones((4, 3), np.int8), np.zeros(4, np.int32), np.full(4, 0.5))
    assert op.macs == 24 and not problem(op)
    with pytest.raises(InputError, match="whether the output is int16 or int32 is False"):
        replace(op, output=replace(y, dtype="float32"))
    huge = replace(op, bias=np.full(4, (1 << 31) - 1, np.int32))
    assert "outside -2147483648..2147483647, where they wrap" in problem(huge)
    with pytest.raises(InputError, match="the output's zero point is 3, expected 0"):
        replace(op, output=replace(y, zero_point=3))
    window, out = g.Tensor("w", (2, 4, 3), "int16"), g.Tensor("z", (2, 2))
    op = g.Filter16("f", (window,), out, np.ones((4, 3), np.int16), np.zeros(2, np.int32), 0.5)
    assert op.macs == 24 and op.multipliers == (1 << 30, 0)
    with pytest.raises(InputError, match="the filters modulo the units is 1"):
        replace(op, bias=np.zeros(3, np.int32))
    with pytest.raises(InputError, match="whether R is by less than 2"):
        replace(op, factor=2.0**31)


def test_wide_ends():
    x = g.Tensor("x", (2,), "int16", 0.5)
    assert g.Rescale("r", (x,), g.Tensor("y", (2,), scale=0.25)).multipliers == (1 << 30, 2)
    with pytest.raises(InputError, match="whether R leaves 32 bits"):
        g.Rescale("r", (x,), g.Tensor("y", (2,), "int32", scale=0.5 / (1 << 17)))
    with pytest.raises(InputError, match="whether the types are int8, int16 or int32"):
        g.Rescale("r", (x,), g.Tensor("y", (2,), "float32"))
    z = g.Tensor("z", (2,), "int16", 1 / 65535, -(1 << 15))
    assert g.Softmax16("s", (g.Tensor("x", (2,)),), z, 0).output is z
    with pytest.raises(InputError, match="the output's scale in units of"):
        g.Softmax16("s", (g.Tensor("x", (2,)),), replace(z, scale=1 / 256), 0)


def test_products_of_scales_are_float32():
    assert product_scale(0.1, 0.3, over=0.7) == float(np.float32(np.float32(0.1) * np.float32(0.3)) / np.float32(0.7))
    assert product_scale(1e38, 1e38) == float("inf")


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
