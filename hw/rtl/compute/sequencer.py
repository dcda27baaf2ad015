"""Turns GEMM, DWGEMM and ALU instructions into issues: one micro-op of one trip of the two loops each.

for i in range(iter_out): for j in range(iter_in): for u in uop[uop_bgn:uop_end]:
    issue(dst = u.dst + i * dst_out + j * dst_in, and likewise src and wgt)
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import ITER_BITS, OPERATIONS, AluOp, Isa, Mem, Op, depth, ops_of
from ...regs import Error
from ..faults import keep_first
from ..layouts import INDEX_BITS, command_layout, insn_layout, uop_layout
from ..ports import Fault, SramRead, address_bits, command_signature

_POSITION = data.StructLayout({"last": 1, "first": 1, "ends": 1})  # in the loops: see `Stages`


class Stages(wiring.Signature):
    """Positions of the jobs in a sequencer, for hw/rtl/compute/interlock.py.

    A job waits, begins, executes; its issues advance to the stage that reads their micro-op, and from there they step
    to the output.

    Members:
        occupied: out, a job waits
        job: out, that job
        begin: out, it begins
        running: out, a job executes
        advance: out, its next issue goes on to the reading stage
        reading: out, an issue is there
        read_last: out, it is the last of its job
        step: out, it goes on to the output
        issuing: out, an issue is at the output
        issue_last: out, it is the last of its job
        issue_first: out, it is in the first trip of its job
        issue_ends: out, it is the last of a trip
    """

    def __init__(self):
        names = ("occupied", "begin", "running", "advance", "reading", "read_last", "step", "issuing")
        names += ("issue_last", "issue_first", "issue_ends")
        super().__init__({**{name: Out(1) for name in names}, "job": Out(128)})


def index_bits(cfg: Config) -> dict[str, int]:
    """Bits of its indices: `src` is an input (GEMM) or an accumulator (ALU), `wgt` a tile or a row of weights."""
    acc, inp, wgt = (address_bits(cfg, mem) for mem in (Mem.ACC, Mem.INP, Mem.WGT))
    return {"dst": acc, "src": max(acc, inp), "wgt": wgt + row_bits(cfg)}


def row_bits(cfg: Config) -> int:
    """Bits of the number of a row in its tile, where DWGEMM counts rows."""
    return cfg.block_in.bit_length() - 1 if "depthwise" in cfg.extensions else 0


def elementwise(op: Value) -> Value:
    """1 where the instructions of opcode `op` have the fields of ALU."""
    return op.matches(*ops_of("ALU"))


def _operation(cfg: Config) -> dict:
    extra = {"extra": range(cfg.row_taps)} if cfg.row_taps > 1 else {}
    return {"bubble": 1, "dot": 1, "rows": 1, "clear": 1, "tensor": 1, "op": 3, "imm": 16, **extra}


def issue_layout(cfg: Config) -> data.StructLayout:
    """An issue; with `bubble` none, in the slot of a job that issues nothing.

    With `dot` acc[dst] += dot(inp[src], wgt[wgt]), with `rows` beside it acc[dst] += inp[src] * row[wgt] element by
    element, and the products of `extra` neighbours of both; else acc[dst] = op(acc[dst], b), where b is acc[src] with
    `tensor` and `imm` without. `clear` takes 0 for acc[dst], so that overwrite is 0 + dot and reset 0 + imm, which is 0
    then.
    `last` marks the end of the job.
    """
    return data.StructLayout({**index_bits(cfg), **_operation(cfg), "last": 1})


class Sequencer(wiring.Component):
    """Two nested loops around a range of micro-ops, one issue per cycle across all their ends and across instructions.

    Members:
        jobs: in, GEMM, DWGEMM and ALU instructions as a command queue holds them
        uop: out, read port of the micro-ops
        o: out, issues
        halt: in, let the executing job end with its next issue
        fault: out, an index beyond its scratchpad, whose issue becomes a bubble
        stages: out, positions of the jobs
        may_begin: in, the job that waits may begin
        may_issue: in, the issue at the output may go on

    Latency `SEQUENCER_LATENCY`, interval 1, for jobs `JOB_INTERVAL`; a job without issues counts as one of a single
    issue. Back-pressure: everything waits while `o` does; one job waits inside while another executes. Whether there
    is room for a job does not depend on `o` in the same cycle, which keeps the path from pipeline to queue short.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "jobs": In(command_signature()),
                "uop": Out(SramRead(cfg, Mem.UOP)),
                "o": Out(stream.Signature(issue_layout(cfg))),
                "halt": In(1),
                "fault": Out(Fault()),
                "stages": Out(Stages()),
                "may_begin": In(1, init=1),
                "may_issue": In(1, init=1),
            }
        )
        self._control = data.StructLayout({**_operation(cfg), "index": INDEX_BITS, "wrong": 1})

    def elaborate(self, platform) -> Module:
        """Waiting job, executing job, the issue whose micro-op is read, the issue at the output."""
        m, stages = Module(), self.stages
        waiting, occupied = Signal(command_layout()), Signal()
        now, running = Signal(self._control), Signal()
        read, reading = Signal(self._control), Signal()
        issuing = Signal()
        position, read_position = Signal(_POSITION), Signal(_POSITION)
        step, advance, load = Signal(), Signal(), Signal()
        m.d.comb += [
            self.o.valid.eq(issuing & self.may_issue),
            step.eq(~issuing | (self.may_issue & self.o.ready)),
            advance.eq(running & (~reading | step)),
            load.eq(occupied & self.may_begin & (~running | (advance & position.last))),
            self.jobs.ready.eq(~occupied),
            stages.occupied.eq(occupied),
            stages.job.eq(waiting.insn),
            stages.begin.eq(load),
            stages.running.eq(running),
            stages.advance.eq(advance),
            stages.reading.eq(reading),
            stages.read_last.eq(read_position.last),
            stages.step.eq(step),
            stages.issuing.eq(issuing),
            stages.issue_last.eq(self.o.payload.last),
        ]
        with m.If(self.jobs.ready):
            m.d.sync += [waiting.eq(self.jobs.payload), occupied.eq(self.jobs.valid)]
        with m.Elif(load):
            m.d.sync += occupied.eq(0)
        with m.If(load):
            m.d.sync += [running.eq(1), *self._decode(now, waiting)]
        with m.Elif(advance & position.last):
            m.d.sync += running.eq(0)
        with m.If(self.halt):
            m.d.sync += now.bubble.eq(1)
        offsets = self._loops(m, waiting, load, advance, now.bubble, position)
        read_offsets = {name: Signal.like(value, name=f"{name}_read") for name, value in offsets.items()}
        with m.If(advance):
            m.d.sync += [read.eq(now), read_position.eq(position), reading.eq(1)]
            m.d.sync += [read_offsets[name].eq(value) for name, value in offsets.items()]
        with m.Elif(step):
            m.d.sync += reading.eq(0)
        with m.If(step):
            m.d.sync += issuing.eq(reading)
            with m.If(reading):
                self._issue(m, read, read_offsets)
                m.d.sync += self.o.payload.last.eq(read_position.last)
                m.d.sync += [stages.issue_first.eq(read_position.first), stages.issue_ends.eq(read_position.ends)]
        return m

    def _decode(self, now, waiting) -> list:
        """The executing job, from the waiting one."""
        cfg = self.cfg
        gemm, alu = (data.View(insn_layout(cfg, name), waiting.insn) for name in ("GEMM", "ALU"))
        is_alu = elementwise(gemm.op)
        overwrite = gemm.overwrite if "overwrite" in Isa(cfg).formats["GEMM"].fields else 0
        empty = (gemm.uop_bgn == gemm.uop_end) | (gemm.iter_out == 0) | (gemm.iter_in == 0)
        beyond = (
            is_alu
            & Cat(
                (alu.alu_op == row.op) & (alu.imm.as_unsigned() >= depth(cfg, row.reads))
                for row in OPERATIONS.values()
                if row.reads is not None
            ).any()
        )
        wrong = (gemm.uop_end < gemm.uop_bgn) | (gemm.uop_end > cfg.uop_depth) | (~empty & beyond)
        return [
            now.bubble.eq(empty | wrong),
            now.wrong.eq(wrong),
            now.dot.eq(~is_alu & ~gemm.reset),
            now.rows.eq(gemm.op == Op.DWGEMM),
            now.clear.eq(~is_alu & (gemm.reset | overwrite)),
            now.tensor.eq(is_alu & ~alu.use_imm),
            now.op.eq(Mux(is_alu, alu.alu_op, AluOp.ADD)),
            now.imm.eq(Mux(is_alu, alu.imm, 0)),
            now.index.eq(waiting.index),
            *self._extra(now, waiting),
        ]

    def _extra(self, now, waiting) -> list:
        """The taps of the executing job beside the first."""
        if self.cfg.row_taps == 1:
            return []
        insn = data.View(insn_layout(self.cfg, "DWGEMM"), waiting.insn)
        return [now.extra.eq(Mux(insn.op == Op.DWGEMM, insn.extra_taps, 0))]

    def _loops(self, m: Module, waiting, load: Value, advance: Value, bubble: Value, position) -> dict[str, Signal]:
        """Counters of the three loops and the `position` in them; returns offsets to add to the micro-op's indices.

        An offset has one bit more than its index, which stays once it is set: the index is beyond its scratchpad then.
        """
        cfg = self.cfg
        gemm, alu = (data.View(insn_layout(cfg, name), waiting.insn) for name in ("GEMM", "ALU"))
        uop_bits = address_bits(cfg, Mem.UOP)
        begin, end, at = (Signal(uop_bits, name=name) for name in ("uop_begin", "uop_last", "uop_at"))
        trips, inner, outer = (Signal(ITER_BITS, name=name) for name in ("trips", "inner_left", "outer_left"))
        uop_last, inner_last, outer_last, first = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            uop_last.eq(at == end),
            inner_last.eq(inner == 1),
            outer_last.eq(outer == 1),
            position.last.eq(bubble | (uop_last & inner_last & outer_last)),
            position.first.eq(first),
            position.ends.eq(uop_last),
            self.uop.en.eq(advance),
            self.uop.addr.eq(at),
        ]
        offsets, of_alu = {}, elementwise(gemm.op)
        with m.If(advance):
            m.d.sync += at.eq(Mux(uop_last, begin, at + 1))
            with m.If(uop_last):
                m.d.sync += [first.eq(0), inner.eq(Mux(inner_last, trips, inner - 1))]
                with m.If(inner_last):
                    m.d.sync += outer.eq(outer - 1)
        for name, bits in index_bits(cfg).items():
            rows, offset = (Signal(bits + 1, name=f"{name}_{which}") for which in ("outer", "offset"))
            by_row, by_column = (Signal(bits, name=f"{name}_by_{which}") for which in ("outer", "inner"))
            with m.If(advance & uop_last):
                m.d.sync += offset.eq(_sticky(Mux(inner_last, rows, offset), Mux(inner_last, by_row, by_column)))
                with m.If(inner_last):
                    m.d.sync += rows.eq(_sticky(rows, by_row))
            with m.If(load):
                m.d.sync += [offset.eq(0), rows.eq(0)]
                for by, field in ((by_row, f"{name}_out"), (by_column, f"{name}_in")):
                    m.d.sync += by.eq(gemm[field] if name == "wgt" else Mux(of_alu, alu[field], gemm[field]))
            offsets[name] = offset
        with m.If(load):
            m.d.sync += [begin.eq(gemm.uop_bgn), end.eq(gemm.uop_end - 1), at.eq(gemm.uop_bgn)]
            m.d.sync += [trips.eq(gemm.iter_in), inner.eq(gemm.iter_in), outer.eq(gemm.iter_out), first.eq(1)]
        return offsets

    def _issue(self, m: Module, read, offsets: dict[str, Signal]) -> None:
        """The issue at the output, from the micro-op that was read and the offsets."""
        cfg, issue = self.cfg, self.o.payload
        uop = data.View(uop_layout(cfg), self.uop.data)
        sums = {}
        for name, offset in offsets.items():
            sums[name] = Signal(len(offset) + 1, name=f"{name}_sum")
            m.d.comb += sums[name].eq(uop[name] + offset)
        acc, inp, wgt = (address_bits(cfg, mem) for mem in (Mem.ACC, Mem.INP, Mem.WGT))
        last = sums["src"]
        if cfg.row_taps > 1:  # the weight index counts groups of rows
            several, group = read.extra != 0, sums["wgt"] << (cfg.row_taps - 1).bit_length()
            sums["wgt"] = Mux(several, group, sums["wgt"])
            last = last + read.extra
        weight = Mux(read.rows, sums["wgt"] >> row_bits(cfg), sums["wgt"])
        beyond = (
            sums["dst"][acc:].any()
            | (read.dot & (last[inp:].any() | weight[wgt:].any()))
            | (read.tensor & sums["src"][acc:].any())
        )
        wrong = Signal()
        m.d.comb += wrong.eq(read.wrong | (~read.bubble & beyond))
        m.d.sync += [issue[name].eq(getattr(read, name)) for name in _operation(cfg)]
        m.d.sync += [issue[name].eq(value) for name, value in sums.items()]
        m.d.sync += issue.bubble.eq(read.bubble | wrong)
        keep_first(m, self.fault, (wrong, Error.RANGE, read.index))


def _sticky(offset: Value, step: Value) -> Value:
    """`offset + step`, with a top bit that stays."""
    total = offset + step
    bits = len(offset)
    return Mux(offset[-1], 1 << bits - 1, 0) | total[:bits]
