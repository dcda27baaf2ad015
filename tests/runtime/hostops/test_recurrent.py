"""runtime/hostops/recurrent.py against real functions; tests/compiler/frontend/tflite/test_recurrent.py has LiteRT."""

import numpy as np
import pytest

from tilewright.runtime.hostops.elementwise import narrow, rescale_integers
from tilewright.runtime.hostops.layers import dense_int16, filter_int16
from tilewright.runtime.hostops.recurrent import logistic, lstm, lstm_step, tanh

ALL = np.arange(-(1 << 15), 1 << 15).astype(np.int16)


@pytest.mark.parametrize("integer_bits", [0, 2, 3, 5, 6])
def test_functions_are_close_to_the_real_ones_and_odd(integer_bits):
    x = ALL / 2.0 ** (15 - integer_bits)
    for mine, real in ((logistic, 1 / (1 + np.exp(-x))), (tanh, np.tanh(x))):
        found = mine(ALL, integer_bits)
        assert np.abs(found / 2.0**15 - real).max() < 8e-4
        assert found.min() >= -(1 << 15) and found.max() < 1 << 15
    assert tanh(ALL)[1 << 15] == 0 and logistic(ALL)[1 << 15] == 1 << 14
    np.testing.assert_array_equal(tanh(ALL)[1:], -tanh(-ALL[1:]))


def test_a_filter_sums_its_ranks_and_wraps():
    window = np.full((1, 2, 3), 1 << 14, np.int16)

    def filtered(window, weight, exponent):
        bias = np.array([5], np.int32)
        found = filter_int16(window, weight=weight, bias=bias, multiplier=1 << 30, exponent=exponent, zero_point=3)
        return found.tolist()

    assert filtered(window, np.full((2, 3), 1, np.int16), -8) == [[127]]
    weight = np.full((2, 6), 1 << 14, np.int16)
    assert filtered(window, weight[:, :3], -25) == [[3 + 24]]  # 6 * 2**28 + 5 is below 2**31
    assert filtered(np.tile(window, (1, 1, 2)), weight, -25) == [[3 - 16]]  # 12 * 2**28 is not


def test_narrow_and_rescale_clamp():
    assert narrow(np.array([-300, -5, 127, 128], np.int16)).tolist() == [-128, -5, 127, 127]
    facts = {"x_zero_point": 4, "zero_point": -1, "multiplier": 1 << 30, "exponent": 0}
    assert rescale_integers(np.array([4, 14, 5000], np.int16), **facts, dtype="int8").tolist() == [-1, 4, 127]
    assert rescale_integers(np.array([4, 14, 5000], np.int16), **facts, dtype="int32").tolist() == [-1, 4, 2497]


@pytest.mark.parametrize("coupled", [False, True])
def test_a_step_of_sums_that_are_there_is_one_of_the_layer(coupled):
    rng, kinds = np.random.default_rng(3), 3 if coupled else 4
    gates = rng.integers(-(1 << 15), 1 << 15, (2, 1, kinds * 6)).astype(np.int16)
    hidden, cells = rng.integers(-128, 128, (2, 6)).astype(np.int8), rng.integers(-9000, 9000, (2, 6)).astype(np.int16)
    weight = rng.integers(-128, 128, (kinds * 6, 6)).astype(np.int8)
    rows = {"weight": weight, "bias": rng.integers(-9000, 9000, kinds * 6).astype(np.int32)}
    scale = np.full(kinds * 6, 1 << 30), np.full(kinds * 6, 2)
    after = {"zero_point": 3, "cell_bits": 3, "clip": 8000, "multiplier": 1 << 30, "exponent": -20, "coupled": coupled}
    whole = lstm(gates, hidden, cells, **rows, gate_multiplier=scale[0], gate_exponent=scale[1], **after)
    own = dense_int16(hidden, **rows, multiplier=scale[0], exponent=scale[1], x_zero_point=0, dtype="int32")
    assert own.dtype == np.int32 and np.abs(own).max() > 1 << 15
    found = lstm_step(gates, own, cells, **after)
    assert found.dtype == np.int16 and np.array_equal(found, whole)
