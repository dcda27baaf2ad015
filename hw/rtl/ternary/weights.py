"""The scratchpad of ternary weights, which keeps them in the code that the dot products take."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from ...config import Config
from ...isa import Mem
from ..ports import SramRead, SramWrite
from ..scratchpad import Scratchpad
from .dot import coded


class Weights(wiring.Component):
    """`Scratchpad` of TWGT: written with ternary weights, read as `coded` has them.

    Members:
        write: in, the write port
        read: in, the read port

    Reads, latency and back-pressure are those of `Scratchpad`.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({"write": In(SramWrite(cfg, Mem.TWGT)), "read": In(SramRead(cfg, Mem.TWGT))})

    def elaborate(self, platform) -> Module:
        """The code is made of what is written, so once for all reads."""
        m = Module()
        m.submodules.memory = memory = Scratchpad(self.cfg, mem=Mem.TWGT)
        wiring.connect(m, wiring.flipped(self.read), memory.read)
        m.d.comb += [
            memory.write.en.eq(self.write.en),
            memory.write.addr.eq(self.write.addr),
            memory.write.data.eq(coded(self.cfg, self.write.data)),
        ]
        return m
