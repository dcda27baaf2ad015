"""The AXI3 ports of the PS7 and their connection to the core."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...hw.rtl.axi import DECERR, OKAY, SLVERR, AxiLite
from .board import NOWHERE, SPAN, Board

PORT_BITS = 32  # of an address at a port of the PS7
FIXED = 0
WRAP = 2
NORMAL, COHERENT = 0b0011, 0b1111  # AxCACHE: bufferable and modifiable; that and allocating
SHARED = 0b11111  # AxUSER of the ACP: bit 0 asks for coherency


class Axi3(wiring.Signature):
    """A general-purpose port, 32 bit, as its initiator (the processors) sees it, without unused signals."""

    def __init__(self):
        address = {"id": Out(12), "addr": Out(32), "len": Out(4), "size": Out(2), "burst": Out(2), "valid": Out(1)}
        super().__init__(
            {
                **{f"{a}{name}": member for a in ("aw", "ar") for name, member in address.items()},
                "awready": In(1),
                "arready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(12),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "rid": In(12),
                "rdata": In(32),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class RegisterBridge(wiring.Component):
    """Bursts of the processors as single accesses of the registers.

    Members: `s`, the PS7's port; `m`, the core's. One write and one read burst at a time, beat by beat; ids are
    returned, the response to a write burst is the worst of its beats. A beat outside the registers' `SPAN` bytes at
    `board.base`, and every beat of a wrapping burst, gets DECERR and is not passed on: the bus never stops.
    """

    def __init__(self, board: Board):
        self._page = board.base // SPAN
        super().__init__({"s": In(Axi3()), "m": Out(AxiLite())})

    def elaborate(self, platform):
        """Two state machines."""
        m = Module()
        self._writes(m)
        self._reads(m)
        return m

    def _take(self, m: Module, a: str) -> tuple[Signal, Signal, Signal, Value, Signal]:
        """(id, beats that follow, address, 1 for an address of the registers, step) of the burst of channel `a`."""
        burst_id, beats, addr = Signal(12, name=f"{a}_id"), Signal(4, name=f"{a}_beats"), Signal(32, name=f"{a}_addr")
        wraps, step = Signal(name=f"{a}_wraps"), Signal(3, name=f"{a}_step")
        size, burst = getattr(self.s, f"{a}size"), getattr(self.s, f"{a}burst")
        with m.If(getattr(self.s, f"{a}valid") & getattr(self.s, f"{a}ready")):
            m.d.sync += [
                burst_id.eq(getattr(self.s, f"{a}id")),
                beats.eq(getattr(self.s, f"{a}len")),
                addr.eq(getattr(self.s, f"{a}addr")),
                wraps.eq(burst == WRAP),
                step.eq(Mux(burst == FIXED, 0, Const(1, 3) << size)),
            ]
        return burst_id, beats, addr, ~wraps & (addr[12:] == self._page), step

    def _writes(self, m: Module) -> None:
        s, out = self.s, self.m
        burst_id, _, addr, mine, step = self._take(m, "aw")
        address_done, data_done, worst = Signal(), Signal(), Signal(2)
        m.d.comb += [
            out.awaddr.eq(addr[:12]),
            out.wdata.eq(s.wdata),
            out.wstrb.eq(s.wstrb),
            s.bid.eq(burst_id),
            s.bresp.eq(worst),
        ]
        with m.FSM(name="writes"):
            with m.State("IDLE"):
                m.d.comb += s.awready.eq(1)
                m.d.sync += worst.eq(OKAY)
                with m.If(s.awvalid):
                    m.next = "BEAT"
            with m.State("BEAT"):
                m.d.comb += [
                    out.awvalid.eq(s.wvalid & mine & ~address_done),
                    out.wvalid.eq(s.wvalid & mine & ~data_done),
                ]
                with m.If(out.awvalid & out.awready):
                    m.d.sync += address_done.eq(1)
                with m.If(out.wvalid & out.wready):
                    m.d.sync += data_done.eq(1)
                with m.If(s.wvalid & ~mine):
                    m.d.sync += worst.eq(DECERR)
                    m.next = "ACK"
                with m.If((address_done | out.awready) & (data_done | out.wready) & s.wvalid & mine):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += out.bready.eq(1)
                with m.If(out.bvalid):
                    with m.If(out.bresp != OKAY):
                        m.d.sync += worst.eq(SLVERR)
                    m.next = "ACK"
            with m.State("ACK"):  # the beat was held until here
                m.d.comb += s.wready.eq(1)
                m.d.sync += [address_done.eq(0), data_done.eq(0), addr.eq(addr + step)]
                with m.If(s.wlast):
                    m.next = "DONE"
                with m.Else():
                    m.next = "BEAT"
            with m.State("DONE"):
                m.d.comb += s.bvalid.eq(1)
                with m.If(s.bready):
                    m.next = "IDLE"

    def _reads(self, m: Module) -> None:
        s, out = self.s, self.m
        burst_id, beats, addr, mine, step = self._take(m, "ar")
        m.d.comb += [
            out.araddr.eq(addr[:12]),
            s.rid.eq(burst_id),
            s.rlast.eq(beats == 0),
            s.rdata.eq(Mux(mine, out.rdata, 0)),
            s.rresp.eq(Mux(mine, out.rresp, DECERR)),
        ]
        with m.FSM(name="reads"):
            with m.State("IDLE"):
                m.d.comb += s.arready.eq(1)
                with m.If(s.arvalid):
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += out.arvalid.eq(mine)
                with m.If(~mine | out.arready):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [s.rvalid.eq(~mine | out.rvalid), out.rready.eq(mine & s.rready)]
                with m.If(s.rvalid & s.rready):
                    m.d.sync += [addr.eq(addr + step), beats.eq(beats - 1)]
                    with m.If(s.rlast):
                        m.next = "IDLE"
                    with m.Else():
                        m.next = "ASK"


def port_address(addr: Value) -> Value:
    """`addr` for a port of the PS7: addresses beyond its 32 bits become one that answers with a bus error."""
    beyond = Cat(addr[:12], Const(NOWHERE >> 12, PORT_BITS - 12))
    return Mux(addr[PORT_BITS:].any(), beyond, addr[:PORT_BITS])


def read_arguments(port: str, axi, *, coherent: bool) -> dict[str, object]:
    """Arguments of the PS7 instance that connect its `port`'s read channels to `axi`, an AxiRead."""
    given = {"ADDR": port_address(axi.araddr), "LEN": axi.arlen, "SIZE": axi.arsize[:2], "BURST": axi.arburst}
    found = _address(port, "AR", given | {"VALID": axi.arvalid}, coherent)
    found |= {f"o_{port}ARREADY": axi.arready, f"i_{port}RREADY": axi.rready}
    return found | {f"o_{port}R{name}": getattr(axi, f"r{name.lower()}") for name in ("DATA", "RESP", "LAST", "VALID")}


