"""AXI signatures as the initiator sees them. One id; bursts are incrementing and of full width; AXI3 compatible."""

from __future__ import annotations

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from .ports import ADDRESS_BITS

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
    """All five channels of a 32-bit AXI-Lite port with 12 address bits."""

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
