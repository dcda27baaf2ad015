"""The hardware handoff file (.hwh) beside a bitstream: what `pynq.Overlay` reads of a design.

It names the processing system with its clocks and port widths, and the accelerator's registers. Vivado writes one for
a block design; this one goes with a bitstream that is made without.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as Xml

from ...hw.config import Config
from ...hw.errors import FileError
from ...hw.foreign import read_regular
from ...hw.regs import registers
from .board import SPAN, Board
from .system import SYSTEMS, Port

MODULE = "tilewright"  # of a block design; Vivado names it TYPE
TYPE = f"xilinx.com:module_ref:{MODULE}:1.0"  # to which the driver for overlays binds
CORE = "core"  # what overlays call it
_BUS = "xilinx.com:interface:aximm:1.0"
_ACCESS = {"rw": "read-write", "r": "read-only", "w": "write-only"}


def widths(cfg: Config, board: Board) -> dict[Port, int]:
    """Bits of data of the memory ports whose width can be set, as `cfg` uses them."""
    return {port: cfg.axi_bits for port in board.ports(cfg) if port.width_registers is not None}


def port_widths(path: Path) -> dict[str, int]:
    """Bits of data of the ports whose width can be set, by name, in the file `path`.

    Raises `FileError` for a file that is missing or says nothing of them.
    """
    try:
        root = Xml.fromstring(read_regular(path, "a hardware handoff file", 64 << 20))
    except Xml.ParseError as exc:
        raise FileError(f"{path}: is no hardware handoff file ({exc})") from None
    names = {f"C_{port.name}_DATA_WIDTH": port.name for ps in SYSTEMS.values() for port in ps.memories["HP"]}
    values = {one.get("NAME", ""): one.get("VALUE", "") for one in root.iter("PARAMETER")}
    found = {names[key]: int(value) for key, value in values.items() if key in names and value in ("64", "128")}
    if not found:
        raise FileError(f"{path}: names no width of a memory port; use the file that was built with the bitstream")
    return found


def parameters(board: Board) -> dict[str, str]:
    """What the driver for overlays must know of a design, as parameters of its module: texts by name."""
    return {"BOARD": board.name, "CLOCK_MHZ": f"{board.clock_mhz:g}", "MEMORY": board.memory}


def clock_divisors(board: Board) -> tuple[int, int]:
    """The two divisors of the processing system's PLL nearest to the clock of `board`, each from 1 to 63."""
    pairs = [(a, b) for a in range(1, 64) for b in range(1, 64)]
    return min(pairs, key=lambda pair: (abs(board.ps.pll_mhz / (pair[0] * pair[1]) - board.clock_mhz), pair[1]))


def handoff(cfg: Config, board: Board, name: str) -> str:
    """The text of the file for the design `name`: `cfg` on `board`."""
    ps = board.ps
    root = Xml.Element("EDKSYSTEM", EDWVERSION="1.2")
    Xml.SubElement(root, "SYSTEMINFO", NAME=name, PART=board.part, BOARD=board.title)
    Xml.SubElement(root, "EXTERNALPORTS")
    Xml.SubElement(root, "EXTERNALINTERFACES")
    modules = Xml.SubElement(root, "MODULES")
    kind = f"xilinx.com:ip:{ps.family}:{ps.version}"
    system = _module(modules, "ps", ps.family, kind, _clocks(board), ps.registers.block, "MASTER")
    for port, bits in widths(cfg, board).items():
        _parameter(system, f"C_{port.name}_DATA_WIDTH", bits)
    address = {"BASEVALUE": f"0x{board.base:08X}", "HIGHVALUE": f"0x{board.base + SPAN - 1:08X}"}
    target = {"MASTERBUSINTERFACE": ps.registers.block, "INSTANCE": CORE, "SLAVEBUSINTERFACE": "s_axil"}
    Xml.SubElement(
        Xml.SubElement(system, "MEMORYMAP"), "MEMRANGE", address | target, ADDRESSBLOCK="reg0", MEMTYPE="REGISTER"
    )
    core = _module(modules, CORE, MODULE, TYPE, parameters(board), "s_axil", "SLAVE")
    block = Xml.SubElement(
        Xml.SubElement(core, "ADDRESSBLOCKS"), "ADDRESSBLOCK", NAME="reg0", INTERFACE="s_axil", USAGE="register"
    )
    found = Xml.SubElement(block, "REGISTERS")
    for register in registers(cfg).values():
        properties = {"DESCRIPTION": register.doc, "ADDRESS_OFFSET": register.offset, "SIZE": 32}
        properties |= {"ACCESS": _ACCESS[register.access], "IS_ENABLED": "true"}
        one = Xml.SubElement(found, "REGISTER", NAME=register.name)
        for key, value in properties.items():
            Xml.SubElement(one, "PROPERTY", NAME=key, VALUE=str(value))
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _clocks(board: Board) -> dict[str, object]:
    """Parameters of the processing system's clocks: the first is the accelerator's, the others are off."""
    ps = board.ps
    found: dict[str, object] = {}
    for k in range(4):
        pair = clock_divisors(board) if k == 0 else (1, 1)
        found |= {name.format(k=k): value for name, value in zip(ps.clock_parameters, (*pair, int(k == 0), "IO PLL"))}
    # pynq 4.0 takes the frequency from this parameter, of a Zynq-7000 too
    found["PSU__CRL_APB__PL0_REF_CTRL__ACT_FREQMHZ"] = f"{board.clock_mhz:g}"
    return found


def _module(
    parent: Xml.Element, instance: str, modtype: str, vlnv: str, values: Mapping[str, object], bus: str, way: str
) -> Xml.Element:
    """A module with one bus, of which it is `way`."""
    module = Xml.SubElement(
        parent, "MODULE", FULLNAME=f"/{instance}", INSTANCE=instance, MODTYPE=modtype, VLNV=vlnv, BDTYPE=""
    )
    Xml.SubElement(module, "PARAMETERS")
    for name, value in values.items():
        _parameter(module, name, value)
    Xml.SubElement(module, "PORTS")
    Xml.SubElement(Xml.SubElement(module, "BUSINTERFACES"), "BUSINTERFACE", NAME=bus, TYPE=way, VLNV=_BUS)
    return module


def _parameter(module: Xml.Element, name: str, value: object) -> None:
    found = module.find("PARAMETERS")
    assert found is not None
    Xml.SubElement(found, "PARAMETER", NAME=name, VALUE=str(value))
