"""Specifications of queues, token channels, exclusion of units, order of stores, ranges of loads, refused words."""

from amaranth.hdl import Array, C, Cat, Mux, Signal, Value
from amaranth.lib import data

from tests.hw.formal.bursts import covers
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem, Op, scratchpad_of
from tilewright.hw.rtl.latencies import accumulator_latency, issue_latency, multiply_latency, ternary_latency
from tilewright.hw.rtl.ports import insn_layout

TINY, TWO = PRESETS["tiny"], PRESETS["tiny_two"]
NARROW = TINY.replace(axi_bits=32)
USUAL, LONGEST, READ = issue_latency(TWO), multiply_latency(TWO), accumulator_latency(TWO)
TERNARY = ternary_latency(TWO)
SMALL = TINY.replace(block_in=2, block_out=2, wgt_bytes=512, inp_bytes=512, acc_bytes=1024, ppu_lanes=2)

COUNT = "pushed - popped is what is inside"
FULL = "never more than fit"
STEADY = "what is offered stays until it is taken"
ORDER = "the word comes out in its turn"
ONE = "a bank belongs to one unit"
LOADS = "a load is written when those of unit ternary are written"
READS = "no byte is asked for whose write is not answered"
LATE = "no byte is written that an earlier instruction's read stands behind"
PARAMETERS = "no parameters change while a STORE is being sent"
RANGE = "what is written belongs to the tile"
REDUCED = "a number without a row is refused"


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
    spec.sees((pushed - popped)[:16] == dut.level, COUNT)
    spec.sees(dut.level <= depth, FULL)
    spec.invariant(inside.room == (dut.level != depth), "a full channel is known")
    spec.invariant(inside.some == (dut.level != 0), "an empty channel is known")
    spec.reaches(dut.level == min(depth, 5))
    return spec


def bank(spec, exclusion):
    """Both units at one of the banks: issues of the compute queue, loads, issues of unit ternary, whenever they like.

    What the solver cannot choose: an issue stays at the output until it goes on, and none overtakes one that
    multiplies (hw/rtl/compute/pipeline.py).
    """
    m, dut = spec.m, exclusion(TWO)
    (inside,) = spec.add("exclusion", dut)["elaborate"]
    issue, multiply, loads, asks, may = (spec.free(name) for name in ("issue", "multiply", "loads", "asks", "may"))
    # issues that went on and are not written, by the cycles since: bit 0 stands for the cycle before
    usual, slow, ternary = (Signal(latency, name=f"flying_{latency}") for latency in (USUAL, LONGEST, TERNARY))
    leaves, stays, kind = Signal(), Signal(), Signal()
    m.d.comb += [dut.issue.eq(issue), dut.multiply.eq(multiply), dut.loads.eq(loads), leaves.eq(asks & ~dut.busy[0])]
    goes = issue & may
    m.d.sync += [stays.eq(issue & ~may), kind.eq(multiply), ternary.eq(Cat(leaves, ternary))]
    m.d.sync += [usual.eq(Cat(goes & ~multiply, usual)), slow.eq(Cat(goes & multiply, slow))]
    spec.takes(~stays | (issue & (multiply == kind)))
    spec.takes(~(goes & ~multiply & slow[: LONGEST - USUAL - 1].any()))
    seen, written = Signal(), Signal()  # a load whose bank is busy since a cycle; that may be written
    m.d.sync += [seen.eq(loads), written.eq(loads & (written | (seen & ~ternary.any())))]
    reads = usual[READ - 1 :].any() | slow[READ - 1 :].any()  # or will not read any more, and has to write
    spec.sees(~((leaves | ternary.any()) & (reads | written)), ONE)
    waits = _counted(spec, loads & seen & ~written, ternary, TERNARY + 1)
    spec.sees(waits <= TERNARY + 1, LOADS)
    for k in range(TERNARY):
        spec.invariant(~ternary[k] | ~(usual[k:].any() | slow[k:].any()), "those of unit ternary are older")
    for flying in (usual, slow):
        for k, one in enumerate(flying):
            left = len(flying) - 1 - k
            spec.invariant(~one | stays | (inside.timers[0] >= left), "the timer runs as long as the latest issue")
    spec.invariant(~(usual.any() | slow.any() | stays | seen) | inside.held[0], "what is in the bank is held")
    spec.invariant(~written | seen, "only loads are written")
    spec.invariant((waits <= TERNARY) | written, "the last cycle is that in which this is seen")
    spec.reaches(goes & ternary.any() & usual.any())
    spec.reaches(written & (waits == 0) & asks)
    return spec


