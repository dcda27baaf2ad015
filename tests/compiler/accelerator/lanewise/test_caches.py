"""Caches that the launch reads and writes as the host has them, against the reference."""

import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.heads_in_lanes import joined
from tilewright.compiler.kernels.cache import join_rows
from tilewright.compiler.kernels.language import cycles
from tilewright.compiler.kernels.stand_ins import RowsJoined
from tilewright.compiler.kernels.table import refusal
from tilewright.hw.config import PRESETS
from tilewright.runtime.executable import LaunchStep
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]


def graph_of(heads, positions, elements=4):
    """A cache with one row more, which is an output, and what scores read of it."""
    cache, row = g.Tensor("cache", (1, heads, positions, elements)), g.Tensor("row", (1, heads, 1, elements))
    longer = g.Tensor("longer", (1, heads, positions + 1, elements))
    query, scores = g.Tensor("query", row.shape), g.Tensor("scores", (1, heads, 1, positions + 1))
    ops = (
        g.Concat("join", (cache, row), longer, 2),
        g.ShiftMatMul("scores", (query, longer), scores, ratio=0.0078125, transposed=True),
    )
    return g.Graph("g", (cache, row, query), (longer, scores), ops)


@pytest.fixture
def run(exact_graph):
    """Compiles a graph, whose results are checked; the executable and its launch."""

    def checked(graph, on="model"):
        executable = exact_graph(graph, PLUS, on=on).executable
        return executable, executable.launches[0].launch

    return checked


@pytest.mark.parametrize(
    ("heads", "positions", "elements"),
    [
        (16, 1, 4),
        (16, 2, 4),
        (32, 3, 4),
        (16, 4, 4),
        (16, 6, 4),
        (16, 16, 4),
        (32, 8, 4),
        (16, 64, 4),
        (16, 16, 2),
        (16, 256, 4),
        (16, 4, 8),
        (16, 16, 1),
        (16, 2, 16),
    ],
)
def test_longer_caches(run, heads, positions, elements):
    executable, _ = run(graph_of(heads, positions, elements))
    packed = [step.name for step in executable.steps if not isinstance(step, LaunchStep)]
    assert not [name for name in packed if "cache" in name or "longer" in name]


@pytest.mark.parametrize("on", ["spec", "rtl"])
def test_devices(run, on):
    run(graph_of(16, 4), on=on)


@pytest.mark.parametrize("positions", [6, 16, 64])
def test_the_cycles_are_those_of_the_launch(run, positions):
    graph = graph_of(16, positions)
    alone = joined(g.Graph("g", graph.inputs[:2], graph.outputs[:1], graph.ops[:1]), PLUS)
    op = alone.ops[0]
    assert isinstance(op, RowsJoined)
    assert cycles(join_rows, op, PLUS) == pytest.approx(predict(run(alone)[1]).cycles, rel=0.01)


def test_which_concatenations_these_are():
    graph = graph_of(16, 16)
    assert isinstance(joined(graph, PLUS).ops[0], RowsJoined)
    kept = g.Graph("g", graph.inputs, graph.outputs[1:], graph.ops)  # the longer one is no output
    for other in (kept, graph_of(8, 16), graph_of(16, 16, 3)):
        assert type(joined(other, PLUS).ops[0]) is g.Concat


def test_refusals():
    def cache(*shape):
        graph = graph_of(*shape)
        return RowsJoined("join", graph.inputs[:2], graph.outputs[0], 2)

    op, odd, long = cache(16, 16), cache(16, 6), cache(16, 512)
    assert refusal(op, PLUS) == ""
    assert "it needs batch 1" in refusal(op, PLUS.replace(name="wide", batch=2))
    assert refusal(cache(16, 16, 3), PLUS).startswith("16 heads of 3 elements: must be whole blocks of 16")
    few = PLUS.replace(name="few", wgt_bytes=1 << 13)  # 32 matrices
    assert "entries of WGT: they do not fit" in refusal(odd, few) and not refusal(odd, PLUS)
    assert refusal(long, PLUS) == "2048 entries of ACC: they do not fit those that are free in 0 to 1024"
    assert type(joined(graph_of(16, 512), PLUS).ops[0]) is g.Concat
