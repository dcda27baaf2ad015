"""Operators along axes, and their fixed-point functions, against real ones; LiteRT's bytes are compared elsewhere."""

import numpy as np
import pytest

from tilewright.hw.rounding import quantize_multiplier
from tilewright.runtime.hostops.fixed_point import exp, exponentials, high_product, inverse_root, reciprocal
from tilewright.runtime.hostops.movement import pack
from tilewright.runtime.hostops.reductions import (
    arg_max,
    l2_normalize,
    mean,
    reduce_max,
    reduce_min,
    softmax,
    top_k,
    unpack_softmax,
)

RNG = np.random.default_rng(2)
X = RNG.integers(-9, 9, (4, 5, 6)).astype(np.int8)


def test_extremes():
    assert np.array_equal(reduce_max(X, axes=[0, 2], shape=[1, 5, 1]), X.max((0, 2), keepdims=True))
    assert np.array_equal(reduce_min(X, axes=[1], shape=[4, 6]), X.min(1))


def test_the_first_of_several_extremes():
    y = arg_max(X, axis=1, shape=[4, 6], dtype="int64")
    assert y.dtype == np.int64 and all(
        X[i, : y[i, k], k].max(initial=-99) < X[i, y[i, k], k] for i, k in np.ndindex(4, 6)
    )
    assert np.array_equal(arg_max(X, axis=1, shape=[4, 1, 6], dtype="int32", smallest=True)[:, 0], X.argmin(1))


def test_the_largest_of_each_row():
    x = np.array([[3, 9, -4, 9, 3, 0]], np.int8)
    assert top_k(x, count=4, positions=False).tolist() == [[9, 9, 3, 3]]
    assert top_k(x, count=4, positions=True).tolist() == [[1, 3, 0, 4]]


def halved(x, more):
    """x / 2**(1 + more) in two roundings: the half with ties up, then the rest with ties away from zero."""
    half = (x + 1) // 2
    return np.sign(half) * ((np.abs(half) + 2 ** (more - 1)) // 2**more)


def test_means():
    x = RNG.integers(-128, 128, (2, 3, 4, 5)).astype(np.int8)
    y = mean(x, axes=(1, 3), shape=(2, 4), x_zero_point=7, zero_point=-2, multiplier=1 << 30, exponent=-3)
    exact = halved((x.astype(int) - 7).sum((1, 3)), 3) - 2
    assert y.shape == (2, 4) and np.array_equal(y, np.clip(exact, -128, 127))


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


def test_inverse_roots():
    x = np.concatenate([np.arange(2, 3000), RNG.integers(2, 1 << 31, 1000)])
    multiplier, exponent = inverse_root(x)
    assert np.allclose(multiplier * 2.0 ** (exponent - 31) * np.sqrt(x), 1, rtol=1e-5)
    assert [int(v[0]) for v in inverse_root(np.array([1]))] == [(1 << 31) - 1, 0]


def test_normalised_rows_have_length_one():
    rows = RNG.integers(-128, 128, (40, 50)).astype(np.int8)
    for flag in (False, True):
        y = l2_normalize(rows, axis=1, x_zero_point=5, scaled_first=flag).astype(float) / 128
        assert np.allclose((y * y).sum(1), 1, atol=0.05)


def test_softmax_of_blocks():
    x = RNG.integers(-128, 128, (3, 10)).astype(np.int8)
    facts = {"axis": 1, "multiplier": 1 << 30, "exponent": 20}
    packed = pack(x, batch=2, block=4)
    assert np.array_equal(unpack_softmax(packed, n=3, c=10, shape=[3, 10], **facts), softmax(x, **facts))
