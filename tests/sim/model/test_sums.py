"""sim/model/state.py: results for the same accumulators are added up, and put there before others use these."""

import numpy as np
import pytest

from tilewright.sim.model.state import Sums

MOST = 8


class Accumulators:
    """Sums for 16 accumulators, and the puts so far."""

    def __init__(self):
        self.acc, self.sums, self.puts = np.zeros(16, np.int32), Sums(), []

    def add(self, low, high, value, depth=2):
        def put(result):
            self.puts.append((low, high))
            self.acc[low : high + 1] += result.astype(np.int32)

        result = np.full(high - low + 1, value, np.float32)
        self.sums.add((low, high), (low, high), put, result, depth=depth, most=MOST)


@pytest.fixture
def some():
    return Accumulators()


def test_results_for_the_same_accumulators_are_put_together_and_late(some):
    for value in (1, 2, 3):
        some.add(5, 6, value)
    some.sums.settle(0, 4)
    some.sums.settle(7, 15)
    assert not some.puts
    some.sums.settle(6, 6)
    some.sums.settle_all()
    assert some.puts == [(5, 6)] and some.acc.tolist() == [0] * 5 + [6, 6] + [0] * 9


def test_a_sum_ends_before_it_could_round(some):
    for _ in range(MOST // 2 + 1):
        some.add(0, 3, 1)
    assert some.puts == [(0, 3)]
    some.sums.settle_all()
    assert (some.acc[:4] == MOST // 2 + 1).all() and len(some.puts) == 2


def test_sums_that_share_accumulators_are_put_in_their_order(some):
    some.add(0, 3, 1)
    some.add(8, 9, 1)
    some.add(3, 4, 10)
    assert some.puts == [(0, 3)]
    some.add(0, 3, 100)
    assert some.puts == [(0, 3), (3, 4)]
    some.sums.settle_all()
    assert some.acc[:5].tolist() == [101, 101, 101, 111, 10] and len(some.puts) == 4


def test_a_sum_that_starts_ends_the_one_before_it(some):
    def overwrite(result):
        some.puts.append("overwrite")
        some.acc[0:4] = result.astype(np.int32)

    some.add(0, 3, 7)
    some.sums.add((0, 3), (0, 3), overwrite, np.full(4, 1, np.float32), depth=2, most=MOST, starts=True)
    some.add(0, 3, 10)
    some.sums.settle_all()
    assert some.acc[:4].tolist() == [11] * 4 and some.puts == [(0, 3), "overwrite"]
