"""Operators without weights: their derived integers, and those that cannot be."""

import math

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph.elementwise import (
    Add,
    Div,
    LeakyRelu,
    Lookup,
    Maximum,
    Minimum,
    Mul,
    PairLookup,
    Prelu,
    Quantize,
    Recode,
    Requantize,
    SquaredDifference,
    Sub,
)
from tilewright.compiler.graph.movement import Concat, Heads, Lanes, Pad, Reshape, StridedSlice, Take, Transpose
from tilewright.compiler.graph.operators import Tensor
from tilewright.compiler.graph.ranges import problem
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


PAIRS = np.zeros((256, 256), np.int8)


def test_multipliers_of_slopes_and_differences():
    x, y, z = t("x", 1, 4, scale=0.3), t("y", 1, 4, scale=0.5), t("z", 1, 4, scale=0.9)
    assert [real(m) for m in Prelu("p", (x, y), z).multipliers] == pytest.approx([0.3 / 0.9, 0.15 / 0.9], rel=1e-9)
    found = [real(m) for m in SquaredDifference("s", (x, y), z).multipliers]
    assert found == pytest.approx([0.3, 0.5, 1 / (2**14 * 0.9)], rel=1e-9)


def test_a_quotient_has_the_ratio_of_scales():
    x, y, z = t("x", 1, 4, scale=0.3), t("y", 1, 4, scale=0.5), t("z", 1, 4, scale=0.9)
    assert real(Div("d", (x, y), z).multipliers) == pytest.approx(0.3 / 0.45, rel=1e-6)


def test_a_leaky_rectifier_has_a_multiplier_on_each_side():
    op = LeakyRelu("l", (t("x", 4),), t("y", 4), "leaky_relu", np.zeros(256, np.int8), (0.75, 0.1))
    assert [real(m) for m in op.multipliers] == pytest.approx([0.75, 0.1], rel=1e-9)


def test_integers_stay_within_int32():
    x, y = t("x", 4), t("y", 4)
    assert not problem(Prelu("p", (x, y), t("z", 4))) and not problem(SquaredDifference("s", (x, y), t("z", 4)))
    assert "at most" in problem(Prelu("p", (x, y), t("z", 4, scale=2.0**-20)))
    assert "at most" in problem(SquaredDifference("s", (x, y), t("z", 4, scale=2.0**-20)))


def pool(cls, y_shape=(1, 2, 3, 3), **changes):
    y = Tensor("y", y_shape, **{key: changes.pop(key) for key in ("scale",) if key in changes})
    return cls("pool", (Tensor("x", (1, 2, 6, 6)),), y, **({"kernel": (2, 2), "strides": (2, 2)} | changes))


def test_a_mean_divides_by_its_count():
    op = g.Mean("m", (t("x", 1, 4, 5, 25, scale=0.5),), t("y", 1, 4, 1, 1, scale=0.25), (2, 3))
    assert op.count == 125
    assert real(op.multipliers) == pytest.approx(2 / 125, rel=1e-7)
    assert op.multipliers[0] < 2**31


def test_a_sum_does_not():
    op = g.Sum("s", (t("x", 1, 4, 5, 25, scale=0.5),), t("y", 1, 4, 1, 1, scale=0.25), (2, 3))
    assert real(op.multipliers) == 2


def test_reduced_axes_are_kept_or_dropped():
    for shape in ((2, 1, 4), (2, 4)):
        assert g.ReduceMax("r", (t("x", 2, 3, 4),), t("y", *shape), (1,)).axes == (1,)
        assert g.ArgMax("a", (t("x", 2, 3, 4),), t("y", *shape, dtype="int64"), 1).axis == 1


