"""Static timing: the latest arrival at every net and end, and the path that makes it.

A path starts at a clocked output or a port of the circuit and ends at a clocked input or a port. Nothing is cut and no
path is called false. Every connected pin must have a delay; what has none is `uncovered` and counted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ...hw.errors import ExecutionError
from .cells import CLOCK_BUFFERS, CLOCKS, Delays, Slice, delays
from .netlist import Netlist, Pin

Route = Callable[[Netlist, int, Pin], float]


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
class Path:
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

    def path(self, end: End) -> Path:
        """The latest path to `end`."""
        net, hops = end.net, []
        if net is None:  # inside one cell
            return Path(end.at, 0, (), end)
        while net in self.hops:
            net, hop = self.hops[net]
            hops.append(hop)
        return Path(self.netlist.drivers[net], self.launches.get(net, 0), tuple(reversed(hops)), end)


def analyse(netlist: Netlist, figures: Slice, route: Route) -> Arrivals:
    """Arrivals at all ends of `netlist`, with the cell delays `figures` and wires by `route`.

    Raises `ExecutionError` for a loop without a register, which has no latest arrival.
    """
    found = Arrivals(netlist)
    table = {name: _delays(netlist, name, figures) for name in netlist.cells}
    found.uncovered = _uncovered(netlist, table)
    arcs, waiting = _launch(found, table)
    _propagate(found, arcs, waiting, route)
    _end(found, table, route)
    return found


def _delays(netlist: Netlist, name: str, figures: Slice) -> Delays | None:
    cell = netlist.cells[name]
    carried = (
        [
            port
            for port, nets in cell.pins.items()
            if port not in cell.outputs
            and any(
                net in netlist.drivers and netlist.kind(netlist.drivers[net]) == "CARRY4"
                for net in nets
                if net is not None
            )
        ]
        if cell.kind.startswith("LUT")
        else []
    )
    return delays(cell, figures, frozenset(carried))


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


def _launch(found: Arrivals, table: dict[str, Delays | None]) -> tuple[dict[Pin, list[tuple[Pin, float]]], Counter]:
    """Start all nets that a clock or a port drives; returns the arcs by input pin, and how many each net waits for."""
    arcs: dict[Pin, list[tuple[Pin, float]]] = {}
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


def _propagate(found: Arrivals, arcs: dict[Pin, list[tuple[Pin, float]]], waiting: Counter[int], route: Route) -> None:
    """Arrivals in topological order."""
    netlist = found.netlist
    ready = deque(net for net in netlist.sinks if not waiting[net])
    while ready:
        net = ready.popleft()
        for entry in netlist.sinks.get(net, ()):
            for leave, ps in arcs.get(entry, ()):
                target = netlist.cells[leave.cell].pins[leave.port][leave.index]
                assert target is not None
                if net in found.at:
                    wire = route(netlist, net, entry)
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


def _end(found: Arrivals, table: dict[str, Delays | None], route: Route) -> None:
    netlist = found.netlist
    for name, known in table.items():
        if known is None:
            continue
        if known.period:
            found.ends.append(End(known.period, Pin(name, "inside"), None, 0, 0))
        for (port, index), ps in known.capture.items():
            net, pin = netlist.cells[name].pins[port][index], Pin(name, port, index)
            if net is not None and net in found.at:
                wire = route(netlist, net, pin)
                found.ends.append(End(found.at[net] + wire + ps, pin, net, wire, ps))
    for net, pins in netlist.sinks.items():
        for pin in pins:
            if not pin.cell and net in found.at:
                found.ends.append(End(found.at[net], pin, net, 0, 0))
    found.ends.sort(key=lambda end: -end.arrival)
