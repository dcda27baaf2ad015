"""The pipeline of unit ternary behind its sequencer: acc[t] = (clear ? 0 : acc[t]) + dot, in all planes t at once."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..fifo import KEEP
from ..latencies import ACC_STAGES, OPERAND_LATENCY, ternary_dot_latency
from ..ports import SramRead, TernaryRead, TernaryWrite
from .dot import TernaryDot, added
from .sequencer import issue_layout

_LANE = 32  # bits of an accumulator
_COPIES = 8  # of a register that chooses all of an entry: no wire of it drives more than some 70 pins


class TernaryExecute(wiring.Component):
    """Executes issues in order, each on the accumulators as the one before left them.

    Members:
        issues: in, issues of the sequencer
        compute_busy: in, banks that the compute unit uses
        inp, wgt: out, read ports of the scratchpads
        read, write: out, ports of the accumulators
        busy: out, banks of the issues that went on and are not written; registers
        retire: out, the oldest instruction has ended with the write now

    Latency `ternary_latency(cfg)`, interval 1, also on one accumulator. An issue waits while the compute unit uses its
    bank, and those behind it wait, too; nothing waits behind that.

    Stages: the dot product; the accumulators are read so late that they arrive together with it:

        address | choose | execute | result (write)

    The issue right behind takes a result in `execute`. The next two, which read before the write, take it in `choose`:
    one from the result register, one from a copy of that. Later issues read it from memory.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "issues": In(stream.Signature(issue_layout(cfg))),
                "compute_busy": In(cfg.acc_banks),
                "inp": Out(SramRead(cfg, Mem.INP)),
                "wgt": Out(SramRead(cfg, Mem.TWGT)),
                "read": Out(TernaryRead(cfg)),
                "write": Out(TernaryWrite(cfg)),
                "busy": Out(cfg.acc_banks),
                "retire": Out(1),
            }
        )
        layout = issue_layout(cfg).members
        self._live = data.StructLayout({"banks": cfg.acc_banks, "last": 1})
        self._slot = data.StructLayout({name: layout[name] for name in ("place", "wgt", "clear", "reset")})

    def elaborate(self, platform) -> Module:
        """Issue, dot products, delay, accumulate."""
        m, cfg = Module(), self.cfg
        m.submodules.dot = dot = TernaryDot(cfg)
        issue = self.issues.payload
        stages = [self._stage(k) for k in range(ternary_dot_latency(cfg) + 1)]
        live, slot = stages[0]
        goes = self.issues.valid & self.issues.ready
        m.d.comb += [
            self.issues.ready.eq(~(issue.banks & self.compute_busy).any()),
            live.banks.eq(Mux(goes, issue.banks, 0)),
            live.last.eq(goes & issue.last),
            *[slot[name].eq(issue[name]) for name in self._slot.members],
        ]
        for before, after in zip(stages, stages[1:]):
            m.d.sync += [later.eq(earlier) for earlier, later in zip(before, after)]
        reads = [Signal(name=f"reads_{k}") for k in range(OPERAND_LATENCY + 1)]
        m.d.comb += reads[0].eq(live.banks.any() & ~slot.reset)
        m.d.sync += [later.eq(earlier) for earlier, later in zip(reads, reads[1:])]
        m.d.comb += [
            self.inp.en.eq(reads[0]),
            self.inp.addr.eq(issue.src),
            self.wgt.en.eq(reads[1]),  # a cycle later, as `TernaryDot` takes them
            self.wgt.addr.eq(stages[1][1].wgt),
            dot.en.eq(reads[OPERAND_LATENCY]),
            dot.inp.eq(self.inp.data),
            dot.wgt.eq(self.wgt.data),
        ]
        used = [live.banks for live, _ in stages]
        m.d.sync += self.busy.eq(Cat(Cat(banks[k] for banks in used).any() for k in range(cfg.acc_banks)))
        self._accumulate(m, stages, dot.sums)
        return m

    def _stage(self, k: int) -> tuple[data.View, data.View]:
        return Signal(self._live, name=f"live_{k}"), Signal(self._slot, name=f"slot_{k}", reset_less=True)

    def _accumulate(self, m: Module, stages: list, sums) -> None:
        """Read and choose the accumulators, and add."""
        entry = len(self.write.data)
        ahead, address, choose, execute = stages[-2 - ACC_STAGES :]
        result, older, acc = (Signal(entry, name=name, reset_less=True) for name in ("result", "older", "acc"))
        place = Signal.like(self.write.addr)
        m.d.sync += self.read.en.eq(Mux(ahead[1].clear, 0, ahead[0].banks))
        m.d.comb += self.read.addr.eq(address[1].place)
        # the issues before the one at `address`, the next to execute first
        latest = [(live.banks, slot.place) for live, slot in (choose, execute)] + [(self.write.en, place)]
        match = [Signal(name=f"match_{k + 1}") for k in range(len(latest))]
        for found, (banks, at) in zip(match, latest):
            m.d.sync += found.eq((self.read.en & banks).any() & (at == address[1].place))
        following = [Signal(name=f"following_{k}", attrs=KEEP) for k in range(_COPIES)]
        chosen = Mux(match[1] | match[2], Mux(match[1], result, older), self.read.data)
        m.d.sync += older.eq(result)
        with m.If(choose[1].clear):
            m.d.sync += acc.eq(0)
        with m.Else():
            m.d.sync += acc.eq(chosen)
        m.d.sync += [copy.eq(match[0]) for copy in following]
        size = entry // _COPIES
        parts = [(copy, slice(k * size, (k + 1) * size)) for k, copy in enumerate(following)]
        taken = Cat(Mux(copy, result[part], acc[part]) for copy, part in parts)
        lanes = [(taken[k * _LANE : (k + 1) * _LANE].as_signed(), sums[k]) for k in range(entry // _LANE)]
        with m.If(execute[1].reset):
            m.d.sync += result.eq(0)
        with m.Elif(execute[0].banks.any()):
            m.d.sync += result.eq(Cat(added(lane, term.value, term.minus)[:_LANE] for lane, term in lanes))
        m.d.sync += [self.write.en.eq(execute[0].banks), place.eq(execute[1].place), self.retire.eq(execute[0].last)]
        m.d.comb += [self.write.addr.eq(place), self.write.data.eq(result)]
