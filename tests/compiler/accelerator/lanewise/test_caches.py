"""Caches that the launch reads and writes as the host has them, against the reference."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.lanewise.caches import RowsJoined, cycles, joined, refusal
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import LaunchStep
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
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


def run(graph, cfg=PLUS, on="model"):
    host = {"host": {op.name: "the test wants the accelerator" for op in graph.ops}}
    executable = compile_for(joined(graph, 16), cfg, "double", refused=host).executable
    (step,) = (step for step in executable.steps if isinstance(step, LaunchStep))
    verify(step.launch)
    rng = np.random.default_rng(5)
    values = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs}
    with Loaded(executable, open_device(on, cfg)) as loaded:
        got = loaded.run(values)
    expected = reference.trace(graph, values, "double")
    for t in graph.outputs:
        np.testing.assert_array_equal(got[t.name], expected[t.name])
    return executable, step.launch


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
def test_longer_caches(heads, positions, elements):
    executable, _ = run(graph_of(heads, positions, elements))
    packed = [step.name for step in executable.steps if not isinstance(step, LaunchStep)]
    assert not [name for name in packed if "cache" in name or "longer" in name]


@pytest.mark.parametrize("on", ["spec", "rtl"])
def test_devices(on):
    run(graph_of(16, 4), on=on)


@pytest.mark.parametrize("positions", [16, 64])
def test_the_estimate_is_near_the_timing_model(positions):
    cache, row, _ = graph_of(16, positions).inputs
    caches = [replace(cache, name=f"cache{k}") for k in range(3)]
    ops = [
        g.Concat(f"join{k}", (t, row), g.Tensor(f"y{k}", (1, 16, positions + 1, 4)), 2) for k, t in enumerate(caches)
    ]
    two, three = (g.Graph("g", (row, *caches[:k]), tuple(op.output for op in ops[:k]), tuple(ops[:k])) for k in (2, 3))
    op = joined(two, 16).ops[0]
    assert isinstance(op, RowsJoined)
    assert cycles(op, PLUS) == pytest.approx(predict(run(three)[1]).cycles - predict(run(two)[1]).cycles, rel=0.35)


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
