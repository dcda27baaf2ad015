"""`tilewright bench split` and `resnet8-units`: layers that two compute units share, and networks of them."""

import json
import shutil

import numpy as np
import pytest

pytest.importorskip("tvm")

from tilewright.cli.bench.two_units import POINTS, SHARES, WORKLOADS, Division, point
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.graph import reference
from tilewright.hw.config import PRESETS
from tools.timing import DIVIDED, _TimingBench, divisions

TWO, PYNQ = PRESETS["tiny_two"], PRESETS["pynq_z1_two"]


def test_divisions_of_every_kind():
    for cfg in (TWO, PYNQ):
        every = list(divisions(cfg))
        assert len(every) == len({one.name for one in every}) == 64
        assert {one.shape.kernel for one in every} == {(3, 3), (1, 1)}
        assert {one.shape.strides[0] for one in every} == {1, 2}
        assert all((one.shape.o - one.ternary) % cfg.block_out == 0 for one in every)
        assert sum(one.ternary == one.shape.o for one in every) == 16
    assert every[0].name == "3x3, 64 to 48 + 16, 56x56"


def test_layers_fill_int8():
    graph = Division(ConvShape(1, 16, 28, 28, 16, (3, 3), pads=(1, 1, 1, 1)), 4).graph()
    x = np.random.default_rng(0).integers(-128, 128, graph.inputs[0].shape)
    y = reference.trace(graph, {"x": x.astype(np.int8)})["y"].astype(float)
    assert 20 < y[:, :12].std() < 80 and 20 < y[:, 12:].std() < 80


@pytest.mark.circuit
def test_both_units_need_half_of_the_cycles(printed):
    found = printed("bench split --config pynq_z1_two --on timing --layer 14x14 --layer 56x56")
    small, large = found["layers"]
    assert (found["channels"], found["ternary"], found["exact"]) == (64, 32, True)
    assert large["share"] <= 0.56 and small["share"] <= 0.60  # 0.50 and 0.52
    assert large["gemm_use"] > 0.95 and large["ternary_use"] > 0.95
    for row in (small, large):
        assert row["cycles"] == pytest.approx(row["share"] * row["alone"])
        assert row["input_loads"] < 1.4 and row["wait_bank"] < 0.01 * row["cycles"]


def test_without_a_clock(tilewright):
    shown = tilewright("bench", "split", "--config", "pynq_z1_two", "--layer", "7x7", "--profile", "-")
    assert shown.status == 0
    assert all(text in shown.out for text in ("ternary_issues", "7x7", "64 to 64 channels, 32 of them ternary"))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
@pytest.mark.parametrize("name", ["tiny_two", "pynq_z1_two"])
def test_the_timing_model_knows_them(name):
    cfg, bench = PRESETS[name], _TimingBench()
    some = list(divisions(cfg))[8 :: 7 if name == "tiny_two" else 5]
    bench.all(DIVIDED, cfg, ((one.name, one.launch(cfg)) for one in some))
    errors = [abs(row.error) for row in bench.rows]
    assert len(errors) >= 8 and max(errors) < 0.01


def test_points():
    widths = WORKLOADS["resnet8-units"]
    graph, split = point("50", widths, PYNQ)
    assert split["first"] == split["last"] == 0 and split["block1.a"] == 16 and split["block3.b"] == 32
    assert graph.macs == 12_501_632
    for op in graph.layers:
        count = split[op.name]
        assert abs(op.weight[len(op.weight) - count :].astype(int)).max(initial=0) <= 1
        assert count == len(op.weight) or abs(op.weight[: len(op.weight) - count].astype(int)).max() > 1
    _, every = point("all", widths, PYNQ)
    assert every["first"] == 16 and every["last"] == 10
    totals = [sum(point(name, widths, PYNQ)[1].values()) for name in SHARES]
    assert totals == sorted(totals) and totals[0] == 0


@pytest.mark.slow
def test_cycles_of_some_points(tilewright, tmp_path):
    given = ["--layer", "0", "--layer", "50", "--layer", "min-cost", "--config", "pynq_z1_two"]
    kept = tmp_path / "p.json"
    done = tilewright("bench", "resnet8-units", "--on", "timing", *given, "--profile", kept)
    assert done.status == 0, done.err
    found = json.loads(kept.read_text())
    cycles = {row["name"]: row["cycles"] for row in found["points"]}
    assert found["workload"] == "resnet8-units" and list(cycles) == ["0", "50", "min-cost"]
    assert found["metrics"]["cycles"] == sum(cycles.values())
    assert cycles["min-cost"] < 0.9 * cycles["0"] and cycles["50"] < 0.9 * cycles["0"]
    assert f"{cycles['50']:,}" in done.out and "of all on gemm %" in done.out


@pytest.mark.slow
def test_the_front_and_what_it_computes(printed):
    found = printed("bench resnet8-units --on timing --config tiny_two")
    cycles = {row["name"]: row["cycles"] for row in found["points"]}
    assert list(cycles) == list(POINTS) and cycles["min-cost"] == min(cycles.values()) < 0.4 * cycles["0"]
    (row,) = printed("bench resnet8-units --on rtl --config pynq_z1_two --layer 50")["points"]
    assert row["exact"] is True


@pytest.mark.parametrize(
    "words, text",
    [
        ("split --on timing", "configuration pynq_z1 has units gemm, not ternary; use --config pynq_z1_two"),
        ("split --config pynq_z1_two --layer 5x5", "unknown layer '5x5'; must be one of 56x56, 28x28"),
        ("resnet8-units --on timing", "configuration pynq_z1 has unit gemm alone; use pynq_z1_two"),
        ("resnet8-units --layer C2 --config pynq_z1_two", "--layer C2: resnet8-units has the points 0, 25, 50"),
    ],
)
def test_what_is_refused(refused, words, text):
    refused(5, text, f"bench {words}")
