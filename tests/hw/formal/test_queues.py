"""hw/rtl/fifo.py, by induction: queues neither lose nor invent words, and keep their order."""

import pytest
from amaranth.hdl import Array, Mux, Signal

from tilewright.hw.rtl.fifo import Fifo

COUNT = "pushed - popped is what is inside"
FULL = "never more than fit"
STEADY = "what is offered stays until it is taken"
ORDER = "the word comes out in its turn"


def ends(spec, fifo, depth, shape=1):
    """`fifo` between free ends; `may` wherever a word comes, and elsewhere or not."""
    dut = fifo(shape=shape, depth=depth)
    spec.m.submodules.fifo = dut
    inside = spec.queue(dut)
    spec.drive("end", dut.i.valid, dut.i.payload, dut.o.ready, dut.may)
    spec.takes(~dut.i.valid | dut.may)
    return dut, inside, dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready


def counted(spec, fifo, depth):
    dut, inside, push, pop = ends(spec, fifo, depth)
    pushed, popped = Signal(16), Signal(16)
    spec.m.d.sync += [pushed.eq(pushed + push), popped.eq(popped + pop)]
    spec.sees(spec.steady(dut.o.valid, dut.o.ready, dut.o.payload), STEADY)
    invariants(spec, dut, inside, pushed, popped, depth)
    return spec


def invariants(spec, dut, inside, pushed, popped, depth):
    """What is known of the words inside."""
    stored, head, tail = inside.stored, inside.head, inside.tail
    spec.sees((pushed - popped)[: len(pushed)] == dut.level, COUNT)
    spec.sees(dut.level <= depth + 1, FULL)
    spec.invariant((stored <= depth) & (head < depth) & (tail < depth), "pointers stay inside")
    spec.invariant((head + stored == tail) | (head + stored == tail + depth), "as many words as between the pointers")


def ordered(spec, fifo, depth):
    """The word pushed as number `n` (any) is the one that is popped as number `n`; numbers are modulo 16."""
    dut, inside, push, pop = ends(spec, fifo, depth, shape=3)
    n = spec.constant("n", 4)
    pushed, popped, word = Signal(4), Signal(4), Signal(3)
    spec.m.d.sync += [pushed.eq(pushed + push), popped.eq(popped + pop)]
    with spec.m.If(push & (pushed == n)):
        spec.m.d.sync += word.eq(dut.i.payload)
    spec.sees(~(pop & (popped == n)) | (dut.o.payload == word), ORDER)
    spec.reaches(pop & (popped == depth + 2))
    # where the word is meanwhile
    memory = Array(spec.memory("fifo.memory", 3, depth))
    ahead, place = Signal(4), Signal(5)
    spec.m.d.comb += [ahead.eq(n - popped - dut.o.valid), place.eq(inside.head + ahead)]
    stored = memory[Mux(place < depth, place, place - depth)] == word
    spec.invariant(~((n == popped) & dut.o.valid) | (dut.o.payload == word), "the word waits at the end")
    spec.invariant((ahead >= inside.stored) | stored, "the word is in its place")
    invariants(spec, dut, inside, pushed, popped, depth)
    return spec


@pytest.mark.parametrize("depth", [3, pytest.param(64, marks=pytest.mark.slow)])
def test_words_are_neither_lost_nor_invented(solver, new_spec, depth):
    solver.proved(counted(new_spec(), Fifo, depth))


@pytest.mark.parametrize("depth", [2, 3, pytest.param(8, marks=pytest.mark.slow)])
def test_words_keep_their_order(solver, new_spec, depth):
    solver.proved(ordered(new_spec(), Fifo, depth))


def test_words_come_out(solver, new_spec):
    solver.reached(ordered(new_spec(), Fifo, 3), 12)


@pytest.mark.parametrize(
    "before, after, spec, text",
    [
        ("self.i.ready.eq(~full)", "self.i.ready.eq(1)", counted, COUNT),
        ("fill.eq(~self.o.valid | self.o.ready)", "fill.eq(1)", counted, STEADY),
        ("self.o.valid.eq(~empty | self.i.valid)", "self.o.valid.eq(~empty | push_next)", counted, COUNT),
        ("fill & ~empty & ~enters", "fill & ~enters", ordered, COUNT),
        ("(tail, enters)", "(tail, enters & ~fill)", ordered, ORDER),
        ("write.en.eq(~full & self.may)", "write.en.eq(~full & self.may & ~self.o.valid)", ordered, ORDER),
        ("pointer.eq(0 if self.depth == 1 else pointer + 1)", "pointer.eq(pointer + 3)", ordered, ORDER),
        ("with m.If(pointer == self.depth - 1)", "with m.If(pointer == self.depth)", ordered, ORDER),
    ],
)
def test_a_wrong_queue_is_found(solver, new_spec, mutant, before, after, spec, text):
    changed = mutant("fifo", before, after.replace("push_next", "(self.i.valid & self.o.ready)"))
    solver.refuted(spec(new_spec(), changed.Fifo, 3), text, 12)


def test_a_queue_that_takes_too_much_is_found(solver, new_spec, mutant):
    changed = mutant("fifo", "full.eq(stored == self.depth - 1)", "full.eq(stored == 4)")
    solver.refuted(counted(new_spec(), changed.Fifo, 4), FULL, 12)
