"""boards/timing/cells.py: which pins of a primitive have which delay."""

import pytest

from tilewright.boards.cells import BRAM_PERIOD, LOGIC, PLACED, delays


@pytest.fixture
def of(new):
    """Delays of one cell by its kind and the nets at its pins."""

    def found(kind, figures=LOGIC, parameters=None, **pins):
        return delays(new().add("x", kind, parameters, **pins).netlist().cells["x"], figures)

    return found


def test_a_small_lut_has_the_fast_inputs_of_a_large_one(of):
    """Inputs are numbered from the slow end: a LUT2 is the last two of a LUT6."""
    assert of("LUT2", I0="a", I1="b", O="o").arcs == {(("I0", 0), ("O", 0)): 238, (("I1", 0), ("O", 0)): 127}
    six = of("LUT6", I0="a", I1="b", I2="c", I3="d", I4="e", I5="f", O="o").arcs
    assert list(six.values()) == [642, 631, 472, 407, 238, 127]
    assert of("INV", I="a", O="o").arcs == {(("I", 0), ("O", 0)): 127}


def test_a_lut_behind_a_carry_chain_is_slower_in_a_routed_design(new):
    cell = new().add("x", "LUT2", I0="a", I1="b", O="o").netlist().cells["x"]
    placed, logic = (delays(cell, figures, frozenset({"I1"})) for figures in (PLACED, LOGIC))
    assert placed and list(placed.arcs.values()) == [124, 300]
    assert logic and list(logic.arcs.values()) == [238, 127]


def test_a_constant_input_has_no_delay(of):
    assert set(of("LUT2", I0="0", I1="b", O="o").arcs) == {(("I1", 0), ("O", 0))}
    assert of("CARRY4", CI="0", CYINIT="1", DI="0 0 0 0", S="a 0 0 0", O="p x x x").arcs == {(("S", 0), ("O", 0)): 223}


def test_a_carry_chain_passes_in_114_ps(of):
    chain = of("CARRY4", CI="c", CYINIT="0", DI="0 0 0 0", S="0 0 0 0", O="p q r s", CO="x x x d")
    assert chain.arcs[("CI", 0), ("CO", 3)] == 114 and chain.arcs[("CI", 0), ("O", 3)] == 313


def test_a_flipflop_starts_and_ends_paths(of):
    found = of("FDRE", C="clk", CE="e", D="d", R="r", Q="q")
    assert found.launch == {("Q", 0): 303}
    assert found.capture == {("D", 0): 0, ("CE", 0): 109, ("R", 0): 404} and not found.arcs
    assert ("CE", 0) not in of("FDSE", C="clk", CE="1", D="d", S="0", Q="q").capture


def test_a_memory_in_luts_is_read_through_and_written_at_the_clock(of):
    found = of("RAM64M", WCLK="clk", WE="w", ADDRA="a b", ADDRD="c d", DIA="i", DIB="j", DIC="0", DID="0", DOA="o")
    assert found.launch == {("DOA", 0): 1163}
    assert found.arcs == {(("ADDRA", 0), ("DOA", 0)): 642, (("ADDRA", 1), ("DOA", 0)): 631}
    assert found.capture == {
        ("DIA", 0): 384, ("DIB", 0): 384, ("ADDRD", 0): 362, ("ADDRD", 1): 362, ("WE", 0): 654
    }  # fmt: skip


def test_a_shift_register(of):
    found = of("SRL16E", CLK="clk", CE="1", D="d", A0="0", A1="1", A2="0", A3="0", Q="q")
    assert (found.launch, found.capture, found.arcs) == ({("Q", 0): 1472}, {("D", 0): 173}, {})


def test_the_output_register_of_a_block_ram(of):
    """A port each: DOA_REG for port A, DOB_REG for port B."""
    pins = {"CLKARDCLK": "clk", "ADDRARDADDR": "a", "ENARDEN": "e", "WEBWE": "w", "DIADI": "d"}
    found = of("RAMB36E1", parameters={"DOA_REG": "1", "DOB_REG": "0"}, DOADO="o", DOBDO="p", **pins)
    assert found.launch == {("DOADO", 0): 890, ("DOBDO", 0): 2460}
    assert found.capture == {("ADDRARDADDR", 0): 570, ("ENARDEN", 0): 450, ("WEBWE", 0): 540, ("DIADI", 0): 740}
    assert found.period == BRAM_PERIOD


def test_an_unknown_cell_has_no_delays(of):
    assert of("URAM288", D="d") is None
    assert of("DSP48E1", parameters={"A_INPUT": "CASCADE"}, A="a", P="p") is None
    assert of("BUFG", I="a", O="o").arcs == {}
