"""hw/rtl/ports.py: the first event is kept, and of several in one cycle the one named first."""

import pytest

from tilewright.hw.regs import Error


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
def test_the_first_is_kept(simulate, latch, events, kept):
    async def bench(ctx):
        ctx.set(latch.part.index, 3)
        for wrong, code in events:
            ctx.set(latch.wrong, wrong)
            ctx.set(latch.part.code, code)
            await ctx.tick()
        assert (ctx.get(latch.fault.code), ctx.get(latch.fault.index)) == kept

    simulate(latch, bench)
