"""boards/route.py: the chain around the core, nextpnr's files, the clock; a script takes nextpnr's place but once."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tilewright.boards import route as module
from tilewright.boards.netlist import Pin, read
from tilewright.boards.route import (
    DATABASE,
    TOOLS,
    check_clock,
    evaluate,
    find_database,
    find_router,
    on_chain,
    placed,
    route_core,
    wire_delays,
)
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ExecutionError, FileError, UnsupportedError


def wrapped(circuit):
    return on_chain(circuit.document(), "t")["modules"]["t"]


@pytest.fixture
def core(new):
    """Two inputs, an inverter, two outputs; `y` is a port that nothing but a constant drives."""
    circuit = new().add("b", "BUFG", I="clk", O="edge").add("i", "INV", I="a", O="n")
    circuit.add("l", "LUT2", {"INIT": "0110"}, I0="n", I1="c", O="p").add("f", "FDRE", C="edge", D="p", Q="q")
    circuit.ports("clk a c", "p q")
    circuit.module["ports"]["y"] = {"direction": "output", "bits": ["0"]}
    return circuit


def settle(netlist, values):
    """Values of all nets by evaluating LUTs and buffers until nothing changes."""
    for _ in range(len(netlist.cells)):
        for cell in netlist.cells.values():
            if cell.kind in ("IBUF", "OBUF"):
                values[cell.pins["O"][0]] = values.get(cell.pins["I"][0], 0)
            elif cell.kind.startswith("LUT"):
                index = sum(values.get(net, 0) << int(port[1:]) for port, (net,) in cell.pins.items() if port != "O")
                values[cell.pins["O"][0]] = int(cell.parameters["INIT"][-1 - index])
    return values


def test_the_chain_shifts_inputs_in_and_sums_outputs(core):
    """Simulated for 40 clocks against the same done by hand: a, then c, from the pad; p and q added on the way out."""
    wrap = wrapped(core)
    netlist = read({"modules": {"t": wrap}}, "t")
    bits = {name: port["bits"][0] for name, port in wrap["ports"].items()}
    registers = [cell for cell in netlist.cells.values() if cell.kind == "FDRE"]
    assert set(bits) == {"scan_clk", "scan_in", "scan_out"} and len(registers) == 1 + 2 + 2 * 2
    state = dict.fromkeys((cell.pins["Q"][0] for cell in registers), 0)
    a = c = q = kept_p = kept_q = first = second = 0
    for step in range(40):
        bit = (0b1011001110001 >> step % 13) & 1
        values = settle(netlist, state | {bits["scan_in"]: bit})
        assert values[bits["scan_out"]] == second, step
        p = (1 - a) ^ c
        first, second, kept_p, kept_q, a, c, q = kept_p ^ c, kept_q ^ first, p, q, bit, a, p
        state = {cell.pins["Q"][0]: values.get(cell.pins["D"][0], 0) for cell in registers}


def test_names_of_the_core_stay(core):
    core.ports("scan_in")
    names = wrapped(core)["netnames"]
    assert names["core_scan_in"]["bits"] == [core.nets["scan_in"]] != names["scan_in"]["bits"]
    assert names["q"]["bits"] == [core.nets["q"]]


def test_a_core_without_a_clock_buffer_is_refused(new):
    with pytest.raises(ExecutionError, match="the netlist has 0 clock buffers at clk; place-and-route needs one"):
        wrapped(new().ports("clk"))


class Routed:
    """A netlist as nextpnr writes it after routing, made by hand, and its delays."""

    def __init__(self):
        self.cells, self.names, self.delays, self.nets = {}, {}, [], {}

    def bit(self, net, routed=True):
        bit = self.nets.setdefault(net, len(self.nets))
        way = {"ROUTING": "a;b;1"} if routed else {"ROUTING": ""}
        self.names[net] = {"hide_name": 0, "bits": [bit], "attributes": way | {"src": f"/x/hw/rtl/{net}.py:7"}}
        return bit

    def add(self, name, kind, original, outputs=(), bel="", ports=None, parameters=None, **pins):
        """A cell of nextpnr's `kind` that was `original`; `ports` are its original ports where they are others."""
        attributes = {"NEXTPNR_BEL": bel} | {f"X_ORIG_PORT_{port}": was for port, was in (ports or {}).items()}
        self.cells[name] = {
            "type": kind,
            "parameters": parameters or {},
            "attributes": attributes | ({"X_ORIG_TYPE": original} if original else {}),
            "port_directions": {port: "output" if port in outputs else "input" for port in pins},
            "connections": {port: [self.bit(net)] if net else [] for port, net in pins.items()},
        }
        return self

    def wire(self, target, rise, fall=None):
        """The delay in ps to the pin `target`, written "cell/port"."""
        escaped = target.replace("$", "\\$").replace("[", "\\[").replace("]", "\\]")
        values = [f"({ps - 9}:{ps - 5}:{ps})" for ps in (rise, rise if fall is None else fall)]
        self.delays.append(f"        (INTERCONNECT any/O {escaped} {' '.join(values)})")
        return self

    def files(self):
        """The JSON document, and the SDF file."""
        return {"modules": {"top": {"cells": self.cells, "ports": {}, "netnames": self.names}}}, "\n".join(self.delays)

    def run(self):
        return evaluate(placed(*self.files()))


