"""Operators on each value by itself, in C."""

import numpy as np
import pytest

from tilewright.hw.errors import InputError
from tilewright.runtime.hostops import HOST_OPS

RNG = np.random.default_rng(7)
EVERY = np.arange(-128, 128).astype(np.int8)


@pytest.mark.parametrize("ties_away", [False, True])
def test_quantize(same, ties_away):
    edges = np.array([0.0, -0.0, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, 0.49999997, -0.49999997], np.float32)
    ties = np.arange(-150, 150, dtype=np.float32) / 2
    near = np.concatenate([np.nextafter(ties, np.float32(9e9)), np.nextafter(ties, np.float32(-9e9))])
    for scale, zero_point in (
        (1.0, 0),
        (0.5, -128),
        (0.003921568859368563, 127),
        (2.0**-126, 3),
        (2.0**110, -3),
        (1 / 3, 5),
    ):
        noise = (RNG.normal(size=500) * 100 * scale).astype(np.float32)
        x = np.concatenate([edges, ties, near, noise])
        same("quantize", x, scale=scale, zero_point=zero_point, ties_away=ties_away)
        with np.errstate(over="ignore"):
            same("quantize", x * np.float32(scale), scale=scale, zero_point=zero_point, ties_away=ties_away)


def test_what_is_no_number_is_found(in_c):
    x = np.array([1, np.nan], np.float32)
    with pytest.raises(InputError):
        HOST_OPS["quantize"]([x], {"scale": 1.0, "zero_point": 0})
    assert in_c("quantize", x, scale=1.0, zero_point=0) is None


def test_flags_of_what_is_no_number(in_c, same):
    same("expect_numbers", np.zeros((1, 16), np.int8))
    assert in_c("expect_numbers", np.eye(16, dtype=np.int8)[3]) is None


def test_dequantize(same):
    wide = RNG.integers(-(1 << 15), 1 << 15, 500).astype(np.int16)
    for scale, zero_point in ((1.0, 0), (0.1, -128), (2.0**-126, 127), (2.0**110, 5)):
        same("dequantize", EVERY, scale=scale, zero_point=zero_point)
        same("dequantize", wide, scale=scale, zero_point=zero_point)


def test_bytes_by_table(same):
    same("lookup", EVERY.reshape(2, 128), table=RNG.integers(-128, 128, 256).astype(np.int8))
    same("recode", EVERY)
    same("recode", EVERY.view(np.uint8))
    for multiplier, exponent in ((0, 0), (1 << 30, 1), ((1 << 31) - 1, 31), (1518500250, -3), (1 << 30, -32)):
        scale = {"multiplier": multiplier, "exponent": exponent}
        same("rescale", EVERY, x_zero_point=-5, zero_point=7, low=-100, high=90, **scale)
