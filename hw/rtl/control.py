"""Start, end and errors of a run."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..regs import Error
from ..units import queues
from .faults import fault_of, keep_first
from .layouts import INDEX_BITS, command_layout
from .ports import Fault


class Control(wiring.Component):
    """idle -> clear -> run -> (halt, after an error or a reset) -> idle.

    Members:
        start, reset: in, as written to CONTROL; for one cycle
        watchdog: in, cycles without progress that are an error, 0 for none
        clear: out, reset the engine; for one cycle, before every run
        go: out, start fetching; for one cycle
        halt: out, stop: no further instruction, no further burst
        running, done: out, as CONTROL reads
        finished: in, FINISH was executed and nothing is left to do
        tokens_left: in, a channel holds tokens
        drained: in, nothing is on the buses
        progress: in, something advanced
        faults: in, errors of the blocks
        fault: out, the first of them, of the watchdog and of tokens left; the latter has no index
        heads[k]: in, the first command of queue k
        waiting[k]: in, there is one

    Latency `START_LATENCY`. The watchdog counts cycles of a run without progress; 0 turns it off. After an error the
    run ends when the buses are drained.
    """

    def __init__(self, cfg: Config, *, faults: int):
        super().__init__(
            {
                "start": In(1),
                "reset": In(1),
                "watchdog": In(32),
                "clear": Out(1),
                "go": Out(1),
                "halt": Out(1),
                "running": Out(1),
                "done": Out(1),
                "finished": In(1),
                "tokens_left": In(1),
                "drained": In(1),
                "progress": In(1),
                "faults": In(Fault()).array(faults),
                "fault": Out(Fault()),
                "heads": In(command_layout()).array(len(queues(cfg))),
                "waiting": In(1).array(len(queues(cfg))),
            }
        )

    def elaborate(self, platform):
        """The states; the first fault is kept until the next start."""
        m = Module()
        aborted, late, oldest = Signal(), Signal(), self._oldest(m)
        m.d.comb += self.running.eq(self.go | self.halt)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start | self.reset):
                    m.d.sync += [self.done.eq(0), self.fault.code.eq(Error.NONE), self.fault.index.eq(0)]
                    m.d.sync += self.clear.eq(1)
                    m.next = "IDLE"
                with m.If(self.start & ~self.reset):
                    m.next = "CLEAR"
                with m.If(self.clear):
                    m.d.sync += self.clear.eq(0)
            with m.State("CLEAR"):
                m.d.comb += self.running.eq(1)
                m.d.sync += [self.clear.eq(0), aborted.eq(0)]
                m.next = "GO"
            with m.State("GO"):
                m.d.comb += [self.running.eq(1), self.go.eq(1)]
                m.next = "RUN"
                with m.If(self.reset):
                    m.d.sync += aborted.eq(1)
                    m.next = "HALT"
            with m.State("RUN"):
                m.d.comb += self.running.eq(1)
                keep_first(
                    m,
                    self.fault,
                    *(fault_of(fault) for fault in reversed(self.faults)),
                    (late, Error.WATCHDOG, oldest),
                    (self.finished & self.tokens_left, Error.TOKENS_LEFT, 0),
                )
                with m.If(self.fault.code != Error.NONE):
                    m.next = "HALT"
                with m.Elif(self.reset):
                    m.d.sync += aborted.eq(1)
                    m.next = "HALT"
                with m.Elif(self.finished):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"
            with m.State("HALT"):
                m.d.comb += [self.running.eq(1), self.halt.eq(1)]
                with m.If(self.reset):
                    m.d.sync += aborted.eq(1)
                with m.If(self.drained):
                    m.d.sync += [self.done.eq(~aborted), self.clear.eq(1)]
                    with m.If(aborted):
                        m.d.sync += [self.fault.code.eq(Error.NONE), self.fault.index.eq(0)]
                    m.next = "IDLE"
        self._watch(m, late)
        return m

    def _watch(self, m: Module, late) -> None:
        """Counts up from each progress to the limit."""
        idle, advanced = Signal(32), Signal()
        m.d.sync += [
            advanced.eq(self.progress),
            idle.eq(Mux(advanced | ~self.running, 0, idle + 1)),
            late.eq((self.watchdog != 0) & (idle >= self.watchdog) & ~advanced & self.running),
        ]

    def _oldest(self, m: Module):
        """The position in the program of the first instruction among those at the heads of the queues."""
        oldest, *others = (Mux(w, head.index, (1 << INDEX_BITS) - 1) for w, head in zip(self.waiting, self.heads))
        for k, index in enumerate(others):
            low = Signal(INDEX_BITS, name=f"oldest_{k}")
            m.d.sync += low.eq(Mux(oldest < index, oldest, index))
            oldest = low
        return oldest
