"""hw/rounding.py against exact arithmetic on Python's integers and fractions, written from the contracts alone.

`double`: shift left by the exponent where it is positive (wrapping at 32 bits), multiply and round to nearest at bit 31
with ties up, then divide by the power of two that is left, ties away from zero. `single`: one product, rounded to
nearest with ties up.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.hw.rounding import CONTRACTS, exact_multiplier, quantize_multiplier, requantise, rescale

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
EDGES = [0, 1, -1, 2, -2, 127, -128, 255, -256, 1 << 30, -(1 << 30), (1 << 30) + 1, (1 << 31) - 1, -(1 << 31)]
MULTIPLIERS = st.one_of(st.sampled_from([0, 1, 1 << 30, (1 << 31) - 1]), st.integers(0, (1 << 31) - 1))
EXPONENTS = st.integers(-32, 31)


def ties_up(x: Fraction) -> int:
    return math.floor(x + Fraction(1, 2))


def ties_away(x: Fraction) -> int:
    return int(math.copysign(math.floor(abs(x) + Fraction(1, 2)), x)) if x else 0


def exact_double(acc: int, multiplier: int, exponent: int) -> int:
    shifted = acc * (1 << max(exponent, 0))
    shifted = (shifted + (1 << 31)) % (1 << 32) - (1 << 31)
    high = ties_up(Fraction(shifted * multiplier, 1 << 31))
    return ties_away(Fraction(high, 1 << max(-exponent, 0)))


def exact_single(acc: int, multiplier: int, exponent: int) -> int:
    return ties_up(Fraction(acc * multiplier) * Fraction(2) ** (exponent - 31))  # exponent 31: an integer as it is


EXACT = {"double": exact_double, "single": exact_single}


@pytest.mark.parametrize("contract", CONTRACTS)
@given(st.lists(st.one_of(st.sampled_from(EDGES), INT32), min_size=1, max_size=8), MULTIPLIERS, EXPONENTS)
@settings(max_examples=400)
@example([1 << 30, -(1 << 30)], (1 << 31) - 1, 1)
@example(EDGES, 1 << 30, -31)
@example(EDGES, (1 << 31) - 1, 30)
@example(EDGES, 0, 0)
@example(EDGES, (1 << 31) - 1, 31)
@example(EDGES, (1 << 31) - 1, -32)
def test_rescale_is_exact(contract, acc, multiplier, exponent):
    got = rescale(np.array(acc), multiplier, exponent, contract)
    assert got.dtype == np.int64
    assert got.tolist() == [EXACT[contract](a, multiplier, exponent) for a in acc]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_edges_at_every_exponent(contract):
    for multiplier in (0, 1 << 30, 1518500250, (1 << 31) - 1):
        for exponent in range(-32, 32):
            got = rescale(np.array(EDGES), multiplier, exponent, contract).tolist()
            assert got == [EXACT[contract](a, multiplier, exponent) for a in EDGES], (multiplier, exponent)


# Scale 1/2 is multiplier 2**30, exponent 0; 1/4 is 2**30, -1. Ties tell the contracts apart.
TIES = [
    ("double", 0, [-3, -1, 1, 3], [-1, 0, 1, 2]),  # the first rounding: ties up
    ("double", -1, [-6, -2, 2, 6], [-2, -1, 1, 2]),  # the second: ties away from zero
    ("single", 0, [-3, -1, 1, 3], [-1, 0, 1, 2]),
    ("single", -1, [-6, -2, 2, 6], [-1, 0, 1, 2]),  # always ties up
]


@pytest.mark.parametrize("contract, exponent, acc, expected", TIES)
def test_ties(contract, exponent, acc, expected):
    assert rescale(acc, 1 << 30, exponent, contract).tolist() == expected


def test_two_roundings_differ_from_one():
    # 3 / 8: 1.5 -> 2 -> 1 in two steps; 0.375 -> 0 in one
    assert rescale(3, 1 << 30, -2, "double") == 1
    assert rescale(3, 1 << 30, -2, "single") == 0


@pytest.mark.parametrize("contract", CONTRACTS)
@given(st.integers(-(1 << 30), 1 << 30), st.integers(-128, 127), st.tuples(*[st.integers(-128, 127)] * 2).map(sorted))
@example(1 << 30, 127, [-128, 127])
@example(-(1 << 30), -128, [-128, 127])
def test_requantise_adds_the_zero_point_then_clamps(contract, acc, zero_point, limits):
    low, high = limits
    expected = min(max(EXACT[contract](acc, 1518500250, -7) + zero_point, low), high)
    got = requantise(np.array([acc]), 1518500250, -7, zero_point, low, high, contract)
    assert got.dtype == np.int8
    assert got.tolist() == [expected]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_zero_multiplier_gives_the_zero_point(contract):
    assert requantise(np.array(EDGES), 0, 0, 5, contract=contract).tolist() == [5] * len(EDGES)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_parameters_broadcast_per_channel(contract):
    rng = np.random.default_rng(0)
    acc = rng.integers(-(1 << 31), 1 << 31, (3, 5, 4))
    multiplier = rng.integers(1 << 30, 1 << 31, 4)
    exponent = rng.integers(-31, 31, 4)
    got = rescale(acc, multiplier, exponent, contract)
    for c in range(4):
        expected = [EXACT[contract](int(a), int(multiplier[c]), int(exponent[c])) for a in acc[..., c].ravel()]
        assert got[..., c].ravel().tolist() == expected


@given(st.floats(2.0**-32, 2.0**29, allow_nan=False))
@example(1.0)
@example(0.5)
@example(1 - 2.0**-40)
@example(2.0**-32)
def test_quantize_multiplier_is_nearest(scale):
    multiplier, exponent = quantize_multiplier(scale)
    assert 1 << 30 <= multiplier < 1 << 31
    assert -31 <= exponent <= 30
    error = abs(Fraction(multiplier) * Fraction(2) ** (exponent - 31) - Fraction(scale))
    assert error <= Fraction(2) ** (exponent - 32)


@pytest.mark.parametrize(
    "scale, expected",
    [
        (0.0, (0, 0)),
        (2.0**-33, (0, 0)),
        (2.0**-40, (0, 0)),
        (2.0**-32, (1 << 30, -31)),
        (0.5, (1 << 30, 0)),
        (1.0, (1 << 30, 1)),
        (1 - 2.0**-40, (1 << 30, 1)),
        (2.0**29, (1 << 30, 30)),
        (2.0**30, ((1 << 31) - 1, 30)),
        (1e30, ((1 << 31) - 1, 30)),
    ],
)
def test_quantize_multiplier_at_its_edges(scale, expected):
    assert quantize_multiplier(scale) == expected


@pytest.mark.parametrize("modes", [[0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])  # wider than an index on a 32-bit machine, and on any
def test_the_contract_may_differ_by_channel(modes, dtype):
    acc = np.array(EDGES)[:, None].repeat(4, 1)
    got = rescale(acc, 1518500250, -3, np.array(modes, dtype))
    for c, mode in enumerate(modes):
        assert got[:, c].tolist() == [EXACT[CONTRACTS[mode]](a, 1518500250, -3) for a in EDGES]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_low_limit_above_the_high_one_gives_the_high_one(contract):
    assert requantise(np.array(EDGES), 1 << 30, 1, 0, 7, -3, contract).tolist() == [-3] * len(EDGES)


def test_an_unknown_contract_is_refused():
    with pytest.raises(ValueError, match=r"^contract 'fp32': must be one of double, single$"):
        rescale(1, 1, 1, "fp32")


@pytest.mark.parametrize("numerator", [0, 1, 47, 65535, 65536, 4171896, (1 << 30) - 1])
@pytest.mark.parametrize("bits", [0, 1, 16, 31])
def test_fractions_by_powers_of_two_round_once_in_both_contracts(numerator, bits):
    multiplier, exponent = exact_multiplier(numerator * 2.0**-bits)
    assert exponent >= 0 and Fraction(multiplier, 1 << 31) * (1 << exponent) == Fraction(numerator, 1 << bits)
    for acc in (-65, -1, 0, 1, 127, 1 << (31 - exponent)):
        wanted = ties_up(Fraction(acc * numerator, 1 << bits))
        if abs(acc) << exponent < 1 << 31:
            assert exact_double(acc, multiplier, exponent) == exact_single(acc, multiplier, exponent) == wanted


@pytest.mark.parametrize("scale", [-0.5, 2.0**30, 2.0**-32, 0.1])
def test_other_scales_have_no_exact_multiplier(scale):
    with pytest.raises(ValueError, match="multiple of 2"):
        exact_multiplier(scale)
