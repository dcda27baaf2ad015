"""compiler/odimo/mapping.py: choices in whole blocks, fixed ones, ties of sums."""

import numpy as np
import pytest

from tilewright.compiler.odimo import mapping as m
from tilewright.compiler.odimo.tables import LayerCost, UnitTable


def test_whole_blocks_on_gemm():
    assert m.allowed(10, 4) == [0, 4, 8, 10]
    assert m.allowed(8, 4) == [0, 4, 8]
    assert m.allowed(3, 16) == [0, 3]


@pytest.mark.parametrize("wanted, digital", [(0, 0), (1, 0), (2, 4), (3, 4), (5, 4), (6, 8), (8, 8)])
def test_rounding_goes_to_the_nearest_number_of_blocks_and_of_two_to_more_int8(wanted, digital):
    preference = np.where(np.arange(8) < wanted, -1.0, 1.0) - np.arange(8) / 100
    (found,) = m.rounded({"a": preference}, 4).values()
    assert (~found).sum() == digital


def test_channels_whose_preference_is_weakest_move():
    found = m.rounded({"a": np.array([0.5, -2.0, 0.1, -1.0, -0.5, 3.0])}, 4)["a"]
    assert found.tolist() == [True, False, False, False, False, True]


def test_layers_of_one_sum_are_nested():
    rng = np.random.default_rng(0)
    preference = {name: rng.normal(shift, 1, 16) for name, shift in (("a", -0.6), ("b", 0.6), ("c", 0.0))}
    found = m.rounded(preference, 4, [["a", "b"]])
    assert not (found["a"] & ~found["b"]).any() and found["a"].sum() < found["b"].sum()
    assert (found["c"] == m.rounded({"c": preference["c"]}, 4)["c"]).all()


def test_fixed_choices():
    sizes = {"a": 8, "b": 4, "c": 10}
    assert m.share(m.all_on(sizes, m.GEMM)) == 0 and m.share(m.all_on(sizes, m.TERNARY)) == 1
    assert {name: chosen.all() for name, chosen in m.ends_on_gemm(sizes).items()} == {"a": 0, "b": 1, "c": 0}


def test_min_cost_takes_the_fastest_split_and_of_equal_ones_that_with_more_int8():
    digital, ternary = UnitTable((0, 4, 8), (0, 80, 200)), UnitTable((0, 4, 8), (0, 60, 100))
    split = {"a": LayerCost((digital, ternary))}
    assert m.counts(m.cheapest({"a": 8}, split, 4)) == {"a": (4, 4)}
    same = {"a": LayerCost((UnitTable((0, 8), (0, 0.0)), UnitTable((0, 8), (0, 0.0))))}
    assert m.counts(m.cheapest({"a": 8}, same, 4)) == {"a": (8, 0)}


def test_channels_are_named_by_unit():
    assert m.channels({"a": np.array([True, False, True])}) == {"a": {"gemm": [1], "ternary": [0, 2]}}
    assert m.channels({"a": np.array([False, True])}, ("conv", "depthwise")) == {"a": {"conv": [0], "depthwise": [1]}}
