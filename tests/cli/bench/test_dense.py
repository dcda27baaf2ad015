"""cli/bench/dense.py: the tables of dense layers."""

import numpy as np
import pytest

from tilewright.cli.bench import dense
from tilewright.compiler.graph import reference


def test_the_layers_of_the_published_networks():
    counts = {name: sum(shapes.values()) for name, (_, shapes) in dense.WORKLOADS.items()}
    assert counts == {"mobilebert-384": 362, "mobilebert-128": 362, "albert-384": 74, "albert-128": 74}
    macs = {
        name: sum(rows * i * o * count for (i, o), count in shapes.items())
        for name, (rows, shapes) in dense.WORKLOADS.items()
    }
    assert macs["mobilebert-384"] == 7776632832 and macs["albert-384"] == 32653246464


def test_sums_fill_int8():
    graph = dense.layer(9, (128, 40))
    x = np.random.default_rng(1).integers(-128, 128, (1, 9, 128), np.int8)
    assert 20 < reference.trace(graph, {"x": x})["y"].astype(float).std() < 80


def test_the_table(tilewright, printed):
    pytest.importorskip("tvm")
    found = printed("bench mobilebert-128 --on timing --layer 128x128 --profile -")
    (row,) = found["layers"]
    assert (row["name"], row["op"], row["count"], row["exact"]) == ("128x128", "dense", 72, True)
    assert row["ideal"] < row["cycles"] < 1.25 * row["ideal"]
    assert found["total"]["cycles"] == 72 * row["cycles"] and found["total"]["count"] == 72
    shown = tilewright("bench", "mobilebert-128", "--layer", "512x2")
    assert shown.status == 0 and "128 rows" in shown.out.splitlines()[-1]


def test_what_is_refused(tilewright, refused):
    pytest.importorskip("tvm")
    refused(5, "unknown layer '5x5'; must be one of 128x768, 768x768", "bench albert-384 --layer 5x5")
    assert tilewright("bench", "albert-384", "--compare", "tiles").status == 2
