"""The bus side of STORE: bursts, write responses, tokens."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...regs import Error
from ..axi import INCR, OKAY, AxiWrite, beat_size
from ..faults import keep_first
from ..fifo import Fifo
from ..latencies import ADDRESS_DEPTH, BURST_BEATS, OUTSTANDING
from ..layouts import INDEX_BITS
from ..ports import Fault, Token
from ..splitter import Splitter, burst_layout
from .rows import pushes, row_layout


class StoreBursts(wiring.Component):
    """Writes rows in bursts, ends them with `wlast`, and gives the tokens of answered ones.

    Members:
        row: in, rows; one of 0 entries only gives its token
        beats: in, their data
        axi: out, the bus
        to_compute, to_ternary: out, tokens of instructions whose bursts are answered; the latter with unit ternary
        halt: in, send no further address
        idle: out, no burst is in flight
        done: out, no address is left to send
        ended: out, an instruction has ended
        fault: out, a response that is an error
        memory_wait: out, the bus or its response is waited for
        progress: out, something passed on the bus
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
                **({"to_ternary": Out(Token())} if "ternary" in cfg.units else {}),
                "halt": In(1),
                "idle": Out(1),
                "done": Out(1),
                "ended": Out(1),
                "fault": Out(Fault()),
                "memory_wait": Out(1),
                "progress": Out(1),
            }
        )

    def elaborate(self, platform):
        """The row's splitter; FIFOs of addresses, of lengths for the data, and of awaited answers."""
        m, axi, payload = Module(), self.axi, self.row.payload
        answer = data.StructLayout({"burst": 1, "last": 1, "push": len(pushes(self.cfg)), "index": INDEX_BITS})
        m.submodules.splitter = splitter = Splitter(self.cfg)
        m.submodules.lengths = lengths = Fifo(shape=range(BURST_BEATS), depth=OUTSTANDING)
        m.submodules.answers = answers = Fifo(shape=answer, depth=OUTSTANDING)
        m.submodules.addresses = addresses = Fifo(shape=burst_layout(self.cfg), depth=ADDRESS_DEPTH)
        row = Signal.like(payload, reset_less=True)  # the splitter's
        go, empty, room = Signal(), Signal(), Signal()
        flying, more, idle = Signal(range(OUTSTANDING + 1)), Signal(init=1), Signal(init=1)
        m.d.comb += [
            splitter.i.valid.eq(self.row.valid),
            splitter.i.payload.addr.eq(payload.addr),
            splitter.i.payload.beats.eq(payload.beats),
            self.row.ready.eq(splitter.i.ready),
            empty.eq(row.empty),
            room.eq(addresses.i.ready & lengths.i.ready & more),
            go.eq(splitter.valid & ~self.halt & answers.i.ready & (empty | room)),
            splitter.take.eq(go),
            *(fifo.may.eq(splitter.valid) for fifo in (answers, lengths, addresses)),
            answers.i.valid.eq(go),
            answers.i.payload.burst.eq(~empty),
            answers.i.payload.last.eq(splitter.final & row.last),
            answers.i.payload.push.eq(row.push),
            answers.i.payload.index.eq(row.index),
            lengths.i.valid.eq(go & ~empty),
            lengths.i.payload.eq(splitter.burst.len),
            addresses.i.valid.eq(go & ~empty),
            addresses.i.payload.eq(splitter.burst),
            addresses.o.ready.eq(axi.awready),
            axi.awvalid.eq(addresses.o.valid),
            axi.awaddr.eq(addresses.o.payload.addr << beat_size(self.cfg)),
            axi.awlen.eq(addresses.o.payload.len),
            axi.awsize.eq(beat_size(self.cfg)),
            axi.awburst.eq(INCR),
        ]
        with m.If(self.row.ready):
            m.d.sync += row.eq(payload)
        goes, comes = go & ~empty, axi.bvalid & axi.bready
        with m.If(goes & ~comes):
            m.d.sync += [flying.eq(flying + 1), more.eq(flying != OUTSTANDING - 1), idle.eq(0)]
        with m.Elif(comes & ~goes):
            m.d.sync += [flying.eq(flying - 1), more.eq(1), idle.eq(flying == 1)]
        m.d.comb += [self.idle.eq(idle), self.done.eq(~splitter.valid & ~addresses.o.valid)]
        self._data(m, lengths)
        self._answers(m, answers)
        m.d.comb += [
            self.progress.eq(axi.awvalid & axi.awready | axi.wvalid & axi.wready | axi.bvalid & axi.bready),
            self.memory_wait.eq(
                (axi.awvalid & ~axi.awready)
                | (axi.wvalid & ~axi.wready)
                | (answers.o.valid & answers.o.payload.burst & ~axi.bvalid & ~axi.wvalid & ~splitter.valid)
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
        """Takes a response, or a NOP; the tokens of the last one are given in the same cycle, all at once."""
        head, gives = answers.o.payload, Signal()
        came = ~head.burst | self.axi.bvalid
        tokens, room = self._tokens(answers.o.valid, head, gives, came)
        m.d.comb += [
            *tokens,
            self.axi.bready.eq(answers.o.valid & head.burst & (~gives | room | self.halt)),
            answers.o.ready.eq(came & (~gives | room | self.halt)),
            self.ended.eq(answers.o.valid & answers.o.ready & head.last),
        ]
        broken = self.axi.bvalid & self.axi.bready & (self.axi.bresp != OKAY)
        keep_first(m, self.fault, (broken, Error.WRITE_RESPONSE, head.index))

    def _tokens(self, answered: Value, head, gives: Signal, came: Value) -> tuple[list, Value]:
        """Statements that give the tokens of `head`, an answer; whether those that take them have room."""
        if "ternary" not in self.cfg.units:
            give = [gives.eq(answered & head.last & head.push), self.to_compute.valid.eq(gives & came & ~self.halt)]
            return give, self.to_compute.ready
        compute, ternary = ~head.push[0] | self.to_compute.ready, ~head.push[1] | self.to_ternary.ready
        give = [
            gives.eq(answered & head.last & head.push.any()),
            self.to_compute.valid.eq(gives & head.push[0] & came & ternary & ~self.halt),
            self.to_ternary.valid.eq(gives & head.push[1] & came & compute & ~self.halt),
        ]
        return give, compute & ternary
