"""Graphs: which cannot be, their states, and rules that rewrite them."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import Add, Graph, Names, Reshape, State, Tensor, reference
from tilewright.compiler.graph.reference import compare, initial_state
from tilewright.compiler.graph.rewrite import Rule, rewrite, without_unread
from tilewright.compiler.graph.simplify import simplify
from tilewright.compiler.memory import Lifetime, graph_buffers
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded

X, S, Y, Z, W = (Tensor(name, (1, 4)) for name in "xsyzw")
FIRST = np.array([[1, 2, 3, 4]], np.int8)
SUM = Graph("sum", (X,), (Y,), (Add("add", (X, S), Y),), (State(S, FIRST, Y),))
ONE = {"x": np.full((1, 4), 10, np.int8)}


def test_tensors_and_their_readers():
    k = Tensor("k", (4,), data=np.ones(4, np.int8))
    first, second = Add("a", (X, k), Y), Add("b", (Y, k), Z)
    graph = Graph("g", (X,), (Z,), (first, second))
    assert graph.constants == (k,)  # it needs no producer, and counts once
    assert graph.macs == 0 and graph.layers == ()
    twice, once = Add("a", (X, X), Y), Add("b", (X, Y), Z)
    assert Graph("g", (X,), (Z,), (twice, once)).readers == {"x": [twice, twice, once], "y": [once]}
    layer = g.QDense("d", (X,), Y, np.ones((4, 4), np.int8), np.ones(4, np.float32), np.zeros(4, np.int32))
    graph = Graph("g", (X,), (Y,), (layer,))
    assert graph.macs == 16 and graph.layers == (layer,)


def test_names_are_given_once():
    names = Names(["a", "a'"])
    assert [names.unused(name) for name in "abab"] == ["a'2", "b", "a'3", "b'"]


ADD = SUM.ops[0]


@pytest.mark.parametrize(
    "text, make",
    [
        ("'add' reads 's' before an operator produces it", lambda: Graph("g", (X,), (Y,), (ADD,))),
        ("no operator produces output 'z'", lambda: Graph("g", (X, S), (Z,), (ADD,))),
        ("two tensors are named 'y'", lambda: Graph("g", (X, S), (Y,), (ADD, ADD))),
        ("two operators have the same name", lambda: Graph("g", (X, S), (Y,), (ADD, Reshape("add", (Y,), Z)))),
        ("contract 'triple': must be one of double, single", lambda: SUM.under("triple")),
        ("state 's' is int8 .*, its next values, 'n', are int8 .4, 1.", lambda: State(S, FIRST, Tensor("n", (4, 1)))),
        ("its initial values are int16 .*, must be int8 ", lambda: State(S, FIRST.astype(np.int16), Y)),
        ("no operator produces 'z', the next", lambda: Graph("g", (X,), (Y,), (ADD,), (State(S, FIRST, Z),))),
        ("two tensors are named 'x'", lambda: Graph("g", (X,), (Y,), (ADD,), (*SUM.states, State(X, FIRST, Y)))),
    ],
)
def test_impossible_graphs(text, make):
    with pytest.raises(InputError, match=text):
        make()


def test_runs_start_from_the_initial_or_the_given_state():
    batches = reference.run(SUM, {"x": np.full((3, 4), 10, np.int8)})[0]["y"]
    np.testing.assert_array_equal(batches, np.concatenate([FIRST + 10 * k for k in (1, 2, 3)]))
    state = initial_state(SUM)
    for k in range(1, 4):
        np.testing.assert_array_equal(reference.run(SUM, ONE, state=state)[0]["y"], FIRST + 10 * k)
    np.testing.assert_array_equal(state["s"], FIRST + 30)
    np.testing.assert_array_equal(SUM.states[0].initial, [[1, 2, 3, 4]])
    assert compare(SUM, ONE, {"y": FIRST + 40}, state=dict(state)).difference is None
    assert compare(SUM, ONE, {"y": FIRST + 10}, state=state).difference is not None


def runs(graph, count, config="pynq_z1"):
    """y of runs one after the other on the behavioural model."""
    with Loaded(compile_graph(graph, PRESETS[config]), open_device("model", PRESETS[config])) as loaded:
        return np.concatenate([loaded.run(ONE)["y"] for _ in range(count)])


@pytest.mark.parametrize("config", ["pynq_z1", "vta"])
def test_compiled_graphs_keep_their_state(config):
    np.testing.assert_array_equal(runs(SUM, 3, config), np.concatenate([FIRST + 10 * k for k in (1, 2, 3)]))


def test_next_values_are_computed_though_nothing_reads_them():
    z = Tensor("z", (2, 2))
    ops = ADD, Reshape("view", (X,), z)
    graph = Graph("g", (X,), (z,), ops, (State(S, FIRST, Y),))
    assert simplify(graph).ops == ops and graph.wanted == (z, Y)
    executable = compile_graph(graph, PRESETS["pynq_z1"])
    assert {t.name for t in executable.states} == {"s"} and "y" in executable.tensors


CONSTANT, OTHER = Tensor("k", (1, 4), data=np.full((1, 4), 7, np.int8)), Tensor("t", (1, 4))


@pytest.mark.parametrize("new, second", [(X, 20), (CONSTANT, 17), (S, 11), (OTHER, 15)])
def test_next_values_may_be_an_input_a_constant_or_a_state(new, second):
    states = State(S, FIRST, new), State(OTHER, np.full((1, 4), 5, np.int8), OTHER)
    assert runs(Graph("g", (X,), (Y,), (ADD,), states), 2)[:, 0].tolist() == [11, second]


def test_states_are_alive_at_every_step():
    ops = (Add("first", (X, S), Y), Add("last", (Y, X), Z))
    found = {b.name: b for b in graph_buffers(Graph("g", (X,), (Z,), ops, (State(S, FIRST, Y),)))}
    assert found["s"] == Lifetime("s", 4, 0, 1) and found["first"] == Lifetime("first", 4, 0, 1)


def chain():
    """x to y to z to w; z is an output, too."""
    ops = (
        g.Requantize("first", (X,), Y),
        g.Lookup("second", (Y,), Z, "f", np.zeros(256, np.int8)),
        g.Add("third", (Z, Y), W),
    )
    return Graph("chain", (X,), (Z, W), ops)


def test_a_graph_that_no_rule_changes_stays_itself():
    graph, asked = chain(), []
    assert rewrite(graph, Rule(g.Lookup, lambda op, readers, producers: asked.append(op.name))) is graph
    assert asked == ["second"]


def test_the_first_rule_that_knows_better_is_taken_and_later_ones_see_what_it_made():
    def halves(op, readers, producers):
        between = Tensor("between", (1, 4))
        return [g.Requantize("half", op.inputs, between), g.Requantize(op.name, (between,), op.output)]

    found = []

    def noted(op, readers, producers):
        found.append([producers[t.name].inputs[0].name for t in op.inputs])

    never = Rule(g.Requantize, lambda op, readers, producers: [])
    rules = Rule(g.Add, noted), Rule((g.Requantize, g.Add), lambda op, *_: None), Rule(g.Requantize, halves), never
    graph = rewrite(chain(), *rules)
    assert [op.name for op in graph.ops] == ["half", "first", "second", "third"]
    assert found == [["y", "between"]]


def test_a_tensor_takes_the_place_of_an_output():
    graph = rewrite(chain(), Rule(g.Requantize, lambda op, readers, producers: op.x))
    assert [[t.name for t in op.inputs] for op in graph.ops] == [["x"], ["z", "x"]]


def test_only_readers_and_the_tensors_that_are_wanted():
    graph = chain()
    first, second, third = graph.ops
    assert graph.readers.only(first) is None and graph.readers.wanted == {"z", "w"}  # two read y
    assert graph.readers.only(second) is None and graph.readers.only(third) is None  # outputs
    less = Graph("less", (X,), (Z,), graph.ops[:2])
    assert less.readers.only(first) is second
    assert without_unread(Graph("less", (X,), (Y,), graph.ops)).ops == (first,)
