"""The accelerator on a board: the board's pins, and the top level with core and processing system.

The AXI ports of the processing system are connected to the core's AXI4 and AXI4-Lite ports here.
"""

from __future__ import annotations

import re
from typing import Any

from amaranth import vendor
from amaranth.build import Attrs, Pins, Resource
from amaranth.hdl import Cat, ClockDomain, ClockSignal, Const, Instance, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out

from ...hw.config import Config
from ...hw.rtl.axi import DECERR, OKAY, SLVERR, AxiLite
from ...hw.rtl.compute.gemm import ARRAY
from ...hw.rtl.core import Core
from .board import SPAN, Board
from .system import Port, System

HEARTBEAT_BITS = 26  # a blink in about 0.7 s at 100 MHz
_ANSWERS = {"awready", "arready", "wready", "bid", "bresp", "bvalid", "rid", "rdata", "rresp", "rlast", "rvalid"}


XilinxPlatform: Any = vendor.XilinxPlatform  # made on first access, so that type checkers do not know it
FIXED = 0
WRAP = 2
NORMAL, COHERENT = 0b0011, 0b1111  # AxCACHE: bufferable and modifiable; that and allocating
WORD = 4  # bytes of a register


class Platform(XilinxPlatform):
    """The FPGA and the lights of `board`. Its clock comes from the processing system, so it needs no clock pin."""

    device = package = speed = ""  # of the instance, as are the resources
    resources: Any = ()
    connectors: Any = ()

    def __init__(self, board: Board):
        self.device = board.device
        self.package, self.speed = re.sub(f"^{board.device}-?", "", board.part).split("-", 1)
        self.resources = [
            Resource(f"led_{name}", 0, Pins(pin, dir="o"), Attrs(IOSTANDARD="LVCMOS33"))
            for name, pin in board.pins.items()
        ]
        super().__init__(toolchain="Vivado")


class Top(wiring.Component):
    """The core, the registers' bridge, and the processing system with its clock, reset, ports and interrupt.

    Lights are its only pins. Everything is one domain, but for multipliers with `array_clock` 2: the system's first
    clock through a buffer, and its reset through two flip-flops; without a reset of the system their initial values
    make one. The pads of DRAM and peripherals stay unconnected: the boot software has configured the processing system
    before a bitstream is loaded.
    `cfg` and `board` must have passed `check_board`.
    """

    def __init__(self, cfg: Config, board: Board):
        self.cfg, self.board = cfg, board
        super().__init__({})

    def elaborate(self, platform):
        """Core, bridge, processing system and their connections."""
        m, board, ps = Module(), self.board, self.board.ps
        m.submodules.core = core = Core(self.cfg)
        m.submodules.bridge = bridge = RegisterBridge(board)
        wiring.connect(m, bridge.m, core.s.axil)
        arguments = self._clock(m, platform)
        interrupts = Cat(core.done, Const(0, ps.interrupt_bits - 1))
        arguments |= {f"i_{ps.registers.name}ACLK": ClockSignal(), f"i_{ps.interrupt}": interrupts}
        for name in bridge.s.signature.members:
            way = "i" if name in _ANSWERS else "o"
            arguments[f"{way}_{ps.registers.name}{name.upper()}"] = getattr(bridge.s, name)
        for k in range(self.cfg.load_ports):
            arguments |= read_arguments(m, ps, board.load_port(k), getattr(core.m, f"load{k}"))
        arguments |= write_arguments(m, ps, board.store_port, core.m.store0)
        for port in board.ports(self.cfg):
            arguments |= {f"i_{port.name}{clock}": ClockSignal() for clock in port.clocks}
        m.submodules.ps = Instance(ps.cell, a_DONT_TOUCH="true", **arguments)
        self._lights(m, platform, core)
        return m

    def _clock(self, m: Module, platform) -> dict[str, object]:
        """Make the clock domain; the processing system's arguments that drive it."""
        ps, clock = self.board.ps, Signal(name="fclk0")  # a signal of its own: clock constraints take no slices
        clocks, resets, held = Signal(4, name="fclks"), Signal(4, name="fresets_n"), Signal(2, reset_less=True, init=3)
        m.domains.sync = ClockDomain()
        m.d.comb += [clock.eq(clocks[0]), ResetSignal().eq(held[1])]
        waits = ~resets[0] if ps.reset else Const(0, 1)
        buffered = ClockSignal() if self.cfg.array_clock == 1 else Signal(name="buffered")
        m.submodules.bufg = Instance(ps.buffer, i_I=clock, o_O=buffered)
        if self.cfg.array_clock == 2:
            waits |= ~self._two_clocks(m, buffered, waits)
        m.d.sync += held.eq(Cat(waits, held[0]))
        platform.add_clock_constraint(clock, self.board.clock_mhz * 1e6)
        return {f"o_{ps.clock}": clocks} | ({f"o_{ps.reset}": resets} if ps.reset else {})

    def _two_clocks(self, m: Module, clock: Value, reset: Value) -> Signal:
        """Make the core's clock and one of twice its rate of `clock`, with edges at the same time; 1 when they are.

        Both come from one oscillator through buffers of one kind: every edge of the slow one is one of the fast one.
        """
        factor, ps = self.board.oscillator_factor, self.board.ps
        locked, feedback, slow, fast = (Signal(name=name) for name in ("locked", "feedback", "slow", "fast"))
        m.domains += ClockDomain(ARRAY, reset_less=True)
        m.submodules.doubler = Instance(
            ps.doubler,
            p_CLKIN1_PERIOD=1000 / self.board.clock_mhz,
            p_CLKFBOUT_MULT_F=float(factor),
            p_CLKOUT0_DIVIDE_F=float(factor),
            p_CLKOUT1_DIVIDE=factor // 2,
            i_CLKIN1=clock,
            i_CLKFBIN=feedback,
            i_RST=reset,
            i_PWRDWN=Const(0, 1),
            o_CLKFBOUT=feedback,
            o_CLKOUT0=slow,
            o_CLKOUT1=fast,
            o_LOCKED=locked,
        )
        for name, source, domain in (("bufg_core", slow, "sync"), ("bufg_array", fast, ARRAY)):
            m.submodules[name] = Instance("BUFG", i_I=source, o_O=ClockSignal(domain))
        return locked

    def _lights(self, m: Module, platform, core: Core) -> None:
        beat = Signal(HEARTBEAT_BITS)
        m.d.sync += beat.eq(beat + 1)
        shown = {"alive": beat[-1], "done": core.done, "error": core.error}
        for name in self.board.pins:
            m.submodules[f"led_{name}"] = led = io.Buffer("o", platform.request(f"led_{name}", dir="-"))
            m.d.comb += led.o.eq(shown[name])


