"""The data of STORE: rows of accumulators are read, requantised by the post-processing unit, and packed into beats."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, PureInterface

from ..config import Config
from ..isa import Mem
from ..regs import Error
from .axi import beat_size
from .fifo import Fifo
from .latencies import PACKER_BEATS, PACKER_ROWS, PPU_ENTRIES, groups, multipliers
from .mover import beat_shift
from .ports import (
    ADDRESS_BITS,
    BEATS_BITS,
    BYTES_BITS,
    INDEX_BITS,
    Fault,
    Requantise,
    StoreRead,
    address_bits,
    command_signature,
    group_bits,
    insn_layout,
    keep_first_seen,
)

PAR_ROW_BITS = 23  # of the PAR index of any row that an instruction can name


def pushes(cfg: Config) -> tuple[str, ...]:
    """The flags by which a STORE gives tokens: to the compute queue, and with unit ternary to its queue."""
    return ("push_prev", "push_next") if "ternary" in cfg.units else ("push_prev",)


def row_layout(cfg: Config) -> data.StructLayout:
    """`entries` accumulators from `base` on, which go to `beats` beats from beat address `addr`, part `part`.

    `empty` where there are none, `single` where there is one; both are known before `entries`.
    With `quant` they are requantised with PAR entry `par`, and after every `width` of them with one `par_step` further.
    """
    return data.StructLayout(
        {
            "base": 33,
            "entries": 32,
            "empty": 1,
            "single": 1,
            "addr": ADDRESS_BITS - beat_size(cfg),
            "beats": BEATS_BITS,
            "part": 6,
            **({"quant": 1, "par": PAR_ROW_BITS, "par_step": 6, "width": 16} if "requant" in cfg.extensions else {}),
            "last": 1,
            "push": len(pushes(cfg)),
            "index": INDEX_BITS,
        }
    )


class StoreRows(wiring.Component):
    """Turns a STORE into rows: one each, or a single one where they are adjacent; a row of 0 entries for a NOP.

    Adjacent rows stay one where their parameters differ: `row_layout` says how these change.

    Members:
        cmd: in, STORE instructions
        row: out, their rows
        idle: out, nothing is inside

    Latency `ROW_LATENCY`; one row per cycle, one instruction in `STORE_INTERVAL`: whether the first stage has room does
    not depend on `row` in the same cycle.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {"cmd": In(command_signature()), "row": Out(stream.Signature(row_layout(cfg))), "idle": Out(1)}
        )

    def elaborate(self, platform: object):
        """First stage: the instruction; second: its rows. Neither has comparisons before its product or `ready`."""
        m, row = Module(), self.row.payload
        taken, word, number = Signal(), Signal(128, reset_less=True), Signal(INDEX_BITS, reset_less=True)
        flags = pushes(self.cfg)
        push, index, base, entries = (Signal(n, reset_less=True) for n in (len(flags), INDEX_BITS, 33, 32))
        insn = data.View(insn_layout(self.cfg, "STORE"), word)
        empty, one = Signal(reset_less=True), Signal(reset_less=True)
        left, at, stride, size = (Signal(n, reset_less=True) for n in (16, 34, 16, 16))
        # of the first stage: it has a single row, and the factor of `x_size` to that row's entries; of the second stage
        single, factor, last = Signal(), Signal(16, reset_less=True), Signal()
        ended = Signal()
        m.d.comb += [
            ended.eq(~self.row.valid | (self.row.ready & last)),
            self.cmd.ready.eq(~taken),
            self.idle.eq(~taken & ~self.row.valid),
        ]
        new = data.View(insn_layout(self.cfg, "STORE"), Value.cast(self.cmd.payload.insn))
        dense, some = new.x_stride == new.x_size, new.y_size != 0
        with m.If(self.cmd.ready):
            m.d.sync += [word.eq(self.cmd.payload.insn), number.eq(self.cmd.payload.index)]
            m.d.sync += [single.eq(dense | (new.x_size == 0) | ~some), factor.eq(Mux(dense, new.y_size, some))]
        m.d.sync += taken.eq(Mux(taken, ~ended, self.cmd.valid))
        with m.If(self.row.ready):
            m.d.sync += [left.eq(left - 1), last.eq(left == 2), at.eq(at + stride), base.eq(base + size)]
        with m.If(ended):
            m.d.sync += [
                self.row.valid.eq(taken),
                base.eq(insn.sram_base),
                entries.eq(insn.x_size * factor),
                empty.eq((insn.x_size == 0) | (factor == 0)),
                one.eq((insn.x_size == 1) & (factor == 1)),
                push.eq(Cat(insn[flag] for flag in flags)),
                index.eq(number),
                left.eq(insn.y_size),
                last.eq(single | (insn.y_size == 1)),
                at.eq(insn.dram_base),
                stride.eq(insn.x_stride),
                size.eq(insn.x_size),
            ]
        if "requant" in self.cfg.extensions:
            self._parameters(m, word, ended)
        shift = beat_shift(self.cfg, Mem.OUT)
        m.d.comb += [row.base.eq(base), row.entries.eq(entries), row.push.eq(push), row.index.eq(index)]
        m.d.comb += [row.last.eq(last), row.empty.eq(empty), row.single.eq(one)]
        if shift >= 0:
            m.d.comb += [row.addr.eq(at << shift), row.beats.eq(entries << shift)]
        else:
            part = at[:-shift]
            m.d.comb += [
                row.addr.eq(at >> -shift),
                row.part.eq(part),
                row.beats.eq((part + entries + ((1 << -shift) - 1)) >> -shift),
            ]
        return m

    def _parameters(self, m: Module, word: Value, ended: Value) -> None:
        """The fields of rows that only a requantising STORE has."""
        row, insn = self.row.payload, data.View(insn_layout(self.cfg, "STOREQ"), word)
        quant, par, step, width = (Signal(n, reset_less=True) for n in (1, PAR_ROW_BITS, 6, 16))
        with m.If(self.row.ready):
            m.d.sync += par.eq(par + step)
        with m.If(ended):
            m.d.sync += [
                quant.eq(insn.mem == Mem.OUTQ),
                par.eq(insn.par_base),
                step.eq(insn.par_step),
                width.eq(insn.x_size),
            ]
        m.d.comb += [row.quant.eq(quant), row.par.eq(par), row.par_step.eq(step), row.width.eq(width)]


