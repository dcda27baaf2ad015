"""hw/rtl/fifo.py: queues and token channels; hw/rtl/ports.py: the first fault stays."""

import pytest

from tests.hw.bench import Take, offer, script, simulate
from tilewright.hw.config import PRESETS
from tilewright.hw.regs import Error
from tilewright.hw.rtl.fifo import Fifo, TokenChannel
from tilewright.hw.rtl.latencies import FIFO_LATENCY, TOKEN_LATENCY


@pytest.mark.parametrize("depth", [1, 2, 5, 16])
@pytest.mark.parametrize("idle", [(0.0, 0.0), (0.6, 0.1), (0.1, 0.6)])
def test_keeps_order(rng, depth, idle):
    dut, values = Fifo(shape=16, depth=depth), rng.integers(0, 1 << 16, 150).tolist()
    taken = Take(dut.o, len(values), rng, idle[1])
    simulate(dut, offer(dut.i, values, rng, idle[0]), taken)
    assert taken.values == values


def test_capacity_latency_and_rate():
    dut = Fifo(shape=8, depth=4)
    fills = [
        ({"i.valid": 1, "i.payload": k}, {"i.ready": 1, "level": k, "o.valid": k >= FIFO_LATENCY}) for k in range(5)
    ]
    empties = [({}, {"o.valid": 1, "o.payload": k}) for k in range(5)]
    full = ({}, {"i.ready": 0}, 0), ({"i.valid": 0, "o.ready": 1}, {}, 0)
    simulate(dut, script(dut, *fills, *full, *empties, ({}, {"o.valid": 0}, 0)))


@pytest.mark.parametrize("depth", [1, 3, 1023])
def test_level_follows_random_pushes_and_pops(rng, depth):
    dut, rows, level = TokenChannel(PRESETS["tiny"].replace(token_depth=depth)), [], 0
    for push, pop in rng.random((400, 2)) < [[0.7, 0.4]] * 200 + [[0.4, 0.7]] * 200:
        expected = {"level": level, "push.ready": level < depth, "pop.valid": level > 0}
        rows.append(({"push.valid": int(push), "pop.ready": int(pop)}, expected))
        level += int(push and level < depth) - int(pop and level > 0)
    simulate(dut, script(dut, *rows))


def test_a_token_can_be_taken_after_the_stated_latency():
    dut = TokenChannel(PRESETS["tiny"])
    simulate(dut, script(dut, ({"push.valid": 1}, {"pop.valid": 0}, TOKEN_LATENCY), ({}, {"pop.valid": 1}, 0)))


@pytest.fixture
def latch():
    """A block with a fault of its own, and a part with another."""
    from amaranth.hdl import Module
    from amaranth.lib import wiring
    from amaranth.lib.wiring import In, Out

    from tilewright.hw.rtl.ports import Fault, fault_of, keep_first

    class Latch(wiring.Component):
        def __init__(self):
            super().__init__({"fault": Out(Fault()), "part": In(Fault()), "wrong": In(1)})

        def elaborate(self, platform):
            m = Module()
            keep_first(m, self.fault, (self.wrong, Error.RANGE, 7), fault_of(self.part))
            return m

    return Latch()


@pytest.mark.parametrize(
    "events, kept",
    [
        ([(0, Error.NONE)], (Error.NONE, 0)),
        ([(1, Error.NONE)], (Error.RANGE, 7)),
        ([(0, Error.WATCHDOG)], (Error.WATCHDOG, 3)),
        ([(1, Error.WATCHDOG)], (Error.RANGE, 7)),
        ([(0, Error.WATCHDOG), (1, Error.NONE)], (Error.WATCHDOG, 3)),
        ([(1, Error.NONE), (0, Error.NONE), (0, Error.WATCHDOG)], (Error.RANGE, 7)),
    ],
)
def test_the_first_is_kept(latch, events, kept):
    rows = [({"wrong": wrong, "part.code": code, "part.index": 3}, {}) for wrong, code in events]
    simulate(latch, script(latch, *rows, ({}, {"fault.code": kept[0], "fault.index": kept[1]}, 0)))
