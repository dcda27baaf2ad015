"""cli/bench/units.py: a network by the share of channels on the second unit."""

import json

import pytest

from tilewright.cli.bench import units
from tilewright.hw.config import PRESETS

TWO = PRESETS["pynq_z1_two"]


def test_points():
    widths = units.WORKLOADS["resnet8-units"]
    graph, split = units.point("50", widths, TWO)
    assert split["first"] == split["last"] == 0 and split["block1.a"] == 16 and split["block3.b"] == 32
    assert graph.macs == 12_501_632
    for op in graph.layers:
        count = split[op.name]
        assert abs(op.weight[len(op.weight) - count :].astype(int)).max(initial=0) <= 1
        assert count == len(op.weight) or abs(op.weight[: len(op.weight) - count].astype(int)).max() > 1
    _, every = units.point("all", widths, TWO)
    assert every["first"] == 16 and every["last"] == 10
    totals = [sum(units.point(name, widths, TWO)[1].values()) for name in units.SHARES]
    assert totals == sorted(totals) and totals[0] == 0


def test_cycles_of_some_points(tilewright):
    pytest.importorskip("tvm")
    given = ["--layer", "0", "--layer", "50", "--layer", "min-cost", "--config", "pynq_z1_two", "--json"]
    done = tilewright("bench", "resnet8-units", "--on", "timing", *given, "--profile", "-")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    cycles = {row["name"]: row["cycles"] for row in found["points"]}
    assert found["workload"] == "resnet8-units" and list(cycles) == ["0", "50", "min-cost"]
    assert found["metrics"]["cycles"] == sum(cycles.values())
    assert cycles["min-cost"] < 0.9 * cycles["0"] and cycles["50"] < 0.9 * cycles["0"]


@pytest.mark.slow
def test_the_front_and_what_it_computes(tilewright):
    pytest.importorskip("tvm")
    done = tilewright("bench", "resnet8-units", "--on", "timing", "--config", "tiny_two", "--json")
    cycles = {row["name"]: row["cycles"] for row in json.loads(done.out)["points"]}
    assert list(cycles) == list(units.POINTS) and cycles["min-cost"] == min(cycles.values()) < 0.4 * cycles["0"]
    done = tilewright("bench", "resnet8-units", "--on", "rtl", "--config", "pynq_z1_two", "--layer", "50", "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["points"][0]["exact"] is True


def test_refusals(tilewright, refused):
    refused(5, "configuration pynq_z1 has unit gemm alone; use pynq_z1_two", "bench resnet8-units --on timing")
    done = tilewright("bench", "resnet8-units", "--layer", "C2", "--config", "pynq_z1_two")
    assert done.status == 5 and "--layer C2: resnet8-units has the points 0, 25, 50" in done.err
