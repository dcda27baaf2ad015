"""Fixed-point kernels against real numbers; LiteRT's bytes are compared elsewhere."""

import numpy as np

from tilewright.hw.rounding import quantize_multiplier
from tilewright.runtime.hostops.elementwise import divide
from tilewright.runtime.hostops.fixed_point import inverse_root
from tilewright.runtime.hostops.reductions import l2_normalize

RNG = np.random.default_rng(2)
X, Y = (RNG.integers(-128, 128, (40, 50)).astype(np.int8) for _ in range(2))


def test_quotients():
    multiplier, exponent = quantize_multiplier(9.0)
    y = divide(X, Y, zero_points=[5, -2, 7], multiplier=multiplier, exponent=exponent)
    a, b = X.astype(float) - 5, Y.astype(float) + 2
    with np.errstate(all="ignore"):
        real = np.where(b == 0, np.sign(a) * 999, a / b * 9) + 7
    known = (a != 0) | (b != 0)
    assert (np.abs(y - np.clip(real, -128, 127)) <= 0.51)[known].all() and len(np.unique(y)) > 50


def test_inverse_roots():
    x = np.concatenate([np.arange(2, 3000), RNG.integers(2, 1 << 31, 1000)])
    multiplier, exponent = inverse_root(x)
    assert np.allclose(multiplier * 2.0 ** (exponent - 31) * np.sqrt(x), 1, rtol=1e-5)
    assert [int(v[0]) for v in inverse_root(np.array([1]))] == [(1 << 31) - 1, 0]


def test_normalised_rows_have_length_one():
    for flag in (False, True):
        y = l2_normalize(X, axis=1, x_zero_point=5, scaled_first=flag).astype(float) / 128
        assert np.allclose((y * y).sum(1), 1, atol=0.05)
