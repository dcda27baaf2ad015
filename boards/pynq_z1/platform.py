"""The accelerator on a PYNQ-Z1: the board's pins, and the top level with core and processing system (PS7)."""

from __future__ import annotations

from typing import Any, ClassVar

from amaranth import vendor
from amaranth.build import Attrs, Pins, Resource
from amaranth.hdl import Cat, ClockDomain, ClockSignal, Const, Instance, Module, ResetSignal, Signal
from amaranth.lib import io, wiring

from ...hw.config import Config
from ...hw.rtl.core import Core
from .axi3 import RegisterBridge, read_arguments, write_arguments
from .board import LEDS, Board

HEARTBEAT_BITS = 26  # a blink in about 0.7 s at 100 MHz
_ANSWERS = {"awready", "arready", "wready", "bid", "bresp", "bvalid", "rid", "rdata", "rresp", "rlast", "rvalid"}


XilinxPlatform: Any = vendor.XilinxPlatform  # made on first access, so that type checkers do not know it


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
