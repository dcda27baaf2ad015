"""sim/mutation.py: all interleavings, none of them twice."""

from math import comb

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.runtime.program import Program
from tilewright.sim.mutation import Bench, Outcome, every_order

CFG = PRESETS["tiny"]


class Queues(Bench):
    """A bench without a machine: `sizes` instructions in queues that do not wait for each other."""

    def __init__(self, *sizes):
        self.sizes = sizes

    def run(self, number, choose=None, *, by=None):
        assert choose is not None
        left, order = list(self.sizes), []
        while any(left):
            k = choose([k for k, n in enumerate(left) if n])
            left[k] -= 1
            order.append(k)
        return Outcome("", bytes(order), bytes([number]))


@pytest.mark.parametrize("a, b, c", [(0, 0, 0), (3, 0, 0), (2, 3, 0), (1, 2, 3), (3, 3, 2)])
def test_every_order_comes_once(a, b, c):
    count = comb(a + b + c, a) * comb(b + c, b)
    found = every_order(Queues(a, b, c), 7, count)
    assert found is not None and len(found) == len(set(found)) == count
    assert {outcome.memory for outcome in found} == {bytes([7])}
    assert every_order(Queues(a, b, c), 7, count - 1) is None


def launch(loads, base):
    """Loads of accumulators and a store from `base` on, which no token orders."""
    p = Program(CFG, tokens="explicit")
    x, y = p.buffer("x", (loads, CFG.acc_entry_bytes), 32), p.buffer("y", (1, CFG.out_entry_bytes), kind="output")
    for k in range(loads):
        p.load(Mem.ACC, k, x, k)
    p.store(base, y, 0)
    return p.finish()


def test_tokens_leave_fewer_orders():
    """FINISH takes a token of the store queue, which gives it behind the store."""
    found = every_order(Bench(launch(3, 9), 0), 0, 1000)
    assert found is not None and not any(outcome.error for outcome in found) and len(set(found)) == 1
    assert len(found) == comb(5, 2)


def test_a_race_shows_in_some_order():
    found = every_order(Bench(launch(3, 2), 0), 0, 1000)
    assert found is not None and len(set(found)) == 2
