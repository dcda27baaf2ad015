"""cli/bench/split.py: layers that two compute units divide, and how well the timing model knows them."""

import shutil

import numpy as np
import pytest

from tilewright.cli.bench import split
from tilewright.cli.bench.split import divisions, launch_of
from tilewright.hw.config import PRESETS
from tools.timing import DIVIDED, _TimingBench

TWO, PYNQ = PRESETS["tiny_two"], PRESETS["pynq_z1_two"]


def test_layers_of_every_kind():
    for cfg in (TWO, PYNQ):
        every = list(divisions(cfg))
        assert len(every) == len({one.name for one in every}) == 64
        assert {one.shape.kernel for one in every} == {(3, 3), (1, 1)} and {one.shape.strides[0] for one in every} == {
            1,
            2,
        }
        assert all((one.shape.o - one.ternary) % cfg.block_out == 0 for one in every)
        assert sum(one.ternary == one.shape.o for one in every) == 16
    assert every[0].name == "3x3, 64 to 48 + 16, 56x56"


def test_both_units_need_half_of_the_cycles(printed):
    pytest.importorskip("tvm")
    found = printed("bench split --config pynq_z1_two --on timing --layer 14x14 --layer 56x56")
    small, large = found["layers"]
    assert (found["channels"], found["ternary"], found["exact"]) == (64, 32, True)
    assert large["share"] <= 0.56 and small["share"] <= 0.60  # 0.50 and 0.52
    assert large["gemm_use"] > 0.95 and large["ternary_use"] > 0.95
    for row in (small, large):
        assert row["cycles"] == pytest.approx(row["share"] * row["alone"])
        assert row["input_loads"] < 1.4 and row["wait_bank"] < 0.01 * row["cycles"]


def test_without_a_clock(tilewright):
    pytest.importorskip("tvm")
    shown = tilewright("bench", "split", "--config", "pynq_z1_two", "--layer", "7x7", "--profile", "-")
    assert (
        shown.status == 0
        and "ternary_issues" in shown.out
        and "7x7" in shown.out
        and "32 of them ternary" in shown.out.splitlines()[-1]
    )


def test_what_is_refused(tilewright, refused):
    done = tilewright("bench", "split", "--on", "timing")
    assert (
        done.status == 5 and "configuration pynq_z1 has units gemm, not ternary; use --config pynq_z1_two" in done.err
    )
    refused(5, "unknown layer '5x5'; must be one of 56x56, 28x28", "bench split --config pynq_z1_two --layer 5x5")


def some(cfg, step):
    return ((one.name, launch_of(one, cfg)) for one in list(divisions(cfg))[8::step])


@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
@pytest.mark.parametrize("name", ["tiny_two", pytest.param("pynq_z1_two", marks=pytest.mark.slow)])
def test_the_timing_model_knows_them(name):
    pytest.importorskip("tvm")
    bench = _TimingBench()
    bench.all(DIVIDED, PRESETS[name], some(PRESETS[name], 7 if name == "tiny_two" else 5))
    errors = [abs(row.error) for row in bench.rows]
    print(name, errors)
    assert len(errors) >= 8 and max(errors) < 0.01


def test_layers_fill_int8():
    from tilewright.compiler.graph import reference

    graph = next(divisions(TWO)).graph()
    x = np.random.default_rng(0).integers(-128, 128, graph.inputs[0].shape)
    y = reference.trace(graph, {"x": x.astype(np.int8)})["y"].astype(float)
    assert 20 < y[:, :12].std() < 80 and 20 < y[:, 12:].std() < 80 and split.division(7, 32).shape.o == 64
