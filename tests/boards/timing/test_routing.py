"""boards/timing/routing.py: wires by fan-out and by what they connect."""

import pytest

from tilewright.boards.netlist import Pin
from tilewright.boards.timing import estimated_wire, no_wires


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
