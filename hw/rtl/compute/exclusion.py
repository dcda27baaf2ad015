"""Keeps the compute queue and unit `ternary` apart at the accumulators: a bank belongs to one of them at a time."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ..latencies import accumulator_latency, issue_latency, multiply_latency, ternary_latency


class Exclusion(wiring.Component):
    """Which banks the compute queue uses, for unit `ternary`.

    Members, one bit per bank:
        issue: in, banks of the issue at the sequencer's output, 0 where there is none; it stays there until it goes on
        multiply: in, it is MUL or another operation with that latency
        loads: in, banks of the loads of accumulators that are dispatched and not in memory
        busy: out, banks of `issue`, of issues that went on and are not written, and, one cycle late, of `loads`

    An issue of unit `ternary` leaves only where its bank is not `busy`: in a cycle in which both ask for a free bank,
    the compute queue has it. An issue of that queue never waits: those of the other unit that left before it are
    written when it reads, as `ternary_latency` is not more than `accumulator_latency`. A load, which may be written in
    any cycle, waits until no issue of unit `ternary` is in its banks, and looks at that from the cycle on in which they
    are `busy`.

    Nobody waits for ever. The compute queue's instructions wait for unit `ternary` in that one place: no issue of it
    leaves any more in the banks of the load, and those that left are written `ternary_latency` later. So all that is
    dispatched ends as without that unit, a few cycles later, and its banks are free then. What waits for a token of
    unit `ternary` is not dispatched and keeps no bank; the queue keeps one as long as it has instructions for it.
    """

    def __init__(self, cfg: Config):
        assert ternary_latency(cfg) <= accumulator_latency(cfg)
        self.cfg = cfg
        banks = cfg.acc_banks
        super().__init__({"issue": In(banks), "multiply": In(1), "loads": In(banks), "busy": Out(banks)})

    def elaborate(self, platform) -> Module:
        """A timer for each bank, set by every issue: one that multiplies is never overtaken."""
        m = Module()
        longest, usual = multiply_latency(self.cfg), issue_latency(self.cfg)
        held, timers = Signal(self.cfg.acc_banks), [Signal(range(longest)) for _ in self.issue]
        for k, left in enumerate(timers):
            with m.If(self.issue[k]):
                m.d.sync += left.eq(Mux(self.multiply, longest - 1, usual - 1))
            with m.Elif(left != 0):
                m.d.sync += left.eq(left - 1)
            m.d.sync += held[k].eq(self.issue[k] | (left != 0) | self.loads[k])
        m.d.comb += self.busy.eq(self.issue | held)
        return m
