"""The routing model: what a wire between two cells takes before anything is placed, in picoseconds.

A wire takes `BASE` and `PER_DOUBLING` for every doubling of the pins that it drives, and `COLUMN` more at a block RAM
or a DSP, which stand in columns of their own. The figures are fitted to nets on the critical paths of routed designs of
grade -1 in Vivado's reports: 0.56 ns in the mean up to five pins, 0.86 ns from 64 on. Wires inside a slice or between
neighbours of a column, which have no choice, take nothing or `CASCADE`.
"""

from __future__ import annotations

import math

from .netlist import Netlist, Pin

BASE, PER_DOUBLING, COLUMN, CASCADE = 500, 70, 350, 55
TYPICAL = BASE + 3 * PER_DOUBLING  # of a wire with eight ends: what the mapper counts for every wire
SKEW = 250  # of the clock, with its jitter: part of every period
COLUMNS = ("DSP48E1", "RAMB18E1", "RAMB36E1")
CASCADES = ("PCIN", "ACIN", "BCIN")


def none(netlist: Netlist, net: int, sink: Pin) -> float:
    """No routing: the delay of the logic alone."""
    return 0


def estimate(netlist: Netlist, net: int, sink: Pin) -> float:
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