class Ppu(wiring.Component):
    """o[k] = min(max(zero_point + R(i[k] + bias), low), high), with the parameters of the lane's channel.

    Members:
        i: in, entries: `data`, the PAR index `par`, and a `tag` that stays with the entry
        o: out, entries of outputs with their tags
        port: out, use of the multipliers
        idle: out, nothing is inside

    R is that of hw/rtl/compute/alu.py. Latency `ppu_latency(cfg)`, interval `groups(cfg)` cycles per entry.
    Back-pressure: an entry is held at `i` until its last group has entered the multipliers; it begins when there is
    room for its outputs, so the multipliers never wait.
    """

    def __init__(self, cfg: Config, *, tag: data.StructLayout):
        self.cfg, self.tag = cfg, tag
        word = {"data": cfg.acc_entry_bits, "par": address_bits(cfg, Mem.PAR), "tag": tag}
        super().__init__(
            {
                "i": In(stream.Signature(data.StructLayout(word))),
                "o": Out(stream.Signature(data.StructLayout({"data": cfg.out_entry_bits, "tag": tag}))),
                "port": Out(Requantise(cfg)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Groups in, groups out; FIFOs of outputs and of tags."""
        m, cfg, port = Module(), self.cfg, self.port
        last = groups(cfg) - 1
        m.submodules.tags = tags = Fifo(shape=self.tag, depth=PPU_ENTRIES)
        room = Signal(range(PPU_ENTRIES + 1), init=PPU_ENTRIES)
        some, idle = Signal(init=1), Signal(init=1)  # of that room, and all of it
        group, enters, begins, leaves = Signal(group_bits(cfg)), Signal(), Signal(), Signal()
        m.d.comb += [
            port.en.eq(self.i.valid & ((group != 0) | some)),
            port.group.eq(group),
            port.par.eq(self.i.payload.par),
            port.a.eq(self.i.payload.data),
            enters.eq(port.en & port.ready),
            begins.eq(enters & (group == 0)),
            self.i.ready.eq(enters & (group == last)),
            tags.i.valid.eq(self.i.ready),
            tags.may.eq(self.i.valid),
            tags.i.payload.eq(self.i.payload.tag),
            tags.o.ready.eq(leaves),
            leaves.eq(self.o.valid & self.o.ready),
            self.o.payload.tag.eq(tags.o.payload),
            self.idle.eq(idle),
        ]
        with m.If(enters):
            m.d.sync += group.eq(group + 1)
        with m.If(begins & ~leaves):
            m.d.sync += [room.eq(room - 1), some.eq(room != 1), idle.eq(0)]
        with m.Elif(leaves & ~begins):
            m.d.sync += [room.eq(room + 1), some.eq(1), idle.eq(room == PPU_ENTRIES - 1)]
        self._collect(m, last)
        return m

    def _collect(self, m: Module, last: int) -> None:
        """An entry of the groups that come back."""
        m.submodules.outputs = outputs = Fifo(shape=self.cfg.out_entry_bits, depth=PPU_ENTRIES)
        port, came = self.port, Signal(group_bits(self.cfg))
        parts = [Signal(8 * multipliers(self.cfg), name=f"part_{k}", reset_less=True) for k in range(last)]
        with m.If(port.o_en):
            m.d.sync += came.eq(came + 1)
            for k, part in enumerate(parts):
                with m.If(came == k):
                    m.d.sync += part.eq(port.o)
        m.d.comb += [
            outputs.i.valid.eq(port.o_en & (came == last)),
            outputs.may.eq(port.o_en),
            outputs.i.payload.eq(Cat(*parts, port.o)),
            self.o.valid.eq(outputs.o.valid),
            self.o.payload.data.eq(outputs.o.payload),
            outputs.o.ready.eq(self.o.ready),
        ]


class _Reading(NamedTuple):
    """The accumulators of a row, one after the other: the read that is asked for, and the entry that it gave."""

    begins: Signal  # the next row is the one to be read, from the next cycle on
    asked: Signal  # the next accumulator is read in this cycle
    final: Signal  # it is the last of its row
    beyond: Signal  # its parameters are beyond PAR
    have: Signal  # the entry that was read last waits at `acc.data`
    position: data.View  # of that entry in its beat
    leaves: Signal  # that entry, if there is one, goes on in this cycle


class StorePack(wiring.Component):
    """Reads accumulators and makes beats of their low bits or, through the post-processing unit, of int8 results,
    with strobes where a row covers part of a beat.

    Members:
        row: in, rows of accumulators
        acc: out, read port of the accumulators
        requantise: out, use of the multipliers; with extension `requant`
        beats: out, data for the bus
        idle: out, nothing is inside
        fault: out, an entry beyond its scratchpad
        bytes: out, bytes that were packed in this cycle
        progress: out, an accumulator was read
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        beat = data.StructLayout({"data": cfg.axi_bits, "strb": cfg.axi_bits // 8})
        super().__init__(
            {
                "row": In(stream.Signature(row_layout(cfg))),
                "acc": Out(StoreRead(cfg)),
                **({"requantise": Out(Requantise(cfg))} if "requant" in cfg.extensions else {}),
                "beats": Out(stream.Signature(beat)),
                "idle": Out(1),
                "fault": Out(Fault()),
                "bytes": Out(BYTES_BITS),
                "progress": Out(1),
            }
        )
        bits = max(-beat_shift(cfg, Mem.OUT), 1)
        self._position = data.StructLayout({"part": bits, "ends": 1})  # of an entry in its beat; whether its row ends
        self._entry = data.StructLayout({"data": cfg.out_entry_bits, "position": self._position})

    def elaborate(self, platform: object):
        """Reads ahead by one entry; a FIFO evens out the cycles that the accumulators' other users leave free."""
        m, cfg = Module(), self.cfg
        m.submodules.out = out = Fifo(shape=self.beats.payload.shape(), depth=PACKER_BEATS)
        wiring.connect(m, out.o, wiring.flipped(self.beats))
        row, active, begins = Signal(row_layout(cfg)), Signal(), Signal()  # the row that is read: what is left of it
        asked, final, beyond, have, leaves = (Signal() for _ in range(5))
        reading = _Reading(begins, asked, final, beyond, have, Signal(self._position), leaves)
        m.d.comb += [
            self.acc.en.eq(active & (~have | leaves)),
            self.acc.addr.eq(row.base),
            asked.eq(self.acc.en & self.acc.ready),
            begins.eq(~active | (asked & final)),
            self.progress.eq(asked),
        ]
        with m.If(have & leaves):
            m.d.sync += have.eq(0)
        with m.If(asked):
            m.d.sync += [have.eq(1), reading.position.ends.eq(final), reading.position.part.eq(row.part)]
            m.d.sync += [row.base.eq(row.base + 1), row.part.eq(row.part + 1)]
            m.d.sync += [row.entries.eq(row.entries - 1), final.eq(row.entries == 2)]
        new = self._next_row(m, active, begins)
        with m.If(begins):
            m.d.sync += [row.eq(new), final.eq(new.single)]
        keep_first_seen(m, self.fault, (asked & ((row.base >= cfg.acc_depth) | beyond), Error.RANGE, row.index))
        entries, busy = self._results(m, row, new, reading)
        m.d.comb += self.idle.eq(~have & ~active & ~out.o.valid & ~busy)
        if beat_shift(cfg, Mem.OUT) >= 0:
            self._cut(m, entries, out)
        else:
            self._gather(m, entries, out)
        return m

    def _next_row(self, m: Module, active: Value, begins: Value) -> data.View:
        """The row that is read when the latest one `begins` to be over: it comes from the queue, past which it goes
        where nothing waits."""
        m.submodules.rows = rows = Fifo(shape=self.row.payload.shape(), depth=PACKER_ROWS - 1)
        past = begins & ~rows.o.valid
        m.d.comb += [
            rows.i.valid.eq(self.row.valid & ~past),
            rows.may.eq(self.row.valid),
            rows.i.payload.eq(self.row.payload),
            self.row.ready.eq(rows.i.ready),
            rows.o.ready.eq(begins),
        ]
        with m.If(begins):
            m.d.sync += active.eq(rows.o.valid | self.row.valid)
        new = Signal.like(self.row.payload)
        m.d.comb += new.eq(Mux(rows.o.valid, rows.o.payload, self.row.payload))
        return new

    def _results(self, m: Module, row: data.View, new: Value, reading: _Reading) -> tuple[PureInterface, Value]:
        """The stream of entries after post-processing, and whether some are still inside.

        A plain entry waits until the post-processing unit is empty, so that the order stays, and then in a register,
        as words of memory arrive late.
        """
        cfg, entries = self.cfg, stream.Signature(self._entry).create()
        plain, some, taken = Signal(self._entry, reset_less=True), Signal(), Signal()  # a plain entry, held
        free = Signal(init=1)  # not `some`, in a register of its own: that one drives all of the payload
        lanes = (self.acc.data[k : k + cfg.out_bits] for k in range(0, cfg.acc_entry_bits, cfg.acc_bits))
        m.d.comb += taken.eq(free | entries.ready)
        with m.If(~some | entries.ready):
            m.d.sync += [plain.data.eq(Cat(*lanes)), plain.position.eq(reading.position)]
        if "requant" not in cfg.extensions:
            m.d.comb += [entries.valid.eq(some), entries.payload.eq(plain), reading.leaves.eq(taken)]
            with m.If(taken):
                m.d.sync += [some.eq(reading.have), free.eq(~reading.have)]
            return entries, ~free
        m.submodules.ppu = ppu = Ppu(cfg, tag=self._position)
        wiring.connect(m, ppu.port, wiring.flipped(self.requantise))
        quant, par = self._parameters(m, row, new, reading)
        m.d.comb += [
            ppu.i.valid.eq(reading.have & quant),
            ppu.i.payload.data.eq(self.acc.data),
            ppu.i.payload.par.eq(par),
            ppu.i.payload.tag.eq(reading.position),
            reading.leaves.eq(Mux(quant, ppu.i.ready, taken & ppu.idle)),
            entries.valid.eq(ppu.o.valid | ~free),
            entries.payload.data.eq(Mux(some, plain.data, ppu.o.payload.data)),
            entries.payload.position.eq(Mux(some, plain.position, ppu.o.payload.tag)),
            ppu.o.ready.eq(entries.ready & free),
        ]
        follows = reading.have & ~quant & ppu.idle
        with m.If(taken):
            m.d.sync += [some.eq(follows), free.eq(~follows)]
        return entries, ~free | ~ppu.idle

    def _parameters(self, m: Module, row: data.View, new: Value, reading: _Reading) -> tuple[Value, Value]:
        """Whether the entry that was read is requantised, and the index of its parameters."""
        cfg = self.cfg
        left, last = Signal(16), Signal()  # entries that have the parameters `row.par`
        quant, par = Signal(), Signal(address_bits(cfg, Mem.PAR))
        m.d.comb += reading.beyond.eq(row.quant & (row.par >= cfg.par_entries))
        with m.If(reading.asked):
            m.d.sync += [quant.eq(row.quant), par.eq(row.par)]
            m.d.sync += [left.eq(Mux(last, row.width, left - 1)), last.eq(Mux(last, row.width == 1, left == 2))]
            with m.If(last):
                m.d.sync += row.par.eq(row.par + row.par_step)
        with m.If(reading.begins):
            m.d.sync += [left.eq(new.width), last.eq(new.width == 1), row.par.eq(new.par)]
        return quant, par

    def _cut(self, m: Module, entries: PureInterface, out: Fifo) -> None:
        """An entry is one or several beats."""
        bits = self.cfg.axi_bits
        chunks = self.cfg.out_entry_bits // bits
        chunk = Signal(range(chunks)) if chunks > 1 else Const(0, 1)
        more = Signal(init=1) if chunks > 1 else Const(0, 1)  # it is not the last chunk; known ahead
        m.d.comb += [
            out.i.valid.eq(entries.valid),
            out.may.eq(entries.valid),
            out.i.payload.data.eq(entries.payload.data.word_select(chunk, bits)),
            out.i.payload.strb.eq(~0),
            entries.ready.eq(out.i.ready & ~more),
        ]
        with m.If(entries.valid & out.i.ready):
            m.d.comb += self.bytes.eq(bits // 8)
            if chunks > 1:
                m.d.sync += [chunk.eq(chunk + 1), more.eq(chunk != chunks - 2)]

    def _gather(self, m: Module, entries: PureInterface, out: Fifo) -> None:
        """A beat is several entries: those before wait in a register."""
        beat, bits, position = out.i.payload, self.cfg.out_entry_bits, entries.payload.position
        kept, strobes, size = Signal.like(beat.data), Signal.like(beat.strb), bits // 8
        leave = position.ends | position.part.all()
        m.d.comb += [
            beat.data.eq(kept),
            beat.data.word_select(position.part, bits).eq(entries.payload.data),
            beat.strb.eq(strobes | (((1 << size) - 1) << (position.part * size))),
            out.i.valid.eq(entries.valid & leave),
            out.may.eq(entries.valid),
            entries.ready.eq(out.i.ready | ~leave),
        ]
        with m.If(entries.valid & entries.ready):
            m.d.comb += self.bytes.eq(size)
            m.d.sync += [kept.eq(beat.data), strobes.eq(Mux(leave, 0, beat.strb))]
