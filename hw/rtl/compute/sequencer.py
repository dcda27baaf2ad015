"""Turns GEMM, DWGEMM and ALU instructions into issues: one micro-op of one trip of the two loops each.

for i in range(iter_out): for j in range(iter_in): for u in uop[uop_bgn:uop_end]:
    issue(dst = u.dst + i * dst_out + j * dst_in, and likewise src and wgt)
"""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import ITER_BITS, OPERATIONS, AluOp, Isa, Mem, Op, depth, ops_of
from ...regs import Error
from ..ports import (
    INDEX_BITS,
    Fault,
    SramRead,
    address_bits,
    command_layout,
    command_signature,
    insn_layout,
    keep_first,
    op_bits,
    operation_of,
    uop_layout,
)
from ..scratchpad import bank
from .alu import multiplies


class Loops(NamedTuple):
    """Where the next issue of a job stands: `at` is the address of its micro-op, in the `first` trip or a later one.

    `uop_last` is 1 at the last micro-op of a trip, `inner_last` in the last trip of a round, `outer_last` in the last
    round.
    """

    at: Signal
    first: Signal
    uop_last: Signal
    inner_last: Signal
    outer_last: Signal

    @property
    def last(self) -> Value:
        """1 at the last issue of the job."""
        return self.uop_last & self.inner_last & self.outer_last


def count_loops(m: Module, fields: data.View, uop_bits: int, load: Value, advance: Value) -> Loops:
    """Counts the loops of the instruction `fields`, from `load` on, by one issue with each `advance`.

    Addresses of micro-ops have `uop_bits`. The last issue is found one cycle ahead, so that no comparison delays
    the next instruction.
    """
    begin, before, at = (Signal(uop_bits, name=name) for name in ("uop_begin", "uop_before_last", "uop_at"))
    trips, inner, outer = (Signal(ITER_BITS, name=name) for name in ("trips", "inner_left", "outer_left"))
    uop_last, inner_last, outer_last, first = Signal(), Signal(), Signal(), Signal()
    one_uop, one_trip = Signal(), Signal()
    with m.If(advance):
        m.d.sync += [at.eq(Mux(uop_last, begin, at + 1)), uop_last.eq(Mux(uop_last, one_uop, at == before))]
        with m.If(uop_last):
            m.d.sync += [first.eq(0), inner.eq(Mux(inner_last, trips, inner - 1))]
            m.d.sync += inner_last.eq(Mux(inner_last, one_trip, inner == 2))
            with m.If(inner_last):
                m.d.sync += [outer.eq(outer - 1), outer_last.eq(outer == 2)]
    with m.If(load):
        m.d.sync += [begin.eq(fields.uop_bgn), before.eq(fields.uop_end - 2), at.eq(fields.uop_bgn)]
        m.d.sync += [flag.eq(fields.uop_bgn + 1 == fields.uop_end) for flag in (one_uop, uop_last)]
        m.d.sync += [count.eq(fields.iter_in) for count in (trips, inner)]
        m.d.sync += [flag.eq(fields.iter_in == 1) for flag in (one_trip, inner_last)]
        m.d.sync += [outer.eq(fields.iter_out), outer_last.eq(fields.iter_out == 1), first.eq(1)]
    return Loops(at, first, uop_last, inner_last, outer_last)


_TAG_BITS = 3  # more jobs than have issues inside at the same time

# in the loops, and which job's issue: see `Stages`
_POSITION = data.StructLayout({"last": 1, "first": 1, "ends": 1, "tag": _TAG_BITS})


class Stages(wiring.Signature):
    """Positions of the jobs in a sequencer, for hw/rtl/compute/interlock.py.

    A job waits, begins, executes; its issues advance to the stage that reads their micro-op, and from there to the one
    that has it, and to the output. An issue that cannot enter there, because another one waits, goes to a spare place.

    Members:
        occupied: out, a job waits
        job: out, that job, until the cycle behind its begin
        begin: out, it begins
        running: out, a job executes
        tag: out, a number for it
        advance: out, its next issue goes on to the reading stage
        reading: out, the last issue of a job is there
        fetch: out, the stage behind takes what is there
        word: out, the last issue of a job is in that stage
        spare: out, the spare place is taken; if not, what has its micro-op goes there or to the output
        spare_last: out, by the last issue of a job
        step: out, the output takes from the spare place if that is taken, from the stage before otherwise
        issuing: out, an issue is at the output
        issue_last: out, it is the last of its job
        issue_first: out, it is in the first trip of its job
        issue_ends: out, it is the last of a trip
        issue_tag: out, the number of its job
    """

    def __init__(self):
        names = ("occupied", "begin", "running", "advance", "reading", "fetch", "word", "spare", "spare_last", "step")
        names += ("issuing", "issue_last", "issue_first", "issue_ends")
        tags = dict.fromkeys(("tag", "issue_tag"), Out(_TAG_BITS))
        super().__init__({**{name: Out(1) for name in names}, **tags, "job": Out(128)})


