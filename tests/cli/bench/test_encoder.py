"""cli/bench/encoder.py: one layer of a transformer."""

import numpy as np
import pytest

from tilewright.cli.bench import encoder
from tilewright.compiler.graph import BatchMatMul, Linear, Softmax, reference


def test_the_shape_of_the_layer():
    graph = encoder.layer(128)
    dense = [op for op in graph.ops if isinstance(op, Linear)]
    assert len(dense) == 2 + 4 + 2 * 4 + 1
    assert graph.macs == 111_149_056
    kinds = [encoder.kind_of(op) for op in graph.ops]
    assert [kinds.count(kind) for kind in ("products of matrices", "softmax", "sums")] == [2, 1, 6]


def test_values_fill_int8():
    graph = encoder.layer(16)
    values = reference.trace(graph, {"x": np.random.default_rng(1).integers(-128, 128, (1, 16, 512)).astype(np.int8)})
    for op in graph.ops:
        if isinstance(op, (Linear, BatchMatMul)):
            found = values[op.output.name].astype(float)
            assert 15 < found.std() < 80, op.name
        if isinstance(op, Softmax):
            assert values[op.output.name].max() > -60


def test_the_table(tilewright, printed):
    pytest.importorskip("tvm")
    found = printed("bench mobilebert-layer --on timing --config pynq_z1_plus")
    assert (found["rows"], found["launches"], found["total"]["exact"]) == (128, 1, True)
    assert found["total"]["macs"] == 111_149_056 and found["total"]["utilisation"] >= 0.75
    assert abs(sum(row["cycles"] for row in found["layers"]) / found["total"]["cycles"] - 1) < 1e-3
    shown = tilewright("bench", "mobilebert-layer", "--config", "pynq_z1_plus")
    assert shown.status == 0 and "1 launch" in shown.out.splitlines()[-1]