def write_arguments(port: str, axi, *, coherent: bool) -> dict[str, object]:
    """Arguments of the PS7 instance that connect its `port`'s write channels to `axi`, an AxiWrite."""
    given = {"ADDR": port_address(axi.awaddr), "LEN": axi.awlen, "SIZE": axi.awsize[:2], "BURST": axi.awburst}
    found = _address(port, "AW", given | {"VALID": axi.awvalid}, coherent)
    found |= {f"o_{port}AWREADY": axi.awready, f"o_{port}WREADY": axi.wready, f"i_{port}WID": Const(0, _id_bits(port))}
    found |= {f"i_{port}W{name}": getattr(axi, f"w{name.lower()}") for name in ("DATA", "STRB", "LAST", "VALID")}
    return found | {f"o_{port}BRESP": axi.bresp, f"o_{port}BVALID": axi.bvalid, f"i_{port}BREADY": axi.bready}


def _address(port: str, a: str, given: dict, coherent: bool) -> dict[str, object]:
    cache = COHERENT if coherent else NORMAL
    given |= {"ID": Const(0, _id_bits(port)), "CACHE": Const(cache, 4), "PROT": Const(0, 3)}
    given |= {"LOCK": Const(0, 2), "QOS": Const(0, 4)}
    if coherent:
        given["USER"] = Const(SHARED, 5)
    return {f"i_{port}{a}{name}": value for name, value in given.items()}


def _id_bits(port: str) -> int:
    return 3 if port == "SAXIACP" else 6
