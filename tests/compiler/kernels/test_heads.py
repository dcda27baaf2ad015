"""Networks whose heads are lanes of an entry: layers, caches and outputs are exact, and on the device."""

import numpy as np
import pytest

from tests.compiler.kernels.conftest import PLUS
from tests.compiler.kernels.operators import NUMBERS
from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.heads_in_lanes import heads_in_lanes, joined, rows_out
from tilewright.compiler.kernels import table
from tilewright.compiler.kernels.cache import RowsJoined, RowsOut
from tilewright.hw.config import PRESETS
from tilewright.runtime.executable import LaunchStep

CFG, VTA = PRESETS["pynq_z1"], PRESETS["vta"]
NCHW, NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


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


LONG = pytest.mark.circuit  # as it takes several seconds


@pytest.mark.parametrize("tokens, earlier, heads, launches", [  # 0 launches: some products are on the host
    (1, 2, 16, 1), (1, 17, 16, 1), (1, 8, 32, 1), (2, 0, 16, 1), (1, 8, 12, 0), (4, 8, 16, 0),
    *(pytest.param(*sizes, 1, marks=LONG) for sizes in ((1, 256, 16), (16, 0, 16), (40, 0, 16))),
])  # fmt: skip
def test_layers_are_exact_and_their_products_on_the_device(tokens, earlier, heads, launches, exact_graph):
    graph = Layer(tokens, earlier, heads).graph()
    found = exact_graph(graph, PLUS, refused={}).executable.launches
    if launches:
        assert len(found) == launches and sum(step.macs for step in found) == sum(op.macs for op in graph.ops)


def test_nothing_changes_where_the_rest_is_not_on_the_device(anywhere):
    graph = Layer(1, 8).graph()
    assert heads_in_lanes(graph, CFG) is graph
    anywhere(graph)


def test_a_mask_is_repeated_once_for_all_layers():
    layer = Layer(1, 8)
    graph = layer.graph()
    found = heads_in_lanes(graph, PLUS)
    assert sum(isinstance(op, g.Take) for op in found.ops) == 2  # the mask, and the rotation's matrix
    assert sum(isinstance(op, g.Lanes) for op in found.ops) == 4


def cached(heads, positions, elements=4):
    """A cache with one row more, which is an output, and what scores read of it."""
    cache, row = g.Tensor("cache", (1, heads, positions, elements)), g.Tensor("row", (1, heads, 1, elements))
    longer = g.Tensor("longer", (1, heads, positions + 1, elements))
    query, scores = g.Tensor("query", row.shape), g.Tensor("scores", (1, heads, 1, positions + 1))
    ops = (
        g.Concat("join", (cache, row), longer, 2),
        g.ShiftMatMul("scores", (query, longer), scores, ratio=0.0078125, transposed=True),
    )
    return g.Graph("g", (cache, row, query), (longer, scores), ops)


@pytest.mark.parametrize(
    ("heads", "positions", "elements"),
    [(16, 1, 4), (32, 3, 4), (32, 8, 4), (16, 64, 4), (16, 16, 2), (16, 4, 8), (16, 16, 1), (16, 2, 16)],
)
def test_longer_caches(exact_graph, heads, positions, elements):
    executable = exact_graph(cached(heads, positions, elements), PLUS).executable
    packed = [step.name for step in executable.steps if not isinstance(step, LaunchStep)]
    assert not [name for name in packed if "cache" in name or "longer" in name]


@pytest.mark.circuit
@pytest.mark.parametrize("on", ["spec", pytest.param("rtl", marks=pytest.mark.slow)])
def test_longer_caches_on_other_devices(exact_graph, on):
    exact_graph(cached(16, 4), PLUS, on=on)


def test_which_concatenations_these_are():
    graph = cached(16, 16)
    assert isinstance(joined(graph, PLUS).ops[0], RowsJoined)
    kept = g.Graph("g", graph.inputs, graph.outputs[1:], graph.ops)  # the longer one is no output
    for other in (kept, cached(8, 16), cached(16, 16, 3)):
        assert type(joined(other, PLUS).ops[0]) is g.Concat


