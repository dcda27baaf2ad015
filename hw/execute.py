"""The pipeline of GEMM and ALU behind the sequencer: acc[dst] = clear ? 0 : acc[dst], then + dot or op b."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from . import alu, gemm
from .config import Config
from .isa import AluOp, Mem
from .layouts import push_layout
from .ports import SramRead, address_bits
from .scratchpad import READ_LATENCY, EntryWrite, bank
from .sequencer import visit_layout

ACC_STAGES = 2  # cycles from the address of an accumulator to its use: read, then choose between memory and results


def dot_latency(cfg: Config) -> int:
    """Cycles from a visit's handshake to its sums."""
    return READ_LATENCY + gemm.latency(cfg)


def latency(cfg: Config) -> int:
    """Cycles from a visit's handshake to its write: the result is in a register, and with the next edge in memory."""
    return dot_latency(cfg) + 1


def multiply_interval(cfg: Config) -> int:
    """Cycles of a MUL visit: its lanes take turns at the multipliers, and the next visit waits for the result."""
    return alu.groups(cfg) + alu.PRODUCT_LATENCY + ACC_STAGES


def visit_interval(cfg: Config, *, multiply: bool = False, tensor: bool = False, same_bank: bool = False) -> int:
    """Cycles of a visit, when nothing else holds it up."""
    reads = 2 if tensor and (same_bank or cfg.acc_banks == 1) else 1
    return reads - 1 + (multiply_interval(cfg) if multiply else 1)


def retired_layout() -> data.StructLayout:
    """An instruction whose last result is being written: `push` tokens are due in the next cycle."""
    return data.StructLayout({"finish": 1, "push": push_layout()})


