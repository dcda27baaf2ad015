"""The store unit: low bits of accumulators to DRAM, in strided rows."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .axi import INCR, OKAY, AxiWrite, beat_size
from .config import Config
from .fifo import FIFO_LATENCY, Fifo
from .isa import Mem
from .layouts import INDEX_BITS, insn_layout
from .mover import beat_shift
from .ports import (
    ADDRESS_BITS,
    BEATS_BITS,
    BURST_BEATS,
    BYTES_BITS,
    OUTSTANDING,
    Fault,
    StoreRead,
    Token,
    command_signature,
    unit_members,
)
from .regs import Error

PLAN_LATENCY = 2  # cycles from an instruction to its first row
ADDRESS_LATENCY = 2 + FIFO_LATENCY  # cycles from a row to its first burst's address on the bus
DATA_LATENCY = 3  # cycles from a row to its first beat on the bus, where the accumulators are free
BEATS = 16  # of data that may wait for the bus
ROWS = 4  # whose data may come after their addresses


def row_layout(cfg: Config) -> data.StructLayout:
    """`entries` accumulators from `base` on, which go to `beats` beats from beat address `addr`, part `part`."""
    return data.StructLayout(
        {
            "base": 33,
            "entries": 32,
            "addr": ADDRESS_BITS - beat_size(cfg),
            "beats": BEATS_BITS,
            "part": 6,
            "last": 1,
            "push": 1,
            "index": INDEX_BITS,
        }
    )


def _burst_layout(cfg: Config) -> data.StructLayout:
    return data.StructLayout({"addr": ADDRESS_BITS - beat_size(cfg), "len": 4})


class Store(wiring.Component):
    """dram[base + y * x_stride + x] = low out_bits of every element of acc[sram_base + y * x_size + x].

    Members: `cmd` the store queue, `from_compute` and `to_compute` its tokens, `acc` the accumulators, `axi`, and those
    of every unit.
    Latency `PLAN_LATENCY` + `ADDRESS_LATENCY` to the address, `PLAN_LATENCY` + `DATA_LATENCY` to the data. Interval one
    beat per cycle, or one entry where that is smaller; rows and instructions follow each other without a pause.
    The token is given after the last write response, while the next instructions already write. Back-pressure: the
    accumulators, the bus, `OUTSTANDING` unanswered bursts. After `halt`, bursts whose address is out are completed.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "cmd": In(command_signature()),
                "from_compute": In(Token()),
                "to_compute": Out(Token()),
                "acc": Out(StoreRead(cfg)),
                "axi": Out(AxiWrite(cfg)),
                **unit_members(),
            }
        )

    def elaborate(self, platform):
        """Rows go to the splitter (addresses) and to the packer (data); responses come back to the splitter."""
        m, cfg, activity = Module(), self.cfg, self.activity
        m.submodules.rows = rows = StoreRows(cfg)
        m.submodules.bursts = bursts = StoreBursts(cfg)
        m.submodules.pack = pack = StorePack(cfg)
        flags = data.View(insn_layout(cfg, "FINISH"), Value.cast(self.cmd.payload.insn))
        permitted = ~flags.pop_prev | self.from_compute.valid
        # registers between the rows and the answers that bursts wait for
        m.submodules.waiting = waiting = Fifo(shape=rows.row.payload.shape(), depth=1)
        both = pack.row.ready & waiting.i.ready
        m.d.comb += [
            rows.cmd.valid.eq(self.cmd.valid & permitted & ~self.halt),
            rows.cmd.payload.eq(self.cmd.payload),
            self.cmd.ready.eq(rows.cmd.valid & rows.cmd.ready),
            self.from_compute.ready.eq(self.cmd.ready & flags.pop_prev),
            rows.row.ready.eq(both),
            waiting.i.valid.eq(rows.row.valid & both),
            waiting.i.payload.eq(rows.row.payload),
            pack.row.valid.eq(rows.row.valid & both & (rows.row.payload.entries != 0)),
            pack.row.payload.eq(rows.row.payload),
            bursts.halt.eq(self.halt),
        ]
        wiring.connect(m, waiting.o, bursts.row)
        wiring.connect(m, bursts.to_compute, wiring.flipped(self.to_compute))
        wiring.connect(m, bursts.axi, wiring.flipped(self.axi))
        wiring.connect(m, pack.acc, wiring.flipped(self.acc))
        wiring.connect(m, pack.beats, bursts.beats)
        with m.If(self.fault.code == Error.NONE):
            with m.If(bursts.fault.code != Error.NONE):
                m.d.sync += [self.fault.code.eq(bursts.fault.code), self.fault.index.eq(bursts.fault.index)]
            with m.Else():
                m.d.sync += [self.fault.code.eq(pack.fault.code), self.fault.index.eq(pack.fault.index)]
        left = Cat(~rows.idle, waiting.o.valid, ~bursts.done, ~pack.idle)
        m.d.comb += [
            self.idle.eq(bursts.idle & (self.halt | (left == 0))),
            activity.busy.eq(left != 0),
            activity.token_wait.eq(self.cmd.valid & ~permitted),
            activity.memory_wait.eq(bursts.memory_wait),
            activity.insn.eq(self.cmd.ready),
            activity.bytes.eq(pack.bytes),
            activity.progress.eq(self.cmd.ready | pack.progress | bursts.progress),
        ]
        return m


