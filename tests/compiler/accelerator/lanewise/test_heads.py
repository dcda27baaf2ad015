"""Layers of Deeploy's kind, with any number of tokens and earlier positions: exact, all products on the device."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.heads_in_lanes import heads_in_lanes
from tilewright.hw.config import PRESETS

PLUS = PRESETS["pynq_z1_plus"]
NUMBERS = {"quadratic": 1, "linear": 84, "constant": 3713, "period": 62, "levels": 256}


class Layer:
    """A layer in the making: methods append operators and return their outputs."""

    def __init__(self, tokens, earlier, heads=16, elements=4):
        self.rng, self.ops = np.random.default_rng(6), []
        self.tokens, self.earlier, self.heads, self.elements = tokens, earlier, heads, elements
        self.wide, positions = heads * elements, tokens + earlier
        self.x, self.mask = g.Tensor("x", (1, tokens, self.wide)), g.Tensor("mask", (1, tokens, positions))
        self.turn = g.Tensor("turn", (1, tokens, elements, elements))
        names = ("keys", "values") if earlier else ()
        self.caches = [g.Tensor(name, (1, heads, earlier, elements)) for name in names]

    def add(self, kind, inputs, shape, *args, **facts):
        name = f"{kind.__name__}{len(self.ops)}"
        self.ops.append(kind(name, tuple(inputs), g.Tensor(name, shape), *args, **facts))
        return self.ops[-1].output

    def dense(self, x):
        weight = self.rng.integers(-128, 128, (self.wide, self.wide)).astype(np.int8)
        scale, bias = np.full(self.wide, 2**-9), self.rng.integers(-999, 999, self.wide).astype(np.int32)
        return self.add(g.QDense, (x,), x.shape, weight, scale, bias, exact=True)

    def heads_of(self, x, turned=True):
        shape = (1, self.tokens, self.heads, self.elements)
        rows = self.add(g.Reshape, (self.dense(x),), shape)
        if turned:
            rows = self.add(g.ShiftMatMul, (rows, self.turn), shape, ratio=2**-7)
        return self.add(g.Transpose, (rows,), tuple(shape[k] for k in (0, 2, 1, 3)), (0, 2, 1, 3))

    def longer(self, number, row):
        if not self.earlier:
            return row
        cache = self.caches[number]
        shape = (*cache.shape[:2], self.tokens + self.earlier, self.elements)
        return self.add(g.Concat, (cache, row), shape, 2)

    def graph(self):
        x = self.add(g.Reshape, (self.x,), (self.tokens, self.wide))
        gains = g.Tensor("gains", (self.wide,), "int32", data=np.full(self.wide, 3_931_285, np.int32))
        x = self.add(g.IntegerNorm, (x, gains), x.shape, 16)
        query = self.heads_of(x)
        keys, values = self.longer(0, self.heads_of(x)), self.longer(1, self.heads_of(x, False))
        turned = self.add(g.Transpose, (keys,), (*keys.shape[:2], *keys.shape[:1:-1]), (0, 1, 3, 2))
        shape = (1, self.heads, self.tokens, keys.shape[2])
        scores = self.add(g.ShiftMatMul, (query, turned), shape, ratio=2**-6)
        mask = self.add(g.ShiftRequantize, (self.mask,), self.mask.shape, ratio=1.5)
        scores = self.add(g.ShiftAdd, (scores, mask), shape, ratio=0.75)
        shares = self.add(g.IntegerSoftmax, (scores,), shape, **NUMBERS, ratio=0.875)
        found = self.add(g.ShiftMatMul, (shares, values), query.shape, ratio=2**-8)
        shape = (1, self.tokens, self.heads, self.elements)
        found = self.add(g.Transpose, (found,), shape, (0, 2, 1, 3))
        y = self.dense(self.add(g.Reshape, (found,), (self.tokens, self.wide)))
        inputs = (self.x, self.mask, self.turn, *self.caches)
        return g.Graph("layer", inputs, (y, keys, values), tuple(self.ops))


@pytest.fixture
def launches_of(exact_graph):
    """Compiles a graph, whose results are checked; the steps that are launches."""
    return lambda graph, cfg=PLUS: exact_graph(graph, cfg, refused={}).executable.launches


def macs(graph):
    return sum(op.macs for op in graph.ops)


@pytest.mark.parametrize(
    ("tokens", "earlier", "heads"),
    [(1, 1, 16), (1, 2, 16), (1, 8, 16), (1, 17, 16), (1, 256, 16), (1, 8, 32), (2, 0, 16), (16, 0, 16), (40, 0, 16)],
)
def test_all_products_are_on_the_device(tokens, earlier, heads, launches_of):
    graph = Layer(tokens, earlier, heads).graph()
    assert sum(step.macs for step in launches_of(graph)) == macs(graph)


@pytest.mark.parametrize("earlier", [8, 64, 256])
def test_a_token_is_one_launch(earlier, launches_of):
    assert len(launches_of(Layer(1, earlier).graph())) == 1


@pytest.mark.parametrize(("tokens", "earlier", "heads"), [(1, 8, 12), (64, 0, 16), (4, 8, 16), (1, 0, 16), (4, 0, 32)])
def test_other_sizes_are_exact(tokens, earlier, heads, launches_of):
    launches_of(Layer(tokens, earlier, heads).graph())


def test_nothing_changes_where_the_rest_is_not_on_the_device(launches_of):
    graph = Layer(1, 8).graph()
    assert heads_in_lanes(graph, PRESETS["pynq_z1"]) is graph
    launches_of(graph, PRESETS["pynq_z1"])


def test_a_mask_is_repeated_once_for_all_layers():
    layer = Layer(1, 8)
    graph = layer.graph()
    found = heads_in_lanes(graph, PLUS)
    assert sum(isinstance(op, g.Take) for op in found.ops) == 2  # the mask, and the rotation's matrix
    assert sum(isinstance(op, g.Lanes) for op in found.ops) == 4