def index_bits(cfg: Config) -> dict[str, int]:
    """Bits of its indices: `src` is an input (GEMM) or an accumulator (ALU), `wgt` a tile or a row of weights."""
    acc, inp, wgt = (address_bits(cfg, mem) for mem in (Mem.ACC, Mem.INP, Mem.WGT))
    return {"dst": acc, "src": max(acc, inp), "wgt": wgt + row_bits(cfg)}


def row_bits(cfg: Config) -> int:
    """Bits of the number of a row in its tile, where DWGEMM counts rows."""
    return cfg.block_in.bit_length() - 1 if "depthwise" in cfg.extensions else 0


def banks_of(cfg: Config, first: Value, end: Value | int = 0) -> Value:
    """One bit per bank of accumulators: bank `first`, and those behind it up to the entry before `end`."""
    count = cfg.acc_banks
    if count == 1:
        return C(1, 1)
    if count == 2:
        return Cat(~first, first | (end > cfg.bank_depth))
    return Cat((first == k) | ((first < k) & (end > k * cfg.bank_depth)) for k in range(count))


def elementwise(op: Value) -> Value:
    """1 where the instructions of opcode `op` have the fields of ALU."""
    return op.matches(*ops_of("ALU"))


def _operation(cfg: Config) -> dict[str, int | range]:
    extra = {"extra": range(cfg.row_taps)} if cfg.row_taps > 1 else {}
    return {"bubble": 1, "dot": 1, "rows": 1, "clear": 1, "tensor": 1, "op": op_bits(cfg), "imm": 16, **extra}


def issue_layout(cfg: Config) -> data.StructLayout:
    """An issue; with `bubble` none, in the slot of a job that issues nothing.

    With `dot` acc[dst] += dot(inp[src], wgt[wgt]), with `rows` beside it acc[dst] += inp[src] * row[wgt] element by
    element, and the products of `extra` neighbours of both; else acc[dst] = op(acc[dst], b), where b is acc[src] with
    `tensor` and `imm` without. `clear` takes 0 for acc[dst], so that overwrite is 0 + dot and reset 0 + imm, which is 0
    then.
    `last` marks the end of the job. What follows from the others stands beside them, for whoever decides in the cycle
    in which the issue is there: `banks` has one bit for each bank that holds acc[dst] or the acc[src] that is read;
    with `twice` one bank holds both, with `multiply` the ALU multiplies.
    """
    ahead = {"banks": cfg.acc_banks, "twice": 1, "multiply": 1}
    return data.StructLayout({**index_bits(cfg), **_operation(cfg), **ahead, "last": 1})


