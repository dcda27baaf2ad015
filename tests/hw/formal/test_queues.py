"""hw/fifo.py: no queue loses or invents words, by induction; the order of words, only within so many cycles."""

import pytest

COUNT = "pushed - popped is what is inside"
STEADY = "what is offered stays until it is taken"
ORDER = "the word comes out in its turn"


def ends(spec, fifo, depth, shape=1):
    """`fifo` between free ends."""
    spec.m.submodules.fifo = dut = fifo(shape=shape, depth=depth)
    spec.drive("end", dut.i.valid, dut.i.payload, dut.o.ready)
    return dut, dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready


def counted(spec, fifo, depth):
    from amaranth.hdl import Signal

    dut, push, pop = ends(spec, fifo, depth)
    pushed, popped = Signal(16), Signal(16)
    spec.m.d.sync += [pushed.eq(pushed + push), popped.eq(popped + pop)]
    stored = spec.probe("fifo.stored", range(depth + 1))
    head, tail = (spec.probe(f"fifo.{name}", range(depth)) for name in ("head", "tail"))
    spec.sees((pushed - popped)[:16] == dut.level, COUNT)
    spec.sees(dut.level <= depth + 1, "never more than fit")
    spec.sees((stored <= depth) & (head < depth) & (tail < depth), "pointers stay inside")
    spec.sees((head + stored == tail) | (head + stored == tail + depth), "as many words as between the pointers")
    spec.sees(spec.steady(dut.o.valid, dut.o.ready, dut.o.payload), STEADY)
    return spec


def ordered(spec, fifo, depth):
    """The word pushed as number `n` (any) is the one that is popped as number `n`."""
    from amaranth.hdl import Signal

    dut, push, pop = ends(spec, fifo, depth, shape=3)
    n = spec.constant("n", 4)
    pushed, popped, word, known = Signal(4), Signal(4), Signal(3), Signal()
    spec.m.d.sync += [pushed.eq(pushed + push), popped.eq(popped + pop)]
    with spec.m.If(push & (pushed == n)):
        spec.m.d.sync += [word.eq(dut.i.payload), known.eq(1)]
    spec.sees(~(pop & (popped == n)) | (known & (dut.o.payload == word)), ORDER)
    spec.reaches(pop & (popped == depth + 2))
    return spec


@pytest.mark.parametrize("depth", [1, 3, 4, 64])
def test_words_are_neither_lost_nor_invented(solver, new_spec, depth):
    from tilewright.hw.fifo import Fifo

    solver.proved(counted(new_spec(), Fifo, depth))


@pytest.mark.parametrize("depth, cycles", [(1, 10), (3, 12), (4, 12)])
def test_words_keep_their_order_within_so_many_cycles(solver, new_spec, depth, cycles):
    from tilewright.hw.fifo import Fifo

    solver.bounded(ordered(new_spec(), Fifo, depth), cycles)
    solver.reached(ordered(new_spec(), Fifo, depth), cycles)


@pytest.mark.parametrize(
    "before, after, spec, text",
    [
        ("self.i.ready.eq(stored != self.depth)", "self.i.ready.eq(1)", counted, "pointers stay inside"),
        ("fill.eq(~self.o.valid | self.o.ready)", "fill.eq(1)", counted, STEADY),
        ("(stored != 0) | self.i.valid", "(stored != 0) | push_next", counted, COUNT),
        ("bypass.eq(fill & (stored == 0))", "bypass.eq(fill)", ordered, ORDER),
        ("pointer.eq(0 if self.depth == 1 else pointer + 1)", "pointer.eq(pointer + 3)", ordered, ORDER),
        ("with m.If(pointer == self.depth - 1)", "with m.If(pointer == self.depth)", ordered, ORDER),
    ],
)
def test_a_wrong_queue_is_found(solver, new_spec, mutant, before, after, spec, text):
    changed = mutant("fifo", before, after.replace("push_next", "(self.i.valid & self.o.ready)"))
    solver.refuted(spec(new_spec(), changed.Fifo, 3), text, 12)
