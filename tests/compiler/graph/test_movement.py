"""Operators that move values: those that cannot be."""

import pytest

from tilewright.compiler.graph.movement import Concat, Heads, Lanes, Pad, Reshape, StridedSlice, Take, Transpose
from tilewright.compiler.graph.operators import Tensor
from tilewright.hw.errors import InputError


def t(name, *shape, **quantisation):
    return Tensor(name, shape, **quantisation)


@pytest.mark.parametrize(
    "text, make",
    [
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
