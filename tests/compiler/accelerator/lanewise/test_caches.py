"""Caches that the launch reads and writes as the host has them, against the reference."""

from dataclasses import replace

import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.lanewise.caches import cycles, joined, refusal
from tilewright.compiler.accelerator.stand_ins import RowsJoined
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
    ],
)
def test_longer_caches(run, heads, positions, elements):
    executable, _ = run(graph_of(heads, positions, elements))
    packed = [step.name for step in executable.steps if not isinstance(step, LaunchStep)]
    assert not [name for name in packed if "cache" in name or "longer" in name]


@pytest.mark.parametrize("on", ["spec", "rtl"])
def test_devices(run, on):
    run(graph_of(16, 4), on=on)


@pytest.mark.parametrize("positions", [16, 64])
def test_the_estimate_is_near_the_timing_model(run, positions):
    cache, row, _ = graph_of(16, positions).inputs
    caches = [replace(cache, name=f"cache{k}") for k in range(3)]
    ops = [
        g.Concat(f"join{k}", (t, row), g.Tensor(f"y{k}", (1, 16, positions + 1, 4)), 2) for k, t in enumerate(caches)
    ]
    two, three = (g.Graph("g", (row, *caches[:k]), tuple(op.output for op in ops[:k]), tuple(ops[:k])) for k in (2, 3))
    op = joined(two, 16).ops[0]
    assert isinstance(op, RowsJoined)
    found = [predict(run(joined(graph, 16))[1]).cycles for graph in (three, two)]
    assert cycles(op, PLUS) == pytest.approx(found[0] - found[1], rel=0.35)


def test_which_concatenations_these_are():
    graph = graph_of(16, 16)
    assert isinstance(joined(graph, 16).ops[0], RowsJoined)
    kept = g.Graph("g", graph.inputs, graph.outputs[1:], graph.ops)  # the longer one is no output
    for other in (kept, graph_of(8, 16), graph_of(16, 16, 3)):
        assert type(joined(other, 16).ops[0]) is g.Concat


def test_refusals():
    (op, _) = joined(graph_of(16, 16), 16).ops
    assert isinstance(op, RowsJoined)
    assert refusal(op, PLUS) == ""
    assert "it needs batch 1 and overwrite" in refusal(op, PLUS.replace(name="wide", batch=2))
    (wide, _) = joined(graph_of(16, 16, 8), 16).ops
    assert isinstance(wide, RowsJoined)
    assert refusal(wide, PLUS) == "8 elements: 70 matrices, at most 32"
    (odd, _) = joined(graph_of(16, 6), 16).ops
    assert isinstance(odd, RowsJoined)
    few = PLUS.replace(name="few", wgt_bytes=1 << 13)  # 32 matrices
    assert refusal(odd, few) == "6 positions of 4 elements: moves that do not fit" and not refusal(odd, PLUS)
    (long, _) = joined(graph_of(16, 512), 16).ops
    assert isinstance(long, RowsJoined)
    assert refusal(long, PLUS) == "512 positions: more than fit the scratchpads"
