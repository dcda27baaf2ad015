"""The data of STORE: accumulators read, reduced to outputs, and put into beats."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .fifo import Fifo
from .isa import Mem
from .mover import beat_shift
from .ports import BYTES_BITS, Fault, StoreRead
from .regs import Error
from .rows import row_layout

BEATS = 16  # of data that may wait for the bus
ROWS = 4  # whose data may come after their addresses


class StorePack(wiring.Component):
    """Reads accumulators and makes beats of their low bits, with strobes where a row covers part of a beat.

    Members: `row`, `acc`, `beats`, `idle`, `fault` (entry beyond the scratchpad), `bytes`, `progress`.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        beat = data.StructLayout({"data": cfg.axi_bits, "strb": cfg.axi_bits // 8})
        super().__init__(
            {
                "row": In(stream.Signature(row_layout(cfg))),
                "acc": Out(StoreRead(cfg)),
                "beats": Out(stream.Signature(beat)),
                "idle": Out(1),
                "fault": Out(Fault()),
                "bytes": Out(BYTES_BITS),
                "progress": Out(1),
            }
        )

    def elaborate(self, platform):
        """Reads ahead by one entry; a FIFO evens out what the accumulators' other users leave."""
        m, cfg = Module(), self.cfg
        m.submodules.rows = rows = Fifo(shape=self.row.payload.shape(), depth=ROWS)
        m.submodules.out = out = Fifo(shape=self.beats.payload.shape(), depth=BEATS)
        wiring.connect(m, wiring.flipped(self.row), rows.i)
        wiring.connect(m, out.o, wiring.flipped(self.beats))
        row, count, entry = rows.o.payload, Signal(32), Signal(33)
        have, over, read, final = Signal(), Signal(), Signal(), Signal()
        shift = beat_shift(cfg, Mem.OUT)
        part, ends = Signal(max(-shift, 1)), Signal()  # of the entry that was read
        m.d.comb += [
            entry.eq(row.base + count),
            self.acc.en.eq(rows.o.valid & (~have | over)),
            self.acc.addr.eq(entry),
            read.eq(self.acc.en & self.acc.ready),
            final.eq(count + 1 == row.entries),
            rows.o.ready.eq(read & final),
            self.idle.eq(~have & ~rows.o.valid & ~out.o.valid),
            self.progress.eq(read),
        ]
        with m.If(have & over):
            m.d.sync += have.eq(0)
        with m.If(read):
            m.d.sync += [have.eq(1), count.eq(Mux(final, 0, count + 1)), ends.eq(final)]
            m.d.sync += part.eq(row.part + count)
            with m.If((entry >= cfg.acc_depth) & (self.fault.code == Error.NONE)):
                m.d.sync += [self.fault.code.eq(Error.RANGE), self.fault.index.eq(row.index)]
        lanes = (self.acc.data[k : k + cfg.out_bits] for k in range(0, cfg.acc_entry_bits, cfg.acc_bits))
        low = Signal(cfg.out_entry_bits)
        m.d.comb += low.eq(Cat(*lanes))
        if shift >= 0:
            self._cut(m, low, have, over, out)
        else:
            self._gather(m, low, have, over, out, part, ends)
        return m

    def _cut(self, m: Module, low, have, over, out) -> None:
        """An entry is one or several beats."""
        bits = self.cfg.axi_bits
        chunks = len(low) // bits
        chunk = Signal(range(chunks)) if chunks > 1 else Const(0, 1)
        m.d.comb += [
            out.i.valid.eq(have),
            out.i.payload.data.eq(low.word_select(chunk, bits)),
            out.i.payload.strb.eq(~0),
            over.eq(out.i.ready & (chunk == chunks - 1)),
        ]
        with m.If(have & out.i.ready):
            m.d.comb += self.bytes.eq(bits // 8)
            if chunks > 1:
                m.d.sync += chunk.eq(chunk + 1)

    def _gather(self, m: Module, low, have, over, out, part, ends) -> None:
        """A beat is several entries: those before wait in a register."""
        beat, size = out.i.payload, len(low) // 8
        kept, strobes = Signal.like(beat.data), Signal.like(beat.strb)
        leave = ends | part.all()
        m.d.comb += [
            beat.data.eq(kept),
            beat.data.word_select(part, len(low)).eq(low),
            beat.strb.eq(strobes | (((1 << size) - 1) << (part * size))),
            out.i.valid.eq(have & leave),
            over.eq(out.i.ready | ~leave),
        ]
        with m.If(have & over):
            m.d.comb += self.bytes.eq(size)
            m.d.sync += [kept.eq(beat.data), strobes.eq(Mux(leave, 0, beat.strb))]
