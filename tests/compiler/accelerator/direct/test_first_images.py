"""Images that the host brings to the first convolutions."""

import numpy as np

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.first_images import brought, folds_of
from tilewright.hw.config import PRESETS

CFG = PRESETS["pynq_z1"]


def image(name, c=3):
    return g.Tensor(name, (1, c, 16, 16))


def conv(name, x, y):
    weight = np.ones((y.shape[1], x.shape[1], 3, 3), np.int8)
    parameters = np.ones(y.shape[1], np.float32), np.zeros(y.shape[1], np.int32)
    return g.QConv2d(name, (x,), y, weight, *parameters, pads=(1, 1, 1, 1))


def test_what_is_moved_from_inputs_and_constants_alone_is_brought():
    x, one, y = image("x"), g.Tensor("one", (1, 1, 16, 16), data=np.ones((1, 1, 16, 16), np.int8)), image("y", 4)
    ops = g.Concat("join", (one, x), y, 1), conv("conv", y, image("z", 16))
    graph = g.Graph("g", (x,), (ops[-1].output,), ops)
    assert brought(graph) == {"x", "y"} and [*folds_of(graph, CFG)] == ["conv"]


def test_what_is_joined_with_a_computed_tensor_is_not():
    x, a, y = image("x"), image("a"), image("y", 6)
    ops = conv("first", x, a), g.Concat("join", (x, a), y, 1), conv("second", y, image("z", 16))
    graph = g.Graph("g", (x,), (ops[-1].output,), ops)
    assert brought(graph) == {"x"} and [*folds_of(graph, CFG)] == ["first"]