def test_refusals_of_longer_caches():
    def cache(*shape):
        graph = cached(*shape)
        return RowsJoined("join", graph.inputs[:2], graph.outputs[0], 2)

    op, odd, long = cache(16, 16), cache(16, 6), cache(16, 512)
    assert table.refusal(op, PLUS) == ""
    assert "it needs batch 1" in table.refusal(op, PLUS.replace(name="wide", batch=2))
    assert table.refusal(cache(16, 16, 3), PLUS).startswith("16 heads of 3 elements: must be whole blocks of 16")
    few = PLUS.replace(name="few", wgt_bytes=1 << 13)  # 32 matrices
    assert "entries of WGT: they do not fit" in table.refusal(odd, few) and not table.refusal(odd, PLUS)
    assert table.refusal(long, PLUS) == "2048 entries of ACC: they do not fit those that are free in 0 to 1024"
    assert type(joined(cached(16, 512), PLUS).ops[0]) is g.Concat


def products_of(heads, rows, elements=4, outputs=("product",)):
    """A product per head, which is an output, and another one that reads it."""
    x, y = g.Tensor("x", (1, heads, rows, elements)), g.Tensor("y", (1, heads, elements, elements))
    product, scores = g.Tensor("product", x.shape), g.Tensor("scores", (1, heads, rows, rows))
    ops = (
        g.ShiftMatMul("multiply", (x, y), product, ratio=0.0078125),
        g.ShiftMatMul("scores", (x, product), scores, ratio=0.00390625, transposed=True),
    )
    kept = {t.name: t for t in (product, scores)}
    return g.Graph("g", (x, y), tuple(kept[name] for name in (*outputs, "scores")), ops)


@pytest.mark.parametrize(("heads", "rows", "elements"), [(16, 4, 4), (32, 8, 4), (16, 20, 4), (16, 64, 4), (16, 8, 2)])
def test_an_output_is_not_unpacked(heads, rows, elements, exact_graph):
    compiled = exact_graph(products_of(heads, rows, elements), PLUS)
    written = [op.output.name for op in compiled.assignment.graph.ops if isinstance(op, RowsOut)]
    assert written == ["product", "scores"]
    assert not [step.name for step in compiled.executable.steps if step.name.startswith("product")]


@pytest.mark.circuit
@pytest.mark.parametrize("on", ["spec", pytest.param("rtl", marks=pytest.mark.slow)])  # builds a circuit of its own
def test_outputs_on_other_devices(on, exact_graph):
    exact_graph(products_of(16, 4), PLUS, on=on)


def test_outputs_that_stay_as_they_were():
    odd = products_of(16, 3)  # 12 elements of a head: no whole entry
    assert rows_out(odd, PLUS) is odd
    graph = products_of(16, 4)
    assert rows_out(graph, CFG) is graph
    inner = products_of(16, 4, outputs=())
    assert [type(op) for op in rows_out(inner, PLUS).ops] == [g.ShiftMatMul, g.ShiftMatMul, RowsOut]


def test_names_that_are_taken():
    graph = products_of(16, 4)
    x, y = graph.inputs
    taken = g.Tensor("product.image", x.shape)
    first = g.ShiftMatMul("multiply", (taken, y), graph.ops[0].output, ratio=0.0078125)
    found = rows_out(g.Graph("g", (taken, y), graph.outputs[:1], (first,)), PLUS)
    assert [op.output.name for op in found.ops] == ["product.image'", "product"]


def test_refusals_of_outputs():
    op = next(op for op in rows_out(products_of(16, 4), PLUS).ops if isinstance(op, RowsOut))
    assert table.refusal(op, PLUS) == ""
    assert table.refusal(op, VTA) == "it needs the extension overwrite"
    assert table.refusal(op, PLUS.replace(name="wide", block_in=32, block_out=32)).startswith(
        "16 heads of 4 x 4 elements"
    )
