"""The data of STORE: accumulators read, reduced to outputs, and put into beats."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, PureInterface

from ...config import Config
from ...isa import Mem
from ...regs import Error
from ..faults import keep_first_seen
from ..fifo import Fifo
from ..latencies import PACKER_BEATS, PACKER_ROWS
from ..load.beats import beat_shift
from ..ports import BYTES_BITS, Fault, Requantise, StoreRead, address_bits
from .ppu import Ppu
from .rows import row_layout


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

    def elaborate(self, platform):
        """Reads ahead by one entry; a FIFO evens out what the accumulators' other users leave."""
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

    def _next_row(self, m: Module, active, begins) -> data.View:
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

    def _results(self, m: Module, row, new, reading: _Reading) -> tuple[PureInterface, Value]:
        """A stream of what becomes of the entries that were read; whether some are still inside.

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

    def _parameters(self, m: Module, row, new, reading: _Reading) -> tuple[Value, Value]:
        """Of the entry that was read: whether it is requantised, and the index of its parameters."""
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

    def _cut(self, m: Module, entries, out) -> None:
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

    def _gather(self, m: Module, entries, out) -> None:
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
