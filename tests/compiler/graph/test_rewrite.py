"""compiler/graph/rewrite.py: rules in the place of operators, and readers and producers as rules see them."""

import numpy as np

from tilewright.compiler import graph as g
from tilewright.compiler.graph.rewrite import Rule, rewrite, without_unread

X, Y, Z, W = (g.Tensor(name, (1, 4)) for name in "xyzw")


def chain():
    """x to y to z to w; z is an output, too."""
    ops = (
        g.Requantize("first", (X,), Y),
        g.Lookup("second", (Y,), Z, "f", np.zeros(256, np.int8)),
        g.Add("third", (Z, Y), W),
    )
    return g.Graph("chain", (X,), (Z, W), ops)


def test_a_graph_that_no_rule_changes_stays_itself():
    graph = chain()
    asked = []
    assert rewrite(graph, Rule(g.Lookup, lambda op, readers, producers: asked.append(op.name))) is graph
    assert asked == ["second"]


def test_the_first_rule_that_knows_better_is_taken_and_later_ones_see_what_it_made():
    def halves(op, readers, producers):
        between = g.Tensor("between", (1, 4))
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
    less = g.Graph("less", (X,), (Z,), graph.ops[:2])
    assert less.readers.only(first) is second
    assert without_unread(g.Graph("less", (X,), (Y,), graph.ops)).ops == (first,)