FF = {"CK": "C", "SR": "R"} | {port: port for port in ("D", "CE", "Q")}


@pytest.fixture
def routed():
    """From register a through a LUT to register $b[3]; the LUT's O6 lost its old name on the way."""
    made = Routed().add("vcc", "PSEUDO_VCC", None, ["Y"], Y="one")
    made.add("a", "SLICE_FFX", "FDRE", ["Q"], "X1Y2/SLICE_X0Y0.AFF", FF, CK="clk", CE="one", D="z", Q="core.a")
    made.add("l", "SLICE_LUTX", "LUT2", ["O6"], "X1Y2/SLICE_X0Y0.A6LUT", {"A1": "I0", "A2": "I1"}, A1="core.a", O6="m")
    made.add("$b[3]", "SLICE_FFX", "FDRE", ["Q"], "X9Y2/SLICE_X1Y0.BFF", FF, CK="clk", D="m", SR="m", Q="core.x.b")
    return made.wire("l/A1", 900, 1000).wire("$b[3]/D", 30).wire("$b[3]/SR", 700)


def test_a_path_is_cells_by_the_table_and_wires_by_nextpnr(routed):
    """478 out of the register, 1000 (the slower edge), 124, 700 to the reset, 429 of set-up, 250 of skew."""
    found = routed.run()
    assert found.period_ns == pytest.approx((478 + 1000 + 124 + 700 + 429 + 250) / 1000)
    assert found.fmax_mhz == pytest.approx(1000 / 2.981)
    longest = found.paths[0]
    assert (longest.total_ns, longest.logic_ns, longest.route_ns) == (2.731, 1.031, 1.7)
    assert (longest.start, longest.start_source, longest.end) == ("core.a", "hw/rtl/core.a.py:7", "core.x.b.R")
    assert longest.through == {"LUT2": 1} and not found.uncovered
    assert found.used == {"FDRE": 2, "LUT2": 1} and found.slices == 2 and found.unrouted == 0


def test_a_wire_without_a_delay_and_a_net_without_a_way_are_counted(routed):
    routed.delays.pop()
    routed.bit("m", routed=False)
    found = routed.run()
    assert found.uncovered == {"wire to FDRE.R": 1} and found.unrouted == 1


def test_luts_in_one_place_have_their_own_inputs_alone(routed):
    """nextpnr gives a LUT the inputs of its neighbour, too: here a loop if they counted. One passes a constant on."""
    routed.add(
        "k", "SLICE_LUTX", "LUT1", ["O5"], "X1Y2/SLICE_X0Y0.A5LUT", {"A3": "I0", "O5": "O"},
        A1="core.a", A2="n", A3="m", O5="n",
    )  # fmt: skip
    routed.add("h", "SLICE_LUTX", "LUT1", ["O6"], ports={"A4": "I0", "O6": "O"}, A1="n", A4="one", O6="high")
    routed.add("e.x", "SLICE_FFX", "FDRE", ["Q"], ports=FF, CK="clk", CE="high", D="n", Q="s")
    routed.wire("k/A1", 3000).wire("k/A2", 3000).wire("k/A3", 600).wire("h/A1", 9000).wire("e.x/D", 2000)
    found = routed.run()
    assert found.period_ns == pytest.approx((478 + 1000 + 124 + 600 + 124 + 2000 + 50 + 250) / 1000)
    assert not found.uncovered and found.unrouted == 0


