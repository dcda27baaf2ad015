"""boards/netlist.py: cells, nets and names of a document as Yosys writes it."""

from dataclasses import replace

import pytest

from tilewright.boards.netlist import Pin, read
from tilewright.hw.errors import ExecutionError

DOCUMENT = {
    "modules": {
        "t": {
            "ports": {"a": {"direction": "input", "bits": [2, 3]}, "y": {"direction": "output", "bits": [5]}},
            "cells": {
                "$l": {
                    "type": "LUT2",
                    "parameters": {"INIT": "1000", "WIDTH": "00000000000000000000000000001x0z", "N": 3},
                    "attributes": {"src": "/opt/x/hw/rtl/fifo.py:12|/share/lut_map.v:1.1-2.2"},
                    "port_directions": {"I0": "input", "I1": "input", "O": "output"},
                    "connections": {"I0": [2], "I1": ["1"], "O": [4]},
                },
                "core.ram": {
                    "type": "FDRE",
                    "parameters": {},
                    "attributes": {"src": "/share/ff_map.v:1"},
                    "port_directions": {"C": "input", "D": "input", "Q": "output"},
                    "connections": {"C": [3], "D": [4], "Q": [5]},
                },
                "s": {
                    "type": "$scopeinfo",
                    "parameters": {},
                    "attributes": {},
                    "port_directions": {},
                    "connections": {},
                },
            },
            "netnames": {
                "y": {"hide_name": 0, "bits": [5], "attributes": {}},
                "core.unit.q": {"hide_name": 0, "bits": [5], "attributes": {"src": "/opt/x/hw/rtl/control.py:7"}},
                "core.q": {"hide_name": 0, "bits": [4, 5], "attributes": {"src": "/opt/x/hw/rtl/core.py:1"}},
                "$n": {"hide_name": 1, "bits": [4], "attributes": {}},
                "a": {"hide_name": 0, "bits": [2, 3], "attributes": {"src": "/opt/x/hw/rtl/axi.py:3"}},
            },
        }
    }
}


def test_nets_connect_one_driver_with_its_sinks():
    netlist = read(DOCUMENT, "t")
    assert set(netlist.cells) == {"$l", "core.ram"}
    assert netlist.drivers == {2: Pin("", "a", 0), 3: Pin("", "a", 1), 4: Pin("$l", "O"), 5: Pin("core.ram", "Q")}
    assert netlist.sinks[4] == [Pin("core.ram", "D")] and netlist.sinks[5] == [Pin("", "y")]
    assert netlist.cells["$l"].bits("I1") == []  # a constant is no net
    assert [netlist.fanout(net) for net in (2, 5, 9)] == [1, 1, 0]
    assert netlist.kind(Pin("$l", "O")) == "LUT2" and netlist.kind(Pin("", "a")) == ""


def test_parameters_are_bits_or_numbers():
    cell = read(DOCUMENT, "t").cells["$l"]
    assert [cell.number(name, 9) for name in ("INIT", "WIDTH", "N", "none")] == [8, 8, 3, 9]


def test_a_net_has_the_name_of_the_deepest_block():
    assert read(DOCUMENT, "t").names == {2: "a[0]", 3: "a[1]", 4: "core.q[0]", 5: "core.unit.q"}


def test_a_pin_has_a_name_and_a_line_of_hw():
    netlist = read(DOCUMENT, "t")
    lut, flipflop, port = Pin("$l", "O"), Pin("core.ram", "D"), Pin("", "a", 1)
    assert [netlist.name(pin) for pin in (lut, flipflop, port)] == ["core.q[0]", "core.ram", "a"]
    # the cell's own line, else that of the net that it drives
    assert [netlist.source(pin) for pin in (lut, flipflop, port)] == [
        "hw/rtl/fifo.py:12",
        "hw/rtl/control.py:7",
        "hw/rtl/axi.py:3",
    ]


def test_a_cell_without_lines_has_one_of_its_block():
    netlist = read(DOCUMENT, "t")
    netlist.cells["core.unit.memory.0"] = replace(netlist.cells["$l"], name="core.unit.memory.0", pins={}, source="")
    netlist.lines = {5: "hw/rtl/fifo.py:1"}
    assert netlist.source(Pin("core.unit.memory.0", "DIA")) == "hw/rtl/fifo.py:1"
    netlist.lines = {2: "hw/rtl/axi.py:3"}  # of no block of the cell
    assert netlist.source(Pin("core.unit.memory.0", "DIA")) == ""


def test_a_cell_of_no_block_has_a_line_behind_it(new):
    netlist = new().add("$f", "FDRE", Q="q").add("$l", "LUT1", I0="q", O="y").add("$r", "FDRE", D="y", Q="z").netlist()
    for name, cell in netlist.cells.items():
        netlist.cells[name] = replace(cell, source="")
    z = netlist.cells["$r"].pins["Q"][0]
    netlist.lines = {z: "hw/rtl/fifo.py:1"}
    assert netlist.source(Pin("$f", "Q")) == "hw/rtl/fifo.py:1"  # two cells away
    netlist.lines = {}
    assert netlist.source(Pin("$f", "Q")) == ""


def test_a_missing_top_is_one_line():
    with pytest.raises(ExecutionError, match="the netlist has no module u; synthesise with it as the top"):
        read(DOCUMENT, "u")