def _counted(spec, waits, ternary, most):
    """Cycles of the wait so far, in which no issue of unit ternary leaves."""
    count = Signal(range(most + 2))
    spec.m.d.sync += count.eq(Mux(waits, count + 1, 0))
    for k in range(1, TERNARY + 1):
        spec.invariant((count < k) | ~ternary[:k].any(), f"within {k} cycles none left")
    return count


def alone(spec, order):
    """Whatever is stored and answered, a LOAD that may be taken begins behind all beats that are not answered."""
    dut = order(SMALL)
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
    dut = store(SMALL)
    spec.add("store", dut)
    axi, req = dut.axi, dut.req
    spec.drive("cmd", dut.cmd.valid, dut.cmd.payload)
    spec.takes(spec.steady(dut.cmd.valid, dut.cmd.ready, dut.cmd.payload))  # as it is the head of a queue
    spec.drive("tokens", dut.from_compute.valid, dut.to_compute.ready)
    spec.drive("acc", dut.acc.ready, dut.acc.data, dut.requantise.ready, dut.requantise.o_en, dut.requantise.o)
    spec.drive("bus", axi.awready, axi.wready, axi.bvalid, axi.bresp)
    spec.drive("read", req.ready, dut.beats.valid, dut.beats.payload)
    insn = data.View(insn_layout(SMALL, "STORE"), Value.cast(dut.cmd.payload.insn))
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


def one_load(spec, mover, cfg=NARROW, mem=Mem.INP):
    """One load of any small tile of `mem` at any place; data come whenever they like."""
    target = scratchpad_of(mem)
    dut = mover(cfg, mems=(target,))
    spec.add("mover", dut)
    cmd, port = dut.cmd.payload, getattr(dut, f"write_{target.name.lower()}")
    spec.drive("end", dut.cmd.valid, cmd, dut.beats.valid, dut.beats.payload, dut.req.ready, dut.done.ready, dut.hold)
    for name in ("x_size", "y_size", "x_pad_0", "x_pad_1", "y_pad_0", "y_pad_1"):
        spec.takes(cmd[name] < 4)
    spec.takes(cmd.mem == mem.id)
    taken, first, beyond = Signal(), Signal(16), Signal(17)
    spec.takes(~(taken & dut.cmd.valid))
    width = (cmd.x_pad_0 + cmd.x_size + cmd.x_pad_1)[:4]
    height = (cmd.y_pad_0 + cmd.y_size + cmd.y_pad_1)[:4]
    with spec.m.If(dut.cmd.valid & dut.cmd.ready):
        spec.m.d.sync += [taken.eq(1), first.eq(cmd.sram_base), beyond.eq(cmd.sram_base + width * height)]
    wrote = port.en.any()
    spec.sees(~wrote | (taken & (first <= port.addr) & (port.addr < beyond)), RANGE)
    spec.reaches(wrote & (port.addr == beyond - 1) & (beyond - first == 3) & dut.done.valid)
    return spec


def second_space(spec, decode):
    """The decoder on all words with the number of REDUCE, in a configuration without operations beyond it."""
    cfg, word = TINY.replace(extensions=TINY.extensions | {"lane_reduce"}), spec.free("word", 128)
    alu = data.View(insn_layout(cfg, "ALU"), word)
    bad, _ = decode(spec.m, cfg, word, C(0))
    legal = alu.use_imm & (alu.imm.as_unsigned() < 2)
    spec.sees((alu.op != Op.ALU) | (alu.alu_op != AluOp.REDUCE) | (bad != legal), REDUCED)
    return spec