def test_what_nextpnr_does_not_know_is_covered(routed):
    """A memory in a LUT, a block RAM whose address reaches both halves, a DSP, a carry chain; longest: the memory."""
    ram = {"A1": "RADR0", "WA1": "WADR0", "O6": "O", "DI1": "I"}
    routed.add(
        "m.x/DP", "SLICE_LUTX", "RAMD64E", ["O6"], ports=ram,
        A1="core.a", WA1="core.a", WE="core.a", DI1="core.a", CLK="clk", O6="r",
    )  # fmt: skip
    routed.add("e.x", "SLICE_FFX", "FDRE", ["Q"], ports=FF, CK="clk", D="r", Q="s")
    halves = {"ADDRARDADDRL3": "ADDRARDADDR[3]", "ADDRARDADDRU3": "ADDRARDADDR[3]", "CLKARDCLKL": "CLKARDCLK"}
    halves |= {"CLKARDCLKU": "CLKARDCLK"}
    routed.add(
        "w.x", "RAMB36E1_RAMB36E1", "RAMB36E1", ports=halves,
        ADDRARDADDRL3="core.a", ADDRARDADDRU3="core.a", CLKARDCLKL="clk", CLKARDCLKU="clk",
    )  # fmt: skip
    routed.add("d.x", "DSP48E1_DSP48E1", "DSP48E1", ports={"A2": "A[2]"}, A2="core.a", CLK="clk")
    routed.add("c.x", "CARRY4", "CARRY4", ["O1"], ports={"S1": "S[1]", "O1": "O[1]"}, S1="core.a", O1="t")
    routed.add("g.x", "SLICE_FFX", "FDRE", ["Q"], ports=FF, CK="clk", D="t", Q="u")
    for pin in ("m.x/DP/A1", "m.x/DP/WA1", "m.x/DP/WE", "m.x/DP/DI1", "e.x/D", "d.x/A2", "c.x/S1", "g.x/D"):
        routed.wire(pin, 600)
    routed.wire("w.x/ADDRARDADDRL3", 600).wire("w.x/ADDRARDADDRU3", 2000)
    found = routed.run()
    assert found.period_ns == pytest.approx((478 + 2000 + 570 + 250) / 1000)
    assert not found.uncovered
    assert found.covered == {
        "DSP48E1": "1 by data sheet, by the registers that the cell uses",
        "block RAM": "1 by data sheet",
        "memory in LUTs": "1 by SDF of the slice",
        "CARRY4": "1 by SDF of the slice",
    }
    ends = {path.end: path for path in found.paths}
    assert ends["e.x.D"].total_ns == pytest.approx((1314 + 600 + 50) / 1000)
    assert ends["m.x/DP.WE"].total_ns == pytest.approx((478 + 600 + 654) / 1000)
    assert ends["g.x.D"].total_ns == pytest.approx((478 + 600 + 205 + 600 + 50) / 1000)


def test_names_in_a_delay_file_are_escaped():
    text = "(INTERCONNECT \\$x\\[1\\]/Q core.a/b\\$/DI2 (1:2:3) (1:2:4))\n(INTERCONNECT a/b c/CE (0:0:0.5) (0:0:0))"
    assert wire_delays(text) == {("core.a/b$", "DI2"): 4, ("c", "CE"): 0.5}


FAKE = """#!{python}
import json, pathlib, sys
arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index(name) + 1]
if pathlib.Path(value("--chipdb")).read_text() == "bad":
    sys.exit("Info: packing\\nERROR: unable to place cell 'x'")
assert json.loads(pathlib.Path(value("--json")).read_text())["modules"]["t"]["ports"]["scan_out"]
if {himbaechel}:
    assert value("--device") == "xc7z020clg400-1" and value("-o") == "xdc=pads.xdc"
else:
    assert value("--xdc") == "pads.xdc"
document, text = json.loads({recorded!r})
pathlib.Path(value("--write")).write_text(json.dumps(document))
pathlib.Path(value("--sdf")).write_text(text.replace("700", str(700 + 100 * int(value("--seed")) ** 2)))
"""


