"""Turns TERNARY instructions into issues, one micro-op of one trip each, as hw/rtl/compute/sequencer.py those of GEMM.

There are no other instructions to tell apart, and no loads to wait for, so there is no more than the loops and two
stages behind them, which all wait together.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Isa, Mem
from ...regs import Error
from ..compute.loops import count_loops
from ..faults import keep_first
from ..layouts import INDEX_BITS, command_layout, insn_layout, uop_layout
from ..ports import Fault, SramRead, address_bits, command_signature, plane_bits

_MEMS = {"dst": Mem.ACC, "src": Mem.INP, "wgt": Mem.TWGT}  # what the indices of a micro-op count


def issue_layout(cfg: Config) -> data.StructLayout:
    """An issue: at `place` of the planes of the bank that `banks` has a bit for, acc += dot(inp[src], twgt[wgt]).

    `clear` takes 0 for acc, `reset` writes 0. `last` marks the end of the job. Without a bit in `banks` nothing is
    computed: a job that issues nothing, or an index beyond its scratchpad.
    """
    indices = {name: address_bits(cfg, _MEMS[name]) for name in ("src", "wgt")}
    flags = {"banks": cfg.acc_banks, "clear": 1, "reset": 1, "last": 1}
    return data.StructLayout({"place": plane_bits(cfg), **indices, **flags})


def _control(cfg: Config) -> data.StructLayout:
    """What the issues of a job share, and `last`; `offsets` are added to the indices of the micro-op."""
    offsets = data.StructLayout({name: address_bits(cfg, mem) + 1 for name, mem in _MEMS.items()})
    flags = dict.fromkeys(("bubble", "wrong", "clear", "reset", "last"), 1)
    return data.StructLayout({**flags, "index": INDEX_BITS, "offsets": offsets})


class TernarySequencer(wiring.Component):
    """Two nested loops around a range of micro-ops, one issue per cycle across all their ends and across instructions.

    Members:
        jobs: in, TERNARY instructions as a command queue holds them
        uop: out, read port of the micro-ops
        o: out, issues
        halt: in, let the executing job end with its next issue
        fault: out, an index beyond its scratchpad or its plane, whose issue has no bank; a cycle behind that

    Latency `TERNARY_SEQUENCER_LATENCY`, interval 1, for jobs `JOB_INTERVAL`; a job without issues counts as one of a
    single issue. Back-pressure: where `o` waits, `TERNARY_ISSUES_AHEAD` issues behind the executing job do, too, and
    one job inside while another executes; all step on in the cycle in which `o` does.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "jobs": In(command_signature()),
                "uop": Out(SramRead(cfg, Mem.TUOP)),
                "o": Out(stream.Signature(issue_layout(cfg))),
                "halt": In(1),
                "fault": Out(Fault()),
            }
        )

    def elaborate(self, platform) -> Module:
        """Waiting job, executing job, the stage that reads the micro-op, the output."""
        m, cfg = Module(), self.cfg
        waiting, occupied = Signal(command_layout()), Signal()
        running, first = Signal(), Signal(_control(cfg))
        reading, read = Signal(), Signal(_control(cfg), reset_less=True)
        step, advance, load = Signal(), Signal(), Signal()
        m.d.comb += [
            step.eq(~self.o.valid | self.o.ready),
            advance.eq(running & step),
            load.eq(occupied & (~running | (advance & first.last))),
            self.jobs.ready.eq(~occupied),
        ]
        with m.If(self.jobs.ready):
            m.d.sync += [waiting.eq(self.jobs.payload), occupied.eq(self.jobs.valid)]
        with m.Elif(load):
            m.d.sync += occupied.eq(0)
        with m.If(load):
            m.d.sync += running.eq(1)
        with m.Elif(advance & first.last):
            m.d.sync += running.eq(0)
        self._decode(m, waiting, load, first)
        self._loops(m, data.View(insn_layout(cfg, "TERNARY"), waiting.insn), load, advance, first)
        with m.If(step):
            m.d.sync += [reading.eq(running), read.eq(first), self.o.valid.eq(reading)]
        self._issue(m, reading, read, step)
        return m

    def _decode(self, m: Module, waiting, load: Value, first) -> None:
        """What the issues of the executing job share, from the waiting one."""
        insn = data.View(insn_layout(self.cfg, "TERNARY"), waiting.insn)
        names = ("bubble", "wrong", "reset", "clear", "index")
        held = {name: Signal.like(first[name], name=name) for name in names}
        overwrite = insn.overwrite if "overwrite" in Isa(self.cfg).formats["TERNARY"].fields else 0
        empty = (insn.uop_bgn == insn.uop_end) | (insn.iter_out == 0) | (insn.iter_in == 0)
        wrong = (insn.uop_end < insn.uop_bgn) | (insn.uop_end > self.cfg.uop_depth)
        with m.If(load):
            m.d.sync += [
                held["bubble"].eq(empty | wrong),
                held["wrong"].eq(wrong),
                held["reset"].eq(insn.reset),
                held["clear"].eq(insn.reset | overwrite),
                held["index"].eq(waiting.index),
            ]
        with m.If(self.halt):
            m.d.sync += held["bubble"].eq(1)
        m.d.comb += [first[name].eq(value) for name, value in held.items()]

    def _loops(self, m: Module, insn, load: Value, advance: Value, first) -> None:
        """Counters of the three loops, whether they end, and the offsets.

        An offset has one bit more than its index, which stays once it is set: the index is beyond its scratchpad then.
        """
        loops = count_loops(m, insn, address_bits(self.cfg, Mem.TUOP), load, advance)
        m.d.comb += [
            first.last.eq(first.bubble | loops.last),
            self.uop.en.eq(advance),
            self.uop.addr.eq(loops.at),
        ]
        for name, mem in _MEMS.items():
            bits = address_bits(self.cfg, mem)
            rows, offset = (Signal(bits + 1, name=f"{name}_{which}") for which in ("outer", "offset"))
            by_row, by_column = (Signal(bits + 1, name=f"{name}_by_{which}") for which in ("outer", "inner"))
            with m.If(advance & loops.uop_last):
                step = Mux(loops.inner_last, by_row, by_column)
                m.d.sync += offset.eq(_sum(Mux(loops.inner_last, rows, offset), step))
                with m.If(loops.inner_last):
                    m.d.sync += rows.eq(_sum(rows, by_row))
            with m.If(load):
                m.d.sync += [offset.eq(0), rows.eq(0)]
                for by, field in ((by_row, insn[f"{name}_out"]), (by_column, insn[f"{name}_in"])):
                    m.d.sync += by.eq(_within(field, bits))
            m.d.comb += first.offsets[name].eq(offset)

    def _issue(self, m: Module, reading: Value, read, step: Value) -> None:
        """The output, from the micro-op that was read; without a bank where an index is beyond what it counts."""
        cfg = self.cfg
        issue = Signal(issue_layout(cfg), reset_less=True)
        uop = data.View(uop_layout(cfg), self.uop.data)
        sums, beyond = {}, {}
        for name, mem in _MEMS.items():
            bits = address_bits(cfg, mem)
            total = _sum(_within(uop[name], bits), read.offsets[name])
            sums[name], beyond[name] = total[:bits], total[bits]
        planes, bank = plane_bits(cfg), (cfg.bank_depth - 1).bit_length()
        beyond["dst"] |= sums["dst"][planes:bank].any()  # it is in the first plane
        wrong, banks = Signal(), Signal(cfg.acc_banks)
        last, index = Signal(), Signal(INDEX_BITS, reset_less=True)
        counted = beyond["dst"] | (~read.reset & (beyond["src"] | beyond["wgt"]))
        with m.If(step):
            m.d.sync += [
                issue.place.eq(sums["dst"]),
                issue.src.eq(sums["src"]),
                issue.wgt.eq(sums["wgt"]),
                *[issue[name].eq(read[name]) for name in ("clear", "reset")],
                banks.eq(Mux(read.bubble, 0, Cat(sums["dst"][bank:] == k for k in range(cfg.acc_banks)))),
                last.eq(read.last),
                wrong.eq(reading & (read.wrong | (~read.bubble & counted))),
                index.eq(read.index),
            ]
        m.d.comb += [
            self.o.payload.eq(issue),
            self.o.payload.banks.eq(Mux(wrong, 0, banks)),
            self.o.payload.last.eq(last),
        ]
        keep_first(m, self.fault, (self.o.valid & wrong, Error.RANGE, index))


def _within(value: Value, bits: int) -> Value:
    """The low `bits` of an index or a step, and above them whether it is beyond them."""
    return Cat(value[:bits], value[bits:].any()) if len(value) > bits else value


def _sum(a: Value, b: Value) -> Value:
    """The sum of two such values; the top bit says that it is beyond, too."""
    bits = max(len(a), len(b)) - 1
    total = a[:bits] + b[:bits]
    return Cat(total[:bits], total[bits] | a[bits:].any() | b[bits:].any())
