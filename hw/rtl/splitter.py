"""Cuts a linear transfer into bursts: for the port of reads and that of writes."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from .axi import beat_size
from .latencies import BURST_BEATS
from .ports import ADDRESS_BITS, request_signature

_OFFSET_BITS = (BURST_BEATS - 1).bit_length()  # of a beat address: the beat's number between two boundaries


def burst_layout(cfg: Config) -> data.StructLayout:
    """The address of a burst as its bus wants it: beat address, and number of beats less one."""
    return data.StructLayout({"addr": ADDRESS_BITS - beat_size(cfg), "len": _OFFSET_BITS})


def _ends(transfer: data.View, beats: int) -> Value:
    """`transfer` ends within `beats` beats, one or two bursts, from the boundary before it; no carry over all bits."""
    low = (2 * BURST_BEATS).bit_length()
    return ~transfer.beats[low:].any() & (transfer.beats[:low] + transfer.addr[:_OFFSET_BITS] <= beats)


class Splitter(wiring.Component):
    """Holds one transfer and offers its bursts in order, each up to the next multiple of `BURST_BEATS` beats.

    A transfer of 0 beats is one burst of length 0, which its user does not send.

    Members:
        i: in, transfers
        valid: out, a transfer is held
        left: out, what is left of it
        length: out, beats of its next burst
        burst: out, the next burst as the bus wants it
        final: out, the next burst is its last
        take: in, the next burst is taken; only while `valid`

    Latency 1; one burst per cycle, also from transfer to transfer. Back-pressure: `i` waits until the last burst is
    taken.
    """

    def __init__(self, cfg: Config):
        super().__init__(
            {
                "i": In(request_signature(cfg)),
                "valid": Out(1),
                "left": Out(request_signature(cfg).members["payload"].shape),
                "length": Out(range(BURST_BEATS + 1)),
                "burst": Out(burst_layout(cfg)),
                "final": Out(1),
                "take": In(1),
            }
        )

    def elaborate(self, platform) -> Module:
        """The rest of the transfer; `final` is known one cycle ahead, because `i.ready` depends on it."""
        m, new = Module(), self.i.payload
        left = Signal(self.left.shape(), reset_less=True)
        to_boundary = Signal(range(BURST_BEATS + 1))
        m.d.comb += [
            self.left.eq(left),
            to_boundary.eq(BURST_BEATS - left.addr[:_OFFSET_BITS]),
            self.length.eq(Mux(self.final, left.beats[: _OFFSET_BITS + 1], to_boundary)),
            self.burst.addr.eq(left.addr),
            self.burst.len.eq(self.length - 1),
            self.i.ready.eq(~self.valid | (self.take & self.final)),
        ]
        with m.If(self.i.ready):
            m.d.sync += [self.valid.eq(self.i.valid), left.eq(new)]
            m.d.sync += self.final.eq(_ends(new, BURST_BEATS))
        with m.Elif(self.take):
            m.d.sync += self.final.eq(_ends(left, 2 * BURST_BEATS))
            m.d.sync += left.addr.eq(((left.addr >> _OFFSET_BITS) + 1) << _OFFSET_BITS)
            m.d.sync += left.beats.eq(left.beats - self.length)
        return m
