"""boards/cells.py: which pins of a primitive have which delay, against figures of the data sheet."""

import pytest

from tilewright.boards.cells import (
    BRAM_PERIOD,
    FULL,
    LOGIC,
    PLACED,
    PRE_ADDER,
    REGISTERS,
    delays,
    dsp_delays,
    dsp_register_use,
    dsp_registers,
    is_full_dsp,
)


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


@pytest.fixture
def cell(new):
    """A DSP with the given registers and no other."""

    def made(**registers):
        off = dict.fromkeys(REGISTERS, "0")
        parameters = off | {name: str(value) for name, value in registers.items()}
        return new().add("d", "DSP48E1", parameters, A="a", B="b", P="p").netlist().cells["d"]

    return made


@pytest.mark.parametrize(
    "registers, out, setup",
    [
        (dict(AREG=1, BREG=1, MREG=1, PREG=1), 440, {"A": 370, "B": 450, "C": 1700, "PCIN": 1400}),
        (dict(BREG=1, MREG=1), 2310, {"A": 1940, "B": 450}),
        (dict(AREG=2, BREG=1), 4020, {"A": 370, "B": 450}),
        (dict(PREG=1), 440, {"A": 3730, "B": 3560, "C": 1700, "PCIN": 1400}),
        (dict(CREG=1, MREG=1), 2310, {"A": 1940, "B": 1760, "C": 240}),
        # with the pre-adder: A and D meet in ADREG
        (dict(USE_DPORT="TRUE", BREG=1, DREG=1, MREG=1), 2310, {"A": 3290, "B": 450, "D": 420}),
        (dict(USE_DPORT="TRUE", ADREG=1, MREG=1), 2310, {"A": 1760, "B": 1760, "D": 1760}),
        (dict(USE_DPORT="TRUE", AREG=1, DREG=1, ADREG=1), 4010, {"A": 370, "D": 420}),
        (dict(USE_DPORT="TRUE", PREG=1), 440, {"A": 5070, "B": 3560, "C": 1700, "D": 4950, "PCIN": 1400}),
    ],
)
def test_paths_end_at_the_first_register_and_start_at_the_last(cell, registers, out, setup):
    found = dsp_delays(cell(**registers))
    assert found is not None and found.launch["P"] == out
    operands = {"A", "B", "C", "PCIN"} | ({"D"} if "USE_DPORT" in registers else set())
    assert {port: ps for port, ps in found.capture.items() if port in operands} == setup
    assert {source for source, _ in found.arcs} == operands - set(setup)


def test_without_registers_it_is_logic(cell):
    found = dsp_delays(cell())
    assert found is not None and not found.launch and found.period == 0
    assert found.arcs["A", "P"] == 3850 and found.arcs["PCIN", "PCOUT"] == 1720


def test_an_adder_alone_is_faster_than_a_product(cell):
    adder = dsp_delays(cell(USE_MULT="NONE", AREG=1))
    assert adder is not None and adder.launch["P"] == 2210 and adder.arcs["B", "P"] == 2080


def test_the_period_inside_is_that_of_the_data_sheet(cell):
    """In MHz: 464.25 with all registers, 257.47 without MREG, 290.44 without ADREG, 190.69 without both."""
    found = [
        dsp_delays(cell(**registers))
        for registers in (
            dict(AREG=1, BREG=1, MREG=1, PREG=1),
            dict(AREG=1, BREG=1, PREG=1),
            dict(USE_DPORT="TRUE", DREG=1, MREG=1),
            dict(USE_DPORT="TRUE", DREG=1, PREG=1),
            dict(USE_DPORT="TRUE", DREG=1, ADREG=1, MREG=1),
        )
    ]
    assert [round(1e6 / one.period) for one in found if one] == [464, 257, 290, 191, 464]


def test_register_use_counts_cells(new):
    circuit = new()
    for name, used in (("a", FULL), ("b", FULL), ("c", ("MREG",)), ("d", ())):
        circuit.add(name, "DSP48E1", {register: str(int(register in used)) for register in REGISTERS}, P="p" + name)
    circuit.add("e", "LUT1", I0="i", O="o")
    netlist = circuit.netlist()
    assert dsp_register_use(netlist) == {"AREG BREG MREG PREG": 2, "MREG": 1, "none": 1}
    assert [is_full_dsp(netlist.cells[name]) for name in "abcd"] == [True, True, False, False]


def test_a_product_of_a_sum_has_six_registers(cell):
    six = dict.fromkeys([*FULL, *PRE_ADDER], 1)
    assert is_full_dsp(cell(USE_DPORT="TRUE", **six)) and not is_full_dsp(cell(USE_DPORT="TRUE", **six | {"ADREG": 0}))
    assert dsp_registers(cell(DREG=1, MREG=1)) == ["MREG"]  # nothing uses it


@pytest.mark.parametrize("part", [("USE_PATTERN_DETECT", "PATDET"), ("A_INPUT", "CASCADE")])
def test_parts_without_figures_are_refused(cell, part):
    assert dsp_delays(cell(**dict([part]))) is None
