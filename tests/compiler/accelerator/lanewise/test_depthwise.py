"""Which products of heads in lanes the multiplier array computes, and how well its cycles are known."""

import pytest

from tilewright.compiler.accelerator.lanewise.depthwise import cycles, together
from tilewright.compiler.graph import ShiftMatMul, Tensor
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]


def scores(rows, positions, elements=4, zero_point=0):
    inputs = Tensor("q", (1, 16, rows, elements), zero_point=zero_point), Tensor("k", (1, 16, positions, elements))
    return ShiftMatMul("scores", inputs, Tensor("y", (1, 16, rows, positions)), ratio=0.01171875, transposed=True)


@pytest.mark.parametrize(("rows", "positions"), [(1, 17), (1, 65), (15, 63)])
def test_the_estimate_is_near_the_timing_model(launch, rows, positions):
    op = scores(rows, positions)
    assert cycles(op, PLUS) == pytest.approx(predict(launch(op)).cycles, rel=0.35)


@pytest.mark.parametrize("elements", [1, 4, 6, 8, 15])
def test_elements_that_are_added_together_or_one_by_one(launch, elements):
    launch(scores(3, 10, elements))


def test_without_several_taps(launch):
    launch(scores(2, 10), cfg=PLUS.replace(name="one", extensions=PLUS.extensions - {"depthwise_rows"}))


def test_what_fits():
    assert together(scores(16, 16), PLUS) == 16
    assert together(scores(16, 300), PLUS) == 3  # accumulators
    assert together(scores(1, 17, zero_point=1), PLUS) == 0
    assert together(scores(1, 500), PLUS) == 0  # inputs
    plain = PLUS.replace(name="plain", extensions=PLUS.extensions - {"depthwise", "depthwise_rows"})
    assert together(scores(1, 17), plain) == 0
