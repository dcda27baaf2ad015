"""Products of matrices with heads in lanes as one launch against the reference."""

import pytest

from tilewright.compiler.accelerator.lanewise.products import cycles, in_lanes, refusal
from tilewright.compiler.graph import BatchMatMul, ShiftMatMul, Tensor
from tilewright.hw.config import PRESETS

PLUS = PRESETS["pynq_z1_plus"]


def scores(heads, positions, elements=4, zero_points=(0, 0, 0)):
    x, y, out = zero_points
    inputs = Tensor("q", (1, heads, 1, elements), zero_point=x), Tensor("k", (1, heads, positions, elements), zero_point=y)
    out = Tensor("y", (1, heads, 1, positions), zero_point=out)
    return ShiftMatMul("scores", inputs, out, ratio=0.0088043212890625, transposed=True)


def means(heads, positions, elements=4, zero_points=(0, 0, 0)):
    x, y, out = zero_points
    inputs = Tensor("p", (1, heads, 1, positions), zero_point=x), Tensor("v", (1, heads, positions, elements), zero_point=y)
    return ShiftMatMul("means", inputs, Tensor("y", (1, heads, 1, elements), zero_point=out), ratio=51 / 65536)


@pytest.mark.parametrize("make", [scores, means])
@pytest.mark.parametrize("shape", [(16, 1), (16, 2), (16, 17), (32, 65), (16, 257), (16, 33, 8), (16, 5, 1)])
def test_shapes(launch, make, shape):
    launch(make(*shape))


@pytest.mark.parametrize("make", [scores, means])
@pytest.mark.parametrize("zero_points", [(-128, 0, 0), (0, -128, 5), (3, -4, -128)])
def test_zero_points(launch, make, zero_points):
    launch(make(16, 20, zero_points=zero_points))


def test_scales_of_other_networks(launch):
    inputs = Tensor("q", (1, 16, 1, 8), scale=0.1), Tensor("k", (1, 16, 30, 8), scale=0.2)
    launch(BatchMatMul("m", inputs, Tensor("y", (1, 16, 1, 30), scale=0.9), transposed=True))


@pytest.mark.parametrize("make", [scores, means])
@pytest.mark.parametrize("positions", [17, 65])
def test_the_estimate_is_near_the_timing_model(launch, make, positions):
    from tilewright.sim.timing import predict

    op = make(16, positions)
    assert cycles(op, PLUS) == pytest.approx(predict(launch(op)).cycles, rel=0.35)


def test_which_products_are_in_lanes():
    assert in_lanes(scores(16, 17), 16)
    assert in_lanes(means(32, 17), 16)
    assert not in_lanes(scores(12, 17), 16)  # heads are no whole blocks
    assert not in_lanes(scores(16, 40, 32), 16)  # heads of whole blocks
    inputs = Tensor("q", (1, 16, 2, 4)), Tensor("k", (1, 16, 4, 9))
    assert not in_lanes(ShiftMatMul("m", inputs, Tensor("y", (1, 16, 2, 9))), 16)  # several rows


def test_refusals():
    assert refusal(scores(16, 17), PLUS) == ""
    assert refusal(scores(16, 600), PLUS) == "600 columns: at most 512"
    assert refusal(means(16, 600), PLUS) == "batch 1, 600 elements: it needs batch 1 and at most 512 elements"
    plain = PLUS.replace(name="plain", extensions=frozenset(), tables=0)
    assert refusal(scores(16, 17), plain) == "it needs the extensions acc8, requant"
