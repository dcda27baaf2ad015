"""runtime/program.py: several taps of a kernel row per micro-op, extension depthwise_rows."""

import pytest

from tilewright.hw.errors import CapacityError, ProgramError
from tilewright.hw.isa import Mem
from tilewright.runtime.program import Program
from tilewright.sim.random_programs import ROWS

MISTAKES_WITH_TAPS = [
    ({"depthwise": True, "taps": 5}, ProgramError, "gemm: taps = 5: rows takes 1 to 4, and with depthwise alone"),
    ({"depthwise": True, "taps": 0}, ProgramError, "gemm: taps = 0: rows takes 1 to 4"),
    ({"taps": 2}, ProgramError, "gemm: taps = 2: rows takes 1 to 4, and with depthwise alone"),
    ({"depthwise": True, "taps": 1.5}, ProgramError, "gemm: taps is (1.5,): must be 1 integer"),
    ({"depthwise": True, "taps": 4, "src": 125}, CapacityError, "dwgemm reads INP entry 128, but rows has 128"),
    ({"depthwise": True, "taps": 4, "wgt": 64}, CapacityError, "beyond the 64 groups of weight rows of a micro-op"),
]


@pytest.mark.parametrize("fields, error, text", MISTAKES_WITH_TAPS, ids=[m[2][:40] for m in MISTAKES_WITH_TAPS])
def test_mistakes_with_taps_are_named(fields, error, text):
    with pytest.raises(error) as caught:
        Program(ROWS).gemm([], **fields)
    assert text in str(caught.value)


def test_neighbours_of_an_input_are_read_too(token_flags):
    """Four taps from input 0 on: a load of input 4 does not wait, one of input 3 does."""
    p = Program(ROWS)
    x = p.buffer("x", (8, 1, 8))
    p.load(Mem.INP, 0, x, 0, x_size=4)
    p.gemm([(2, 1, 0, 1)], depthwise=True, taps=4)
    p.load(Mem.INP, 4, x, 4)
    p.load(Mem.INP, 3, x, 3)
    assert token_flags(p.finish()) == [
        "LOAD.INP push_next", "DWGEMM pop_prev push_prev", "LOAD.INP", "LOAD.INP pop_next push_next", "FINISH pop_prev",
    ]  # fmt: skip
