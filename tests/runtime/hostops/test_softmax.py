"""The fixed-point softmax against the real one."""

import numpy as np
import pytest

from tilewright.hw.rounding import quantize_multiplier
from tilewright.runtime.hostops.fixed_point import exp, exponentials, high_product, reciprocal
from tilewright.runtime.hostops.reductions import softmax


def test_exponential():
    a = -np.concatenate([np.arange(0, 1 << 20, 997), np.arange(1 << 20, 31 << 26, 3_333_333)])
    error = exp(a) / 2.0**31 - np.exp(a / 2.0**26)
    assert np.abs(error).max() < 3e-7
    assert exp(np.array([0]))[0] == (1 << 31) - 1


def test_reciprocal():
    x = np.arange(0, 1 << 31, 9_999_991)
    assert np.abs(reciprocal(x) / 2.0**31 - 1 / (1 + x / 2.0**31)).max() < 2e-8


@pytest.mark.parametrize("scale", [0.01, 0.1, 0.9])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax(scale, axis):
    x = np.random.default_rng(3).integers(-128, 128, (4, 5, 6)).astype(np.int8)
    multiplier, exponent = quantize_multiplier(scale * 2**26)
    q = softmax(x, axis=axis, multiplier=multiplier, exponent=exponent)
    e = np.exp(scale * (x.astype(float) - x.max(axis, keepdims=True)))
    real = np.clip(256 * e / e.sum(axis, keepdims=True) - 128, -128, 127)
    assert q.dtype == np.int8 and np.abs(q - real).max() < 0.6


def test_values_far_below_the_largest_count_as_nothing():
    x = np.array([[127] + [-128] * 1000], np.int8)
    multiplier, exponent = quantize_multiplier(0.2 * 2**26)
    assert list(np.unique(softmax(x, axis=1, multiplier=multiplier, exponent=exponent))) == [-128, 127]


def test_the_tables_hold_the_exponential_of_every_difference():
    for scale in (1e-3, 0.07, 0.9, 30.0):
        multiplier, exponent = quantize_multiplier(scale * 2**26)
        known, summands = exponentials(multiplier, exponent)
        for d in range(256):
            counts = -d >= -((31 << 26) >> exponent)
            e = int(exp(high_product(np.array([-d << exponent]), multiplier))[0]) if counts else -1
            assert known[d] == e and summands[d] == (e + (1 << 11) >> 12 if counts else 0)
        assert exponentials(multiplier, exponent)[0] is known and not known.flags.writeable
