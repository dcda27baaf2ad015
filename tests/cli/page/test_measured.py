"""cli/page/measured.py: rows, summary and limits of runs."""

import pytest

from tilewright.cli.page.measured import NOBODY, clock_source, instruction_rows, peak_macs, roofline
from tilewright.hw.config import PRESETS
from tilewright.runtime.executable import LaunchStep
from tilewright.sim.dram import ZYNQ_HP


def test_every_source_of_cycles_is_said():
    assert "timing model" in clock_source("timing") and "circuit" in clock_source("rtl")
    assert clock_source("board") == "register CYCLES of device board"


def test_both_units_multiply():
    one, two = PRESETS["tiny"], PRESETS["tiny_two"]
    assert peak_macs(one) == one.macs_per_cycle
    assert peak_macs(two) == two.macs_per_cycle * (1 + two.ternary_blocks)


def test_a_point_takes_the_time_of_its_busiest_unit():
    row = {"operator": "fc", "macs": 800, "bytes_loaded": 700, "bytes_stored": 100, "cycles": 10}
    row |= {"busy_load": 100, "busy_compute": 5}
    host = {"operator": "softmax", "macs": 5}
    found = roofline(PRESETS["tiny"], ZYNQ_HP, [row, host])
    assert found is not None
    assert found["points"] == [{"operator": "fc", "cycles": 100, "macs_per_byte": 1.0, "macs_per_cycle": 8.0}]
    assert roofline(PRESETS["tiny"], None, [row]) is None
    assert roofline(PRESETS["tiny"], ZYNQ_HP, [host]) is None


def test_instructions_find_their_rows(double):
    (step,) = (step for step in double.steps if isinstance(step, LaunchStep))
    rows = [{"operator": NOBODY, "launch": "double"}, {"operator": "add", "launch": "double"}]
    at = instruction_rows(rows, step)
    assert len(at) == len(step.launch.insn) and set(at) == {0, 1}
    assert set(instruction_rows(rows[:1], step)) == {0}


@pytest.fixture
def double():
    from tilewright.hw.isa import AluOp, Mem
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.program import Program

    program = Program("tiny", "double")
    x = program.buffer("x", (4, 1, 4), 32)
    y = program.buffer("y", (4, 1, 4), kind="output")
    with program.origin("add"):
        program.load(Mem.ACC, 0, x, 0, x_size=4)
        program.alu(AluOp.ADD, [(4, 1, 1)])
        program.store(0, y, 0, x_size=4)
    return Executable.from_launch(program.finish())


def test_launches_tell_occupancy_and_cliffs(recorded):
    (launch,) = recorded.data["launches"]
    assert launch["occupancy"]["ACC"]["entries"] == 12 and launch["counters"]["COMPUTE_INSNS"] > 0
    assert all({"operator", "cycles", "text"} == warning.keys() for warning in launch["warnings"])
