"""Proofs about blocks of the circuit, and that each mistake planted in a block is found.

A row of `PROVED`, `BOUNDED` and `REACHED` is a block with its specification; a row of `MISTAKES` has changes of a
module's text, and the sentence of the specification that the changed block breaks.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.hw.formal import blocks, bursts
from tests.hw.formal.smt import Solver, Spec, missing_tools, module_named, mutated
from tilewright.hw.isa import Mem

SLOW = pytest.mark.slow


@dataclass(frozen=True)
class Block:
    """The component `name` of hw/rtl/<module>.py and the function that specifies it."""

    module: str
    name: str
    specify: Any

    def spec(self, component=None):
        """The specification around the component of the module, or around another one."""
        return self.specify(Spec(), component or getattr(module_named(self.module), self.name))


def reading(**ports):
    return Block("read_port", "ReadPort", partial(bursts.read_port, **ports))


def fifo(specify, depth):
    return Block("fifo", "Fifo", partial(specify, depth=depth))


def channel(depth):
    return Block("fifo", "TokenChannel", partial(blocks.tokens, depth=depth))


STRIPES = Block("load", "Stripes", bursts.spread)
STORE, LENGTHS = Block("store", "StoreBursts", bursts.store), Block("store", "StoreBursts", bursts.stored_lengths)
EXCLUSION = Block("compute.accumulators", "Exclusion", blocks.bank)
STORE_ORDER, STORE_UNIT = Block("store", "StoreOrder", blocks.alone), Block("store", "Store", blocks.unit)
MOVER = Block("mover", "Mover", blocks.one_load)
FOUR = blocks.NARROW.replace(extensions=blocks.TINY.extensions | {"wgt4"})
MOVER_OF_FOUR = Block("mover", "Mover", partial(blocks.one_load, cfg=FOUR, mem=Mem.WGT4))
DECODER = Block("fetch", "decode", blocks.second_space)


@pytest.fixture
def solver(tmp_path):
    if missing := missing_tools():
        pytest.skip(f"nothing is proved without {', '.join(missing)}: pip install 'tilewright[hw,synth,formal]'")
    return Solver(tmp_path)


PROVED = {
    "reads of one client": pytest.param(reading(clients=1, width=1), marks=SLOW),
    "reads of three clients": reading(clients=3, width=1),
    "wide reads": pytest.param(reading(clients=1, width=2), marks=SLOW),
    "wide reads beside narrow ones": reading(clients=2, width=2),
    "stripes": pytest.param(STRIPES, marks=SLOW),
    "writes": pytest.param(STORE, marks=SLOW),
    "words of 3 are neither lost nor invented": fifo(blocks.counted, 3),
    "words of 64 are neither lost nor invented": pytest.param(fifo(blocks.counted, 64), marks=SLOW),
    "words of 2 keep their order": fifo(blocks.ordered, 2),
    "words of 3 keep their order": fifo(blocks.ordered, 3),
    "words of 8 keep their order": pytest.param(fifo(blocks.ordered, 8), marks=SLOW),
    "one token": channel(1),
    "1023 tokens": channel(1023),
    "two units are never in one bank and nobody waits for ever": EXCLUSION,
    "a load waits for what it reads": STORE_ORDER,
    "numbers that have no row are refused": DECODER,
}


@pytest.mark.parametrize("block", PROVED.values(), ids=PROVED)
def test_it_holds_for_ever(solver, block):
    solver.proved(block.spec())


@pytest.mark.parametrize(
    "block, cycles",
    [
        pytest.param(LENGTHS, 8, id="writes have as many beats as told"),
        pytest.param(STORE_UNIT, 12, id="the store unit keeps the order", marks=SLOW),
        pytest.param(MOVER, 10, id="a load writes only its tile", marks=SLOW),
        pytest.param(MOVER, 12, id="a load writes only its tile, longer", marks=SLOW),
        pytest.param(MOVER_OF_FOUR, 10, id="a load of weights of 4 bits writes only its tile", marks=SLOW),
    ],
)
def test_it_holds_within_so_many_cycles(solver, block, cycles):
    solver.bounded(block.spec(), cycles)


@pytest.mark.parametrize(
    "block, cycles",
    [
        pytest.param(reading(), 8, id="long bursts"),
        pytest.param(STRIPES, 5, id="a long burst of the second port", marks=SLOW),
        pytest.param(fifo(blocks.ordered, 3), 12, id="words come out"),
        pytest.param(channel(6), 8, id="a channel fills"),
        pytest.param(EXCLUSION, 16, id="both units wait for each other in turn"),
        pytest.param(STORE_ORDER, 8, id="loads of other bytes pass"),
        pytest.param(MOVER, 11, id="a load of three entries ends"),
    ],
)
def test_the_assumptions_leave_the_interesting_cases(solver, block, cycles):
    solver.reached(block.spec(), cycles)


NEXT = "left.addr.eq(((left.addr >> _OFFSET_BITS) + 1) << _OFFSET_BITS)"
PUSH_NEXT = "self.o.valid.eq(~empty | (self.i.valid & self.o.ready))"
# (block, cycles) and what is wrong: (the sentence that fails, *changes of the module's text)
MISTAKES = [
    (
        (reading(), 10),
        (bursts.STEADY, "addresses.o.ready.eq(axi.arready)", "addresses.o.ready.eq(1)"),
        (bursts.WHOLE, "axi.arburst.eq(INCR)", "axi.arburst.eq(addresses.o.payload.len == 0)"),
        (bursts.WHOLE, "axi.arsize.eq(size)", "axi.arsize.eq(size + addresses.o.payload.addr[0])"),
    ),
    (
        (STRIPES, 8),
        (bursts.TURN, "sending.eq(sending + 1)", "sending.eq(sending)"),
        (bursts.TURN, "words.valid & words.ready & word.last", "words.valid & words.ready"),
        (bursts.TURN, "splitter.take.eq(splitter.valid & burst.ready)", "splitter.take.eq(splitter.valid)"),
        (bursts.ONCE, "self.req.payload.addr << shift", "self.req.payload.addr << 2"),
    ),
    (
        (STORE, 8),
        (bursts.STEADY, "addresses.o.ready.eq(axi.awready)", "addresses.o.ready.eq(1)"),
        (bursts.WHOLE, "axi.awburst.eq(INCR)", "axi.awburst.eq(addresses.o.payload.len == 0)"),
        (bursts.DATA, "self.beats.ready.eq(axi.wready & lengths.o.valid)", "self.beats.ready.eq(lengths.o.valid)"),
        (bursts.ONCE, "splitter.take.eq(go)", "splitter.take.eq(room)"),
    ),
    ((LENGTHS, 8), (bursts.LAST, "axi.wlast.eq(count == lengths.o.payload)", "axi.wlast.eq(count >= 1)")),
    (
        (fifo(blocks.counted, 3), 12),
        (blocks.COUNT, "self.i.ready.eq(~full)", "self.i.ready.eq(1)"),
        (blocks.STEADY, "fill.eq(~self.o.valid | self.o.ready)", "fill.eq(1)"),
        (blocks.COUNT, "self.o.valid.eq(~empty | self.i.valid)", PUSH_NEXT),
    ),
    (
        (fifo(blocks.ordered, 3), 12),
        (blocks.COUNT, "fill & ~empty & ~enters", "fill & ~enters"),
        (blocks.ORDER, "(tail, enters)", "(tail, enters & ~fill)"),
        (blocks.ORDER, "write.en.eq(~full & self.may)", "write.en.eq(~full & self.may & ~self.o.valid)"),
        (blocks.ORDER, "pointer.eq(0 if self.depth == 1 else pointer + 1)", "pointer.eq(pointer + 3)"),
        (blocks.ORDER, "with m.If(pointer == self.depth - 1)", "with m.If(pointer == self.depth)"),
    ),
    ((fifo(blocks.counted, 4), 12), (blocks.FULL, "full.eq(stored == self.depth - 1)", "full.eq(stored == 4)")),
    (
        (channel(5), 8),
        (blocks.FULL, "self.level != self.depth - 1", "1"),
        (blocks.COUNT, "with m.If(push & ~pop)", "with m.If(push)"),
        (blocks.COUNT, "with m.Elif(pop & ~push)", "with m.Elif(pop)"),
        (blocks.COUNT, "self.level != 1", "1"),
        (blocks.COUNT, "self.level.eq(self.level - 1)", "self.level.eq(0)"),
    ),
    (
        (EXCLUSION, blocks.USUAL + 4),
        (blocks.ONE, "self.busy.eq(self.issue | held)", "self.busy.eq(self.issue)"),
        (blocks.ONE, "usual - 1)", "usual - 2)"),
    ),
    ((EXCLUSION, blocks.TERNARY + 6), (blocks.ONE, "| self.loads[k]", ""), (blocks.LOADS, "| self.loads[k]", "")),
    (
        (STORE_ORDER, 8),
        (blocks.PARAMETERS, "self.may.eq(~unanswered | (~self.sending & self.waits & beyond))", "self.may.eq(1)"),
        (blocks.READS, "beyond.eq(first >= end)", "beyond.eq(1)"),
        (blocks.READS, "beyond.eq(first >= end)", "beyond.eq(first + 1 >= end)"),
        (blocks.READS, "self.waits & beyond", "beyond"),
        (blocks.PARAMETERS, "~self.sending & ", ""),
        (blocks.READS, "came & (behind > end)", "came"),
        (blocks.READS, "behind.eq(addr + beats)", "behind.eq(addr + 1)"),
    ),
    ((DECODER, 2), (blocks.REDUCED, "alu.imm.as_unsigned() < most", "alu.imm[:7] < most")),
]
SLOW_MISTAKES = [
    ((reading(), 10), (bursts.OWN, "came & (route.o.payload == k)", "came & (route.o.payload != k)")),
    (
        (STORE_UNIT, 14),
        (blocks.READS, "loads.may.eq(order.may)", "loads.may.eq(1)"),  # requested at once
        (blocks.READS, "loads.may.eq(order.may)", "loads.may.eq(~order.sending)"),  # when all is sent
        (blocks.LATE, "order.stored.eq(loads.stored)", "order.stored.eq(row.valid)"),
    ),
]


def rows(mistakes, *marks):
    """A test's parameters for each row of a table of mistakes."""
    for (block, cycles), *wrong in mistakes:
        for text, *changes in wrong:
            yield pytest.param(
                block, cycles, text, changes, marks=marks, id=f"{block.name}: {changes[1] or changes[0]}"
            )


