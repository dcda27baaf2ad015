"""Element-wise kernels against real numbers; LiteRT's bytes are compared elsewhere."""

import numpy as np

from tilewright.hw.rounding import quantize_multiplier
from tilewright.runtime.hostops.elementwise import lookup_pair, maximum, minimum, prelu, squared_difference

RNG = np.random.default_rng(2)
X, Y = (RNG.integers(-128, 128, shape).astype(np.int8) for shape in ((4, 5, 6), (5, 1)))


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
