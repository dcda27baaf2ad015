"""`tilewright bench mobilebert-384` and the like, and `mobilebert-layer`."""

import json

import numpy as np
import pytest

from tilewright.cli.bench.transformers import SHAPES, dense_layer, kind_of, transformer_layer
from tilewright.compiler.graph import BatchMatMul, Linear, Softmax, reference


def test_the_dense_layers_of_the_published_networks():
    assert {name: sum(shapes.values()) for name, shapes in SHAPES.items()} == {"mobilebert": 362, "albert": 74}
    macs = {name: sum(384 * i * o * count for (i, o), count in shapes.items()) for name, shapes in SHAPES.items()}
    assert macs == {"mobilebert": 7776632832, "albert": 32653246464}


def test_the_shape_of_a_layer():
    graph = transformer_layer(128)
    dense = [op for op in graph.ops if isinstance(op, Linear)]
    assert len(dense) == 2 + 4 + 2 * 4 + 1
    assert graph.macs == 111_149_056
    kinds = [kind_of(op) for op in graph.ops]
    assert [kinds.count(kind) for kind in ("products of matrices", "softmax", "sums")] == [2, 1, 6]


def test_values_fill_int8():
    for graph, shape in ((dense_layer(9, (128, 40)), (1, 9, 128)), (transformer_layer(16), (1, 16, 512))):
        values = reference.trace(graph, {"x": np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)})
        for op in graph.ops:
            found = values[op.output.name].astype(float)
            if isinstance(op, (Linear, BatchMatMul)):
                assert 15 < found.std() < 80, op.name
            if isinstance(op, Softmax):
                assert found.max() > -60


def test_dense_layers_count_as_often_as_they_occur(tilewright, printed):
    found = printed("bench mobilebert-128 --on timing --layer 128x128 --profile -")
    (row,) = found["layers"]
    assert (row["name"], row["op"], row["count"], row["exact"]) == ("128x128", "dense", 72, True)
    assert row["ideal"] < row["cycles"] < 1.25 * row["ideal"]
    assert found["total"]["cycles"] == 72 * row["cycles"] and found["total"]["count"] == 72
    assert found["total"]["utilisation"] == row["utilisation"]
    shown = tilewright("bench", "mobilebert-128", "--layer", "512x2")
    assert shown.status == 0 and "128 rows" in shown.out


@pytest.mark.circuit
def test_a_whole_layer(tilewright, tmp_path):
    kept = tmp_path / "p.json"
    shown = tilewright("bench", "mobilebert-layer", "--on", "timing", "--config", "pynq_z1_plus", "--profile", kept)
    assert shown.status == 0 and "1 launch, " in shown.out and "MAC/cycle; exact; rows by" in shown.out
    found = json.loads(kept.read_text())
    assert (found["rows"], found["total"]["exact"]) == (128, True)
    assert found["total"]["macs"] == 111_149_056 and found["total"]["utilisation"] >= 0.75
    assert abs(sum(row["cycles"] for row in found["layers"]) / found["total"]["cycles"] - 1) < 1e-3


def test_what_is_refused(refused):
    refused(5, "unknown layer '5x5'; must be one of 128x768, 768x768", "bench albert-384 --layer 5x5")
