"""Element-wise operators beside sums and products: their derived integers, and those that cannot be."""

import numpy as np
import pytest

from tilewright.compiler.graph.elementwise import Div, LeakyRelu, Maximum, Minimum, PairLookup, Prelu, SquaredDifference
from tilewright.compiler.graph.operators import Tensor
from tilewright.compiler.graph.ranges import problem
from tilewright.hw.errors import InputError

PAIRS = np.zeros((256, 256), np.int8)


def t(name, *shape, **quantisation):
    return Tensor(name, shape, **quantisation)


def real(pair):
    """What a multiplier and an exponent stand for."""
    return pair[0] * 2.0 ** (pair[1] - 31)


def test_multipliers_stand_for_ratios_of_scales():
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


@pytest.mark.parametrize(
    "text, make",
    [
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
    ],
)
def test_impossible_operators(text, make):
    with pytest.raises(InputError) as caught:
        make()
    assert text in str(caught.value)
