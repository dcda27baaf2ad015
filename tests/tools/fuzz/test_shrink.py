"""tools/fuzz/shrink.py."""

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Op
from tools.fuzz.command import listing, settled, shrink, with_words
from tools.fuzz.programs import Generated, generated

TINY = PRESETS["tiny"]
ISA = Isa(TINY)


def test_what_shows_the_difference_is_left():
    """It is an ALU instruction that multiplies, in this test."""
    program = next(p for p in (generated(TINY, seed) for seed in range(1, 30)) if shows(p) and p.count < 40)
    small = shrink(TINY, program, shows)
    assert shows(small) and small.count <= 4 and settled(TINY, small)
    (f,) = [f for f in ISA.decode(small.words) if f["op"] == Op.ALU]
    assert f["iter_in"] <= 1 and f["dst_out"] <= 1
    assert "FINISH" in listing(TINY, small)[-1]


def shows(program):
    return any(f["op"] == Op.ALU and f["alu_op"] == 4 for f in ISA.decode(program.words))


def test_a_program_that_races_is_not_settled():
    program = generated(TINY, 1)
    assert settled(TINY, program)
    words = program.words
    kept = [k for k, f in enumerate(ISA.decode(words)) if f["op"] != Op.FINISH]
    assert not settled(TINY, with_words(program, words[kept]))


def test_fewer_words():
    program = generated(TINY, 1)
    part = with_words(program, program.words[3:])
    assert isinstance(part, Generated) and part.count == program.count - 3
    assert (part.words == program.words[3:]).all() and part.seed == 1
