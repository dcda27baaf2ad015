"""Deeploy's softmax as one launch against the reference."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.graph import IntegerSoftmax, Tensor
from tilewright.compiler.kernels.language import why_not
from tilewright.compiler.kernels.softmax import integer_softmax
from tilewright.hw.config import PRESETS

PLUS = PRESETS["pynq_z1_plus"]
NUMBERS = {"quadratic": 1, "linear": 84, "constant": 3713, "period": 62, "levels": 256}


def softmax(shape, ratio=1.0, zero_point=-128, **numbers):
    y = Tensor("y", shape, zero_point=zero_point)
    return IntegerSoftmax("softmax", (Tensor("x", shape),), y, **(NUMBERS | numbers), ratio=ratio)


@pytest.mark.parametrize("shape", [(1, 16, 1, 17), (1, 16, 1, 2), (1, 16, 1, 1), (1, 5, 1, 65), (1, 16, 1, 257)])
def test_columns(launch, shape):
    launch(softmax(shape))


@pytest.mark.parametrize("shape", [(1, 16, 16, 16), (1, 40, 3, 33), (2, 16, 5, 7)])
def test_rows(launch, shape):
    launch(softmax(shape))


@pytest.mark.parametrize("numbers", [
    {"linear": 13, "constant": 85, "period": 9}, {"levels": 128}, {"levels": 2}, {"levels": 200},
    {"linear": 120, "constant": 1000, "period": 80}, {"ratio": 5.0766143798828125, "zero_point": 0},
    {"ratio": 0.5, "zero_point": 0, "low": -3, "high": 20},
])  # fmt: skip
def test_numbers(launch, numbers):
    launch(softmax((1, 16, 1, 33), **numbers))


@pytest.mark.parametrize("value", [-128, 0, 127])
def test_equal_values(launch, value):
    launch(softmax((1, 16, 1, 64)), data={"x": np.full((1, 16, 1, 64), value, np.int8)})


def test_one_value_far_above(launch):
    x = np.full((1, 16, 1, 64), -128, np.int8)
    x[:, np.arange(16), :, np.arange(16)] = 127
    launch(softmax((1, 16, 1, 64)), data={"x": x})


def test_refusals():
    def refusal(op, cfg=PLUS):
        return why_not(integer_softmax, op, cfg)

    op = softmax((1, 16, 1, 17))
    assert refusal(op) == ""
    assert refusal(op, PRESETS["pynq_z1"]) == "it needs the extension lookup"
    assert refusal(softmax((16, 17))) == "int8 of 2 dimensions: only images of int8"
    assert "entries of ACC: they do not fit" in refusal(softmax((1, 16, 1, 500)))
    assert refusal(replace(op, quadratic=-1)).startswith("exponentials from -")
    assert "quotients do not fit" in refusal(replace(op, constant=10_000))
