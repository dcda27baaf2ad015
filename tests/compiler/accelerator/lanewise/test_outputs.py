"""Outputs whose heads are lanes, written as the host has them, against the reference."""

import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.heads_in_lanes import rows_out
from tilewright.compiler.kernels.stand_ins import RowsOut
from tilewright.compiler.kernels.table import cycles, overlap, refusal
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]


def graph_of(heads, rows, elements=4, outputs=("product",)):
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
    compiled = exact_graph(graph_of(heads, rows, elements), PLUS)
    written = [op.output.name for op in compiled.assignment.graph.ops if isinstance(op, RowsOut)]
    assert written == ["product", "scores"]
    assert not [step.name for step in compiled.executable.steps if step.name.startswith("product")]


@pytest.mark.parametrize("on", ["spec", "rtl"])
def test_devices(on, exact_graph):
    exact_graph(graph_of(16, 4), PLUS, on=on)


def test_what_stays_as_it_was():
    odd = graph_of(16, 3)  # 12 elements of a head: no whole entry
    assert rows_out(odd, PLUS) is odd
    graph = graph_of(16, 4)
    assert rows_out(graph, PRESETS["pynq_z1"]) is graph
    inner = graph_of(16, 4, outputs=())
    assert [type(op) for op in rows_out(inner, PLUS).ops] == [g.ShiftMatMul, g.ShiftMatMul, RowsOut]


def test_names_that_are_taken():
    graph = graph_of(16, 4)
    x, y = graph.inputs
    taken = g.Tensor("product.image", x.shape)
    first = g.ShiftMatMul("multiply", (taken, y), graph.ops[0].output, ratio=0.0078125)
    found = rows_out(g.Graph("g", (taken, y), graph.outputs[:1], (first,)), PLUS)
    assert [op.output.name for op in found.ops] == ["product.image'", "product"]


@pytest.mark.parametrize("rows", [16, 64])
def test_the_estimate_is_near_the_timing_model(rows, exact_graph):
    with_rows, without = (exact_graph(graph_of(16, rows, 4, outputs), PLUS) for outputs in (("product",), ()))
    ops = with_rows.assignment.graph.ops
    (op,) = (op for op in ops if isinstance(op, RowsOut) and op.output.name == "product")
    (before,) = (one for one in ops if one.output is op.x)
    launches = [one.executable.launches[0] for one in (with_rows, without)]
    added = predict(launches[0].launch).cycles - predict(launches[1].launch).cycles
    assert 0 < cycles(op, PLUS) - overlap(before, op, PLUS, {}) < 1.35 * added


def test_refusals():
    op = next(op for op in rows_out(graph_of(16, 4), PLUS).ops if isinstance(op, RowsOut))
    assert refusal(op, PLUS) == ""
    assert refusal(op, PRESETS["vta"]) == "it needs the extension overwrite"
    assert refusal(op, PLUS.replace(name="wide", block_in=32, block_out=32)).startswith("16 heads of 4 x 4 elements")
