"""AXI: signatures as the initiator sees them, and the splitter, which cuts linear transfers into bursts.

One id; bursts are incrementing and of full width; AXI3 compatible.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from .latencies import BURST_BEATS
from .ports import ADDRESS_BITS, request_signature

INCR = 1
OKAY = 0
SLVERR = 2
DECERR = 3


def beat_size(cfg: Config) -> int:
    """AxSIZE of a beat as wide as the bus."""
    return (cfg.axi_bits // 8 - 1).bit_length()


class AxiRead(wiring.Signature):
    """Read address and read data channels."""

    def __init__(self, cfg: Config):
        super().__init__(
            {
                "araddr": Out(ADDRESS_BITS),
                "arlen": Out(4),
                "arsize": Out(3),
                "arburst": Out(2),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(cfg.axi_bits),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class AxiWrite(wiring.Signature):
    """Write address, write data and write response channels."""

    def __init__(self, cfg: Config):
        super().__init__(
            {
                "awaddr": Out(ADDRESS_BITS),
                "awlen": Out(4),
                "awsize": Out(3),
                "awburst": Out(2),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(cfg.axi_bits),
                "wstrb": Out(cfg.axi_bits // 8),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
            }
        )


class AxiLite(wiring.Signature):
    """The five channels of a 32-bit AXI-Lite port with 12 address bits."""

    def __init__(self):
        super().__init__(
            {
                "awaddr": Out(12),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(12),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


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
        left: out, the part of it that has not been sent
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

    def elaborate(self, platform: object) -> Module:
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
