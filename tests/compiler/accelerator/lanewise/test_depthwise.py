"""Which products of heads in lanes the multiplier array computes."""

import pytest

from tilewright.compiler.graph import ShiftMatMul, Tensor
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.compiler.kernels.matmul import product_on_alu, product_on_array
from tilewright.compiler.kernels.table import chosen
from tilewright.hw.config import PRESETS

PLUS = PRESETS["pynq_z1_plus"]


def scores(rows, positions, elements=4, zero_point=0):
    inputs = Tensor("q", (1, 16, rows, elements), zero_point=zero_point), Tensor("k", (1, 16, positions, elements))
    return ShiftMatMul("scores", inputs, Tensor("y", (1, 16, rows, positions)), ratio=0.01171875, transposed=True)


@pytest.mark.parametrize("elements", [1, 4, 6, 8, 15])
def test_elements_that_are_added_together_or_one_by_one(launch, elements):
    launch(scores(3, 10, elements))


def test_without_several_taps(launch):
    launch(scores(2, 10), cfg=PLUS.replace(name="one", extensions=PLUS.extensions - {"depthwise_rows"}))


def test_the_faster_unit_is_chosen():
    many, one = scores(15, 63), scores(1, 1)
    assert chosen(many, PLUS) is product_on_array
    assert cycles(product_on_array, many, PLUS) < cycles(product_on_alu, many, PLUS)
    assert chosen(one, PLUS) is product_on_alu
    assert cycles(product_on_array, one, PLUS) > cycles(product_on_alu, one, PLUS)


def test_what_fits():
    assert why_not(product_on_array, scores(16, 300), PLUS) == ""
    assert "with zero points" in why_not(product_on_array, scores(1, 17, zero_point=1), PLUS)
    assert "larger than the 1920 inputs" in why_not(product_on_array, scores(1, 500), PLUS)
    plain = PLUS.replace(name="plain", extensions=PLUS.extensions - {"depthwise", "depthwise_rows"})
    assert why_not(product_on_array, scores(1, 17), plain) == "it needs the extension depthwise"
