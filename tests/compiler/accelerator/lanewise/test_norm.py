"""Deeploy's norms as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.lanewise.norm import cycles, reciprocals, refusal
from tilewright.compiler.graph import IntegerNorm, Tensor
from tilewright.hw.config import PRESETS

PLUS = PRESETS["pynq_z1_plus"]


def norm(shape, weight: int | np.ndarray = 3_931_285, shift=16, low=-128, high=127, **x):
    data = np.broadcast_to(np.asarray(weight, np.int32), shape[-1:]).copy()
    inputs = Tensor("x", shape, **x), Tensor("w", shape[-1:], "int32", data=data)
    return IntegerNorm("norm", inputs, Tensor("y", shape), shift, low, high)


@pytest.mark.parametrize("shape", [(1, 64), (1, 16), (1, 256), (3, 64), (20, 64), (1, 128)])
def test_rows(launch, shape):
    launch(norm(shape))


def test_weights_of_both_signs(launch):
    rng = np.random.default_rng(1)
    launch(norm((5, 64), rng.integers(-4_000_000, 4_000_000, 64)))


@pytest.mark.parametrize(("weight", "shift"), [(0, 16), (1, 0), (77, 3), (16_000_000, 18)])
def test_weights(launch, weight, shift):
    launch(norm((2, 64), weight, shift))


def test_clamp(launch):
    launch(norm((2, 64), low=-40, high=3))


@pytest.mark.parametrize("value", [0, 1, -1, 2, -3, 17, -128, 127])
def test_equal_elements(launch, value):
    launch(norm((1, 64)), data={"x": np.full((1, 64), value, np.int8)})


def test_one_element_among_zeros(launch):
    x = np.zeros((256, 64), np.int8)
    x[np.arange(256), np.arange(256) % 64] = np.arange(-128, 128)
    launch(norm((256, 64)), data={"x": x})


def test_every_root(launch):
    rng = np.random.default_rng(2)
    x = np.stack([rng.integers(-k, k + 1, 64) for k in range(128)]).clip(-128, 127).astype(np.int8)
    launch(norm((128, 64)), data={"x": x})


def test_reciprocals_divide_whatever_can_occur():
    found = reciprocals(64, 4_110_990, 16)
    assert found is not None
    table, bits = found
    for r in range(1, 129):
        x = np.arange(-1, (min(128, 8 * (r + 1)) * 4_110_990 >> 16) + 1)
        np.testing.assert_array_equal(x * table[r] >> bits, x // r)
        assert np.abs(x * table[r]).max() < 1 << 31


@pytest.mark.parametrize("shape", [(1, 64), (16, 64)])
def test_the_estimate_is_near_the_timing_model(added, shape):
    assert cycles(norm(shape), PLUS) == pytest.approx(added(norm(shape)), rel=0.4)


def test_refusals():
    assert refusal(norm((1, 64)), PLUS) == ""
    assert refusal(norm((1, 64)), PRESETS["pynq_z1"]) == "it needs the extensions lane_reduce, lookup"
    assert refusal(norm((1, 64), zero_point=3), PLUS) == "int8 of 2 dimensions, zero point 3: only rows of int8, 0"
    assert refusal(norm((1, 48)), PLUS) == "rows of 48 elements: must be a power of two, in whole blocks of 16"
    assert refusal(norm((1, 8192)), PLUS) == "rows of 8192 elements: more than fit the accumulators"
    assert "quotients do not fit" in refusal(norm((1, 64), 1 << 28), PLUS)
    op = norm((1, 64))
    mean = IntegerNorm("n", (*op.inputs, op.inputs[1]), op.output, 16)
    assert refusal(mean, PLUS) == "it subtracts means"
