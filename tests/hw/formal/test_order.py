"""hw/rtl/store/: a LOAD of PAR reads what every earlier STORE wrote, in the order alone by induction, in the whole unit
within some cycles."""

import pytest
from amaranth.hdl import Signal, Value
from amaranth.lib import data

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Op
from tilewright.hw.rtl.ports import insn_layout
from tilewright.hw.rtl.store import Store, StoreOrder

CFG = PRESETS["tiny"].replace(block_in=2, block_out=2, wgt_bytes=512, inp_bytes=512, acc_bytes=1024, ppu_lanes=2)
BYTES = CFG.axi_bits // 8

READS = "no byte is asked for whose write is not answered"
LATE = "no byte is written that an earlier instruction's read stands behind"
PARAMETERS = "no parameters change while a STORE is being sent"


def covers(at, first, beats):
    return (first <= at) & (at < first + beats)


def alone(spec, order):
    """Whatever is stored and answered, a LOAD that may be taken begins behind all beats that are not answered."""
    dut = order(CFG)
    (inside,) = spec.add("order", dut)["elaborate"]
    spec.drive("in", dut.stored, dut.row, dut.addr, dut.beats, dut.sending, dut.answered, dut.first, dut.waits)
    at, taken, written, before, came, known = spec.constant("at", 37), *(Signal() for _ in range(5))
    first, earlier = (Signal.like(dut.first, reset_less=True, name=name) for name in ("first", "earlier"))
    spec.m.d.sync += [before.eq(dut.row), came.eq(before), known.eq(came), first.eq(dut.first), earlier.eq(first)]
    spec.takes(~dut.waits | ((first == dut.first) & (earlier == dut.first)))
    # rows belong to a STORE that was taken, nothing is answered that was not sent
    with spec.m.If(dut.stored):
        spec.m.d.sync += taken.eq(1)
    with spec.m.Elif(dut.answered):
        spec.m.d.sync += [taken.eq(0), written.eq(0)]
    with spec.m.If(dut.row & covers(at, dut.addr, dut.beats)):
        spec.m.d.sync += written.eq(1)
    spec.takes(~dut.row | (taken & dut.sending))
    spec.takes(~(before | came | known) | dut.sending)
    spec.takes(~dut.answered | ~dut.sending)
    spec.sees(~(dut.may & written) | (at < dut.first), READS)
    spec.sees(~(dut.may & taken & dut.sending), PARAMETERS)
    spec.invariant(taken == inside.unanswered, "a STORE that is not answered is known")
    coming = (came & (at < inside.behind)) | (before & covers(at, inside.addr, inside.beats))
    spec.invariant(~written | (taken & ((at < inside.end) | coming)), "the end is behind all that is not answered")
    spec.invariant(~(inside.beyond & written) | (at < earlier) | before | came | known, "what is beyond is known")
    spec.invariant(first == inside.first, "the address of the LOAD is a cycle late")
    spec.invariant((before == inside.row) & (came == inside.came), "a row leaves")
    spec.reaches(dut.may & written)
    return spec


def unit(spec, store, beats=2):
    """The whole unit: the bus and everybody else are free, instructions are small and only STORE and LOAD of PAR."""
    dut = store(CFG)
    spec.add("store", dut)
    axi, req = dut.axi, dut.req
    spec.drive("cmd", dut.cmd.valid, dut.cmd.payload)
    spec.takes(spec.steady(dut.cmd.valid, dut.cmd.ready, dut.cmd.payload))  # as it is the head of a queue
    spec.drive("tokens", dut.from_compute.valid, dut.to_compute.ready)
    spec.drive("acc", dut.acc.ready, dut.acc.data, dut.requantise.ready, dut.requantise.o_en, dut.requantise.o)
    spec.drive("bus", axi.awready, axi.wready, axi.bvalid, axi.bresp)
    spec.drive("read", req.ready, dut.beats.valid, dut.beats.payload)
    insn = data.View(insn_layout(CFG, "STORE"), Value.cast(dut.cmd.payload.insn))
    spec.takes(((insn.op == Op.STORE) & (insn.mem == Mem.OUT)) | ((insn.op == Op.LOAD) & (insn.mem == Mem.PAR)))
    spec.takes((insn.x_size <= beats) & (insn.y_size <= beats) & (insn.x_stride <= 3) & (insn.dram_base < 32))
    spec.takes(insn.sram_base == 0)
    sent, ended, answered = (Signal(5) for _ in range(3))
    address, word, answer = axi.awvalid & axi.awready, axi.wvalid & axi.wready, axi.bvalid & axi.bready
    spec.m.d.sync += [sent.eq(sent + address), ended.eq(ended + (word & axi.wlast)), answered.eq(answered + answer)]
    spec.takes(~axi.bvalid | ((answered != sent) & (answered != ended)))
    # a beat address, and whether a write or read of it is on its way; a STORE behind a LOAD is taken when that is over
    at, writes, reads = spec.constant("at", 8), Signal(), Signal()
    here = covers(at, axi.awaddr[3:], axi.awlen + 1)
    with spec.m.If(address & here):
        spec.m.d.sync += writes.eq(1)
    with spec.m.Elif(answer & (answered + 1 == sent) & ~axi.awvalid):
        spec.m.d.sync += writes.eq(0)
    asked = req.valid & req.ready & covers(at, req.payload.addr, req.payload.beats)
    with spec.m.If(dut.cmd.valid & dut.cmd.ready):
        spec.m.d.sync += reads.eq(0)
    with spec.m.Elif(asked):
        spec.m.d.sync += reads.eq(1)
    open_ = writes & (answered != sent)
    spec.sees(~(asked & open_), READS)
    spec.sees(~(reads & axi.awvalid & here), LATE)
    spec.reaches(asked & (answered != 0))
    return spec


def test_a_load_waits_for_what_it_reads(solver, new_spec):
    solver.proved(alone(new_spec(), StoreOrder))


def test_loads_of_other_bytes_pass(solver, new_spec):
    solver.reached(alone(new_spec(), StoreOrder), 8)


@pytest.mark.slow
def test_the_unit_keeps_the_order_within_12_cycles(solver, new_spec):
    solver.bounded(unit(new_spec(), Store), 12)


@pytest.mark.parametrize(
    "changes, text",
    [
        (["self.may.eq(~unanswered | (~self.sending & self.waits & beyond))", "self.may.eq(1)"], PARAMETERS),
        (["beyond.eq(first >= end)", "beyond.eq(1)"], READS),
        (["beyond.eq(first >= end)", "beyond.eq(first + 1 >= end)"], READS),
        (["self.waits & beyond", "beyond"], READS),
        (["~self.sending & ", ""], PARAMETERS),
        (["came & (behind > end)", "came"], READS),
        (["behind.eq(addr + beats)", "behind.eq(addr + 1)"], READS),
    ],
)
def test_a_wrong_order_is_found(solver, new_spec, mutant, changes, text):
    changed = mutant("store", *changes)
    solver.refuted(alone(new_spec(), changed.StoreOrder), text, 8)


@pytest.mark.parametrize(
    "changes, text",
    [
        (["loads.may.eq(order.may)", "loads.may.eq(1)"], READS),  # requested at once
        (["loads.may.eq(order.may)", "loads.may.eq(~order.sending)"], READS),  # when all is sent
        (["order.stored.eq(loads.stored)", "order.stored.eq(row.valid)"], LATE),
    ],
)
@pytest.mark.slow
def test_a_wrong_unit_is_found(solver, new_spec, mutant, changes, text):
    changed = mutant("store", *changes)
    solver.refuted(unit(new_spec(), changed.Store), text, 14)
