"""Operators along whole axes: those that cannot be."""

import pytest

from tilewright.compiler.graph.operators import Tensor
from tilewright.compiler.graph.reductions import ArgMax, L2Normalization, LogSoftmax, ReduceMax, ReduceMin
from tilewright.hw.errors import InputError


def t(name, *shape, **quantisation):
    return Tensor(name, shape, **quantisation)


def test_reduced_axes_are_kept_or_dropped():
    for shape in ((2, 1, 4), (2, 4)):
        assert ReduceMax("r", (t("x", 2, 3, 4),), t("y", *shape), (1,)).axes == (1,)
        assert ArgMax("a", (t("x", 2, 3, 4),), t("y", *shape, dtype="int64"), 1).axis == 1


@pytest.mark.parametrize(
    "text, make",
    [
        ("ReduceMax 'r': the output's shape", lambda: ReduceMax("r", (t("x", 2, 3),), t("y", 3), (1,))),
        ("ReduceMin 'r': the output's quantis", lambda: ReduceMin("r", (t("x", 2, 3),), t("y", 2, scale=2.0), (1,))),
        ("ArgMax 'a': the output's dtype", lambda: ArgMax("a", (t("x", 2, 3),), t("y", 2), 1)),
        (
            "ArgMax 'a': the input's dtype",
            lambda: ArgMax("a", (t("x", 2, dtype="int32"),), t("y", 1, dtype="int32"), 0),
        ),
        ("L2Normalization 'n': the output's scale", lambda: L2Normalization("n", (t("x", 2, 3),), t("y", 2, 3), 1)),
        ("L2Normalization 'n': the output's shape", lambda: L2Normalization("n", (t("x", 2, 3),), t("y", 3), 1)),
        ("LogSoftmax 'n': whether the axis", lambda: LogSoftmax("n", (t("x", 2, 3),), t("y", 2, 3), 2)),
        ("ArgMax 'a': the output's shape", lambda: ArgMax("a", (t("x", 2, 3),), t("y", 3, dtype="int32"), 1)),
    ],
)
def test_impossible_operators(text, make):
    with pytest.raises(InputError) as caught:
        make()
    assert text in str(caught.value)
