"""runtime/hostops/deeploy.py against Python's integers, written out element by element."""

import math

import numpy as np
import pytest

from tilewright.runtime.hostops import deeploy

SEED = 11
ONCE = {"multiplier": 1 << 30, "exponent": 1}  # a factor of 1


def int8(rng, *shape):
    return rng.integers(-128, 128, shape, np.int8)


def truncated(a, b):
    return abs(a) // b * (1 if a >= 0 else -1)


def test_products_are_sums_of_int32():
    rng = np.random.default_rng(SEED)
    x, y = rng.integers(-(2**20), 2**20, (2, 3, 5), np.int32), int8(rng, 5, 4)
    found = deeploy.integer_matmul(x, y)
    assert found.dtype == np.int32 and found.tolist() == np.einsum("bij,jk->bik", x.astype(int), y.astype(int)).tolist()


def test_a_shift_rounds_ties_up_and_clamps():
    x = np.array([-3, -1, 1, 3, 1000, -1000], np.int32)
    factor, offset = np.array([1]), np.array([0])
    found = deeploy.requant_shift(x, factor, offset, shift=1, low=-128, high=127)
    assert found.tolist() == [-1, 0, 1, 2, 127, -128] and found.dtype == np.int8
    moved = deeploy.requant_shift(x, factor, offset, shift=1, low=0, high=255, zero_point=-128)
    assert moved.tolist() == [-128, -128, -127, -126, 127, -128]
    channels = deeploy.requant_shift(
        np.array([[5, 5]], np.int32), np.array([2, -3]), np.array([0, 1]), shift=0, low=-(2**31), high=2**31 - 1,
        dtype="int32",
    )  # fmt: skip
    assert channels.tolist() == [[10, -14]] and channels.dtype == np.int32


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_softmax_is_a_halved_parabola(dtype):
    rng = np.random.default_rng(SEED)
    x = int8(rng, 3, 2, 9).astype(dtype)
    numbers = {"quadratic": 2, "linear": 25, "constant": 331, "period": 19}
    found = deeploy.integer_softmax(x, levels=256, zero_point=-128, **numbers, **ONCE)
    for row, got in zip(x.reshape(-1, 9).astype(int).tolist(), found.reshape(-1, 9).tolist()):
        below = [v - max(row) for v in row]
        halvings = [min(-t // 19, 31) for t in below]
        e = [(2 * (t + z * 19 + 25) ** 2 + 331) >> z for t, z in zip(below, halvings)]
        assert got == [v * 255 // sum(e) - 128 for v in e]


def test_a_softmax_without_exponentials_is_zero():
    numbers = {"quadratic": 0, "linear": 0, "constant": 0, "period": 5}
    assert not deeploy.integer_softmax(np.ones((1, 4), np.int8), levels=256, **numbers, **ONCE).any()


@pytest.mark.parametrize("centred", [False, True])
def test_norms_divide_by_an_integer_root(centred):
    rng = np.random.default_rng(SEED)
    x, weight, bias = int8(rng, 6, 7), rng.integers(-(2**21), 2**21, 7), rng.integers(-(2**16), 2**16, 7)
    given = [weight.astype(np.int32), *([bias.astype(np.int32)] if centred else [])]
    found = deeploy.integer_norm(x, *given, shift=14)
    for row, got in zip(x.astype(int).tolist(), found.tolist()):
        mean = truncated(sum(row), 7) if centred else 0
        row = [v - mean for v in row]
        root = math.isqrt(sum(v * v for v in row) // 7 + 1)
        parts = [truncated(v * w, root) + (b if centred else 0) for v, w, b in zip(row, weight.tolist(), bias.tolist())]
        assert got == [min(max(v >> 14, -128), 127) for v in parts]
    assert found.dtype == np.int8 and len(np.unique(found)) > 10


def test_unsigned_rows_are_stored_less_128():
    x = np.array([[0, 100, 255]])
    weight = np.full(3, 1 << 16, np.int32)
    stored = (x - 128).astype(np.int8)
    found = deeploy.integer_norm(stored, weight, shift=10, x_zero_point=-128)
    assert found.tolist() == deeploy.integer_norm(x, weight, shift=10).tolist()
