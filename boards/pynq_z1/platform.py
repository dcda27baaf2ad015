"""The accelerator on a PYNQ-Z1: the board's pins, and the top level with core and processing system (PS7).

The AXI3 ports of the PS7 are connected to the core's AXI4 and AXI4-Lite ports here.
"""

from __future__ import annotations

from typing import Any, ClassVar

from amaranth import vendor
from amaranth.build import Attrs, Pins, Resource
from amaranth.hdl import Cat, ClockDomain, ClockSignal, Const, Instance, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out

from ...hw.config import Config
from ...hw.rtl.axi import DECERR, OKAY, SLVERR, AxiLite
from ...hw.rtl.core import Core
from .board import LEDS, NOWHERE, SPAN, Board

HEARTBEAT_BITS = 26  # a blink in about 0.7 s at 100 MHz
_ANSWERS = {"awready", "arready", "wready", "bid", "bresp", "bvalid", "rid", "rdata", "rresp", "rlast", "rvalid"}


XilinxPlatform: Any = vendor.XilinxPlatform  # made on first access, so that type checkers do not know it
PORT_BITS = 32  # of an address at a port of the PS7
FIXED = 0
WRAP = 2
NORMAL, COHERENT = 0b0011, 0b1111  # AxCACHE: bufferable and modifiable; that and allocating
SHARED = 0b11111  # AxUSER of the ACP: bit 0 asks for coherency


class PynqZ1(XilinxPlatform):
    """The FPGA and the LEDs. Its clock comes from the processing system, so it needs no clock pin."""

    device, package, speed = "xc7z020", "clg400", "1"
    resources: ClassVar[list] = [
        Resource(f"led_{name}", 0, Pins(pin, dir="o"), Attrs(IOSTANDARD="LVCMOS33")) for name, pin in LEDS.items()
    ]
    connectors: ClassVar[list] = []


class Top(wiring.Component):
    """The core, the registers' bridge, and the PS7 with its clock, reset, ports and interrupt; LEDs are its only pins.

    Everything is one domain: FCLK0 through a BUFG, and FCLKRESETN[0] through two flip-flops. The pads of DRAM and
    peripherals stay unconnected: the boot image has configured the processing system before a bitstream is loaded.
    `cfg` and `board` must have passed `check_board`.
    """

    def __init__(self, cfg: Config, board: Board):
        self.cfg, self.board = cfg, board
        super().__init__({})

    def elaborate(self, platform):
        """Core, bridge, PS7 and their connections."""
        m, board = Module(), self.board
        m.submodules.core = core = Core(self.cfg)
        m.submodules.bridge = bridge = RegisterBridge(board)
        wiring.connect(m, bridge.m, core.s.axil)
        resets = self._clock(m, platform)
        arguments: dict[str, object] = {"i_MAXIGP0ACLK": ClockSignal(), "i_IRQF2P": Cat(core.done, Const(0, 19))}
        for name in bridge.s.signature.members:
            way = "i" if name in _ANSWERS else "o"
            arguments[f"{way}_MAXIGP0{name.upper()}"] = getattr(bridge.s, name)
        used = {board.store_port}
        for k in range(self.cfg.load_ports):
            port = board.load_port(k)
            used.add(port)
            arguments |= read_arguments(port, getattr(core.m, f"load{k}"), coherent=board.coherent)
        arguments |= write_arguments(board.store_port, core.m.store0, coherent=board.coherent)
        arguments |= {f"i_{port}ACLK": ClockSignal() for port in sorted(used)}
        m.submodules.ps7 = Instance("PS7", a_DONT_TOUCH="true", **resets, **arguments)
        self._lights(m, platform, core)
        return m

    def _clock(self, m: Module, platform) -> dict[str, object]:
        """Make the clock domain; the PS7's arguments that drive it."""
        clock = Signal(name="fclk0")  # a signal of its own: clock constraints take no slices
        clocks, resets, held = Signal(4, name="fclks"), Signal(4, name="fresets_n"), Signal(2, reset_less=True, init=3)
        m.domains.sync = ClockDomain()
        m.d.comb += [clock.eq(clocks[0]), ResetSignal().eq(held[1])]
        m.d.sync += held.eq(Cat(~resets[0], held[0]))
        m.submodules.bufg = Instance("BUFG", i_I=clock, o_O=ClockSignal())
        platform.add_clock_constraint(clock, self.board.clock_mhz * 1e6)
        return {"o_FCLKCLK": clocks, "o_FCLKRESETN": resets}

    def _lights(self, m: Module, platform, core: Core) -> None:
        beat = Signal(HEARTBEAT_BITS)
        m.d.sync += beat.eq(beat + 1)
        shown = {"alive": beat[-1], "done": core.done, "error": core.error}
        for name, value in shown.items():
            m.submodules[f"led_{name}"] = led = io.Buffer("o", platform.request(f"led_{name}", dir="-"))
            m.d.comb += led.o.eq(value)


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
        """One state machine for writes and one for reads."""
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
