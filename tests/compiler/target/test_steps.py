"""Steps in the making."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.target.steps import Steps, wanted_from
from tilewright.hw.config import PRESETS
from tilewright.runtime.executable import HostStep

X, Y, Z = (g.Tensor(name, (1, 4)) for name in "xyz")
OPS = (g.Requantize("first", (X,), Y), g.Requantize("second", (Y,), Z))


def test_tensors_of_the_graph_and_new_ones():
    constant = g.Tensor("c", (1, 4), data=np.zeros((1, 4), np.int8))
    graph = g.Graph("g", (X,), (Z,), (*OPS[:1], g.Add("second", (Y, constant), Z)))
    steps = Steps(graph, PRESETS["tiny"])
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
    steps = Steps(g.Graph("g", (x,), (y,), (dense,)), PRESETS["tiny"])
    steps.kernels(dense)
    assert [(s.name, s.macs) for s in steps.executable().steps] == [("fc.acc", 0), ("fc", 12)]


def test_tensors_that_no_step_names_are_left_out():
    steps = Steps(g.Graph("g", (X,), (Y,), OPS), PRESETS["tiny"])
    steps.kernels(OPS[0])
    assert list(steps.executable().tensors) == ["x", "y"]


def test_what_others_want():
    assert [t.name for t in wanted_from(g.Graph("g", (X,), (Z,), OPS), OPS)] == ["z"]
    assert [t.name for t in wanted_from(g.Graph("g", (X,), (Z,), OPS), OPS[:1])] == ["y"]
    assert [t.name for t in wanted_from(g.Graph("g", (X,), (Y, Z), OPS), OPS)] == ["y", "z"]


IMAGE, PLANES = g.Tensor("image", (1, 4, 5, 3)), g.Tensor("planes", (1, 3, 4, 5))
GREY, GREY_PLANES = g.Tensor("grey", (1, 4, 5, 1)), g.Tensor("grey planes", (1, 1, 4, 5))


@pytest.mark.parametrize(
    "op, source",
    [
        (g.Transpose("t", (IMAGE,), PLANES, (0, 3, 1, 2), True), ("image", {"layout": "NHWC"})),
        (g.Reshape("t", (GREY,), GREY_PLANES), ("grey", {"layout": "NHWC"})),
        (g.Reshape("t", (IMAGE,), PLANES), ("planes", {})),  # it moves no element
    ],
)
def test_readers_of_an_image_in_another_order(op, source):
    steps = Steps(g.Graph("g", op.inputs, (op.output,), (op,)), PRESETS["tiny"])
    assert steps.source(op.output) == (op.output.name, {})
    steps.kernels(op)
    assert steps.source(op.output) == source


def test_steps_that_nobody_reads_are_dropped():
    graph = g.Graph("g", (X,), (Z,), OPS)
    steps = Steps(graph, PRESETS["tiny"])
    steps.kernels(OPS[0])
    steps.host("late", "rescale", {}, ["y"], (1, 4))
    steps.kernels(g.Requantize("second", (X,), Z))
    assert [step.name for step in steps.executable().steps] == ["second"]


def test_a_softmax_reads_blocks():
    softmax = g.Softmax("softmax", (Y,), g.Tensor("z", (1, 4), scale=1 / 256, zero_point=-128), 1)
    steps = Steps(g.Graph("g", (X,), (softmax.output,), (OPS[0], softmax)), PRESETS["tiny"])
    packed = steps.host("pack", "pack", {"batch": 1, "block": 4}, ["x"], (1, 1, 1, 4))
    steps.steps.append(HostStep("y.unpack", "unpack", [packed], ["y"], {"n": 1, "c": 4, "shape": [1, 4]}))
    steps.kernels(softmax)
    steps.tensors[packed].kind = "output"  # else the two are one call
    pairs = [(step.name, step.op) for step in steps.executable().steps if isinstance(step, HostStep)]
    assert pairs == [("pack", "pack"), ("softmax", "unpack_softmax")]