class RegisterPort(wiring.Signature):
    """The port of `ps` for registers, as its initiator (the processors) sees it, without unused signals."""

    def __init__(self, ps: System):
        port = ps.registers
        address = {"id": port.id_bits, "addr": port.address_bits, "len": ps.length_bits, "size": ps.size_bits}
        address |= {"burst": 2, "valid": 1}
        super().__init__(
            {
                **{f"{a}{name}": Out(bits) for a in ("aw", "ar") for name, bits in address.items()},
                "awready": In(1),
                "arready": In(1),
                "wdata": Out(port.data_bits),
                "wstrb": Out(port.data_bits // 8),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(port.id_bits),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "rid": In(port.id_bits),
                "rdata": In(port.data_bits),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class RegisterBridge(wiring.Component):
    """Bursts of the processors as single accesses of the registers.

    Members: `s`, the processing system's port; `m`, the core's. One write and one read burst at a time, beat by beat;
    ids are returned, the response to a write burst is the worst of its beats. A beat outside the registers' `SPAN`
    bytes at `board.base`, and every beat of a wrapping burst or of beats wider than a register, gets DECERR and is not
    passed on: the bus never stops. A port that is wider than a register gets its value in every lane, and the lane
    with strobes is written, so that the width that the boot software sets at the port does not matter.
    """

    def __init__(self, board: Board):
        self._page, self._ps = board.base // SPAN, board.ps
        super().__init__({"s": In(RegisterPort(board.ps)), "m": Out(AxiLite())})

    def elaborate(self, platform):
        """One state machine for writes and one for reads."""
        m = Module()
        self._writes(m)
        self._reads(m)
        return m

    def _take(self, m: Module, a: str) -> tuple[Signal, Signal, Signal, Value, Signal]:
        """(id, beats that follow, address, 1 for an address of the registers, step) of the burst of channel `a`."""
        size, burst = getattr(self.s, f"{a}size"), getattr(self.s, f"{a}burst")
        burst_id = Signal(self._ps.registers.id_bits, name=f"{a}_id")
        beats = Signal(self._ps.length_bits, name=f"{a}_beats")
        addr = Signal(self._ps.registers.address_bits, name=f"{a}_addr")
        refused, step = Signal(name=f"{a}_refused"), Signal(3, name=f"{a}_step")
        with m.If(getattr(self.s, f"{a}valid") & getattr(self.s, f"{a}ready")):
            m.d.sync += [
                burst_id.eq(getattr(self.s, f"{a}id")),
                beats.eq(getattr(self.s, f"{a}len")),
                addr.eq(getattr(self.s, f"{a}addr")),
                refused.eq((burst == WRAP) | (size > 2)),
                step.eq(Mux(burst == FIXED, 0, Const(1, 3) << size)),
            ]
        return burst_id, beats, addr, ~refused & (addr[12:] == self._page), step

    def _writes(self, m: Module) -> None:
        s, out = self.s, self.m
        burst_id, _, addr, mine, step = self._take(m, "aw")
        address_done, data_done, worst = Signal(), Signal(), Signal(2)
        m.d.comb += [out.wdata.eq(s.wdata), out.wstrb.eq(s.wstrb)]
        for lane in range(1, len(s.wstrb) // WORD):
            strobes = s.wstrb.word_select(lane, WORD)
            with m.If(strobes.any()):
                m.d.comb += [out.wdata.eq(s.wdata.word_select(lane, 8 * WORD)), out.wstrb.eq(strobes)]
        m.d.comb += [
            out.awaddr.eq(addr[:12]),
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
            s.rdata.eq(Mux(mine, out.rdata, 0).replicate(len(s.rdata) // (8 * WORD))),
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


def port_address(addr: Value, ps: System) -> Value:
    """`addr` for a memory port of `ps`: addresses beyond its bits become one that answers with a bus error."""
    if ps.beyond is None:
        return addr
    outside = Cat(addr[:12], Const(ps.beyond >> 12, ps.address_bits - 12))
    return Mux(addr[ps.address_bits :].any(), outside, addr[: ps.address_bits])


def read_arguments(m: Module, ps: System, port: Port, axi) -> dict[str, object]:
    """Arguments of the instance of `ps` that connect its `port`'s read channels to `axi`, an AxiRead."""
    name, data = port.name, Signal(ps.data_bits, name=f"{port.name.lower()}_rdata")
    m.d.comb += axi.rdata.eq(data[: len(axi.rdata)])  # a port that is set to fewer bits has them in its lowest
    given = {"ADDR": port_address(axi.araddr, ps), "LEN": axi.arlen, "SIZE": axi.arsize, "BURST": axi.arburst}
    found = _address(ps, port, "AR", given | {"VALID": axi.arvalid})
    found |= {f"o_{name}ARREADY": axi.arready, f"i_{name}RREADY": axi.rready, f"o_{name}RDATA": data}
    return found | {f"o_{name}R{signal}": getattr(axi, f"r{signal.lower()}") for signal in ("RESP", "LAST", "VALID")}


def write_arguments(m: Module, ps: System, port: Port, axi) -> dict[str, object]:
    """Arguments of the instance of `ps` that connect its `port`'s write channels to `axi`, an AxiWrite."""
    name = port.name
    given = {"ADDR": port_address(axi.awaddr, ps), "LEN": axi.awlen, "SIZE": axi.awsize, "BURST": axi.awburst}
    found = _address(ps, port, "AW", given | {"VALID": axi.awvalid})
    found |= {f"o_{name}AWREADY": axi.awready, f"o_{name}WREADY": axi.wready}
    found |= {f"i_{name}WDATA": _extended(axi.wdata, ps.data_bits)}
    found |= {f"i_{name}WSTRB": _extended(axi.wstrb, ps.data_bits // 8)}
    found |= {f"i_{name}W{signal}": getattr(axi, f"w{signal.lower()}") for signal in ("LAST", "VALID")}
    if ps.axi == "AXI3":
        found[f"i_{name}WID"] = Const(0, port.id_bits)
    return found | {f"o_{name}BRESP": axi.bresp, f"o_{name}BVALID": axi.bvalid, f"i_{name}BREADY": axi.bready}


def _address(ps: System, port: Port, a: str, given: dict) -> dict[str, object]:
    widths = {"ADDR": ps.address_bits, "LEN": ps.length_bits, "SIZE": ps.size_bits}
    given |= {signal: _extended(given[signal], bits) for signal, bits in widths.items()}
    given |= {"ID": Const(0, port.id_bits), "CACHE": Const(COHERENT if port.user else NORMAL, 4), "PROT": Const(0, 3)}
    given |= {"LOCK": Const(0, ps.lock_bits), "QOS": Const(0, 4)}
    if port.user:
        given["USER"] = Const(*port.user)
    return {f"i_{port.name}{a}{signal}": value for signal, value in given.items()}


def _extended(value: Value, bits: int) -> Value:
    """`value` in `bits` bits: zeros above it, or without its upper ones, which are always zero."""
    return value[:bits] if len(value) >= bits else Cat(value, Const(0, bits - len(value)))
