"""apps/odimo/mapping.py: choices in whole blocks, fixed ones, ties of sums."""

import itertools

import numpy as np
import pytest

from tilewright.apps.odimo import mapping as m


def test_whole_blocks_on_gemm():
    assert m.allowed(10, 4) == [0, 4, 8, 10]
    assert m.allowed(8, 4) == [0, 4, 8]
    assert m.allowed(3, 16) == [0, 3]


@pytest.mark.parametrize("wanted, digital", [(0, 0), (1, 0), (2, 4), (3, 4), (5, 4), (6, 8), (8, 8)])
def test_rounding_goes_to_the_nearest_number_of_blocks_and_of_two_to_more_int8(wanted, digital):
    preference = np.where(np.arange(8) < wanted, -1.0, 1.0) - np.arange(8) / 100
    assert m.nearest({"a": preference}, 4) == {"a": digital}


def test_channels_whose_preference_is_weakest_move():
    found = m.preferred({"a": np.array([0.5, -2.0, 0.1, -1.0, -0.5, 3.0])}, {"a": 4})["a"]
    assert found.tolist() == [True, False, False, False, False, True]


def test_layers_of_one_sum_are_nested():
    rng = np.random.default_rng(0)
    preference = {name: rng.normal(shift, 1, 16) for name, shift in (("a", -0.6), ("b", 0.6), ("c", 0.0))}
    numbers = m.nearest(preference, 4)
    found = m.preferred(preference, numbers, [["a", "b"]])
    assert m.on_gemm(found) == numbers and numbers["a"] > numbers["b"]
    assert not (found["a"] & ~found["b"]).any()
    assert (found["c"] == m.preferred(preference, numbers)["c"]).all()


def test_fixed_choices():
    sizes = {"a": 8, "b": 4, "c": 10}
    assert m.share(m.all_on(sizes, m.GEMM)) == 0 and m.share(m.all_on(sizes, m.TERNARY)) == 1
    assert {name: chosen.all() for name, chosen in m.ends_on_gemm(sizes).items()} == {"a": 0, "b": 1, "c": 0}


def test_channels_are_named_by_unit():
    assert m.channels({"a": np.array([True, False, True])}) == {"a": {"gemm": [1], "ternary": [0, 2]}}
    assert m.channels({"a": np.array([False, True])}, ("conv", "depthwise")) == {"a": {"conv": [0], "depthwise": [1]}}


def test_numbers_that_the_cost_counted_go_before_signs():
    """Ten undecided channels, each a third ternary, are three channels' worth of ternary."""
    preference = {"a": np.linspace(-0.2, -0.1, 10)}
    assert m.nearest(preference, 4) == {"a": 10} and m.nearest(preference, 4, {"a": 6.7}) == {"a": 8}


@pytest.mark.parametrize(
    "asked, expected", [(0, [0]), (0.1, [0, 4]), (4, [4]), (7.9, [4, 8]), (8.1, [8, 10]), (10, [10]), (10.0001, [10])]
)
def test_what_lies_around_a_number(asked, expected):
    assert m.around({"a": np.zeros(10)}, 4, {"a": asked}) == {"a": expected}


def test_the_first_channels_by_number():
    found = m.by_number({"a": 3, "b": 2}, {"a": 2, "b": 0})
    assert {name: chosen.tolist() for name, chosen in found.items()} == {"a": [False, False, True], "b": [True, True]}
    assert m.on_gemm(found) == {"a": 2, "b": 0} and m.counts(found) == {"a": (2, 1), "b": (0, 2)}


OPTIONS = {"a": [0, 4, 8], "b": [0, 4, 8, 10], "c": [0, 4]}


def test_descent_ends_where_no_neighbour_has_less():
    """Random values of all mappings, seed 5: each neighbour of the result is asked, none has less, none twice."""
    rng = np.random.default_rng(5)
    values = {key: rng.random() for key in itertools.product(*OPTIONS.values())}
    asked = []

    def value(numbers):
        asked.append(tuple(numbers.values()))
        return values[asked[-1]]

    for start in values:
        asked.clear()
        found = tuple(m.descend(dict(zip(OPTIONS, start)), OPTIONS, value).values())
        assert values[found] <= values[start] and len(asked) == len(set(asked))
        for k, options in enumerate(OPTIONS.values()):
            at = options.index(found[k])
            for number in options[max(0, at - 1) : at + 2]:
                other = (*found[:k], number, *found[k + 1 :])
                assert other in asked and values[found] <= values[other]


def test_descent_by_pairs_moves_two_layers_in_a_row():
    """Fewer cycles only where a and b change together; c is not beside a."""
    best = {"a": 4, "b": 4, "c": 4}, {"a": 0, "b": 8, "c": 4}

    def value(numbers):
        return 3 - best.index(numbers) if numbers in best else 9

    assert m.descend(best[0], OPTIONS, value) == best[0] and m.descend(best[0], OPTIONS, value, True) == best[1]
    best = best[0], {"a": 0, "b": 4, "c": 0}
    assert m.descend(best[0], OPTIONS, value, True) == best[0]
