"""Pooling and means: their derived integers, and those that cannot be."""

import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph.operators import Tensor
from tilewright.hw.errors import InputError


def t(name, *shape, **quantisation):
    return Tensor(name, shape, **quantisation)


def pool(cls, y_shape=(1, 2, 3, 3), **changes):
    y = Tensor("y", y_shape, **{key: changes.pop(key) for key in ("scale",) if key in changes})
    return cls("pool", (Tensor("x", (1, 2, 6, 6)),), y, **({"kernel": (2, 2), "strides": (2, 2)} | changes))


def real(pair):
    """What a multiplier and an exponent stand for."""
    return pair[0] * 2.0 ** (pair[1] - 31)


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
    ],
)
def test_impossible_operators(text, make):
    with pytest.raises(InputError) as caught:
        make()
    assert text in str(caught.value)
