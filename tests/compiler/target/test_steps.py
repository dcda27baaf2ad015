"""Steps in the making."""

import numpy as np

from tilewright.compiler import graph as g
from tilewright.compiler.target.steps import Steps, wanted_from
from tilewright.hw.config import PRESETS

X, Y, Z = (g.Tensor(name, (1, 4)) for name in "xyz")
OPS = (g.Requantize("first", (X,), Y), g.Requantize("second", (Y,), Z))


def test_tensors_of_the_graph_and_new_ones():
    constant = g.Tensor("c", (1, 4), data=np.zeros((1, 4), np.int8))
    graph = g.Graph("g", (X,), (Z,), (*OPS[:1], g.Add("second", (Y, constant), Z)))
    steps = Steps(graph, PRESETS["tiny"], "double")
    assert {name: t.kind for name, t in steps.tensors.items()} == {
        "x": "input",
        "y": "temp",
        "z": "output",
        "c": "constant",
    }
    assert steps.host("y", "reshape", {"shape": [4]}, ["x"], (4,)) == "y'"


def test_kernels_count_the_work_once():
    x, y = g.Tensor("x", (1, 4)), g.Tensor("y", (1, 3))
    dense = g.QDense("fc", (x,), y, np.ones((3, 4), np.int8), np.ones(3, np.float32), np.zeros(3, np.int32))
    steps = Steps(g.Graph("g", (x,), (y,), (dense,)), PRESETS["tiny"], "double")
    steps.kernels(dense)
    assert [(s.name, s.macs) for s in steps.executable().steps] == [("fc.acc", 0), ("fc", 12)]


def test_tensors_that_no_step_names_are_left_out():
    steps = Steps(g.Graph("g", (X,), (Y,), OPS), PRESETS["tiny"], "double")
    steps.kernels(OPS[0])
    assert list(steps.executable().tensors) == ["x", "y"]


def test_what_others_want():
    assert [t.name for t in wanted_from(g.Graph("g", (X,), (Z,), OPS), OPS)] == ["z"]
    assert [t.name for t in wanted_from(g.Graph("g", (X,), (Z,), OPS), OPS[:1])] == ["y"]
    assert [t.name for t in wanted_from(g.Graph("g", (X,), (Y, Z), OPS), OPS)] == ["y", "z"]
