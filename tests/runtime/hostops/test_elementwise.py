"""Operators on each value, and on pairs, against real numbers; LiteRT's bytes are compared elsewhere."""

import numpy as np
import pytest

from tilewright.hw.errors import InputError
from tilewright.hw.rounding import quantize_multiplier
from tilewright.runtime.hostops.elementwise import (
    add,
    dequantize,
    divide,
    expect_numbers,
    lookup,
    lookup_pair,
    maximum,
    minimum,
    multiply,
    prelu,
    quantize,
    recode,
    rescale,
    squared_difference,
)

RNG = np.random.default_rng(2)
X, Y = (RNG.integers(-128, 128, shape).astype(np.int8) for shape in ((4, 5, 6), (5, 1)))
P, Q = (RNG.integers(-128, 128, (40, 50)).astype(np.int8) for _ in range(2))
ONE = {"multiplier": 1 << 30, "exponent": 1}  # R is the identity


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def scales(*factors):
    multipliers, exponents = zip(*map(quantize_multiplier, factors))
    return {"multipliers": list(multipliers), "exponents": list(exponents)}


def test_extremes_broadcast():
    assert np.array_equal(maximum(X, Y), np.where(X > Y, X, Y))
    assert np.array_equal(minimum(X, Y), np.where(X < Y, X, Y))


def test_tables_of_pairs():
    table = RNG.integers(-128, 128, (256, 256)).astype(np.int8)
    assert np.array_equal(lookup_pair(X, Y, table=table), table[X.astype(int) + 128, Y.astype(int) + 128])
    raw = np.array([0, 255], np.uint8)
    assert lookup_pair(raw, np.array([-128], np.int8), table=table).tolist() == table[[0, 255], 0].tolist()


def test_slopes_below_the_zero_point():
    y = prelu(X, Y, zero_points=[5, -2, 7], **scales(0.5, 0.01))
    real = np.where(X >= 5, (X.astype(float) - 5) * 0.5, (X.astype(float) - 5) * (Y.astype(float) + 2) * 0.01) + 7
    assert (np.abs(y - np.clip(real, -128, 127)) <= 0.76).all() and len(np.unique(y)) > 50


def test_squares_of_differences():
    y = squared_difference(X, Y, zero_points=[5, -2, -100], shift=7, **scales(0.5, 0.25, 0.01 / 2**12))
    real = ((X.astype(float) - 5) - (Y.astype(float) + 2) / 2) ** 2 * 0.01 - 100
    assert (np.abs(y - np.clip(real, -128, 127)) <= 0.8).all() and len(np.unique(y)) > 50


def test_quotients():
    multiplier, exponent = quantize_multiplier(9.0)
    y = divide(P, Q, zero_points=[5, -2, 7], multiplier=multiplier, exponent=exponent)
    a, b = P.astype(float) - 5, Q.astype(float) + 2
    with np.errstate(all="ignore"):
        real = np.where(b == 0, np.sign(a) * 999, a / b * 9) + 7
    known = (a != 0) | (b != 0)
    assert (np.abs(y - np.clip(real, -128, 127)) <= 0.51)[known].all() and len(np.unique(y)) > 50


def halved(x, more):
    """x / 2**(1 + more) in two roundings: the half with ties up, then the rest with ties away from zero."""
    half = (x + 1) // 2
    return np.sign(half) * ((np.abs(half) + 2 ** (more - 1)) // 2**more)


def test_identities():
    x, y = int8(3, 4), int8(3, 4)
    assert np.array_equal(rescale(x, x_zero_point=5, zero_point=5, **ONE), x)
    assert np.array_equal(lookup(x, table=np.arange(-128, 128).astype(np.int8)[::-1]), -1 - x)
    product = multiply(x, y, zero_points=(1, 2, 3), multiplier=1 << 30, exponent=-5)  # times 2**-6
    exact = halved((x.astype(int) - 1) * (y.astype(int) - 2), 5) + 3
    assert np.array_equal(product, np.clip(exact, -128, 127))


def test_sums_clamp_and_subtract():
    x, y = int8(2, 3, 4), int8(3, 1)
    half = (1 << 30, 0)  # R is 1/2
    out = (1 << 30, 1 - 19)  # 2 / 2**20, by which a sum of halves is the sum
    multipliers, exponents = zip(half, half, out)
    for sign in (1, -1):
        attrs = {"multipliers": multipliers, "exponents": exponents, "zero_points": (3, -4, 5), "shift": 20}
        found = add(x, y, **attrs, sign=sign, low=-100, high=99)
        exact = (x.astype(int) - 3) + sign * (y.astype(int) + 4) + 5
        assert np.array_equal(found, np.clip(exact, -100, 99))


def test_quantisation_of_what_is_no_number():
    with pytest.raises(InputError, match="the input holds NaN"):
        quantize(np.array([np.nan], np.float32), scale=1.0, zero_point=0)


def test_flags_of_values_that_are_no_numbers_are_refused():
    flags = np.zeros((1, 16), np.int8)
    assert np.array_equal(expect_numbers(flags), flags)
    flags[0, 7] = 2
    with pytest.raises(InputError, match="NaN"):
        expect_numbers(flags)


def test_quantize_rounds_the_quotient_to_nearest():
    ties = np.arange(0.5, 128, dtype=np.float32)
    below, above = (np.nextafter(ties, np.float32(end)) for end in (0, 999))
    for sign in (1, -1):
        away, before, behind = (
            quantize(sign * x, scale=1.0, zero_point=0, ties_away=True) for x in (ties, below, above)
        )
        wanted = np.clip(sign * np.arange(1, 129), -128, 127)
        assert np.array_equal(away, wanted) and np.array_equal(behind, wanted)
        assert np.array_equal(before, sign * np.arange(128))


def test_quantise_and_back():
    x = np.linspace(-4, 4, 33, dtype=np.float32)
    q = quantize(x, scale=0.25, zero_point=-5)
    assert q.dtype == np.int8 and np.array_equal(q, np.arange(-16, 17) - 5)
    y = dequantize(q, scale=0.25, zero_point=-5)
    assert y.dtype == np.float32 and np.array_equal(x, y)


def test_recoding_moves_by_128():
    x = np.arange(256).astype(np.uint8).reshape(16, 16)
    q = recode(x)
    assert q.dtype == np.int8 and np.array_equal(q, x.astype(int) - 128)
    assert np.array_equal(recode(q), x) and recode(q).dtype == np.uint8
