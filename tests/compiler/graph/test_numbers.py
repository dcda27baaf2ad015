"""Operators on plain numbers: those that cannot be."""

import pytest

from tilewright.compiler.graph.numbers import Cast, Gather, GatherNd, NumberBinary, NumberFunction
from tilewright.compiler.graph.operators import Tensor
from tilewright.hw.errors import InputError


def t(name, *shape, dtype="float32"):
    return Tensor(name, shape, dtype)


@pytest.mark.parametrize(
    "text, make",
    [
        ("NumberFunction 'f': whether", lambda: NumberFunction("f", (t("x", 2, dtype="int8"),), t("y", 2), "abs")),
        ("NumberFunction 'f': the output", lambda: NumberFunction("f", (t("x", 2),), t("y", 3), "abs")),
        ("NumberBinary 'b': the number", lambda: NumberBinary("b", (t("x", 2),), t("y", 2), "add")),
        ("NumberBinary 'b': the types", lambda: NumberBinary("b", (t("x", 2),) * 2, t("y", 2, dtype="int32"), "add")),
        ("NumberBinary 'b': shapes", lambda: NumberBinary("b", (t("x", 2), t("z", 3)), t("y", 2), "add")),
        ("Cast 'c': the output's shape", lambda: Cast("c", (t("x", 2),), t("y", 3))),
        ("Gather 'g': whether positions", lambda: Gather("g", (t("x", 2), t("z", 3)), t("y", 3), 0)),
        ("Gather 'g': the output", lambda: Gather("g", (t("x", 2), t("z", 3, dtype="int32")), t("y", 2), 0)),
        ("Gather 'g': whether the axis", lambda: Gather("g", (t("x", 2), t("z", 3, dtype="int32")), t("y", 3), 1)),
        (
            "GatherNd 'g': whether positions fit",
            lambda: GatherNd("g", (t("x", 2), t("z", 3, 2, dtype="int32")), t("y", 3)),
        ),
    ],
)
def test_impossible_operators(text, make):
    with pytest.raises(InputError) as caught:
        make()
    assert text in str(caught.value)
