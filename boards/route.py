"""The core placed and routed on an xc7z020 by nextpnr: the clock after routing, and its longest paths.

nextpnr and its chip database are found on the machine, as Vivado is (docs/synthesis.md). Three pads suffice: the core's
inputs are on a chain of registers, and its outputs are summed up along another. Shift registers in LUTs are not used:
nextpnr places them in a slice with a memory in LUTs of another write enable, and cannot route that.

nextpnr gives the placed cells and the delay of each wire, from driver to pin. The delays of the cells are those of
boards/cells.py: nextpnr's own lack DSP48E1, RAMB36E1, the outputs of memories in LUTs and DI of CARRY4.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..hw.circuit import check_one_clock
from ..hw.config import Config
from ..hw.errors import ExecutionError, FileError, UnsupportedError
from .cells import BLOCK_RAMS, DSP, PLACED
from .netlist import Netlist, Pin, read
from .synthesis import PART, Report, quiet
from .timing import SKEW, Route, analyse, flatten, longest

TOOLS = ("nextpnr-himbaechel", "nextpnr-xilinx")  # the first that is on PATH
DEVICE = "xc7z020clg400-1"
DATABASE = "CHIPDB"  # environment variable: the chip database
TARGET_MHZ = 150  # nextpnr's target
SEEDS = (1, 2, 3)
PINS = {"scan_clk": "H16", "scan_in": "M19", "scan_out": "M20"}  # of the package: an input with a clock's wire first
# how delays are covered that nextpnr does not know
COVERED = {
    DSP: "data sheet, by the registers that the cell uses",
    "block RAM": "data sheet",
    "memory in LUTs": "SDF of the slice",
    "CARRY4": "SDF of the slice",
}
_MEMORIES = ("RAMD64E", "RAMD32", "RAMS64E", "RAMS32")
_INTERCONNECT = re.compile(r"\(INTERCONNECT (\S+) (\S+) \([^:]*:[^:]*:([^)]*)\) \([^:]*:[^:]*:([^)]*)\)\)")
_BIT = re.compile(r"(.*)\[(\d+)\]")


def find_router() -> str:
    """The command of nextpnr. Raises `UnsupportedError` where it is not installed."""
    found = next(filter(shutil.which, TOOLS), None)
    if found is None:
        raise UnsupportedError(
            f"no place-and-route for an {PART} is on PATH: install {' (with uarch xilinx) or '.join(TOOLS)}, for "
            "example with openXC7's toolchain installer"
        )
    return found


def find_database(path: str | None) -> Path:
    """The chip database `path`, else that of the environment. Raises `FileError` where there is none."""
    named = path or os.environ.get(DATABASE)
    if not named:
        raise FileError(
            f"nextpnr needs its chip database of the {PART}: name the file with --chipdb or in the variable "
            f"{DATABASE}; openXC7's toolchain installer brings it, nextpnr's build makes it from Project X-Ray's"
        )
    if not Path(named).is_file():
        raise FileError(f"{named}: no such file; the chip database of the {PART} for nextpnr is needed")
    return Path(named).resolve()


def on_chain(document: dict, top: str) -> dict:
    """The flat module `top` of a JSON document of Yosys, alone in one, with `PINS` as its only ports.

    Its input bits come from registers, one after the other from `scan_in`; each of its output bits goes into a
    register, and the sum of all (by XOR, one more bit per clock) into `scan_out`.
    """
    module = document["modules"][top]
    cells = {name: _plain(cell) for name, cell in module["cells"].items() if cell["type"] != "$scopeinfo"}
    ports = module["ports"]
    bits = (bit for cell in cells.values() for nets in cell["connections"].values() for bit in nets)
    port_bits = (bit for port in ports.values() for bit in port["bits"])
    last = max(bit for group in (bits, port_bits) for bit in group if isinstance(bit, int))
    clock = ports["clk"]["bits"][0]
    buffered = [cell for cell in cells.values() if cell["type"] == "BUFG" and cell["connections"]["I"] == [clock]]
    if len(buffered) != 1:
        raise ExecutionError(f"the netlist has {len(buffered)} clock buffers at clk; place-and-route needs one")
    edge = buffered[0]["connections"]["O"][0]

    def new() -> int:
        nonlocal last
        last += 1
        return last

    def register(name: str, data: int) -> int:
        out = new()
        cells[name] = _cell("FDRE", {"C": edge, "CE": "1", "D": data, "R": "0"}, {"Q": out}, {"INIT": "0"})
        return out

    pads = {name: new() for name in PINS}
    cells["scan_clk_buffer"] = _cell("IBUF", {"I": pads["scan_clk"]}, {"O": clock})
    previous = new()
    cells["scan_in_buffer"] = _cell("IBUF", {"I": pads["scan_in"]}, {"O": previous})
    for name, bit in _port_bits(ports, "input"):
        if bit != clock:
            cells[name] = _cell("FDRE", {"C": edge, "CE": "1", "D": previous, "R": "0"}, {"Q": bit}, {"INIT": "0"})
            previous = bit
    for name, bit in _port_bits(ports, "output"):
        total = new()
        cells[f"{name}_sum"] = _cell(
            "LUT2", {"I0": register(name, bit), "I1": previous}, {"O": total}, {"INIT": "0110"}
        )
        previous = register(f"{name}_total", total)
    cells["scan_out_buffer"] = _cell("OBUF", {"I": previous}, {"O": pads["scan_out"]})
    names = {f"core_{name}" if name in PINS else name: wire for name, wire in module["netnames"].items()}
    names |= {name: {"hide_name": 0, "bits": [bit], "attributes": {}} for name, bit in pads.items()}
    directions = {name: "output" if name == "scan_out" else "input" for name in PINS}
    wrapped = {
        "attributes": {"top": f"{1:032b}"},
        "ports": {name: {"direction": directions[name], "bits": [bit]} for name, bit in pads.items()},
        "cells": cells,
        "netnames": names,
    }
    return {"modules": {top: wrapped}}


def _plain(cell: dict) -> dict:
    """An inverter as the LUT that it becomes."""
    if cell["type"] != "INV":
        return cell
    entry, leave = cell["connections"]["I"][0], cell["connections"]["O"][0]
    return _cell("LUT1", {"I0": entry}, {"O": leave}, {"INIT": "01"}) | {"attributes": cell["attributes"]}


def _port_bits(ports: Mapping[str, dict], direction: str) -> Iterable[tuple[str, int]]:
    """Name and net of every bit that is not constant."""
    for name, port in ports.items():
        for index, bit in enumerate(port["bits"]):
            if port["direction"] == direction and isinstance(bit, int):
                yield f"scan_{name}_{index}", bit


def _cell(kind: str, inputs: dict, outputs: dict, parameters: dict | None = None) -> dict:
    return {
        "hide_name": 0,
        "type": kind,
        "parameters": parameters or {},
        "attributes": {},
        "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
        "connections": {port: [bit] for port, bit in (inputs | outputs).items()},
    }


def constraints() -> str:
    """The pads of `PINS`."""
    lines = [f"set_property LOC {pin} [get_ports {name}]" for name, pin in PINS.items()]
    lines += [f"set_property IOSTANDARD LVCMOS33 [get_ports {name}]" for name in PINS]
    return "\n".join(lines) + "\n"


def wire_delays(sdf: str) -> dict[tuple[str, str], float]:
    """Delay in ps, of the slow corner, of the wire to each pin (cell, port), from the SDF file that nextpnr writes."""
    found = {}
    for _, target, rise, fall in _INTERCONNECT.findall(sdf):
        cell, _, port = re.sub(r"\\(.)", r"\1", target).rpartition("/")
        found[cell, port] = max(float(rise), float(fall))
    return found


@dataclass
class Placed:
    """A placed and routed netlist in the cells of the 7 series: `wires` in ps by pin, `used` counts cells by kind.

    `slices` is the number of slices with a cell in them, `unrouted` that of nets without a way to a pin.
    """

    netlist: Netlist
    wires: dict[Pin, float]
    used: Counter[str]
    slices: int
    unrouted: int


def placed(document: dict, sdf: str) -> Placed:
    """What nextpnr wrote: the netlist after routing as a JSON document, and its delays as SDF."""
    (module,) = document["modules"].values()
    delays = wire_delays(sdf)
    cells, wires, used, sites = {}, {}, Counter(), set()
    constant = _constants(module)
    for name, cell in module["cells"].items():
        kind = cell["attributes"].get("X_ORIG_TYPE")
        if kind is None or cell["type"].startswith(("PSEUDO_", "PAD", "IOB")):
            continue
        used[kind] += 1
        if "SLICE" in (bel := cell["attributes"].get("NEXTPNR_BEL", "")):
            sites.add(bel.rpartition(".")[0])
        pins: dict[str, list] = {}
        directions = {}
        for port, bits in cell["connections"].items():
            if not bits or bits[0] in constant or not isinstance(bits[0], int) or not _has(cell, port):
                continue
            original, index = _original(cell, port)
            directions[original] = cell["port_directions"][port]
            vector = pins.setdefault(original, [])
            vector += ["x"] * (index + 1 - len(vector))
            vector[index] = bits[0]
            pin = Pin(name, original, index)
            if (name, port) in delays:
                wires[pin] = max(delays[name, port], wires.get(pin, 0))
        cells[name] = cell | {"type": kind, "connections": pins, "port_directions": directions}
    netlist = read({"modules": {"": module | {"cells": cells, "ports": {}}}}, "")
    return Placed(netlist, wires, used, len(sites), _unrouted(module, netlist))


def _constants(module: dict) -> set[int]:
    """The nets of both constants, and of LUTs that pass one on."""
    cells = module["cells"].values()
    sources = (cell for cell in cells if cell["type"].startswith("PSEUDO_"))
    found = {bit for cell in sources for bits in cell["connections"].values() for bit in bits}
    for cell in cells:
        if cell["attributes"].get("X_ORIG_TYPE", "").startswith("LUT"):
            pins = {port: bits for port, bits in cell["connections"].items() if bits and _has(cell, port)}
            if all(bits[0] in found for port, bits in pins.items() if port.startswith("A")):
                found |= {bits[0] for port, bits in pins.items() if port.startswith("O")}
    return found


def _has(cell: dict, port: str) -> bool:
    """Whether `port` belongs to `cell`: two LUTs in one place share pins, and nextpnr gives each those of the other."""
    shared = cell["attributes"]["X_ORIG_TYPE"].startswith("LUT") and port.startswith("A")
    return not shared or f"X_ORIG_PORT_{port}" in cell["attributes"]


def _original(cell: dict, port: str) -> tuple[str, int]:
    """Port and index that nextpnr's `port` has in the 7 series' primitive."""
    name = cell["attributes"].get(f"X_ORIG_PORT_{port}") or {"O5": "O", "O6": "O"}.get(port, port)
    bit = _BIT.fullmatch(name)
    return (bit[1], int(bit[2])) if bit else (name, 0)


def _unrouted(module: dict, netlist: Netlist) -> int:
    """Nets with a driver and a pin, but without a way between them."""
    ways = {bit for wire in module["netnames"].values() if wire["attributes"].get("ROUTING") for bit in wire["bits"]}
    return sum(net not in ways for net in netlist.drivers if netlist.sinks.get(net))


@dataclass
class Run:
    """The result of one seed: `period_ns` with the clock's skew, the longest `paths`, pins without a delay by kind.

    `used` counts cells by kind, `covered` those whose delays nextpnr does not know, by how they were found.
    """

    period_ns: float
    paths: list[Route]
    uncovered: dict[str, int]
    covered: dict[str, str]
    used: dict[str, int]
    slices: int
    unrouted: int

    @property
    def fmax_mhz(self) -> float:
        """The clock after routing."""
        return 1000 / self.period_ns


def evaluate(routed: Placed) -> Run:
    """The clock and the longest paths of a routed netlist."""
    missing: Counter[str] = Counter()

    def wire(netlist: Netlist, net: int, sink: Pin) -> float:
        if sink not in routed.wires:
            missing[f"wire to {netlist.kind(sink)}.{sink.port}"] += 1
        return routed.wires.get(sink, 0)

    found = analyse(routed.netlist, PLACED, wire)
    latest = found.ends[0].arrival if found.ends else 0
    families = {DSP: (DSP,), "block RAM": BLOCK_RAMS, "memory in LUTs": _MEMORIES, "CARRY4": ("CARRY4",)}
    counts = {family: sum(routed.used[kind] for kind in kinds) for family, kinds in families.items()}
    return Run(
        period_ns=round((latest + SKEW) / 1000, 3),
        paths=longest(found),
        uncovered=dict(found.uncovered + missing),
        covered={family: f"{n} by {COVERED[family]}" for family, n in counts.items() if n},
        used=dict(routed.used.most_common()),
        slices=routed.slices,
        unrouted=routed.unrouted,
    )


def read_run(netlist: Path, sdf: Path) -> Run:
    """The clock and the longest paths of the two files that nextpnr writes with `--write` and `--sdf`."""
    return evaluate(placed(json.loads(netlist.read_text()), sdf.read_text()))


def check_clock(netlist: Path, sdf: Path, mhz: float) -> None:
    """Raise `ExecutionError` where the routed design of `read_run` misses its clock, or has nets without a way."""
    run = read_run(netlist, sdf)
    if run.unrouted:
        raise ExecutionError(f"{run.unrouted} nets of {netlist} have no way; no bitstream is made")
    if run.fmax_mhz < mhz:
        path = run.paths[0]
        raise ExecutionError(
            f"the design reaches {run.fmax_mhz:.1f} MHz after routing, not {mhz:g} MHz, from {path.start} to "
            f"{path.end}; no bitstream is made: use a clock of at most {int(run.fmax_mhz)} MHz"
        )


@dataclass
class RoutedCore:
    """The clock of each seed; `median` is the run whose clock is the median (the lower one of two)."""

    config: str
    tool: str
    seeds: dict[int, float]
    median: Run


def route_core(
    cfg: Config, seeds: Iterable[int] = SEEDS, database: str | None = None, *, report: Report = quiet
) -> RoutedCore:
    """Place and route the core of `cfg` once for each of `seeds`.

    Raises `UnsupportedError` where a tool is missing or the core is not made for `cfg`, `FileError` where the chip
    database is missing, `ExecutionError` where the core does not fit or cannot be routed.
    """
    check_one_clock(cfg, "place-and-route")
    tool, chip = find_router(), find_database(database)
    runs = {}
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        folder = Path(name)
        document, top = flatten(cfg, folder, report, "-nosrl")
        (folder / "chain.json").write_text(json.dumps(on_chain(document, top)))
        (folder / "pads.xdc").write_text(constraints())
        for seed in seeds:
            report(f"placing and routing with seed {seed}")
            _nextpnr(tool, chip, folder, seed)
            report("analysing paths")
            runs[seed] = read_run(folder / "routed.json", folder / "routed.sdf")
    median = statistics.median_low(run.fmax_mhz for run in runs.values())
    middle = next(run for run in runs.values() if run.fmax_mhz == median)
    return RoutedCore(cfg.name, tool, {seed: run.fmax_mhz for seed, run in runs.items()}, middle)


def _nextpnr(tool: str, chip: Path, folder: Path, seed: int) -> None:
    """Run nextpnr in `folder`; an error quotes its log."""
    options = f"--json chain.json --write routed.json --sdf routed.sdf --freq {TARGET_MHZ} --seed {seed} -q"
    own = "--xdc pads.xdc"
    if tool == TOOLS[0]:
        # the static placer finishes where the usual one does not find legal places for a full chip in time
        own = f"--device {DEVICE} -o xdc=pads.xdc --placer static"
    command = [tool, "--chipdb", str(chip), *own.split(), *options.split(), "--timing-allow-fail"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).splitlines()
        error = next((line for line in said if "ERROR" in line), said[-1] if said else "no message")
        raise ExecutionError(f"{tool} failed with status {done.returncode}: {error.strip()}")


if __name__ == "__main__":  # of the script of the open tools: FILE.json FILE.sdf MHZ
    try:
        check_clock(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
    except ExecutionError as exc:
        sys.exit(f"ERROR: {exc}")
