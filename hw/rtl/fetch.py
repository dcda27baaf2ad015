"""The fetch unit: instructions from DRAM, checked, to the command queue that executes them."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..isa import OPERATIONS, Instruction, Isa, Op, Operation, rows_of
from ..regs import Error
from ..units import Queue, absent_flags, queues, units
from .fifo import KEEP
from .ports import (
    ADDRESS_BITS,
    INDEX_BITS,
    Fault,
    beat_signature,
    command_signature,
    in_second_space,
    insn_layout,
    keep_first_seen,
    request_signature,
)

INSN_BITS = 128


class Fetch(wiring.Component):
    """Reads `count` instructions from byte address `addr` on and hands them out in order.

    Members:
        start: in, begin; for one cycle
        addr: in, byte address of the program, a multiple of 16; stays the same after `start`
        count: in, number of its instructions; stays the same after `start`
        req: out, requests to the read port
        beats: in, their data
        load, compute, store: out, the command queue of each unit, by its name
        halt: in, hand out nothing more from the next cycle on
        idle: out, all instructions were handed out
        progress: out, one was handed out
        fault: out, the first error; after it nothing is handed out

    Errors: UNDECODABLE for an instruction that no unit executes, for FINISH that is not the last instruction, and for a
    last one that is not FINISH; READ_RESPONSE; RANGE for an address between instructions.
    Latency `FETCH_LATENCY` after the last beat; interval one instruction per 128 bits of data, at most one per cycle.
    Back-pressure: a full queue stops all that follows in the program.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "start": In(1),
                "addr": In(ADDRESS_BITS),
                "count": In(INDEX_BITS),
                "req": Out(request_signature(cfg)),
                "beats": In(beat_signature(cfg)),
                **{unit.name: Out(command_signature()) for unit in units(cfg)},
                "halt": In(1),
                "idle": Out(1),
                "progress": Out(1),
                "fault": Out(Fault()),
            }
        )

    def elaborate(self, platform: object):
        """Request, then words from beats, which are checked and routed on their way into the register."""
        m = Module()
        word, broken, have = Signal(INSN_BITS, reset_less=True, attrs=KEEP), Signal(), Signal()
        take, leaves = Signal(), Signal()  # alike; `leaves` is for the beats alone, as `take` drives both counters
        index, left = Signal(INDEX_BITS), Signal(INDEX_BITS)
        asking, between = Signal(), self.addr[:4].any()  # the program begins between two instructions
        last, none = Signal(), Signal(init=1)  # `left` is 1, or 0; known ahead
        refused, last_next = Signal(), Signal()
        m.d.comb += [self.req.valid.eq(asking), self.idle.eq(none & ~asking)]
        self._request(m)
        with m.If(self.start):
            m.d.sync += [left.eq(self.count), last.eq(self.count == 1), index.eq(0)]
            m.d.sync += [asking.eq(self.count != 0), none.eq(self.count == 0)]
            with m.If(between):
                m.d.sync += [asking.eq(0), left.eq(0), last.eq(0), none.eq(1)]
        with m.Elif(self.req.ready):
            m.d.sync += asking.eq(0)
        fill, whole, new, error = self._words(m, word, have, take, leaves, left)
        m.d.comb += last_next.eq(Mux(take, left == 2, last))
        bad, queue = decode(m, self.cfg, new, last_next)
        with m.If(fill):
            m.d.sync += [broken.eq(error), refused.eq(bad)]
        for unit in units(self.cfg):
            port = getattr(self, unit.name)
            offer, again = (Signal(name=f"{name}_{unit.name}", attrs=KEEP) for name in ("offer", "again"))
            m.d.comb += [port.payload.insn.eq(word), port.payload.index.eq(index), port.valid.eq(offer)]
            good = whole & ~error & ~bad & (queue == unit.queue)
            m.d.sync += [copy.eq(((fill & good) | (copy & ~take)) & ~self.halt) for copy in (offer, again)]
            with m.If(port.valid & port.ready):
                m.d.comb += take.eq(1)
            with m.If(again & port.ready):
                m.d.comb += leaves.eq(1)
        going = have & ~self.halt
        keep_first_seen(
            m,
            self.fault,
            (self.start & (self.count == 0), Error.UNDECODABLE, 0),
            (self.start & between, Error.RANGE, 0),
            (going & broken, Error.READ_RESPONSE, index),
            (going & refused, Error.UNDECODABLE, index),
        )
        with m.If(take):
            m.d.sync += [index.eq(index + 1), left.eq(left - 1), last.eq(last_next), none.eq(last)]
        m.d.comb += self.progress.eq(take)
        return m

    def _request(self, m: Module) -> None:
        bits = self.cfg.axi_bits
        req, low = self.req.payload, (bits // 8 - 1).bit_length()
        m.d.comb += req.addr.eq(self.addr >> low)
        if bits <= INSN_BITS:
            m.d.comb += req.beats.eq(self.count << (4 - low))
        else:
            first = self.addr[4:low]
            m.d.comb += req.beats.eq((first + self.count + (bits // INSN_BITS - 1)) >> (low - 4))

    def _words(
        self, m: Module, word: Value, have: Value, take: Value, leaves: Value, left: Value
    ) -> tuple[Value, Value, Value, Value]:
        """Collects beats into a word, or takes a word from a beat; `have` until `take`. Returns whether something is
        put into `word`, whether that ends it, the word, and whether one of its beats is an error."""
        bits, beat = self.cfg.axi_bits, self.beats.payload
        free = Signal(init=1)  # not `have`, in a register of its own: that one drives all of `word`
        room = free | leaves
        parts = max(bits, INSN_BITS) // min(bits, INSN_BITS)
        part = Signal(range(parts)) if parts > 1 else Const(0, 1)
        final = part == parts - 1
        fill, earlier = Signal(), Signal()  # `earlier`: an error in the beats so far
        error = beat.error | earlier
        m.d.comb += fill.eq(self.beats.valid & room)
        with m.If(take):
            m.d.sync += [have.eq(0), free.eq(1)]
        if bits <= INSN_BITS:
            m.d.comb += self.beats.ready.eq(room)
            new = Cat(word, beat.data)[bits:]
            with m.If(fill):
                m.d.sync += [earlier.eq(error & ~final), have.eq(final), free.eq(~final)]
            whole = final
        else:
            m.d.comb += self.beats.ready.eq(room & (final | (left == Mux(take, 2, 1))))
            new = beat.data.word_select(part, INSN_BITS)
            with m.If(fill):
                m.d.sync += [have.eq(1), free.eq(0)]
            whole = Const(1)
        with m.If(self.beats.valid & (~have | take)):
            m.d.sync += word.eq(new)
        if parts > 1:
            with m.If(fill):
                m.d.sync += part.eq(part + 1)
            with m.If(self.start):
                m.d.sync += part.eq(self.addr[4 : 4 + (parts - 1).bit_length()] if bits > INSN_BITS else 0)
        return fill, whole, new, error


def decode(m: Module, cfg: Config, word: Value, final: Value) -> tuple[Value, Value]:
    """(`word`, the last of its program if `final`, cannot be executed; its queue)."""
    flags, load = (data.View(insn_layout(cfg, name), word) for name in ("FINISH", "LOAD"))
    every = queues(cfg)
    bad, queue = Signal(init=1), Signal(range(len(every)), init=Queue.COMPUTE)

    def accept(row: Instruction) -> None:
        m.d.comb += [queue.eq(row.queue), bad.eq(_refused(cfg, row, word))]

    with m.Switch(flags.op):
        for op in Op:
            rows = [row for row in rows_of(op) if not row.missing(cfg) and row.queue in every]
            if rows and rows[0].mem is None:
                with m.Case(op):
                    accept(rows[0])
            elif rows:
                with m.Case(op), m.Switch(load.mem):
                    for row in rows:
                        assert row.mem is not None
                        with m.Case(row.mem.id):
                            accept(row)
    return bad | (final != (flags.op == Op.FINISH)), queue


def _refused(cfg: Config, row: Instruction, word: Value) -> Value:
    """1 where `word`, an instruction of `row`, has fields with which it cannot be executed."""
    load, gemm = (data.View(insn_layout(cfg, name), word) for name in ("LOAD", "GEMM"))
    reasons = [load[flag] for flag in absent_flags(cfg, row.queue)]
    if row.empty:
        reasons.append(load.x_size != 0)
    if row.op == Op.ALU:
        known = (one for one in OPERATIONS.values() if cfg.extensions.issuperset(one.extensions))
        reasons.append(~Cat(_accepted(cfg, one, word) for one in known).any())
    elif "overwrite" in Isa(cfg).formats[row.format].fields:
        reasons.append(gemm.reset & gemm.overwrite)
    return Cat(reasons).any() if reasons else Const(0)


def _accepted(cfg: Config, operation: Operation, word: Value) -> Value:
    """1 where `word`, of opcode ALU, is `operation` with operands that it has."""
    alu, most = data.View(insn_layout(cfg, operation.format), word), operation.immediates(cfg)
    wanted = (alu.alu_op == operation.op) & (alu.use_imm if operation.imm else 1)
    if operation.format == "ALUX":
        wanted &= in_second_space(cfg, word)
    return wanted & (Const(1) if most is None else alu.imm.as_unsigned() < most)