class StoreRows(wiring.Component):
    """Turns a STORE into rows: one each, or a single one where they are adjacent; a row of 0 entries for a NOP.

    Members: `cmd`, `row`, `idle`. Latency `PLAN_LATENCY`; one row per cycle.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {"cmd": In(command_signature()), "row": Out(stream.Signature(row_layout(cfg))), "idle": Out(1)}
        )

    def elaborate(self, platform):
        """First stage: the instruction; second: its rows."""
        m, row = Module(), self.row.payload
        taken, word, number = Signal(), Signal(128, reset_less=True), Signal(INDEX_BITS, reset_less=True)
        push, index, base, entries = (Signal(n, reset_less=True) for n in (1, INDEX_BITS, 33, 32))
        insn = data.View(insn_layout(self.cfg, "STORE"), word)
        left, at, stride, size = (Signal(n, reset_less=True) for n in (16, 34, 16, 16))
        over, last = Signal(), Signal()
        m.d.comb += [
            over.eq(~self.row.valid | (self.row.ready & last)),
            self.cmd.ready.eq(~taken | over),
            last.eq(left == 0),
            self.idle.eq(~taken & ~self.row.valid),
        ]
        with m.If(self.cmd.ready):
            m.d.sync += [taken.eq(self.cmd.valid), word.eq(self.cmd.payload.insn)]
            m.d.sync += number.eq(self.cmd.payload.index)
        with m.If(self.row.ready):
            m.d.sync += [left.eq(left - 1), at.eq(at + stride), base.eq(base + size)]
        dense = insn.x_stride == insn.x_size
        nothing = (insn.x_size == 0) | (insn.y_size == 0)
        with m.If(over):
            m.d.sync += [
                self.row.valid.eq(taken),
                base.eq(insn.sram_base),
                entries.eq(Mux(nothing, 0, insn.x_size * Mux(dense, insn.y_size, 1))),
                push.eq(insn.push_prev),
                index.eq(number),
                left.eq(Mux(dense | nothing, 0, insn.y_size - 1)),
                at.eq(insn.dram_base),
                stride.eq(insn.x_stride),
                size.eq(insn.x_size),
            ]
        shift = beat_shift(self.cfg, Mem.OUT)
        m.d.comb += [row.base.eq(base), row.entries.eq(entries), row.push.eq(push), row.index.eq(index)]
        m.d.comb += row.last.eq(last)
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


class StoreBursts(wiring.Component):
    """Splits rows into bursts at 16-beat boundaries, ends them with `wlast`, and gives the tokens of answered ones.

    Members: `row`, `beats`, `axi`, `to_compute`, `halt`, `idle` (nothing is in flight), `done` (nothing is left),
    `fault` (bus error), `memory_wait`, `progress`.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        beat = data.StructLayout({"data": cfg.axi_bits, "strb": cfg.axi_bits // 8})
        super().__init__(
            {
                "row": In(stream.Signature(row_layout(cfg))),
                "beats": In(stream.Signature(beat)),
                "axi": Out(AxiWrite(cfg)),
                "to_compute": Out(Token()),
                "halt": In(1),
                "idle": Out(1),
                "done": Out(1),
                "fault": Out(Fault()),
                "memory_wait": Out(1),
                "progress": Out(1),
            }
        )

    def elaborate(self, platform):
        """The rest of the row; FIFOs of addresses, of lengths for the data, and of awaited answers."""
        m, axi = Module(), self.axi
        answer = data.StructLayout({"burst": 1, "last": 1, "push": 1, "index": INDEX_BITS})
        m.submodules.lengths = lengths = Fifo(shape=range(BURST_BEATS), depth=OUTSTANDING)
        m.submodules.answers = answers = Fifo(shape=answer, depth=OUTSTANDING)
        m.submodules.addresses = addresses = Fifo(shape=_burst_layout(self.cfg), depth=1)
        valid, row = Signal(), Signal.like(self.row.payload, reset_less=True)
        to_boundary, length = Signal(range(BURST_BEATS + 1)), Signal(range(BURST_BEATS + 1))
        final, go, empty, room, flying = Signal(), Signal(), Signal(), Signal(), Signal(range(OUTSTANDING + 1))
        m.d.comb += [
            to_boundary.eq(BURST_BEATS - row.addr[:4]),
            final.eq(row.beats <= to_boundary),
            length.eq(Mux(final, row.beats[:5], to_boundary)),
            empty.eq(row.entries == 0),
            room.eq(addresses.i.ready & lengths.i.ready & (flying != OUTSTANDING)),
            go.eq(valid & ~self.halt & answers.i.ready & (empty | room)),
            self.row.ready.eq(~valid | (go & final)),
            answers.i.valid.eq(go),
            answers.i.payload.burst.eq(~empty),
            answers.i.payload.last.eq(final & row.last),
            answers.i.payload.push.eq(row.push),
            answers.i.payload.index.eq(row.index),
            lengths.i.valid.eq(go & ~empty),
            lengths.i.payload.eq(length - 1),
            addresses.i.valid.eq(go & ~empty),
            addresses.i.payload.addr.eq(row.addr),
            addresses.i.payload.len.eq(length - 1),
            addresses.o.ready.eq(axi.awready),
            axi.awvalid.eq(addresses.o.valid),
            axi.awaddr.eq(addresses.o.payload.addr << beat_size(self.cfg)),
            axi.awlen.eq(addresses.o.payload.len),
            axi.awsize.eq(beat_size(self.cfg)),
            axi.awburst.eq(INCR),
        ]
        with m.If(self.row.ready):
            m.d.sync += [valid.eq(self.row.valid), row.eq(self.row.payload)]
        with m.Elif(go):
            m.d.sync += [row.addr.eq(((row.addr >> 4) + 1) << 4), row.beats.eq(row.beats - length)]
        m.d.sync += flying.eq(flying + (go & ~empty) - (axi.bvalid & axi.bready))
        m.d.comb += [self.idle.eq(flying == 0), self.done.eq(~valid & ~answers.o.valid)]
        self._data(m, lengths)
        self._answers(m, answers)
        m.d.comb += [
            self.progress.eq(axi.awvalid & axi.awready | axi.wvalid & axi.wready | axi.bvalid & axi.bready),
            self.memory_wait.eq(
                (axi.awvalid & ~axi.awready)
                | (axi.wvalid & ~axi.wready)
                | (answers.o.valid & answers.o.payload.burst & ~axi.bvalid & ~axi.wvalid & ~valid)
            ),
        ]
        return m

    def _data(self, m: Module, lengths) -> None:
        axi, count = self.axi, Signal(range(BURST_BEATS))
        m.d.comb += [
            axi.wvalid.eq(self.beats.valid & lengths.o.valid),
            axi.wdata.eq(self.beats.payload.data),
            axi.wstrb.eq(self.beats.payload.strb),
            axi.wlast.eq(count == lengths.o.payload),
            self.beats.ready.eq(axi.wready & lengths.o.valid),
            lengths.o.ready.eq(axi.wvalid & axi.wready & axi.wlast),
        ]
        with m.If(axi.wvalid & axi.wready):
            m.d.sync += count.eq(Mux(axi.wlast, 0, count + 1))

    def _answers(self, m: Module, answers) -> None:
        """Takes a response, or a NOP; the token of the last one is given in the same cycle."""
        head, gives = answers.o.payload, Signal()
        came = ~head.burst | self.axi.bvalid
        m.d.comb += [
            gives.eq(answers.o.valid & head.last & head.push),
            self.to_compute.valid.eq(gives & came & ~self.halt),
            self.axi.bready.eq(answers.o.valid & head.burst & (~gives | self.to_compute.ready | self.halt)),
            answers.o.ready.eq(came & (~gives | self.to_compute.ready | self.halt)),
        ]
        with m.If(self.axi.bvalid & self.axi.bready & (self.axi.bresp != OKAY) & (self.fault.code == Error.NONE)):
            m.d.sync += [self.fault.code.eq(Error.WRITE_RESPONSE), self.fault.index.eq(head.index)]
