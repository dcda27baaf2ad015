"""What the analysis of a core says, as figures: longest paths, their source lines, histogram, clock estimates."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from . import dsp, routing
from .analysis import Arrivals, Path, analyse
from .cells import BLOCK_RAMS, LOGIC, PLACED
from .netlist import Netlist

GRADE = "-1"
PATHS = 12  # that are reported, of the model's longest
PLAIN_FACTOR = 2  # of the plain rule: routing takes as long as the logic
NOT_COUNTED = (
    "placement: the routing model knows fan-out only, neither distance nor congestion",
    "delays outside the core: its inputs arrive at 0 ns, its outputs need no set-up",
    "copies of registers and other changes that a placer makes to shorten a path",
    "hold times, and clocks other than the core's one",
)


@dataclass
class Route:
    """A path for a reader: ns in all, in cells and in wires; `through` counts cells by kind, `levels` is their sum.

    `steps` are the wires' arrivals: name, kind of the cell that drives it, fan-out, ns.
    """

    total_ns: float
    logic_ns: float
    route_ns: float
    levels: int
    through: dict[str, int]
    start: str
    start_source: str
    end: str
    end_source: str
    steps: list[tuple[str, str, int, float]] = field(default_factory=list)


@dataclass
class Timing:
    """Timing of a core before placement.

    `logic_ns` and `levels` are of the longest path of cells alone, `estimate_ns` of the longest with the routing model
    and the clock's skew. `paths` are the longest of the model, `logic_paths` those of cells alone, one for each pair of
    registers. A histogram counts the ends that are reached within each nanosecond. `uncovered` must be empty.
    """

    logic_ns: float
    levels: int
    estimate_ns: float
    paths: list[Route]
    logic_paths: list[Route]
    histogram: list[int]
    logic_histogram: list[int]
    ends: int
    uncovered: dict[str, int]
    dsp_registers: dict[str, int]
    dsp_full: int
    bram_registered: int
    bram: int

    @property
    def fmax_estimate_mhz(self) -> float:
        """The clock by the routing model."""
        return 1000 / self.estimate_ns

    @property
    def fmax_plain_mhz(self) -> float:
        """The clock by the plain rule: logic delay x `PLAIN_FACTOR`."""
        return 1000 / (self.logic_ns * PLAIN_FACTOR)


def summarise(netlist: Netlist) -> Timing:
    """Both analyses of `netlist`."""
    logic = analyse(netlist, LOGIC, routing.none)
    routed = analyse(netlist, PLACED, routing.estimate)
    longest = _longest(logic)
    brams = [cell for cell in netlist.cells.values() if cell.kind in BLOCK_RAMS]
    return Timing(
        logic_ns=longest[0].total_ns if longest else 0,
        levels=longest[0].levels if longest else 0,
        estimate_ns=_ns((routed.ends[0].arrival if routed.ends else 0) + routing.SKEW),
        paths=_longest(routed),
        logic_paths=longest,
        histogram=_histogram(routed),
        logic_histogram=_histogram(logic),
        ends=len(routed.ends),
        uncovered=dict(logic.uncovered),
        dsp_registers=dict(dsp.register_use(netlist).most_common()),
        dsp_full=sum(cell.kind == dsp.KIND and dsp.is_full(cell) for cell in netlist.cells.values()),
        bram_registered=sum(cell.number("DOA_REG", 0) > 0 or cell.number("DOB_REG", 0) > 0 for cell in brams),
        bram=len(brams),
    )


def _ns(ps: float) -> float:
    return round(ps / 1000, 3)


def _longest(arrivals: Arrivals) -> list[Route]:
    """One path for each pair of a register and a block that it reaches, by data, enable or reset."""
    found: dict[tuple[str, str, str], Route] = {}
    for end in arrivals.ends:
        if len(found) == PATHS:
            break
        path = arrivals.path(end)
        route = _readable(arrivals, path)
        block = route.end.rpartition(".")[0].rpartition(".")[0]
        found.setdefault((re.sub(r"\d+", "", route.start), block, _purpose(end.at.port)), route)
    return list(found.values())


def _purpose(port: str) -> str:
    """What an input is for, whatever the primitive calls it."""
    if port.startswith(("CE", "EN", "WE", "REGCE")):
        return "enable"
    return "reset" if port.startswith("R") or port == "S" else "data"


def _readable(arrivals: Arrivals, path: Path) -> Route:
    netlist, end = arrivals.netlist, path.end
    steps = []
    net = end.net
    while net is not None:
        driver = netlist.drivers[net]
        name = netlist.names.get(net, "")
        steps.append((name, netlist.kind(driver) or "port", netlist.fanout(net), _ns(arrivals.at[net])))
        net = arrivals.hops[net][0] if net in arrivals.hops else None
    last = end.at
    return Route(
        total_ns=_ns(path.total),
        logic_ns=_ns(path.total - path.route),
        route_ns=_ns(path.route),
        levels=path.levels,
        through=dict(Counter(netlist.kind(hop.exit) for hop in path.hops)),
        start=steps[-1][0] or netlist.name(path.start) if steps else netlist.name(path.start),
        start_source=netlist.source(path.start),
        end=f"{netlist.name(last)}.{last.port}" if last.cell else last.port,
        end_source=netlist.source(last),
        steps=steps[::-1],
    )


def _histogram(arrivals: Arrivals) -> list[int]:
    """Ends by whole nanoseconds: element k counts those from k to below k + 1."""
    counts = Counter(int(end.arrival // 1000) for end in arrivals.ends)
    return [counts[k] for k in range(max(counts, default=-1) + 1)]