class Execute(wiring.Component):
    """Executes visits in order, each on the accumulators as the one before left them.

    Members: `visits`, `inp`, `wgt` (scratchpad read ports), `dst`, `src`, `write` (the accumulators' ports), `retire`
    (an instruction ends, which is `retired`, in order).
    Latency `latency(cfg)`. Interval 1, but `multiply_interval(cfg)` for MUL, and one more for an ALU visit whose two
    accumulators are in one bank: `visits.ready` falls meanwhile. Nothing waits behind that.

    Stages behind the visit at the input: the operands of GEMM are read, multiplied and added up (hw/gemm.py); the
    accumulators are read so late that they arrive together with the sums:

        address | choose | execute | result (write)

    A result is used by the visit right behind it in `execute`; by the next two, whose reads come before the write, in
    `choose`: one takes it from the result register, one from a copy of that; later visits read it from memory. Which
    addresses are equal is found at `address`.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "visits": In(stream.Signature(visit_layout(cfg))),
                "inp": Out(SramRead(cfg, Mem.INP)),
                "wgt": Out(SramRead(cfg, Mem.WGT)),
                "dst": Out(SramRead(cfg, Mem.ACC)),
                "src": Out(SramRead(cfg, Mem.ACC)),
                "write": Out(EntryWrite(cfg)),
                "retire": Out(1),
                "retired": Out(retired_layout()),
            }
        )
        self._slot = data.StructLayout(
            {
                "en": 1,  # reads acc[dst], executes, writes
                "early": 1,  # reads acc[src] one cycle ahead of its visit
                "late": 1,  # takes what the slot before it read
                "src_addr": address_bits(cfg, Mem.ACC),
                **visit_layout(cfg).members,
            }
        )

    def elaborate(self, platform) -> Module:
        """Issue, dot products, delay, accumulate."""
        m, cfg = Module(), self.cfg
        m.submodules.dot = dot = gemm.Dot(cfg)
        slot = self._issue(m)
        reads = Signal()
        m.d.comb += [
            reads.eq(slot.en & slot.dot),
            self.inp.en.eq(reads),
            self.inp.addr.eq(slot.src),
            self.wgt.en.eq(reads),
            self.wgt.addr.eq(slot.wgt),
            dot.inp.eq(self.inp.data),
            dot.wgt.eq(self.wgt.data),
        ]
        m.d.sync += dot.en.eq(reads)
        stages = [slot]
        for k in range(dot_latency(cfg)):
            later = Signal(self._slot, name=f"slot_{k + 1}")
            m.d.sync += later.eq(stages[-1])
            stages.append(later)
        address, choose, execute = stages[-1 - ACC_STAGES :]
        self._accumulate(m, address, choose, execute, dot.sums)
        return m

    def _issue(self, m: Module) -> data.View:
        """The slot of the visit at the input; holds the visit while it needs more than one."""
        cfg, visit = self.cfg, self.visits.payload
        slot = Signal(self._slot, name="slot_0")
        fetched, wait = Signal(), Signal(range(multiply_interval(cfg)))
        go, early, real = Signal(), Signal(), Signal()
        multiply = visit.op == AluOp.MUL
        same = bank(cfg, visit.dst) == bank(cfg, self._source(visit))
        m.d.comb += [
            real.eq(self.visits.valid & ~visit.void & (wait == 0)),
            early.eq(real & visit.tensor & same & ~fetched),
            go.eq(self.visits.valid & (wait == 0) & ~early),
            self.visits.ready.eq((wait == 0) & ~early),
            *[slot[name].eq(visit[name]) for name in visit_layout(cfg).members],
            slot.en.eq(real & ~early),
            slot.early.eq(early),
            slot.late.eq(fetched),
            slot.src_addr.eq(self._source(visit)),
            slot.last.eq(go & visit.last),
        ]
        m.d.sync += fetched.eq(early)
        with m.If(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        with m.Elif(real & ~early & multiply):
            m.d.sync += wait.eq(multiply_interval(cfg) - 1)
        return slot

    def _source(self, visit) -> Value:
        return visit.src[: address_bits(self.cfg, Mem.ACC)]

    def _accumulate(self, m: Module, address, choose, execute, sums) -> None:
        """Read and choose the operands."""
        cfg = self.cfg
        entry = cfg.acc_entry_bits
        result, older = Signal(entry), Signal(entry)  # of the latest visit; of the one before the latest write
        written, writing = Signal(), Signal.like(address.dst)  # the result is being written
        read_src = Signal()
        m.d.comb += [
            read_src.eq(address.early | (address.en & address.tensor & ~address.late)),
            self.dst.en.eq(address.en & ~address.clear),
            self.dst.addr.eq(address.dst),
            self.src.en.eq(read_src),
            self.src.addr.eq(address.src_addr),
            self.write.en.eq(written),
            self.write.addr.eq(writing),
            self.write.data.eq(result),
        ]
        m.d.sync += older.eq(result)
        latest = ((choose.en, choose.dst), (execute.en, execute.dst), (written, writing))
        a_match = _matches(m, latest, address.dst, self.dst.en, "a")
        b_match = _matches(m, latest, address.src_addr, read_src, "b")
        a, b, a_used, b_used = (Signal(entry, name=name) for name in ("a", "b", "a_used", "b_used"))
        a_next, b_next = Signal(), Signal()  # the visit right before makes the operand just now
        m.d.comb += [a_used.eq(Mux(a_next, result, a)), b_used.eq(Mux(b_next, result, b))]
        imm = Cat(choose.imm, choose.imm[-1].replicate(16)).replicate(alu.lanes(cfg))
        with m.If(choose.en):
            chosen = _choose(a_match, self.dst.data, result, older)
            m.d.sync += [a.eq(Mux(choose.clear, 0, chosen)), a_next.eq(a_match[0])]
        with m.If(choose.en | choose.early):
            chosen = _choose(b_match, self.src.data, result, older)
            m.d.sync += b.eq(Mux(choose.late, b_used, Mux(choose.tensor, chosen, imm)))
            m.d.sync += b_next.eq(b_match[0])
        self._compute(m, execute, (a_used, b_used, sums), result, written, writing)

    def _compute(self, m: Module, execute, operands, result: Signal, written: Signal, writing: Signal) -> None:
        """Execute: the result register, and the end of the instruction."""
        cfg = self.cfg
        a, b, sums = operands
        groups, width = alu.groups(cfg), 32 * alu.multipliers(cfg)
        m.submodules.alu = lanes = alu.Alu(cfg)
        m.submodules.multiplier = multiplier = alu.Multiplier(cfg)
        dots = Cat(Cat(sums[k], sums[k][-1].replicate(32 - len(sums[k]))) for k in range(alu.lanes(cfg)))
        multiply, group, done = Signal(), Signal(range(groups)), Signal()
        held, now = Signal(self._slot, name="multiplied"), Signal()  # the visit that multiplies; another one ends
        m.d.comb += [
            lanes.op.eq(execute.op),
            lanes.a.eq(a),
            lanes.b.eq(Mux(execute.dot, dots, b)),
            multiply.eq(execute.en & (execute.op == AluOp.MUL)),
            now.eq(~multiply),
            multiplier.en.eq(multiply | (group != 0)),
            multiplier.group.eq(group),
            multiplier.a.eq(a),
            multiplier.b.eq(b),
            done.eq(multiplier.o_en & (multiplier.o_group == groups - 1)),
        ]
        if groups > 1:
            m.d.sync += group.eq(group + multiplier.en)
        with m.If(multiply):
            m.d.sync += held.eq(execute)
        for k in range(groups):  # operands wait in their registers; a group's result comes after it entered
            part = slice(k * width, (k + 1) * width)
            with m.If(multiplier.o_en & (multiplier.o_group == k)):
                m.d.sync += result[part].eq(multiplier.o)
            with m.Elif(execute.en & now):
                m.d.sync += result[part].eq(lanes.o[part])
        m.d.sync += [
            written.eq((execute.en & now) | done),
            writing.eq(Mux(done, held.dst, execute.dst)),
            self.retire.eq((execute.last & now) | (done & held.last)),
            self.retired.finish.eq(Mux(done, held.finish, execute.finish)),
            self.retired.push.eq(Mux(done, held.push, execute.push)),
        ]


def _matches(m: Module, latest: tuple, addr: Value, wanted: Value, name: str) -> tuple[Signal, ...]:
    """Whether the writers `latest` (enable, address), the next to execute first, write what is read at `addr`; one
    cycle later, when it is chosen."""
    matches = tuple(Signal(name=f"{name}_match_{k + 1}") for k in range(len(latest)))
    for match, (en, dst) in zip(matches, latest):
        m.d.sync += match.eq(wanted & en & (dst == addr))
    return matches


def _choose(match: tuple[Signal, ...], memory: Value, result: Value, older: Value) -> Value:
    """The newest value but for one that is still to come."""
    return Mux(match[1], result, Mux(match[2], older, memory))
