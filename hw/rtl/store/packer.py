"""The data of STORE: accumulators read, reduced to outputs, and put into beats."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ...regs import Error
from ..faults import keep_first
from ..fifo import Fifo
from ..latencies import PACKER_BEATS, PACKER_ROWS
from ..load.beats import beat_shift
from ..ports import BYTES_BITS, Fault, Requantise, StoreRead
from .ppu import Ppu
from .rows import PAR_ROW_BITS, row_layout


class StorePack(wiring.Component):
    """Reads accumulators and makes beats of their low bits or, through the post-processing unit, of int8 results,
    with strobes where a row covers part of a beat.

    Members: `row`, `acc`, `beats`, `idle`, `fault` (entry beyond the scratchpad), `bytes`, `progress`; with extension
    `requant` also `requantise`, the multipliers.
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
        self._place = data.StructLayout({"part": bits, "ends": 1})  # of an entry in its beat; whether its row ends
        self._entry = data.StructLayout({"data": cfg.out_entry_bits, "place": self._place})

    def elaborate(self, platform):
        """Reads ahead by one entry; a FIFO evens out what the accumulators' other users leave."""
        m, cfg = Module(), self.cfg
        m.submodules.rows = rows = Fifo(shape=self.row.payload.shape(), depth=PACKER_ROWS)
        m.submodules.out = out = Fifo(shape=self.beats.payload.shape(), depth=PACKER_BEATS)
        wiring.connect(m, wiring.flipped(self.row), rows.i)
        wiring.connect(m, out.o, wiring.flipped(self.beats))
        row, count, entry = rows.o.payload, Signal(32), Signal(33)
        have, over, read, final, beyond, busy = (Signal() for _ in range(6))
        place = Signal(self._place)  # of the entry that was read
        m.d.comb += [
            entry.eq(row.base + count),
            self.acc.en.eq(rows.o.valid & (~have | over)),
            self.acc.addr.eq(entry),
            read.eq(self.acc.en & self.acc.ready),
            final.eq(count + 1 == row.entries),
            rows.o.ready.eq(read & final),
            self.idle.eq(~have & ~rows.o.valid & ~out.o.valid & ~busy),
            self.progress.eq(read),
        ]
        with m.If(have & over):
            m.d.sync += have.eq(0)
        with m.If(read):
            m.d.sync += [have.eq(1), count.eq(Mux(final, 0, count + 1)), place.ends.eq(final)]
            m.d.sync += place.part.eq(row.part + count)
            keep_first(m, self.fault, ((entry >= cfg.acc_depth) | beyond, Error.RANGE, row.index))
        lanes = (self.acc.data[k : k + cfg.out_bits] for k in range(0, cfg.acc_entry_bits, cfg.acc_bits))
        plain = stream.Signature(self._entry).create()
        m.d.comb += [plain.payload.data.eq(Cat(*lanes)), plain.payload.place.eq(place)]
        if "requant" in cfg.extensions:
            entries = stream.Signature(self._entry).create()
            quant = self._requantise(m, row, (read, final, beyond), (have, over, busy), (plain, entries))
            m.d.comb += plain.valid.eq(have & ~quant)
        else:
            entries = plain
            m.d.comb += [plain.valid.eq(have), over.eq(plain.ready)]
        if beat_shift(cfg, Mem.OUT) >= 0:
            self._cut(m, entries, out)
        else:
            self._gather(m, entries, out)
        return m

    def _requantise(self, m: Module, row, reading: tuple, holding: tuple, streams: tuple) -> Value:
        """The post-processing unit between what was read and `entries`; returns whether that entry is for it.

        A plain entry waits until the unit is empty, so that the order stays.
        """
        cfg = self.cfg
        (read, final, beyond), (have, over, busy), (plain, entries) = reading, holding, streams
        m.submodules.ppu = ppu = Ppu(cfg, tag=self._place)
        wiring.connect(m, ppu.port, wiring.flipped(self.requantise))
        column, offset, index = Signal(16), Signal(PAR_ROW_BITS), Signal(PAR_ROW_BITS)
        quant, par = Signal(), Signal.like(ppu.i.payload.par)
        ends = column + 1 == row.width
        m.d.comb += [index.eq(row.par + offset), beyond.eq(row.quant & (index >= cfg.par_entries))]
        with m.If(read):
            m.d.sync += [quant.eq(row.quant), par.eq(index), column.eq(Mux(final | ends, 0, column + 1))]
            with m.If(final | ends):
                m.d.sync += offset.eq(Mux(final, 0, offset + row.par_step))
        m.d.comb += [
            ppu.i.valid.eq(have & quant),
            ppu.i.payload.data.eq(self.acc.data),
            ppu.i.payload.par.eq(par),
            ppu.i.payload.tag.eq(plain.payload.place),
            busy.eq(~ppu.idle),
            over.eq(Mux(quant, ppu.i.ready, plain.ready)),
            entries.valid.eq(ppu.o.valid | (plain.valid & ppu.idle)),
            entries.payload.data.eq(Mux(ppu.o.valid, ppu.o.payload.data, plain.payload.data)),
            entries.payload.place.eq(Mux(ppu.o.valid, ppu.o.payload.tag, plain.payload.place)),
            ppu.o.ready.eq(entries.ready),
            plain.ready.eq(entries.ready & ppu.idle),
        ]
        return quant

    def _cut(self, m: Module, entries, out) -> None:
        """An entry is one or several beats."""
        bits = self.cfg.axi_bits
        chunks = self.cfg.out_entry_bits // bits
        chunk = Signal(range(chunks)) if chunks > 1 else Const(0, 1)
        m.d.comb += [
            out.i.valid.eq(entries.valid),
            out.i.payload.data.eq(entries.payload.data.word_select(chunk, bits)),
            out.i.payload.strb.eq(~0),
            entries.ready.eq(out.i.ready & (chunk == chunks - 1)),
        ]
        with m.If(entries.valid & out.i.ready):
            m.d.comb += self.bytes.eq(bits // 8)
            if chunks > 1:
                m.d.sync += chunk.eq(chunk + 1)

    def _gather(self, m: Module, entries, out) -> None:
        """A beat is several entries: those before wait in a register."""
        beat, bits, place = out.i.payload, self.cfg.out_entry_bits, entries.payload.place
        kept, strobes, size = Signal.like(beat.data), Signal.like(beat.strb), bits // 8
        leave = place.ends | place.part.all()
        m.d.comb += [
            beat.data.eq(kept),
            beat.data.word_select(place.part, bits).eq(entries.payload.data),
            beat.strb.eq(strobes | (((1 << size) - 1) << (place.part * size))),
            out.i.valid.eq(entries.valid & leave),
            entries.ready.eq(out.i.ready | ~leave),
        ]
        with m.If(entries.valid & entries.ready):
            m.d.comb += self.bytes.eq(size)
            m.d.sync += [kept.eq(beat.data), strobes.eq(Mux(leave, 0, beat.strb))]
