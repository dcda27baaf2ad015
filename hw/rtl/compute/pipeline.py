"""The pipeline of GEMM and ALU, which follows the sequencer: acc[dst] = clear ? 0 : acc[dst], then + dot or op b."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, PureInterface

from ...config import Config
from ...isa import AluOp, Mem
from ..fifo import KEEP
from ..latencies import (
    ACC_STAGES,
    OPERAND_LATENCY,
    dot_latency,
    groups,
    has_functions,
    issue_interval,
    multipliers,
    multiply_interval,
    product_latency,
)
from ..ports import AccumulatorRead, InputRead, Products, SramRead, address_bits
from ..scratchpad import bank
from . import alu, gemm
from .accumulators import EntryWrite
from .alu import FunctionUse
from .sequencer import issue_layout, row_bits

_COPIES = 8  # of a register that chooses all of an entry: no wire of it drives more than some 70 pins

_Writer = tuple[Value, Value]  # enable and address of a write to the accumulators

_LIVE = data.StructLayout(
    {
        "en": 1,  # reads acc[dst], executes, writes
        "early": 1,  # reads acc[src] one cycle ahead of its issue, whose slot is then `late`
        "last": 1,  # its instruction ends
    }
)


class _Stage(NamedTuple):
    """One stage of the pipeline: its events, and the issue with its operands."""

    live: data.View
    slot: data.View


class Execute(wiring.Component):
    """Executes issues in order, each on the accumulators as the one before left them.

    Members:
        issues: in, issues of the sequencer
        inp, wgt: out, read ports of the scratchpads
        dst, src: out, read ports of the accumulators
        write: out, write port of the accumulators
        multiplier: out, use of the multipliers
        functions: out, use of LOOKUP and REDUCE; with one of their extensions
        retire: out, the oldest instruction has ended with the write before

    Latency `issue_latency(cfg)`. Interval 1, `issue_interval(cfg, multiply=True)` for MUL and RESCALE, and one more for
    an ALU issue whose two accumulators are in one bank: `issues.ready` falls meanwhile. Nothing waits behind that.
    The results of MUL and RESCALE come later than others: behind them an issue of another kind, or one that reads or
    writes their accumulators, waits `multiply_interval(cfg)` cycles.

    Stages behind the issue at the input: the operands of GEMM are read, multiplied and added up
    (hw/rtl/compute/gemm.py); the accumulators are read so late that they arrive together with the sums, which are
    chosen as ALU's second operand like an accumulator or a constant:

        address | choose | execute | result (write)

    The issue right behind takes a result in `execute`. The next two, which read before the write, take it in `choose`:
    one from the result register, one from a copy of that. Later issues read it from memory.
    Addresses are compared at `address`.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "issues": In(stream.Signature(issue_layout(cfg))),
                "inp": Out(InputRead(cfg)),
                "wgt": Out(SramRead(cfg, Mem.WGT)),
                "dst": Out(AccumulatorRead(cfg)),
                "src": Out(AccumulatorRead(cfg)),
                "write": Out(EntryWrite(cfg)),
                "multiplier": Out(Products(cfg)),
                **({"functions": Out(FunctionUse(cfg))} if has_functions(cfg) else {}),
                "retire": Out(1),
            }
        )
        names = ("dst", "src", "wgt", "dot", "rows", "clear", "tensor", "op", "imm")
        names += ("extra",) if cfg.row_taps > 1 else ()
        self._slot = data.StructLayout({"late": 1, **{name: issue_layout(cfg).members[name] for name in names}})

    def elaborate(self, platform: object) -> Module:
        """Issue, dot products, delay, accumulate."""
        m, cfg = Module(), self.cfg
        m.submodules.dot = dot = gemm.Dot(cfg)
        first = self._issue(m)
        reads = Signal()
        m.d.comb += [
            reads.eq(first.live.en & first.slot.dot),
            self.inp.en.eq(reads),
            self.inp.addr.eq(first.slot.src),
            self.wgt.en.eq(reads),
            self.wgt.addr.eq(Mux(first.slot.rows, first.slot.wgt >> row_bits(cfg), first.slot.wgt)),
            dot.inp.eq(self.inp.data),
            dot.wgt.eq(self.wgt.data),
        ]
        stages = [first]
        for k in range(dot_latency(cfg)):
            later = self._stage(k + 1)
            m.d.sync += [later.live.eq(stages[-1].live), later.slot.eq(stages[-1].slot)]
            stages.append(later)
        before = stages[OPERAND_LATENCY - 1]
        m.d.sync += [
            dot.en.eq(before.live.en & before.slot.dot),
            dot.rows.eq(before.slot.rows),
            dot.row.eq(before.slot.wgt),
        ]
        if cfg.row_taps > 1:
            m.d.comb += dot.near.eq(self.inp.near)
            m.d.sync += dot.extra.eq(before.slot.extra)
        address, choose, execute = stages[-1 - ACC_STAGES :]
        self._reads(m, stages[-2 - ACC_STAGES])
        self._accumulate(m, address, choose, execute, dot.sums)
        return m

    def _stage(self, k: int) -> _Stage:
        return _Stage(Signal(_LIVE, name=f"live_{k}"), Signal(self._slot, name=f"slot_{k}", reset_less=True))

    def _issue(self, m: Module) -> _Stage:
        """The slot of the issue at the input; holds the issue while it needs more than one."""
        issue = self.issues.payload
        stage = self._stage(0)
        fetched, go, early, real = Signal(), Signal(), Signal(), Signal()
        second = issue.twice & ~fetched  # the issue needs another slot before its own
        may = self._order(m, issue, self.issues.valid & self.issues.ready & issue.multiply)
        m.d.comb += [
            real.eq(self.issues.valid & ~issue.bubble & may),
            early.eq(self.issues.valid & second & may),
            go.eq(self.issues.valid & self.issues.ready),
            self.issues.ready.eq(may & ~second),
            stage.live.en.eq(real & ~second),
            stage.live.early.eq(early),
            stage.live.last.eq(go & issue.last),
            stage.slot.late.eq(fetched),
            *[stage.slot[name].eq(issue[name]) for name in self._slot.members if name != "late"],
        ]
        m.d.sync += fetched.eq(early)
        return stage

    def _order(self, m: Module, issue: data.View, multiply: Value) -> Value:
        """1 when the issue at the input may go, after those that `multiply`.

        It may when all results are written, or when it multiplies, too, the last one's operands have entered, and none
        of the latest ones writes an accumulator that it reads or writes. That is found one cycle ahead, so that no
        comparison of addresses is in the way of `issues.ready`.
        """
        cfg = self.cfg
        cycles, spacing = multiply_interval(cfg), issue_interval(cfg, multiply=True)
        wait, free, follows, conflict = Signal(range(cycles)), Signal(init=1), Signal(), Signal()
        latest = [
            (Signal(name=f"multiplying_{k}"), Signal.like(issue.dst, name=f"product_{k}"))
            for k in range((cycles - 1) // spacing)  # one before these was issued so long ago that it is written
        ]
        for en, dst in latest:
            with m.If(en & ((dst == issue.dst) | (issue.tensor & (dst == self._source(issue))))):
                m.d.comb += conflict.eq(1)
        with m.If(free):
            m.d.sync += [en.eq(0) for en, _ in latest]
        with m.Else():
            m.d.sync += [wait.eq(wait - 1), free.eq(wait == 1)]
        with m.If(multiply):
            before = [(C(1, 1), issue.dst), *latest]
            m.d.sync += [wait.eq(cycles - 1), free.eq(0)]
            m.d.sync += [a.eq(b) for pair in zip(latest, before) for a, b in zip(*pair)]
        ours = self.issues.valid & ~self.issues.ready & issue.multiply
        m.d.sync += follows.eq(ours & ~conflict & (wait <= cycles - spacing + 1))
        return free | follows

    def _source(self, issue: data.View) -> Value:
        """`src` of an ALU issue."""
        return issue.src[: address_bits(self.cfg, Mem.ACC)]

    def _reads(self, m: Module, ahead: _Stage) -> None:
        """The banks that are read at `address`, known a cycle ahead: STORE's reads wait for them."""
        live, slot = ahead
        source = live.early | (live.en & slot.tensor & ~slot.late)
        for port, wanted, addr in (
            (self.dst, live.en & ~slot.clear, slot.dst),
            (self.src, source, self._source(slot)),
        ):
            for k in range(self.cfg.acc_banks):
                m.d.sync += port.en[k].eq(wanted & (bank(self.cfg, addr) == k))

    def _accumulate(self, m: Module, address: _Stage, choose: _Stage, execute: _Stage, sums: Value) -> None:
        """Read and choose the operands."""
        cfg = self.cfg
        entry = cfg.acc_entry_bits
        # the result of the latest issue, and the one that was it a cycle ago
        result, older = Signal(entry), Signal(entry, reset_less=True)
        written, writing = Signal(), Signal.like(address.slot.dst)  # the result is being written
        read_src = Signal()
        m.d.comb += [
            read_src.eq(self.src.en.any()),
            self.dst.addr.eq(address.slot.dst),
            self.src.addr.eq(self._source(address.slot)),
            self.write.en.eq(written),
            self.write.addr.eq(writing),
            self.write.data.eq(result),
        ]
        m.d.sync += older.eq(result)
        latest = ((choose.live.en, choose.slot.dst), (execute.live.en, execute.slot.dst), (written, writing))
        a_match = _matches(m, latest, address.slot.dst, self.dst.en.any(), "a")
        b_match = _matches(m, latest, self._source(address.slot), read_src, "b")
        a, b, a_used, b_used = (Signal(entry, name=name, reset_less=True) for name in ("a", "b", "a_used", "b_used"))
        # the issue right before makes the operand just now
        a_next, b_next = _copies("a_next"), _copies("b_next")
        m.d.comb += [a_used.eq(_either(a_next, result, a)), b_used.eq(_either(b_next, result, b))]
        # apart from a word of memory everything is known early, so that one choice is behind the block RAM
        a_memory, b_memory, a_known, b_known = Signal(), Signal(), Signal(entry), Signal(entry)
        m.d.sync += [
            a_memory.eq(self.dst.en.any() & ~_any_match(latest, address.slot.dst)),
            b_memory.eq(read_src & ~_any_match(latest, self._source(address.slot))),
        ]
        m.d.comb += a_known.eq(Mux(choose.slot.clear, 0, Mux(a_match[1], result, older)))
        with m.If(choose.live.en):
            m.d.sync += [a.eq(Mux(a_memory, _read(self.dst), a_known)), *(copy.eq(a_match[0]) for copy in a_next)]
        # one gate chooses among entries, one more adds the constant, which is 0 otherwise, and a word of memory
        imm = Mux(choose.slot.tensor | choose.slot.dot, 0, choose.slot.imm)
        imm = Cat(imm, imm[-1].replicate(16)).replicate(cfg.lanes)
        dots = Cat(Cat(sums[k], sums[k][-1].replicate(32 - len(sums[k]))) for k in range(cfg.lanes))
        early = Mux(choose.slot.dot, dots, 0)
        entries = Mux(choose.slot.tensor, Mux(b_match[1] | choose.slot.late, result, older), early)
        m.d.comb += b_known.eq(entries | imm)
        with m.If(choose.live.early | (choose.live.en & (~choose.slot.late | b_next[0]))):
            m.d.sync += [b.eq(Mux(b_memory, _read(self.src), b_known)), *(copy.eq(b_match[0]) for copy in b_next)]
        self._compute(m, choose, execute, (a_used, b_used), result, written, writing)

    def _compute(
        self,
        m: Module,
        choose: _Stage,
        execute: _Stage,
        operands: tuple[Value, Value],
        result: Signal,
        written: Signal,
        writing: Signal,
    ) -> None:
        """Execute: the result registers, and the end of the instruction; stage `choose` has decoded the operation."""
        cfg = self.cfg
        a, b = operands
        count, width = groups(cfg), 32 * multipliers(cfg)
        m.submodules.alu = lanes = alu.Alu(cfg)
        multiplies, multiply, now = Signal(), Signal(), Signal()
        choice = Signal(alu.choice_layout())
        # one of both is 0, so that no gate chooses behind a carry chain, and none adds to a shift
        summed, shifted = (Signal.like(result, name=name, reset_less=True) for name in ("summed", "shifted"))
        m.d.comb += [
            result.eq(summed | shifted),
            multiplies.eq(alu.multiplies(choose.slot.op)),
            lanes.choice.eq(choice),
            lanes.a.eq(a),
            lanes.b.eq(b),
        ]
        begins = choose.live.en & multiplies
        m.d.sync += [
            multiply.eq(begins),
            now.eq(choose.live.en & ~multiplies),
            *[choice[name].eq(choose.live.en & value) for name, value in alu.chosen(choose.slot.op).items()],
        ]
        products = self._multiply(m, begins, multiply, execute, a, b)
        end = products[-1]
        # operands wait in their registers; a group's result comes after it entered, while the ALU has no operation
        if has_functions(cfg):
            late = [Mux(stage.product, self.multiplier.o, 0) | self.functions.o for stage in products]
        else:
            late = [self.multiplier.o for _ in products]
        for k in range(count):
            part, done = slice(k * width, (k + 1) * width), products[k - count].en
            m.d.comb += [lanes.other[part].eq(late[k - count]), lanes.use[k].eq(done)]
            with m.If(now | done):
                m.d.sync += [summed[part].eq(lanes.o[part]), shifted[part].eq(lanes.shifted[part])]
        m.d.sync += [
            written.eq(now | end.en),
            writing.eq(Mux(end.en, end.dst, execute.slot.dst)),
            self.retire.eq((execute.live.last & ~multiply) | end.last),
        ]

    def _multiply(
        self, m: Module, begins: Value, multiply: Value, execute: _Stage, a: Value, b: Value
    ) -> list[data.View]:
        """Sends the operands to the multipliers, group by group, from the cycle after `begins` on, in which `multiply`
        is high; returns the slots whose products are due k cycles later."""
        cfg, port, slot = self.cfg, self.multiplier, execute.slot
        group, latest, now = Signal.like(port.group), Signal.like(execute.slot), Signal.like(execute.slot)
        following = (group + port.en)[: len(group)]
        m.d.comb += [
            now.eq(Mux(multiply, slot, latest)),
            port.group.eq(group),
            port.rescale.eq(now.op == AluOp.RESCALE),
            port.par.eq(now.imm),
            port.a.eq(a),
            port.b.eq(b),
        ]
        # known a cycle ahead, as the post-processing unit waits for it
        m.d.sync += [port.en.eq(begins | (following != 0)), group.eq(following), latest.eq(now)]
        values, stages = {"en": multiply, "last": multiply & execute.live.last, "dst": slot.dst}, []
        if has_functions(cfg):
            values["product"] = multiply & ~slot.op.matches(AluOp.LOOKUP, AluOp.REDUCE)
            m.d.comb += [
                self.functions.lookup.eq(port.en & (now.op == AluOp.LOOKUP)),
                self.functions.reduce.eq(port.en & (now.op == AluOp.REDUCE)),
                self.functions.group.eq(group),
                self.functions.imm.eq(now.imm),
                self.functions.a.eq(a),
            ]
        done = data.StructLayout({name: value.shape() for name, value in values.items()})
        for k in range(product_latency(cfg) + groups(cfg) - 1):
            stages.append(Signal(done, name=f"multiply_{k + 1}"))
            m.d.sync += [stages[k][name].eq(value) for name, value in values.items()]
            values = {name: stages[k][name] for name in values}
        return stages


def _copies(name: str) -> list[Signal]:
    """Registers of one bit that are alike and stay so many."""
    return [Signal(name=f"{name}_{k}", attrs=KEEP) for k in range(_COPIES)]


def _either(copies: list[Signal], chosen: Value, other: Value) -> Value:
    """`chosen` where `copies`, which are alike, are 1, and `other` where they are 0; each copy drives a part of it."""
    bits = len(chosen) // len(copies)
    parts = (slice(k * bits, (k + 1) * bits) for k in range(len(copies)))
    return Cat(Mux(copy, chosen[part], other[part]) for copy, part in zip(copies, parts))


def _read(port: PureInterface) -> Value:
    """The entry that `port`, an `AccumulatorRead`, has read."""
    return Mux(port.upper, port.data[1], port.data[0])


def _matches(m: Module, latest: tuple[_Writer, ...], addr: Value, wanted: Value, name: str) -> tuple[Signal, ...]:
    """One bit per writer in `latest`, the next to execute first: it writes the address `addr` that is being read.

    The bits are valid one cycle later, when the operand is chosen.
    """
    matches = tuple(Signal(name=f"{name}_match_{k + 1}") for k in range(len(latest)))
    for match, (en, dst) in zip(matches, latest):
        m.d.sync += match.eq(wanted & en & (dst == addr))
    return matches


def _any_match(latest: tuple[_Writer, ...], addr: Value) -> Value:
    """True if any writer in `latest` except the first targets the address `addr` being read."""
    return Cat(en & (dst == addr) for en, dst in latest[1:]).any()