class Sequencer(wiring.Component):
    """Two nested loops around a range of micro-ops, one issue per cycle across all their ends and across instructions.

    Members:
        jobs: in, GEMM, DWGEMM and ALU instructions as a command queue holds them
        uop: out, read port of the micro-ops
        o: out, issues
        halt: in, let the executing job end with its next issue
        fault: out, an index beyond its scratchpad, whose issue becomes a bubble; a cycle behind that
        stages: out, positions of the jobs
        may_begin: in, the job that waits may begin
        may_issue: in, the issue at the output may go on

    Latency `SEQUENCER_LATENCY`, interval 1, for jobs `JOB_INTERVAL`; a job without issues counts as one of a single
    issue. Back-pressure: where `o` waits, `ISSUES_AHEAD` issues behind the executing job do, too, and one job inside
    while another executes. What is in front of the output does not depend on `o` in the same cycle, thanks to the
    spare place beside it: the next one steps on `STEP_LATENCY` later.
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
        offsets = {name: bits + 1 for name, bits in index_bits(cfg).items()}
        if cfg.row_taps > 1:
            offsets["src_last"] = offsets["src"] + 1  # of the last tap
        of = {"now": self._control, "position": _POSITION}
        self._passed = data.StructLayout({**of, "offsets": data.StructLayout(offsets)})
        # an index of the issue is beyond its scratchpad, or its job is `wrong`
        self._made = data.StructLayout({"issue": issue_layout(cfg), "position": _POSITION, "beyond": 3})

    def elaborate(self, platform: object) -> Module:
        """The waiting job, the executing job, and the stages that its issues pass."""
        m, stages = Module(), self.stages
        waiting, occupied = Signal(command_layout()), Signal()
        first, running = Signal(self._passed), Signal()
        now, position, tag = Signal(self._control), first.position, Signal(_TAG_BITS)
        room, advance, load = Signal(), Signal(), Signal()
        m.d.comb += [
            advance.eq(running & room),
            load.eq(occupied & self.may_begin & (~running | (advance & position.last))),
            self.jobs.ready.eq(~occupied),
            first.now.eq(now),
            position.tag.eq(tag),
            stages.occupied.eq(occupied),
            stages.job.eq(waiting.insn),
            stages.begin.eq(load),
            stages.running.eq(running),
            stages.tag.eq(tag),
            stages.advance.eq(advance),
        ]
        with m.If(self.jobs.ready):
            m.d.sync += [waiting.eq(self.jobs.payload), occupied.eq(self.jobs.valid)]
        with m.Elif(load):
            m.d.sync += occupied.eq(0)
        with m.If(load):
            m.d.sync += [running.eq(1), tag.eq(tag + 1), *self._decode(now, waiting)]
        with m.Elif(advance & position.last):
            m.d.sync += running.eq(0)
        with m.If(self.halt):
            m.d.sync += now.bubble.eq(1)
        self._loops(m, waiting, load, advance, now, position, first.offsets)
        m.d.comb += room.eq(self._stages(m, running, first))
        return m

    def _stages(self, m: Module, running: Value, first: data.View) -> Value:
        """The stages after the executing job, whose next issue is `first`; returns whether the first stage has room.

        The micro-op arrives in the first one, is a register in the second one, and is added to the offsets there.
        """
        stages, o = self.stages, self.o
        reading, read = Signal(), Signal(self._passed, reset_less=True)
        held, word, fetched = Signal(), Signal(32, reset_less=True), Signal(self._passed, reset_less=True)
        spare, kept = Signal(), Signal(self._made, reset_less=True)
        made, last = Signal(self._made), Signal(self._made, reset_less=True)
        fetch, full = Signal(), Signal()  # `full`: an issue is in each of these places
        m.d.comb += [
            fetch.eq(~held | ~spare),
            o.valid.eq(stages.issuing & self.may_issue),
            o.payload.eq(last.issue),
            o.payload.bubble.eq(last.issue.bubble | last.beyond.any()),
            stages.reading.eq(reading & read.position.last),
            stages.fetch.eq(fetch),
            stages.word.eq(held & fetched.position.last),
            stages.spare.eq(spare),
            stages.spare_last.eq(spare & kept.issue.last),
            stages.step.eq(~stages.issuing | (self.may_issue & o.ready)),
            stages.issue_last.eq(last.issue.last),
            stages.issue_first.eq(last.position.first),
            stages.issue_ends.eq(last.position.ends),
            stages.issue_tag.eq(last.position.tag),
        ]
        m.d.sync += full.eq(~stages.step & (full | (running & (spare | held) & Mux(fetch, reading, held))))
        with m.If(~full):
            m.d.sync += [reading.eq(running), read.eq(first)]
        with m.If(fetch):
            m.d.sync += [held.eq(reading), fetched.eq(read), word.eq(self.uop.data)]
        with m.If(~spare):
            m.d.sync += [kept.eq(made), spare.eq(held & ~stages.step)]
        with m.If(stages.step):
            m.d.sync += [stages.issuing.eq(held | spare), last.eq(Mux(spare, kept, made)), spare.eq(0)]
        self._issue(m, fetched, word, made)
        beyond, index = Signal.like(made.beyond), Signal(INDEX_BITS)
        m.d.sync += [beyond.eq(Mux(held & ~spare, made.beyond, 0)), index.eq(fetched.now.index)]
        keep_first(m, self.fault, (beyond.any(), Error.RANGE, index))
        return ~full

    def _decode(self, now: data.View, waiting: data.View) -> list[object]:
        """The executing job, from the waiting one."""
        cfg = self.cfg
        gemm, alu = (data.View(insn_layout(cfg, name), waiting.insn) for name in ("GEMM", "ALU"))
        is_alu, (op, imm) = elementwise(gemm.op), operation_of(cfg, waiting.insn)
        overwrite = gemm.overwrite if "overwrite" in Isa(cfg).formats["GEMM"].fields else 0
        empty = (gemm.uop_bgn == gemm.uop_end) | (gemm.iter_out == 0) | (gemm.iter_in == 0)
        beyond = (
            is_alu
            & Cat(
                (op == row.op) & (imm.as_unsigned() >= depth(cfg, row.reads))
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
            now.op.eq(Mux(is_alu, op, AluOp.ADD)),
            now.imm.eq(Mux(is_alu, imm, 0)),
            now.index.eq(waiting.index),
            *self._extra(now, waiting),
        ]

    def _extra(self, now: data.View, waiting: data.View) -> list[object]:
        """The number of taps of the executing job, less one."""
        if self.cfg.row_taps == 1:
            return []
        insn = data.View(insn_layout(self.cfg, "DWGEMM"), waiting.insn)
        return [now.extra.eq(Mux(insn.op == Op.DWGEMM, insn.extra_taps, 0))]

    def _loops(
        self,
        m: Module,
        waiting: data.View,
        load: Value,
        advance: Value,
        now: data.View,
        position: data.View,
        offsets: data.View,
    ) -> None:
        """Counters of the three loops, the `position` in them, and `offsets` to add to the micro-op's indices.

        An offset has one bit more than its index, which stays once it is set: the index is beyond its scratchpad then.
        """
        cfg = self.cfg
        gemm, alu = (data.View(insn_layout(cfg, name), waiting.insn) for name in ("GEMM", "ALU"))
        of_alu = elementwise(gemm.op)
        loops = count_loops(m, gemm, address_bits(cfg, Mem.UOP), load, advance)
        m.d.comb += [
            position.last.eq(now.bubble | loops.last),
            position.first.eq(loops.first),
            position.ends.eq(loops.uop_last),
            self.uop.en.eq(advance),
            self.uop.addr.eq(loops.at),
        ]
        for name, bits in index_bits(cfg).items():
            rows, offset = (Signal(bits + 1, name=f"{name}_{which}") for which in ("outer", "offset"))
            by_row, by_column = (Signal(bits, name=f"{name}_by_{which}") for which in ("outer", "inner"))
            with m.If(advance & loops.uop_last):
                step = Mux(loops.inner_last, by_row, by_column)
                m.d.sync += offset.eq(_sticky(Mux(loops.inner_last, rows, offset), step))
                with m.If(loops.inner_last):
                    m.d.sync += rows.eq(_sticky(rows, by_row))
            with m.If(load):
                m.d.sync += [offset.eq(0), rows.eq(0)]
                for by, field in ((by_row, f"{name}_out"), (by_column, f"{name}_in")):
                    m.d.sync += by.eq(gemm[field] if name == "wgt" else Mux(of_alu, alu[field], gemm[field]))
            m.d.comb += offsets[name].eq(offset)
        if cfg.row_taps > 1:
            m.d.comb += offsets.src_last.eq(offsets.src + now.extra)

    def _issue(self, m: Module, fetched: data.View, word: Signal, made: data.View) -> None:
        """The issue that the stage before the output `made` of the micro-op `word`."""
        cfg, issue, control, offsets = self.cfg, made.issue, fetched.now, fetched.offsets
        uop = data.View(uop_layout(cfg), word)
        sums = {}
        for name in index_bits(cfg):
            sums[name] = Signal(len(offsets[name]) + 1, name=f"{name}_sum")
            m.d.comb += sums[name].eq(uop[name] + offsets[name])
        acc, inp, wgt = (address_bits(cfg, mem) for mem in (Mem.ACC, Mem.INP, Mem.WGT))
        last = sums["src"]
        if cfg.row_taps > 1:  # the weight index counts groups of rows
            several, group = control.extra != 0, sums["wgt"] << (cfg.row_taps - 1).bit_length()
            sums["wgt"] = Mux(several, group, sums["wgt"])
            last = uop.src + offsets.src_last
        weight = Mux(control.rows, sums["wgt"] >> row_bits(cfg), sums["wgt"])
        dst, src = (bank(cfg, sums[name][:acc]) for name in ("dst", "src"))
        m.d.comb += [
            made.position.eq(fetched.position),
            made.beyond[0].eq(~control.bubble & sums["dst"][acc:].any()),
            made.beyond[1].eq(~control.bubble & control.dot & (last[inp:].any() | weight[wgt:].any())),
            made.beyond[2].eq(control.wrong | (~control.bubble & control.tensor & sums["src"][acc:].any())),
            *[issue[name].eq(getattr(control, name)) for name in _operation(cfg)],
            *[issue[name].eq(value) for name, value in sums.items()],
            issue.banks.eq(Mux(control.bubble, 0, banks_of(cfg, dst) | Mux(control.tensor, banks_of(cfg, src), 0))),
            issue.twice.eq(~control.bubble & control.tensor & (dst == src)),
            issue.multiply.eq(~control.bubble & multiplies(control.op)),
            issue.last.eq(fetched.position.last),
        ]


def _sticky(offset: Value, step: Value) -> Value:
    """`offset + step`, with a top bit that stays."""
    total = offset + step
    bits = len(offset)
    return Mux(offset[-1], 1 << bits - 1, 0) | total[:bits]
