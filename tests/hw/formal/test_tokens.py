"""hw/rtl/fifo.py, by induction: token channels neither lose nor invent tokens."""

import pytest
from amaranth.hdl import Signal

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.fifo import TokenChannel

LOST = "pushed - popped is what is inside"
FULL = "never more than fit"


def tokens(spec, channel, depth):
    """`channel` between free ends; counted outside, modulo 2**16, which is more than any depth."""
    dut = channel(PRESETS["tiny"].replace(token_depth=depth))
    (inside,) = spec.add("channel", dut)["elaborate"]
    pushed, popped = Signal(16), Signal(16)
    spec.drive("end", dut.push.valid, dut.pop.ready)
    spec.m.d.sync += [
        pushed.eq(pushed + (dut.push.valid & dut.push.ready)),
        popped.eq(popped + (dut.pop.valid & dut.pop.ready)),
    ]
    spec.sees((pushed - popped)[:16] == dut.level, LOST)
    spec.sees(dut.level <= depth, FULL)
    spec.invariant(inside.room == (dut.level != depth), "a full channel is known")
    spec.invariant(inside.some == (dut.level != 0), "an empty channel is known")
    spec.reaches(dut.level == min(depth, 5))
    return spec


@pytest.mark.parametrize("depth", [1, 1023])
def test_tokens_are_neither_lost_nor_invented(solver, new_spec, depth):
    solver.proved(tokens(new_spec(), TokenChannel, depth))


def test_a_channel_fills(solver, new_spec):
    solver.reached(tokens(new_spec(), TokenChannel, 6), 8)


@pytest.mark.parametrize(
    "before, after, text",
    [
        ("self.level != self.depth - 1", "1", FULL),
        ("with m.If(push & ~pop)", "with m.If(push)", LOST),
        ("with m.Elif(pop & ~push)", "with m.Elif(pop)", LOST),
        ("self.level != 1", "1", LOST),
        ("self.level.eq(self.level - 1)", "self.level.eq(0)", LOST),
    ],
)
def test_a_wrong_channel_is_found(solver, new_spec, mutant, before, after, text):
    changed = mutant("fifo", before, after)
    spec = tokens(new_spec(), changed.TokenChannel, 5)
    solver.refuted(spec, text, 8)