def test_windows_are_those_of_a_convolution_of_each_channel():
    shape = pool(g.MaxPool, (1, 2, 4, 4), pads=(1, 1, 1, 1)).shape
    assert (shape.c, shape.o, shape.groups) == (2, 2, 2) and shape.size == (6, 6) and shape.output == (4, 4)


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
        (
            "PairLookup 'p': the table",
            lambda: PairLookup("p", (t("x", 4), t("z", 4)), t("y", 4), np.zeros(256, np.int8)),
        ),
        (
            "PairLookup 'p': whether all",
            lambda: PairLookup("p", (t("x", 4),) * 2, t("y", 4, dtype="uint8"), PAIRS),
        ),
        ("PairLookup 'p': the output's", lambda: PairLookup("p", (t("x", 4), t("z", 4)), t("y", 3), PAIRS)),
        ("Maximum 'm': the number of operands is 1", lambda: Maximum("m", (t("x", 4),), t("y", 4))),
        ("Minimum 'm': shapes [(4,), (3,)] do not", lambda: Minimum("m", (t("x", 4), t("z", 3)), t("y", 4))),
        ("Maximum 'm': the output's quantis", lambda: Maximum("m", (t("x", 4), t("z", 4, scale=0.5)), t("y", 4))),
        ("Prelu 'p': the output's shape is (1, 4)", lambda: Prelu("p", (t("x", 4), t("z", 1)), t("y", 1, 4))),
        ("Prelu 'p': the conversion", lambda: Prelu("p", (t("x", 4, dtype="int32"), t("z", 1)), t("y", 4))),
        ("MaxPool 'pool': the output's shape", lambda: pool(g.MaxPool, (1, 2, 6, 6))),
        ("MaxPool 'pool': the output's quantisation", lambda: pool(g.MaxPool, scale=2.0)),
        ("ExactAveragePool 'pool': the output's quantisation", lambda: pool(g.ExactAveragePool, scale=2.0)),
        ("AveragePool 'pool': the padding", lambda: pool(g.AveragePool, (1, 2, 4, 4), pads=(1, 1, 1, 1))),
        ("MaxPool 'pool': clamp 1..0", lambda: pool(g.MaxPool, low=1, high=0)),
        (
            "ResizeBilinear 'r': the output's images",
            lambda: g.ResizeBilinear("r", (t("x", 1, 2, 4, 4),), t("y", 1, 3, 8, 8)),
        ),
        (
            "ResizeBilinear 'r': the number of dim",
            lambda: g.ResizeBilinear("r", (t("x", 1, 2, 4),), t("y", 1, 2, 8, 8)),
        ),
        ("ReduceMax 'r': the output's shape", lambda: g.ReduceMax("r", (t("x", 2, 3),), t("y", 3), (1,))),
        ("ReduceMin 'r': the output's quantis", lambda: g.ReduceMin("r", (t("x", 2, 3),), t("y", 2, scale=2.0), (1,))),
        ("ArgMax 'a': the output's dtype", lambda: g.ArgMax("a", (t("x", 2, 3),), t("y", 2), 1)),
        (
            "ArgMax 'a': whether the input holds",
            lambda: g.ArgMax("a", (t("x", 2, dtype="bool"),), t("y", 1, dtype="int32"), 0),
        ),
        ("L2Normalization 'n': the output's scale", lambda: g.L2Normalization("n", (t("x", 2, 3),), t("y", 2, 3), 1)),
        ("L2Normalization 'n': the output's shape", lambda: g.L2Normalization("n", (t("x", 2, 3),), t("y", 3), 1)),
        ("LogSoftmax 'n': whether the axis", lambda: g.LogSoftmax("n", (t("x", 2, 3),), t("y", 2, 3), 2)),
        ("ArgMax 'a': the output's shape", lambda: g.ArgMax("a", (t("x", 2, 3),), t("y", 3, dtype="int32"), 1)),
        ("TopK 'k': the rows", lambda: g.TopK("k", (t("x", 2, 3),), t("y", 1, 3))),
        ("TopK 'k': whether rows are long", lambda: g.TopK("k", (t("x", 2, 3),), t("y", 2, 4))),
        ("TopK 'k': the output's quantis", lambda: g.TopK("k", (t("x", 2, 3),), t("y", 2, 1, scale=2.0))),
        ("TopK 'k': the output's dtype", lambda: g.TopK("k", (t("x", 2, 3),), t("y", 2, 1), True)),
        ("Mean 'm': the output's shape is (4, 1)", lambda: g.Mean("m", (t("x", 4, 3, 2),), t("y", 4, 1), (1,))),
        ("Reshape 'r': the number of elements", lambda: Reshape("r", (t("x", 1, 4),), t("y", 1, 5))),
        ("Transpose 't': the axes", lambda: Transpose("t", (t("x", 2, 3),), t("y", 3, 2), (1, 1))),
        ("Transpose 't': the output's shape", lambda: Transpose("t", (t("x", 2, 3),), t("y", 2, 3), (1, 0))),
        ("Heads 'h': the size", lambda: Heads("h", (t("x", 1, 8, 1, 3),), t("y", 2, 4, 3, 1), True)),
        ("Heads 'h': the number of channels", lambda: Heads("h", (t("x", 1, 8, 1, 3),), t("y", 3, 4, 1, 3), True)),
        ("Heads 'h': the number of images", lambda: Heads("h", (t("x", 2, 6, 1, 3),), t("y", 3, 4, 1, 3), True)),
        ("Lanes 'l': the dimensions", lambda: Lanes("l", (t("x", 1, 12),), t("y", 1, 12), 4)),
        ("Lanes 'l': the rows", lambda: Lanes("l", (t("x", 2, 12),), t("y", 1, 4, 3, 2), 4)),
        (
            "Lanes 'l': the rows is (1, 12), expected (1, 18)",
            lambda: Lanes("l", (t("x", 1, 12),), t("y", 1, 4, 1, 3), 3),
        ),
        ("Lanes 'l': whether there is one row", lambda: Lanes("l", (t("x", 2, 24),), t("y", 1, 8, 2, 3), 4)),
        ("Concat 'c': the output's size", lambda: Concat("c", (t("x", 2, 3), t("z", 1, 3)), t("y", 4, 3), 0)),
        ("Concat 'c': the number of different", lambda: Concat("c", (t("x", 2, 3), t("z", 1, 2)), t("y", 3, 3), 0)),
        ("Pad 'p': the output's shape", lambda: Pad("p", (t("x", 2),), t("y", 3), ((1, 1),), 0)),
        ("Pad 'p': the smallest padding", lambda: Pad("p", (t("x", 2),), t("y", 1), ((-1, 0),), 0)),
        ("Pad 'p': whether the value is a whole", lambda: Pad("p", (t("x", 2),), t("y", 3), ((1, 0),), 128)),
        ("StridedSlice 's': whether dim", lambda: StridedSlice("s", (t("x", 5),), t("y", 3), (1,), (2,))),
        ("Take 't': whether the indices lie within dim", lambda: Take("t", (t("x", 5),), t("y", 1), ((5,),))),
        ("Take 't': the number of dimensions", lambda: Take("t", (t("x", 5),), t("y", 5), ((), ()))),
        ("Take 't': the output's shape", lambda: Take("t", (t("x", 5),), t("y", 3), ((1, 2),))),
        ("StridedSlice 's': the ranks", lambda: StridedSlice("s", (t("x", 5),), t("y", 3), (1, 0), (2,))),
    ],
)
def test_impossible_operators(text, make):
    with pytest.raises(InputError) as caught:
        make()
    assert text in str(caught.value)
