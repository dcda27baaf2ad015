"""runtime/program.py: tables and reductions, extensions lookup and lane_reduce."""

import pytest

from tilewright.hw.errors import CapacityError, ProgramError
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify
from tilewright.sim.random_programs import ROWS, WIDE


@pytest.mark.parametrize("op, imm, text", [
    (AluOp.LOOKUP, None, "alu: LOOKUP needs imm, its table"),
    (AluOp.LOOKUP, 2, "alu: LOOKUP with imm = 2: tables of wide are 0 to 1"),
    (AluOp.REDUCE, None, "alu: REDUCE needs imm, its reduction"),
    (AluOp.REDUCE, -1, "alu: REDUCE with imm = -1: reductions of wide are 0 sum, 1 max"),
])  # fmt: skip
def test_tables_and_reductions_that_do_not_exist_are_named(op, imm, text):
    with pytest.raises(ProgramError) as caught:
        Program(WIDE).alu(op, [], imm=imm)
    assert str(caught.value) == text


def test_tables_are_loaded_behind_the_parameters_and_ordered_before_their_use(token_flags):
    """The loads of parameters, and of tables that nothing looks into any more, wait for nothing else."""
    p = Program(ROWS)  # 8 entries of parameters, then 16 of a table
    x, par, y = p.buffer("x", (4, 8)), p.buffer("par", (16, 8, 3), 32), p.buffer("y", (4, 8), kind="output")
    p.load(Mem.ACC8, 0, x, 0, x_size=4)
    p.load(Mem.PAR, 8, par, 0, x_size=16)
    p.alu(AluOp.LOOKUP, [(4, 1, 0)], imm=0)
    p.load(Mem.PAR, 0, par, 0, x_size=8)
    p.alu(AluOp.LOOKUP, [(4, 1, 0)], imm=0)
    p.load(Mem.PAR, 7, par, 0, x_size=2)
    p.store(0, y, 0, x_size=4)
    with pytest.raises(CapacityError, match="writes PAR entry 24, but rows has 24"):
        p.load(Mem.PAR, 9, par, 0, x_size=16)
    with pytest.raises(CapacityError, match="reads PAR entry 8, but rows has 8"):
        p.store(0, y, 0, par=8)
    launch = p.finish()
    assert verify(launch).pairs
    assert token_flags(launch) == [
        "LOAD.ACC8", "LOAD.PAR push_prev", "ALU.LOOKUP pop_next", "LOAD.PAR", "ALU.LOOKUP push_next",
        "LOAD.PAR pop_prev", "STORE.OUT push_prev", "FINISH pop_next",
    ]  # fmt: skip
