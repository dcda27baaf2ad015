"""Operators along an axis, in C."""

import numpy as np
import pytest

from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.hostops.reductions import MOST_SUMMED

RNG = np.random.default_rng(7)


def some(shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("bits", [8, 16])
def test_softmax(same, bits):
    for multiplier, exponent in ((1 << 30, 20), (2011586560, 20), (1 << 30, 31), ((1 << 31) - 1, 0), (1481612928, 23)):
        scale = {"multiplier": multiplier, "exponent": exponent, "bits": bits}
        for shape, axis in (((3, 10), 1), ((2, 5, 4), 1), ((6, 3), 0), ((1,), 0), ((1, 300), 1)):
            same("softmax", some(shape), axis=axis, **scale)
            same("softmax", np.full(shape, -128, np.int8), axis=axis, **scale)
        same("unpack_softmax", some((2, 3, 2, 4)), n=3, c=9, shape=[3, 9], axis=1, **scale)


def test_softmax_of_most_values(same):
    scale = {"axis": 0, "multiplier": 1 << 30, "exponent": 20}
    same("softmax", np.zeros(MOST_SUMMED, np.int8), **scale)
    with pytest.raises(UnsupportedError, match="step 'step': softmax of 8192 values has no C kernel; at most 8191"):
        same("softmax", np.zeros(MOST_SUMMED + 1, np.int8), **scale)


def test_rows_of_unit_length(same):
    for x_zero_point in (-128, 0, 127):
        for scaled_first in (False, True):
            facts = {"x_zero_point": x_zero_point, "scaled_first": scaled_first}
            for shape, axis in (((3, 40), 1), ((2, 5, 4), 1), ((70000, 1), 0), ((9, 1), 1)):
                same("l2_normalize", some(shape), axis=axis, **facts)
                same("l2_normalize", np.full(shape, x_zero_point, np.int8), axis=axis, **facts)
            same("l2_normalize", np.arange(-128, 128).astype(np.int8)[:, None], axis=1, **facts)