@pytest.fixture
def install(tmp_path, monkeypatch, core, routed):
    """Puts a nextpnr of a name on PATH whose wires are the longer the larger the seed; Yosys' place is taken too."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(DATABASE, raising=False)
    monkeypatch.setattr(module, "flatten", lambda cfg, folder, report, options: (core.document(), "t"))
    (tmp_path / "chip").write_text("good")

    def put(name):
        recorded = json.dumps(routed.files())
        script = FAKE.format(python=sys.executable, recorded=recorded, himbaechel=name == TOOLS[0])
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
        return str(tmp_path / "chip")

    return put


@pytest.mark.parametrize("tool", TOOLS)
def test_the_clock_is_the_median_of_the_seeds(install, tool):
    """Seeds add 100, 400 and 900 ps to the 2.981 ns of the path: 2 is the middle one."""
    found = route_core(PRESETS["tiny"], (3, 1, 2), install(tool))
    assert found.tool == tool and list(found.seeds) == [3, 1, 2]
    assert found.seeds[1] == pytest.approx(1000 / 3.081) and found.seeds[3] == pytest.approx(1000 / 3.881)
    assert found.median.fmax_mhz == found.seeds[2] == pytest.approx(1000 / 3.381)
    assert route_core(PRESETS["tiny"], (1, 2), install(tool)).median.fmax_mhz == pytest.approx(1000 / 3.381)


def test_an_error_of_nextpnr_is_quoted(install, tmp_path):
    database = install(TOOLS[0])
    Path(database).write_text("bad")
    with pytest.raises(
        ExecutionError, match="nextpnr-himbaechel failed with status 1: ERROR: unable to place cell 'x'"
    ):
        route_core(PRESETS["tiny"], (1,), database)


def test_a_missing_tool_says_what_to_install(install):
    with pytest.raises(UnsupportedError, match=r"no place-and-route for an xc7z020 is on PATH: install nextpnr-himb"):
        find_router()


def test_a_missing_database_says_where_it_comes_from(install, monkeypatch, tmp_path):
    with pytest.raises(FileError, match="name the file with --chipdb or in the variable CHIPDB; openXC7"):
        find_database(None)
    monkeypatch.setenv(DATABASE, str(tmp_path / "none"))
    with pytest.raises(FileError, match="none: no such file; the chip database of the xc7z020"):
        find_database(None)
    assert find_database(str(tmp_path / "chip")) == tmp_path / "chip"


def test_wires_of_a_routed_netlist_are_by_pin(routed):
    assert placed(*routed.files()).wires == {Pin("l", "I0"): 1000, Pin("$b[3]", "D"): 30, Pin("$b[3]", "R"): 700}


def test_a_clock_that_is_missed_is_an_error(routed, tmp_path):
    """The path takes 2.981 ns: 335.5 MHz."""
    document, text = routed.files()
    netlist, sdf = tmp_path / "r.json", tmp_path / "r.sdf"
    netlist.write_text(json.dumps(document))
    sdf.write_text(text)
    check_clock(netlist, sdf, 335)
    with pytest.raises(
        ExecutionError, match="reaches 335.5 MHz after routing, not 336 MHz, from core.a to core.x.b.R; no"
    ):
        check_clock(netlist, sdf, 336)
    routed.bit("m", routed=False)
    netlist.write_text(json.dumps(routed.files()[0]))
    with pytest.raises(ExecutionError, match="1 nets of .*r.json have no way; no bitstream is made"):
        check_clock(netlist, sdf, 335)


def test_the_ports_of_the_ps7_are_covered(routed):
    """1530 from its clock, 1090 before it; the reset that it gives is asynchronous and has no delay."""
    ports = {"MAXIGP0ARADDR0": "MAXIGP0ARADDR[0]", "SAXIHP0RREADY": "SAXIHP0RREADY"}
    routed.add(
        "ps", "PS7_PS7", "PS7", ["MAXIGP0ARADDR0", "FCLKRESETN0", "FCLKCLK0"],
        ports=ports | {"FCLKRESETN0": "FCLKRESETN[0]", "FCLKCLK0": "FCLKCLK[0]"},
        MAXIGP0ACLK="clk", MAXIGP0ARADDR0="v", SAXIHP0RREADY="v", FCLKRESETN0="m2", FCLKCLK0="clk",
    )  # fmt: skip
    routed.add("r", "SLICE_FFX", "FDRE", ["Q"], ports=FF, CK="clk", D="m2", Q="s")
    found = routed.wire("ps/SAXIHP0RREADY", 900).run()
    assert found.period_ns == pytest.approx((1530 + 900 + 1090 + 250) / 1000)
    assert found.uncovered == {"PS7.FCLKRESETN": 1}


@pytest.mark.slow
def test_nextpnr_itself_routes_a_small_circuit(new, tmp_path, monkeypatch):
    """Two registers with a LUT between them."""
    if not any(map(shutil.which, TOOLS)) or not os.environ.get(DATABASE):
        pytest.skip(f"needs {' or '.join(TOOLS)} on PATH and {DATABASE}")
    circuit = new().add("b", "BUFG", I="clk", O="edge")
    circuit.add("f", "FDRE", {"INIT": "0"}, C="edge", CE="1", D="a", R="0", Q="core.f")
    circuit.add("l", "LUT2", {"INIT": "0110"}, I0="core.f", I1="core.g", O="n")
    circuit.add("g", "FDRE", {"INIT": "0"}, C="edge", CE="1", D="n", R="0", Q="core.g").ports("clk a", "core.g")
    monkeypatch.setattr(module, "flatten", lambda cfg, folder, report, options: (circuit.document(), "t"))
    found = route_core(PRESETS["tiny"], (1,)).median
    assert found.unrouted == 0 and not found.uncovered and 100 < found.fmax_mhz < 900
    assert found.used["FDRE"] == 5 and found.used["LUT2"] == 2
