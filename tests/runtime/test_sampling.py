"""runtime/sampling.py: probabilities beside a plain computation in the same order, and choices by them."""

import numpy as np
import pytest

from tilewright.hw.errors import InputError
from tilewright.runtime.sampling import Sampling


def plain(logits, tokens, temperature, top_k, top_p, penalty):
    """Token by token, as the definitions say it."""
    scores = [float(x) for x in logits]
    for token in set(tokens):
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    order = sorted(range(len(scores)), key=lambda k: (-scores[k], k))
    weights = [np.exp((scores[k] - scores[order[0]]) / temperature) for k in order]
    kept = list(zip(order, weights))[: top_k or None]
    total, taken, reached = sum(w for _, w in kept), [], 0.0
    for token, weight in kept:
        if reached < top_p:
            taken.append((token, weight))
            reached += weight / total
    found = np.zeros(len(scores))
    for token, weight in taken:
        found[token] = weight / sum(w for _, w in taken)
    return found


def test_probabilities_are_those_of_the_definitions():
    rng = np.random.default_rng(17)
    for _ in range(200):
        words = int(rng.integers(2, 40))
        logits = rng.normal(0, 3, words).astype(np.float32)
        tokens = rng.integers(0, words, int(rng.integers(0, 8))).tolist()
        temperature, penalty = float(rng.uniform(0.2, 3)), float(rng.choice([1, 0.7, 1.3, 5]))
        top_k, top_p = int(rng.integers(0, words + 2)), float(rng.choice([1.0, 0.05, 0.5, 0.9]))
        sampling = Sampling(penalty, temperature, top_k, top_p)
        wanted = plain(logits, tokens, temperature, top_k, top_p, penalty)
        np.testing.assert_allclose(sampling.probabilities(logits, tokens), wanted, rtol=1e-9, atol=1e-15)


def test_a_case_by_hand():
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))  # all below 0
    assert Sampling(temperature=1.0, top_p=0.65).probabilities(logits, []) == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert Sampling(temperature=1.0, top_k=3).probabilities(logits, []) == pytest.approx([4 / 9, 3 / 9, 2 / 9, 0])
    # top_p counts within what top_k keeps: 4/7 reach 0.5 alone
    assert Sampling(temperature=1.0, top_k=2, top_p=0.5).probabilities(logits, []) == pytest.approx([1, 0, 0, 0])
    doubled = Sampling(2.0, 1.0).probabilities(logits, [0, 0, 3])  # 0.4 -> 0.16, 0.1 -> 0.01, once each
    assert doubled == pytest.approx(np.array([0.16, 0.3, 0.2, 0.01]) / 0.67)
    equal = np.zeros(4, np.float32)
    assert Sampling(temperature=1.0, top_k=2).probabilities(equal, []).tolist() == [0.5, 0.5, 0, 0]


def test_without_a_temperature_the_most_likely_token_is_chosen():
    logits = np.array([1, 3, 3, 2], np.float32)
    assert Sampling().chooser(0)(logits, []) == 1
    assert Sampling(top_k=1, temperature=2.0).chooser(0)(logits, []) == 1
    assert Sampling(1.2).chooser(0)(logits, [1]) == 2  # the penalty holds there, too
    assert Sampling(1.2).probabilities(logits, [1, 2]).tolist() == [0, 1, 0, 0]


def test_samples_follow_the_probabilities():
    logits = np.log(np.array([0.5, 0.25, 0.25], np.float32))
    choose, again, other = (Sampling(temperature=1.0).chooser(seed) for seed in (5, 5, 6))
    found = [choose(logits, []) for _ in range(4000)]
    assert found == [again(logits, []) for _ in range(4000)] != [other(logits, []) for _ in range(4000)]
    assert np.allclose(np.bincount(found) / 4000, [0.5, 0.25, 0.25], atol=0.03)
    for temperature in (0.05, 1e-323):
        cold = Sampling(temperature=temperature).chooser(5)
        assert {cold(logits, []) for _ in range(200)} == {0}
    hot = Sampling(temperature=1e308).chooser(5)
    assert {hot(logits, []) for _ in range(200)} == {0, 1, 2}
    free = [[Sampling(temperature=1.0).chooser(None)(logits, []) for _ in range(100)] for _ in range(2)]
    assert free[0] != free[1]


@pytest.mark.parametrize(
    "values, text",
    [
        ({"temperature": -1.0}, "temperature -1.0: must be a finite number from 0 on; 0 takes the most likely token"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"temperature": float("inf")}, "temperature inf"),
        ({"top_k": -1}, "top_k -1: must be 0, which keeps all tokens, or a number of them"),
        ({"top_p": 0.0}, "top_p 0.0: must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p 1.5"),
        ({"top_p": float("nan")}, "top_p nan"),
        ({"repeat_penalty": 0.0}, "repeat_penalty 0.0: must be from 0.01 to 100; 1 for none"),
        ({"repeat_penalty": float("nan")}, "repeat_penalty nan"),
    ],
)
def test_values_outside_their_ranges_are_refused(values, text):
    with pytest.raises(InputError) as caught:
        Sampling(**values)
    assert text in str(caught.value)
