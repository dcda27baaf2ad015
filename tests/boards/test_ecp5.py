"""boards/ecp5.py: nextpnr's report as a clock and its longest paths, without the tools, which take minutes."""

import pytest

from tilewright.boards.ecp5 import read_report


def step(kind, delay, cell, net=""):
    return {"type": kind, "delay": delay, "from": {"cell": "c", "port": "Q"}, "to": {"cell": cell}, "net": net}


MODULE = {
    "cells": {
        "$ff$7": {
            "type": "TRELLIS_FF",
            "port_directions": {"Q": "output", "DI": "input"},
            "connections": {"Q": [9], "DI": [8]},
            "attributes": {"src": "/share/cells_map.v:1"},
        }
    },
    "netnames": {
        "core.a.q": {"hide_name": 0, "bits": [5], "attributes": {"src": "/x/hw/rtl/fifo.py:3"}},
        "core.b.r": {"hide_name": 0, "bits": [9], "attributes": {"src": "/x/hw/rtl/control.py:4"}},
        "b": {"hide_name": 0, "bits": [9], "attributes": {}},
        "core.b.longer": {"hide_name": 0, "bits": [9], "attributes": {}},
    },
}
REPORT = {
    "fmax": {"clk": {"achieved": 62.5, "constraint": 100}, "other": {"achieved": 80.0, "constraint": 100}},
    "utilization": {"TRELLIS_FF": {"used": 3, "available": 9}, "DCUA": {"used": 0, "available": 2}},
    "critical_paths": [
        {"from": "<async>", "to": "posedge clk", "path": [step("routing", 1.0, "$ff$7_COMB", "pin")]},
        {
            "from": "posedge clk",
            "to": "posedge clk",
            "path": [
                step("clk-to-q", 0.5, "c"),
                step("routing", 1.25, "l", "core.a.q"),
                step("logic", 0.25, "l"),
                step("routing", 2.0, "$ff$7_COMB", "n"),
                step("setup", 0.125, "$ff$7_COMB"),
            ],
        },
    ],
}


def test_the_slowest_clock_and_the_used_cells():
    clock = read_report("tiny", REPORT, MODULE)
    assert (clock.config, clock.mhz, clock.cells) == ("tiny", 62.5, {"TRELLIS_FF": 3})


def test_a_path_has_its_delays_and_both_ends_in_hw():
    path = read_report("tiny", REPORT, MODULE).paths[0]
    assert (path.total_ns, path.logic_ns, path.route_ns, path.levels) == (4.125, 0.875, 3.25, 1)
    assert (path.start_domain, path.end_domain) == ("posedge clk", "posedge clk")
    assert (path.start, path.start_source) == ("core.a.q", "hw/rtl/fifo.py:3")
    assert (path.end, path.end_source) == ("core.b.r", "hw/rtl/control.py:4")


def test_a_path_from_a_pin_has_no_line():
    path = read_report("tiny", REPORT, MODULE).paths[1]
    assert (path.start, path.start_source, path.start_domain) == ("pin", "", "<async>")
    assert path.total_ns == pytest.approx(1.0)
