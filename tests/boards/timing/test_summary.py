"""boards/timing/summary.py: figures of a small circuit."""

import pytest

from tilewright.boards.timing import summarise


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
