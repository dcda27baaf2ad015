"""A flat netlist, as Yosys writes it: cells, what drives each net and what it drives, names and source lines.

A net is one wire, numbered by Yosys; constants are none. Names and source lines come from the wires' attributes, which
survive synthesis where the circuit's Verilog was emitted with them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from ..hw.errors import ExecutionError

_SOURCE_LINE = re.compile(r"(hw/[^|:\s]*\.py:\d+)")  # of an attribute, which may join several by |
BINARY = re.compile(r"[01xz]+")


class Pin(NamedTuple):
    """One bit of a port of a cell; `cell` is empty for a port of the whole circuit."""

    cell: str
    port: str
    index: int = 0


@dataclass
class Cell:
    """A primitive: `pins` holds the net of every bit, None where the bit is constant; `outputs` are ports it drives."""

    name: str
    kind: str
    parameters: dict[str, str]
    pins: dict[str, list[int | None]]
    outputs: frozenset[str]
    source: str = ""  # line of hw/, empty if unknown

    def number(self, parameter: str, default: int) -> int:
        """The integer value of `parameter`; Yosys writes bits."""
        text = self.parameters.get(parameter)
        if text is None:
            return default
        return int(re.sub("[xz]", "0", text), 2) if BINARY.fullmatch(text) else int(text)

    def bits(self, port: str) -> list[tuple[int, int]]:
        """Index and net of every bit of `port` that is not constant."""
        return [(k, net) for k, net in enumerate(self.pins.get(port, ())) if net is not None]


@dataclass
class Netlist:
    """`drivers` and `sinks` by net; `names` and `lines` are the best name and the source line of a net."""

    cells: dict[str, Cell] = field(default_factory=dict)
    drivers: dict[int, Pin] = field(default_factory=dict)
    sinks: dict[int, list[Pin]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)

    def kind(self, pin: Pin) -> str:
        """The primitive of `pin`; empty for a port of the circuit."""
        return self.cells[pin.cell].kind if pin.cell else ""

    def fanout(self, net: int) -> int:
        """The number of pins that `net` drives."""
        return len(self.sinks.get(net, ()))

    def name(self, pin: Pin) -> str:
        """The name of the cell of `pin` for a reader: the net of its register, or its own name."""
        if not pin.cell:
            return pin.port
        cell = self.cells[pin.cell]
        if not cell.name.startswith("$"):
            return cell.name
        known = [self.names[net] for port in sorted(cell.outputs) for _, net in cell.bits(port) if net in self.names]
        return known[0] if known else cell.name

    def source(self, pin: Pin) -> str:
        """The line of hw/ of the cell of `pin`, else of a net at its pins, in its block or after it; may be empty."""
        if not pin.cell:
            return next((self.lines[net] for net, at in self.drivers.items() if at == pin and net in self.lines), "")
        cell = self.cells[pin.cell]
        if cell.source:
            return cell.source
        for port in sorted(cell.pins, key=lambda port: (port not in cell.outputs, port != pin.port, port)):
            for _, net in cell.bits(port):
                if net in self.lines and port not in ("C", "CLK", "WCLK"):
                    return self.lines[net]
        block = cell.name
        while "." in block:
            block = block.rpartition(".")[0]
            for net, line in self.lines.items():
                if self.names[net].startswith(f"{block}."):
                    return line
        return self._line_behind(cell)

    def _line_behind(self, cell: Cell) -> str:
        """The line of the first net that has one on the way from the outputs of `cell`; may be empty."""
        reached: set[int] = set()
        ahead = self._driven(cell)
        while ahead:
            for net in sorted(ahead):
                if net in self.lines:
                    return self.lines[net]
            reached |= ahead
            readers = {pin.cell for net in ahead for pin in self.sinks.get(net, ()) if pin.cell}
            ahead = set().union(*(self._driven(self.cells[name]) for name in readers)) - reached
        return ""

    def _driven(self, cell: Cell) -> set[int]:
        return {net for port in cell.outputs for _, net in cell.bits(port)}


def read(document: dict, top: str) -> Netlist:
    """The module `top` of a JSON document of Yosys, which must be flat.

    Raises `ExecutionError` where `top` is not in it.
    """
    if top not in document["modules"]:
        raise ExecutionError(f"the netlist has no module {top}; synthesise with it as the top")
    module = document["modules"][top]
    found = Netlist()
    for name, cell in module["cells"].items():
        if cell["type"] == "$scopeinfo":
            continue
        directions = cell["port_directions"]
        found.cells[name] = Cell(
            name,
            cell["type"],
            {key: str(value).strip() for key, value in cell["parameters"].items()},
            {port: _nets(bits) for port, bits in cell["connections"].items()},
            frozenset(port for port in cell["connections"] if directions.get(port) == "output"),
            source_line(cell["attributes"]),
        )
    _connect(found, module["ports"])
    _name(found, module["netnames"])
    return found


def _nets(bits: list) -> list[int | None]:
    return [bit if isinstance(bit, int) else None for bit in bits]


def source_line(attributes: dict) -> str:
    """The first line of hw/ that `src` names."""
    found = _SOURCE_LINE.search(str(attributes.get("src", "")))
    return found.group() if found else ""


def _connect(netlist: Netlist, ports: dict) -> None:
    pins = [
        (Pin(cell.name, port), port in cell.outputs, nets)
        for cell in netlist.cells.values()
        for port, nets in cell.pins.items()
    ]
    pins += [(Pin("", name), port["direction"] == "input", _nets(port["bits"])) for name, port in ports.items()]
    for pin, drives, nets in pins:
        for index, net in enumerate(nets):
            if net is None:
                continue
            if drives:
                netlist.drivers[net] = pin._replace(index=index)
            else:
                netlist.sinks.setdefault(net, []).append(pin._replace(index=index))


def _name(netlist: Netlist, netnames: dict) -> None:
    """Name every net by the deepest, then shortest, of its public names: its name in the block that drives it."""
    ranks: dict[int, tuple[int, int]] = {}
    for name, wire in netnames.items():
        if wire.get("hide_name") or name.startswith("$"):
            continue
        rank, line = (-name.count("."), len(name)), source_line(wire["attributes"])
        for index, net in enumerate(_nets(wire["bits"])):
            if net is None or net in ranks and ranks[net] <= rank:
                continue
            ranks[net] = rank
            netlist.names[net] = f"{name}[{index}]" if len(wire["bits"]) > 1 else name
            if line:
                netlist.lines[net] = line
