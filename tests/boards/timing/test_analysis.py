"""boards/timing/analysis.py: arrivals of circuits small enough to add up by hand."""

import pytest

from tilewright.boards.cells import LOGIC, PLACED
from tilewright.boards.timing import analyse, estimated_wire, no_wires
from tilewright.hw.errors import ExecutionError


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