@pytest.mark.parametrize("block, cycles, text, changes", [*rows(MISTAKES), *rows(SLOW_MISTAKES, SLOW)])
def test_a_mistake_is_found(solver, block, cycles, text, changes):
    changed = getattr(mutated(block.module, *changes), block.name)
    solver.refuted(block.spec(changed), text, cycles)


@pytest.mark.parametrize(
    "before, after",
    [
        ("splitter.i.valid) & (left >= 0)", "splitter.i.valid)"),
        ("(flying_next != OUTSTANDING)", "1"),
        ("Mux(grant, splitter.length, 0) + taken", "Mux(grant, splitter.length, 0) + taken + 1"),
    ],
)
def test_a_port_that_asks_for_too_much_is_not_proved(solver, before, after):
    solver.unproved(reading().spec(mutated("read_port", before, after).ReadPort))


LENGTH = "Mux(self.final, left.beats[: _OFFSET_BITS + 1], to_boundary)"
BOUNDARY = ["BURST_BEATS - left.addr[:_OFFSET_BITS]", "BURST_BEATS", NEXT, "left.addr.eq(left.addr + self.length)"]
FREE = "~self.valid | (self.take & self.final)"
PAD = '+ cmd[f"{axis}_pad_1"]'


@pytest.mark.parametrize(
    "block, part, source, text, changes",
    [
        (reading(), "Splitter", "axi", bursts.PAGE, BOUNDARY),
        (reading(), "Splitter", "axi", bursts.ONCE, [NEXT, "left.addr.eq(left.addr + 1)"]),
        (reading(), "Splitter", "axi", bursts.ONCE, [LENGTH, "to_boundary"]),
        (reading(), "Splitter", "axi", bursts.ONCE, ["left.beats - self.length", "left.beats - 1"]),
        (reading(), "Splitter", "axi", bursts.ONCE, [FREE, "~self.valid | self.take"]),
        pytest.param(STORE, "Splitter", "axi", bursts.PAGE, BOUNDARY, marks=SLOW),
        pytest.param(
            MOVER, "Walker", "mover", blocks.RANGE,
            ["step.addr.eq(tile.base + count)", "step.addr.eq(tile.base + count + 1)"], marks=SLOW,
        ),
        pytest.param(MOVER, "Planner", "mover", blocks.RANGE, [PAD, f'{PAD} + int(axis == "x")'], marks=SLOW),
        pytest.param(MOVER, "Planner", "mover", blocks.RANGE, [PAD, f'{PAD} + int(axis == "y")'], marks=SLOW),
    ],
)  # fmt: skip
def test_a_mistake_in_a_part_is_found(solver, monkeypatch, block, part, source, text, changes):
    monkeypatch.setattr(module_named(block.module), part, getattr(mutated(source, *changes), part))
    solver.refuted(block.spec(), text, 10)
