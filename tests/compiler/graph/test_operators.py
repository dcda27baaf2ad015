"""Operators without weights: their derived integers, and those that cannot be."""

import math

import numpy as np
import pytest

from tilewright.compiler.graph.elementwise import Add, Lookup, Mul, Quantize, Recode, Requantize, Sub
from tilewright.compiler.graph.operators import Tensor
from tilewright.compiler.graph.windows import Softmax
from tilewright.hw.errors import InputError


def t(name, *shape, **quantisation):
    return Tensor(name, shape, **quantisation)


def real(pair):
    """What a multiplier and an exponent stand for."""
    return pair[0] * 2.0 ** (pair[1] - 31)


def test_a_tensor_counts_its_bytes():
    assert (t("x", 2, 3).nbytes, t("f", 2, 3, dtype="float32").nbytes) == (6, 24)


def test_multipliers_stand_for_ratios_of_scales():
    x, y, z = t("x", 1, 4, scale=0.3), t("y", 1, 4, scale=0.5), t("z", 1, 4, scale=0.9)
    assert real(Requantize("r", (x,), y).multipliers) == pytest.approx(0.6, rel=1e-9)
    assert real(Mul("m", (x, y), z).multipliers) == pytest.approx(0.15 / 0.9, rel=1e-9)
    for cls, sign in ((Add, 1), (Sub, -1)):
        op = cls("a", (x, y), z)
        assert op.sign == sign
        first, second, third = map(real, op.multipliers)
        assert (first, second) == pytest.approx((0.3, 0.5), rel=1e-9)
        assert third * 2**20 == pytest.approx(1 / 0.9, rel=1e-9)


@pytest.mark.parametrize(
    "text, make",
    [
        (
            "tensor 't': dtype 'int4' must be one of int8, uint8, int16, int32, int64, float32",
            lambda: t("t", 1, dtype="int4"),
        ),
        ("tensor 't': shape (1, 0): every dimension must be at least 1", lambda: t("t", 1, 0)),
        ("tensor 't': scale 0.0 must be positive", lambda: t("t", 1, scale=0.0)),
        ("tensor 't': scale inf must be positive", lambda: t("t", 1, scale=math.inf)),
        ("tensor 't': zero point 128 is outside", lambda: t("t", 1, zero_point=128)),
        ("tensor 't': zero point -1 is outside 0..255", lambda: t("t", 1, dtype="uint8", zero_point=-1)),
        ("Recode 'r': the conversion", lambda: Recode("r", (t("x", 4),), t("y", 4))),
        ("Recode 'r': the output's shape, scale", lambda: Recode("r", (t("x", 4, dtype="uint8"),), t("y", 4))),
        ("tensor 't': data is int32 (3,)", lambda: t("t", 3, data=np.zeros(3, np.int32))),
        ("Quantize 'q': the conversion", lambda: Quantize("q", (t("x", 1, 4),), t("y", 1, 4))),
        ("Requantize 'r': the conversion", lambda: Requantize("r", (t("x", 4, dtype="float32"),), t("y", 4))),
        ("Lookup 'l': the table", lambda: Lookup("l", (t("x", 4),), t("y", 4), "tanh", np.zeros(255, np.int8))),
        ("Add 'a': the number of operands is 1", lambda: Add("a", (t("x", 4),), t("y", 4))),
        ("Add 'a': shapes [(4,), (3,)] do not broadcast", lambda: Add("a", (t("x", 4), t("z", 3)), t("y", 4))),
        ("Mul 'a': the output's shape is (1, 4)", lambda: Mul("a", (t("x", 4), t("z", 1)), t("y", 1, 4))),
        ("Softmax 's': the output's scale and", lambda: Softmax("s", (t("x", 4),), t("y", 4), 0)),
    ],
)
def test_impossible_operators(text, make):
    with pytest.raises(InputError) as caught:
        make()
    assert text in str(caught.value)
