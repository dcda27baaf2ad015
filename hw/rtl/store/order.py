"""The order of the store queue's DRAM accesses: when a LOAD of PAR may be requested."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ..axi import beat_size
from ..ports import ADDRESS_BITS, BEATS_BITS


class StoreOrder(wiring.Component):
    """Keeps a LOAD until it reads what every earlier STORE of its queue wrote.

    Members:
        stored: in, a STORE is taken
        row: in, a row of it leaves for the bus
        addr, beats: in, the beats of that row, from beat address `addr` on
        sending: in, rows or data of a STORE wait to be sent; stays high in the three cycles after `row`
        answered: in, nothing is sent or in flight: every write is in memory
        first: in, beat address of the LOAD at the head of the queue
        waits: in, it was there in the `BEHIND_LATENCY` cycles before, too
        may: out, that LOAD may be taken

    A LOAD waits until all data are sent; then it may be taken if it begins behind the last beat of every row that
    is not known to be answered, else when every write is answered. Latency `BEHIND_LATENCY` for the former.
    """

    def __init__(self, cfg: Config):
        bits = ADDRESS_BITS - beat_size(cfg)
        super().__init__(
            {
                "stored": In(1),
                "row": In(1),
                "addr": In(bits),
                "beats": In(BEATS_BITS),
                "sending": In(1),
                "answered": In(1),
                "first": In(bits),
                "waits": In(1),
                "may": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        """Where the rows end that are not answered."""
        m = Module()
        unanswered, end = Signal(), Signal(max(len(self.addr), len(self.beats)) + 1)
        addr, beats, behind = (Signal.like(s, reset_less=True) for s in (self.addr, self.beats, end))
        row, came = Signal(), Signal()
        # in time, as the row is still being sent
        m.d.sync += [row.eq(self.row), addr.eq(self.addr), beats.eq(self.beats)]
        m.d.sync += [came.eq(row), behind.eq(addr + beats)]
        # a product makes `first`: it waits in a register before it is compared
        first, beyond = Signal.like(self.first, reset_less=True), Signal()
        m.d.sync += [first.eq(self.first), beyond.eq(first >= end)]
        m.d.comb += self.may.eq(~unanswered | (~self.sending & self.waits & beyond))
        with m.If(self.stored):
            m.d.sync += unanswered.eq(1)
        with m.Elif(self.answered):
            m.d.sync += [unanswered.eq(0), end.eq(0)]
        with m.If(came & (behind > end)):
            m.d.sync += end.eq(behind)
        return m
