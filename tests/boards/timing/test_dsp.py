"""boards/timing/dsp.py: delays of a DSP48E1 by its registers, against figures of the data sheet."""

import pytest

from tilewright.boards.cells import FULL, PRE_ADDER, REGISTERS, dsp_delays, dsp_register_use, dsp_registers, is_full_dsp


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
