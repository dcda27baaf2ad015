"""Keeps the compute queue and unit `ternary` apart at the accumulators: a bank belongs to one of them at a time."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ..latencies import issue_latency, multiply_latency


class Exclusion(wiring.Component):
    """Which banks the compute queue uses, for unit `ternary`, and whether an issue waits for the banks of that unit.

    Members, one bit per bank:
        issue: in, banks of the issue at the sequencer's output, 0 where there is none; it stays there until it goes on
        multiply: in, it is MUL or another operation with that latency
        loads: in, banks of the loads of accumulators that are dispatched and not in memory
        ternary: in, banks that issues of unit `ternary` use, from the cycle after they leave until they are written
        busy: out, banks of `issue`, of issues that went on and are not written, and, one cycle late, of `loads`
        waits: out, `issue` may not go on, a single bit

    An issue of unit `ternary` leaves only where its bank is not `busy`. So in a cycle in which both ask for a bank, and
    it is free, the compute queue has it; else who is in the bank has it until it is written, `issue_latency` cycles
    after its issue. A load is written only where `ternary` and its banks have none in common, which is looked at from
    the cycle on in which `busy` has them.

    Nobody waits for ever. What has left is written after a fixed number of cycles, whatever the others do. An issue at
    the sequencer's output is `busy`, so none of unit `ternary` leaves in its banks any more, those that have left are
    written, and the issue goes on; the same holds for the oldest load. So all that is dispatched by the compute queue
    ends as if there were no unit `ternary`, a few cycles later, and then its banks are free for that unit. The compute
    queue may keep a bank as long as it has instructions for it; these are finite, and one that waits for a token of
    unit `ternary` is not dispatched and keeps no bank.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        banks = cfg.acc_banks
        super().__init__(
            {
                "issue": In(banks),
                "multiply": In(1),
                "loads": In(banks),
                "ternary": In(banks),
                "busy": Out(banks),
                "waits": Out(1),
            }
        )

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
        m.d.comb += [self.busy.eq(self.issue | held), self.waits.eq((self.issue & self.ternary).any())]
        return m
