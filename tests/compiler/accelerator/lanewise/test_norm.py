"""Deeploy's norms as one launch against the reference."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.graph import IntegerNorm, Tensor
from tilewright.compiler.kernels.language import why_not
from tilewright.compiler.kernels.norm import integer_norm, reciprocals
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


@pytest.mark.parametrize("shape", [(3, 48), (17, 192), (1, 24), (5, 30), (17, 5), (1, 200)])
def test_rows_of_any_length(launch, shape):
    launch(norm(shape))


def layer_norm(shape, weight, bias, **options):
    op = norm(shape, weight, **options)
    data = np.broadcast_to(np.asarray(bias, np.int32), shape[-1:]).copy()
    return replace(op, inputs=(*op.inputs, Tensor("b", shape[-1:], "int32", data=data)))


@pytest.mark.parametrize("shape", [(1, 64), (3, 64), (4, 64), (21, 64), (1, 48), (20, 48), (6, 192), (1, 24), (18, 30)])
def test_layer_norm(launch, shape):
    rng = np.random.default_rng(5)
    weight, bias = (rng.integers(-4_000_000, 4_000_000, shape[-1]) for _ in range(2))
    launch(layer_norm(shape, weight, bias))


@pytest.mark.parametrize("point", [-128, 5])
def test_layer_norm_with_a_zero_point(launch, point):
    launch(layer_norm((9, 64), 3_931_285, 70_001, zero_point=point))


@pytest.mark.parametrize("value", [0, 1, -1, -3, -128, 127])
def test_layer_norm_of_equal_elements(launch, value):
    x = np.full((5, 64), value, np.int8)
    x[1, :7], x[2, 0], x[3, ::2], x[4, :] = value // 2, -128, -128, np.arange(-32, 32)
    launch(layer_norm((5, 64), 2_000_000, -77), data={"x": x})


def test_every_mean_of_squares(launch):
    """Roots change at squares: rows whose means are squares, one less, and what is between."""
    rng = np.random.default_rng(6)
    x = np.zeros((512, 16), np.int8)
    x[:256, 0], x[:256, 1] = np.arange(-128, 128), rng.integers(-128, 128, 256)
    for k, row in enumerate(x[256:], 1):
        row[:] = min(k // 2, 127)
        row[0] = min(127, k // 2 + k % 2)
    x[-1] = -128
    launch(norm((512, 16), 2_222_222), data={"x": x})


def test_reciprocals_divide_whatever_can_occur():
    table = reciprocals()
    for r in range(1, 129):
        x = np.arange(0, 258 * r + 1)
        np.testing.assert_array_equal(x * table[128 - r] >> 22, x // r)
        assert (x * table[128 - r]).max() < 1 << 31


def test_refusals():
    def refusal(op, cfg=PLUS):
        return why_not(integer_norm, op, cfg)

    assert refusal(norm((1, 64))) == refusal(norm((1, 40))) == ""
    assert refusal(norm((1, 64)), PRESETS["pynq_z1"]) == "it needs the extensions lane_reduce, lookup"
    assert refusal(norm((1, 64), zero_point=3)) == "int8 of 2 dimensions, zero point 3: only rows of int8, 0"
    assert "entries of ACC: they do not fit" in refusal(norm((1, 8192)))
    assert refusal(norm((1, 9000))) == "rows of 9000 elements: means are not exact"
    assert "quotients do not fit" in refusal(norm((1, 64), 1 << 28))
    assert "biases up to 16777216: quotients do not fit" in refusal(layer_norm((1, 64), 1, 1 << 24))
