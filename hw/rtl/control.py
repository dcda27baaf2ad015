"""Start, end and errors of a run; the AXI-Lite registers of hw/regs.py, and the counters that they show."""

from __future__ import annotations

import functools
import operator

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import ISA_VERSION, Config
from ..metrics import CYCLES, counters
from ..regs import MAGIC, Command, Error, Status, registers
from ..units import queues, units
from .axi import OKAY, AxiLite
from .ports import ADDRESS_BITS, INDEX_BITS, Activity, Fault, command_layout, fault_of, keep_first


def counters_layout(cfg: Config) -> data.StructLayout:
    """Layout of the counters: 32 bits each, by register name."""
    return data.StructLayout(dict.fromkeys((CYCLES.register, *counters(cfg)), 32))


class Counters(wiring.Component):
    """Cycles while `running`, and per unit the cycles and amounts of its activity; all zero after `clear`.

    Members:
        load, compute, store: in, the activity of each unit, by its name
        running: in, a run is on
        clear: in, set all to zero
        values: out, the counters by register name

    Latency 2.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                **{unit.name: In(Activity()) for unit in units(cfg)},
                "running": In(1),
                "clear": In(1),
                "values": Out(counters_layout(cfg)),
            }
        )

    def elaborate(self, platform: object):
        """Activities are registered first: nothing in a unit waits for a counter's carry."""
        m, values = Module(), self.values
        m.d.sync += values.CYCLES.eq(values.CYCLES + self.running)
        for unit in units(self.cfg):
            activity = getattr(self, unit.name)
            sources = {name: getattr(activity, name) for name in ("busy", "token_wait", "memory_wait", "bytes")}
            for name, source in {**sources, "insns": activity.insn}.items():
                step = Signal.like(source, name=f"{unit.name}_{name}")
                m.d.sync += step.eq(source)
                counter = values[unit.counter(name.upper())]
                m.d.sync += counter.eq(counter + step)
        with m.If(self.clear):
            m.d.sync += Value.cast(values).eq(0)
        return m


class Csr(wiring.Component):
    """Registers that the host reads and writes.

    Members:
        axil: in, the host's accesses
        start, reset: out, bits of CONTROL that were written; for one cycle
        addr, count, watchdog: out, registers as they were written
        running, done: in, bits of CONTROL to read
        fault: in, for ERROR and ERROR_INSN
        counters: in, registers to read

    Latency `RESPONSE_LATENCY`; one access per `ACCESS_INTERVAL` cycles. Addresses without a register read as 0
    and ignore writes; the registers that say where the program stands ignore writes while `running`.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "axil": In(AxiLite()),
                "start": Out(1),
                "reset": Out(1),
                "addr": Out(ADDRESS_BITS),
                "count": Out(INDEX_BITS),
                "watchdog": Out(32),
                "running": In(1),
                "done": In(1),
                "fault": In(Fault()),
                "counters": In(counters_layout(cfg)),
            }
        )

    def elaborate(self, platform: object):
        """A write takes address and data in one cycle."""
        m, axil, offsets = Module(), self.axil, {r.name: r.offset >> 2 for r in registers(self.cfg).values()}
        write, read, awake = Signal(), Signal(), Signal()
        m.d.sync += awake.eq(1)  # no access is taken while the reset would swallow it
        m.d.comb += [
            write.eq(axil.awvalid & axil.wvalid & ~axil.bvalid & awake),
            axil.awready.eq(write),
            axil.wready.eq(write),
            axil.bresp.eq(OKAY),
            read.eq(axil.arvalid & ~axil.rvalid & awake),
            axil.arready.eq(read),
            axil.rresp.eq(OKAY),
        ]
        m.d.sync += [
            axil.bvalid.eq(write | (axil.bvalid & ~axil.bready)),
            axil.rvalid.eq(read | (axil.rvalid & ~axil.rready)),
            self.start.eq(0),
            self.reset.eq(0),
        ]
        with m.If(write), m.Switch(axil.awaddr[2:]):
            for name, target in self._written().items():
                free = ~self.running if name.startswith("INSN_") else 1
                with m.Case(offsets[name]), m.If(free):
                    for k in range(0, len(target), 8):
                        with m.If(axil.wstrb[k // 8]):
                            m.d.sync += target[k : k + 8].eq(axil.wdata[k : k + 8])
            with m.Case(offsets["CONTROL"]), m.If(axil.wstrb[0]):
                for flag, target in ((Command.START, self.start), (Command.RESET, self.reset)):
                    m.d.sync += target.eq((axil.wdata & flag.value).any())
        with m.If(read):
            m.d.sync += axil.rdata.eq(0)
            with m.Switch(axil.araddr[2:]):
                for name, value in self._read().items():
                    with m.Case(offsets[name]):
                        m.d.sync += axil.rdata.eq(value)
        return m

    def _written(self) -> dict[str, Value]:
        return {
            "INSN_COUNT": self.count,
            "INSN_ADDR_LO": self.addr[:32],
            "INSN_ADDR_HI": self.addr[32:],
            "WATCHDOG": self.watchdog,
        }

    def _read(self) -> dict[str, Value | int]:
        mark = self.cfg.fingerprint
        status = ((Status.RUNNING, self.running), (Status.DONE, self.done), (Status.ERROR, self.fault.code != 0))
        return {
            "VERSION": MAGIC << 16 | ISA_VERSION,
            "FINGERPRINT_LO": mark & 0xFFFFFFFF,
            "FINGERPRINT_HI": mark >> 32,
            "CONTROL": functools.reduce(operator.or_, (Mux(bit, flag.value, 0) for flag, bit in status)),
            **self._written(),
            "ERROR": self.fault.code,
            "ERROR_INSN": self.fault.index,
            **{name: self.counters[name] for name in ("CYCLES", *counters(self.cfg))},
        }


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

    def elaborate(self, platform: object):
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

    def _watch(self, m: Module, late: Value) -> None:
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
