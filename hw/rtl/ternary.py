"""Unit ternary: products with weights in {-1, 0, 1}, without multipliers, at the same time as GEMM.

It executes its queue on banks of accumulators that the compute unit does not use. Nothing is multiplied: inputs go in
pairs, of which x0 + x1 and x0 - x1 are made once for all channels, and with a sign these, x0, x1 and 0 are all that two
weights can ask for. The sign stays beside the value: the tree adds or subtracts, so that nothing is negated before the
accumulators. Its sequencer is simpler than that of hw/rtl/compute/sequencer.py: there are no other instructions to
tell apart, and no loads to wait for, so there is no more than the loops and two stages behind them.
"""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import TERNARY_BITS, Config
from ..isa import Isa, Mem
from ..regs import Error
from .compute.sequencer import count_loops
from .fifo import KEEP, Fifo
from .latencies import (
    ACC_STAGES,
    LEVELS_PER_STAGE,
    OPERAND_LATENCY,
    PAIR_STAGES,
    TERNARY_ORDER_DEPTH,
    capacity,
    ternary_array_latency,
    ternary_dot_latency,
)
from .ports import (
    INDEX_BITS,
    Fault,
    SramRead,
    SramWrite,
    TernaryRead,
    TernaryWrite,
    Token,
    address_bits,
    command_layout,
    command_signature,
    entry_bits,
    fault_of,
    insn_layout,
    keep_first,
    plane_bits,
    push_layout,
    register,
    unit_members,
    uop_layout,
)
from .scratchpad import Scratchpad


def sum_bits(cfg: Config) -> int:
    """Width of the magnitude of a sum, without its sign bit."""
    return cfg.inp_bits + cfg.block_in.bit_length() - 1


def coded(cfg: Config, word: Value) -> Value:
    """Ternary weights `word` as the scratchpad keeps them; zeros stay zeros.

    Of two weights: bit 0: one of them is not 0; bit 1: the first of those that are not 0 is negative; bits 2 and 3:
    which of x0, x1, x0 + x1 and x0 - x1. A single weight stays what it is, which says the same of x0.
    """
    if cfg.block_in == 1:
        return word
    pairs = (word[k : k + 2 * TERNARY_BITS] for k in range(0, len(word), 2 * TERNARY_BITS))
    return Cat(
        Cat(some0 | some1, Mux(some0, minus0, minus1), Mux(some0 & some1, minus0 ^ minus1, some1), some0 & some1)
        for some0, minus0, some1, minus1 in pairs
    )


class TernaryDot(wiring.Component):
    """Dot products of one input entry with one entry of ternary weights in each cycle.

    Members:
        en: in, inputs stand at `inp`; their weights follow a cycle later
        inp: in, entry of the inputs
        wgt: in, entry of ternary weights as `coded` has it
        sums: out, one for each lane of each block: number (t * batch + b) * block_out + c

    Latency `ternary_array_latency(cfg)` from `inp`, interval 1, no back-pressure; stages without operands keep their
    contents, or become 0.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        lanes = cfg.ternary_blocks * cfg.lanes
        term = data.StructLayout({"value": signed(sum_bits(cfg)), "minus": 1})  # with `minus` the value negated
        super().__init__(
            {
                "en": In(1),
                "inp": In(entry_bits(cfg, Mem.INP)),
                "wgt": In(entry_bits(cfg, Mem.TWGT)),
                "sums": Out(data.ArrayLayout(term, lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Sums and differences of pairs of inputs, a choice per channel and pair, and a tree of adders per channel."""
        m, cfg = Module(), self.cfg
        enables = [Signal(name=f"en_{k + 1}") for k in range(ternary_array_latency(cfg) - 1)]
        for enable, before in zip(enables, [self.en, *enables]):
            m.d.sync += enable.eq(before)
        rows = [self._pairs(m, b) for b in range(cfg.batch)]
        per = min(cfg.block_in, 2) * TERNARY_BITS  # bits of weights that choose together
        count = max(cfg.block_in // 2, 1)
        for t in range(cfg.ternary_blocks):
            for c in range(cfg.block_out):
                first = (t * cfg.block_out + c) * count * per
                codes = [self.wgt[first + k * per : first + (k + 1) * per] for k in range(count)]
                for b, pairs in enumerate(rows):
                    name = f"t{t}_b{b}_c{c}"
                    terms = [
                        _chosen(m, enables[0], pair, code, f"{name}_{k}")
                        for k, (pair, code) in enumerate(zip(pairs, codes))
                    ]
                    value, minus = _tree(m, enables[PAIR_STAGES - 1 :], terms, f"tree_{name}")
                    term = self.sums[(t * cfg.batch + b) * cfg.block_out + c]
                    m.d.comb += [term.value.eq(value), term.minus.eq(minus)]
        return m

    def _pairs(self, m: Module, b: int) -> list[tuple[Value, ...]]:
        """Row `b` of the inputs in pairs: both, their sum, their difference; a single one alone."""
        cfg, bits = self.cfg, self.cfg.inp_bits
        at = b * cfg.block_in
        x = [self.inp[k * bits : (k + 1) * bits].as_signed() for k in range(at, at + cfg.block_in)]
        made = [(x0, x1, x0 + x1, x0 - x1) for x0, x1 in zip(x[::2], x[1::2])] if len(x) > 1 else [(x[0],)]
        return [
            tuple(register(m, self.en, value, f"b{b}_pair_{k}_{n}") for n, value in enumerate(pair))
            for k, pair in enumerate(made)
        ]


def _chosen(m: Module, enable: Value, pair: tuple[Value, ...], code: Value, name: str) -> tuple[Signal, Signal]:
    """The value of `pair` that `code` asks for, and its sign.

    A value of 0 comes from the reset of the register, so that one gate of six inputs chooses among the four others.
    """
    bits = max(len(value) for value in pair)
    value, minus = Signal(signed(bits), name=f"value_{name}", reset_less=True), Signal(name=f"minus_{name}")
    chosen = pair[0] if len(pair) == 1 else Mux(code[3], Mux(code[2], pair[3], pair[2]), Mux(code[2], pair[1], pair[0]))
    with m.If(~code[0]):
        m.d.sync += value.eq(0)
    with m.Elif(enable):
        m.d.sync += value.eq(chosen)
    with m.If(enable):
        m.d.sync += minus.eq(code[1])
    return value, minus


def _tree(m: Module, enables: list[Signal], terms: list[tuple[Value, Value]], name: str) -> tuple[Value, Value]:
    """The sum of `terms`; `LEVELS_PER_STAGE` levels of adders before each register, whose enables are `enables`."""
    level = 0
    while len(terms) > 1:
        terms = [_added(*both) for both in zip(terms[::2], terms[1::2])]
        level += 1
        if level % LEVELS_PER_STAGE == 0 or len(terms) == 1:
            enable, stage = enables[(level - 1) // LEVELS_PER_STAGE], f"{name}_{level}"
            terms = [
                (register(m, enable, value, f"{stage}_{k}"), register(m, enable, minus, f"{stage}_minus_{k}"))
                for k, (value, minus) in enumerate(terms)
            ]
    return terms[0]


def _added(one: tuple[Value, Value], other: tuple[Value, Value]) -> tuple[Value, Value]:
    """The sum of two terms, with the sign of the first.

    By one adder: where the signs differ the second value is inverted, and the 1 that completes its negation enters as a
    carry from a bit below.
    """
    (a, minus), (b, other_minus) = one, other
    differ = minus ^ other_minus
    return added(a, b, differ)[: len(a) + 1].as_signed(), minus


def added(a: Value, b: Value, subtract: Value) -> Value:
    """`a + b`, with `subtract` `a - b`, of signed values, by one adder."""
    inverted = Cat(subtract, b.as_unsigned() ^ subtract.replicate(len(b))).as_signed()
    return (Cat(C(1, 1), a).as_signed() + inverted)[1:]


class Weights(wiring.Component):
    """`Scratchpad` of TWGT: written with ternary weights, read as `coded` has them.

    Members:
        write: in, the write port
        read: in, the read port

    Reads, latency and back-pressure are those of `Scratchpad`.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({"write": In(SramWrite(cfg, Mem.TWGT)), "read": In(SramRead(cfg, Mem.TWGT))})

    def elaborate(self, platform: object) -> Module:
        """Weights are coded when they are written, once for all reads."""
        m = Module()
        m.submodules.memory = memory = Scratchpad(self.cfg, mem=Mem.TWGT)
        wiring.connect(m, wiring.flipped(self.read), memory.read)
        m.d.comb += [
            memory.write.en.eq(self.write.en),
            memory.write.addr.eq(self.write.addr),
            memory.write.data.eq(coded(self.cfg, self.write.data)),
        ]
        return m


_MEMS = {"dst": Mem.ACC, "src": Mem.INP, "wgt": Mem.TWGT}  # what the indices of a micro-op count


def issue_layout(cfg: Config) -> data.StructLayout:
    """An issue: at `place` of the planes of the bank that `banks` has a bit for, acc += dot(inp[src], twgt[wgt]).

    `clear` takes 0 for acc, `reset` writes 0. `last` marks the end of the job. Without a bit in `banks` nothing is
    computed: a job that issues nothing, or an index beyond its scratchpad.
    """
    indices = {name: address_bits(cfg, _MEMS[name]) for name in ("src", "wgt")}
    flags = {"banks": cfg.acc_banks, "clear": 1, "reset": 1, "last": 1}
    return data.StructLayout({"place": plane_bits(cfg), **indices, **flags})


def _control(cfg: Config) -> data.StructLayout:
    """Control word of an issue: fields that the issues of a job share, `last`, and the `offsets` of the indices."""
    offsets = data.StructLayout({name: address_bits(cfg, mem) + 1 for name, mem in _MEMS.items()})
    flags = dict.fromkeys(("bubble", "wrong", "clear", "reset", "last"), 1)
    return data.StructLayout({**flags, "index": INDEX_BITS, "offsets": offsets})


class TernarySequencer(wiring.Component):
    """Two nested loops around a range of micro-ops, one issue per cycle across all their ends and across instructions.

    Members:
        jobs: in, TERNARY instructions as a command queue holds them
        uop: out, read port of the micro-ops
        o: out, issues
        halt: in, let the executing job end with its next issue
        fault: out, an index beyond its scratchpad or its plane, whose issue has no bank; a cycle behind that

    Latency `TERNARY_SEQUENCER_LATENCY`, interval 1, for jobs `JOB_INTERVAL`; a job without issues counts as one of a
    single issue. Back-pressure: where `o` waits, `TERNARY_ISSUES_AHEAD` issues behind the executing job do, too, and
    one job inside while another executes; all step on in the cycle in which `o` does.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "jobs": In(command_signature()),
                "uop": Out(SramRead(cfg, Mem.TUOP)),
                "o": Out(stream.Signature(issue_layout(cfg))),
                "halt": In(1),
                "fault": Out(Fault()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Waiting job, executing job, the stage that reads the micro-op, the output."""
        m, cfg = Module(), self.cfg
        waiting, occupied = Signal(command_layout()), Signal()
        running, first = Signal(), Signal(_control(cfg))
        reading, read = Signal(), Signal(_control(cfg), reset_less=True)
        step, advance, load = Signal(), Signal(), Signal()
        m.d.comb += [
            step.eq(~self.o.valid | self.o.ready),
            advance.eq(running & step),
            load.eq(occupied & (~running | (advance & first.last))),
            self.jobs.ready.eq(~occupied),
        ]
        with m.If(self.jobs.ready):
            m.d.sync += [waiting.eq(self.jobs.payload), occupied.eq(self.jobs.valid)]
        with m.Elif(load):
            m.d.sync += occupied.eq(0)
        with m.If(load):
            m.d.sync += running.eq(1)
        with m.Elif(advance & first.last):
            m.d.sync += running.eq(0)
        self._decode(m, waiting, load, first)
        self._loops(m, data.View(insn_layout(cfg, "TERNARY"), waiting.insn), load, advance, first)
        with m.If(step):
            m.d.sync += [reading.eq(running), read.eq(first), self.o.valid.eq(reading)]
        self._issue(m, reading, read, step)
        return m

    def _decode(self, m: Module, waiting: data.View, load: Value, first: data.View) -> None:
        """Fields that all issues of the executing job share, decoded from the waiting job."""
        insn = data.View(insn_layout(self.cfg, "TERNARY"), waiting.insn)
        names = ("bubble", "wrong", "reset", "clear", "index")
        held = {name: Signal.like(first[name], name=name) for name in names}
        overwrite = insn.overwrite if "overwrite" in Isa(self.cfg).formats["TERNARY"].fields else 0
        empty = (insn.uop_bgn == insn.uop_end) | (insn.iter_out == 0) | (insn.iter_in == 0)
        wrong = (insn.uop_end < insn.uop_bgn) | (insn.uop_end > self.cfg.uop_depth)
        with m.If(load):
            m.d.sync += [
                held["bubble"].eq(empty | wrong),
                held["wrong"].eq(wrong),
                held["reset"].eq(insn.reset),
                held["clear"].eq(insn.reset | overwrite),
                held["index"].eq(waiting.index),
            ]
        with m.If(self.halt):
            m.d.sync += held["bubble"].eq(1)
        m.d.comb += [first[name].eq(value) for name, value in held.items()]

    def _loops(self, m: Module, insn: data.View, load: Value, advance: Value, first: data.View) -> None:
        """Counters of the three loops, whether they end, and the offsets.

        An offset has one bit more than its index, which stays once it is set: the index is beyond its scratchpad then.
        """
        loops = count_loops(m, insn, address_bits(self.cfg, Mem.TUOP), load, advance)
        m.d.comb += [
            first.last.eq(first.bubble | loops.last),
            self.uop.en.eq(advance),
            self.uop.addr.eq(loops.at),
        ]
        for name, mem in _MEMS.items():
            bits = address_bits(self.cfg, mem)
            rows, offset = (Signal(bits + 1, name=f"{name}_{which}") for which in ("outer", "offset"))
            by_row, by_column = (Signal(bits + 1, name=f"{name}_by_{which}") for which in ("outer", "inner"))
            with m.If(advance & loops.uop_last):
                step = Mux(loops.inner_last, by_row, by_column)
                m.d.sync += offset.eq(_sum(Mux(loops.inner_last, rows, offset), step))
                with m.If(loops.inner_last):
                    m.d.sync += rows.eq(_sum(rows, by_row))
            with m.If(load):
                m.d.sync += [offset.eq(0), rows.eq(0)]
                for by, field in ((by_row, insn[f"{name}_out"]), (by_column, insn[f"{name}_in"])):
                    m.d.sync += by.eq(_within(field, bits))
            m.d.comb += first.offsets[name].eq(offset)

    def _issue(self, m: Module, reading: Value, read: data.View, step: Value) -> None:
        """The output, from the micro-op that was read; no bank is set where an index is out of range."""
        cfg = self.cfg
        issue = Signal(issue_layout(cfg), reset_less=True)
        uop = data.View(uop_layout(cfg), self.uop.data)
        sums, beyond = {}, {}
        for name, mem in _MEMS.items():
            bits = address_bits(cfg, mem)
            total = _sum(_within(uop[name], bits), read.offsets[name])
            sums[name], beyond[name] = total[:bits], total[bits]
        planes, bank = plane_bits(cfg), (cfg.bank_depth - 1).bit_length()
        beyond["dst"] |= sums["dst"][planes:bank].any()  # it is in the first plane
        wrong, banks = Signal(), Signal(cfg.acc_banks)
        last, index = Signal(), Signal(INDEX_BITS, reset_less=True)
        counted = beyond["dst"] | (~read.reset & (beyond["src"] | beyond["wgt"]))
        with m.If(step):
            m.d.sync += [
                issue.place.eq(sums["dst"]),
                issue.src.eq(sums["src"]),
                issue.wgt.eq(sums["wgt"]),
                *[issue[name].eq(read[name]) for name in ("clear", "reset")],
                banks.eq(Mux(read.bubble, 0, Cat(sums["dst"][bank:] == k for k in range(cfg.acc_banks)))),
                last.eq(read.last),
                wrong.eq(reading & (read.wrong | (~read.bubble & counted))),
                index.eq(read.index),
            ]
        m.d.comb += [
            self.o.payload.eq(issue),
            self.o.payload.banks.eq(Mux(wrong, 0, banks)),
            self.o.payload.last.eq(last),
        ]
        keep_first(m, self.fault, (self.o.valid & wrong, Error.RANGE, index))


def _within(value: Value, bits: int) -> Value:
    """The low `bits` of an index or a step, and above them whether it is beyond them."""
    return Cat(value[:bits], value[bits:].any()) if len(value) > bits else value


def _sum(a: Value, b: Value) -> Value:
    """The sum of two such values; the top bit says that it is beyond, too."""
    bits = max(len(a), len(b)) - 1
    total = a[:bits] + b[:bits]
    return Cat(total[:bits], total[bits] | a[bits:].any() | b[bits:].any())


_LANE = 32  # bits of an accumulator
_COPIES = 8  # of a register that chooses all of an entry: no wire of it drives more than some 70 pins


class TernaryExecute(wiring.Component):
    """Executes issues in order, each on the accumulators as the one before left them.

    Members:
        issues: in, issues of the sequencer
        compute_busy: in, banks that the compute unit uses
        inp, wgt: out, read ports of the scratchpads
        read, write: out, ports of the accumulators
        busy: out, banks of the issues that went on and are not written; registers
        retire: out, the oldest instruction has ended with the write now

    Latency `ternary_latency(cfg)`, interval 1, also on one accumulator. An issue waits while the compute unit uses its
    bank, and those behind it wait, too; nothing waits behind that.

    Stages: the dot product; the accumulators are read so late that they arrive together with it:

        address | choose | execute | result (write)

    The issue right behind takes a result in `execute`. The next two, which read before the write, take it in `choose`:
    one from the result register, one from a copy of that. Later issues read it from memory.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "issues": In(stream.Signature(issue_layout(cfg))),
                "compute_busy": In(cfg.acc_banks),
                "inp": Out(SramRead(cfg, Mem.INP)),
                "wgt": Out(SramRead(cfg, Mem.TWGT)),
                "read": Out(TernaryRead(cfg)),
                "write": Out(TernaryWrite(cfg)),
                "busy": Out(cfg.acc_banks),
                "retire": Out(1),
            }
        )
        layout = issue_layout(cfg).members
        self._live = data.StructLayout({"banks": cfg.acc_banks, "last": 1})
        self._slot = data.StructLayout({name: layout[name] for name in ("place", "wgt", "clear", "reset")})

    def elaborate(self, platform: object) -> Module:
        """Issue, dot products, delay, accumulate."""
        m, cfg = Module(), self.cfg
        m.submodules.dot = dot = TernaryDot(cfg)
        issue = self.issues.payload
        stages = [self._stage(k) for k in range(ternary_dot_latency(cfg) + 1)]
        live, slot = stages[0]
        goes = self.issues.valid & self.issues.ready
        m.d.comb += [
            self.issues.ready.eq(~(issue.banks & self.compute_busy).any()),
            live.banks.eq(Mux(goes, issue.banks, 0)),
            live.last.eq(goes & issue.last),
            *[slot[name].eq(issue[name]) for name in self._slot.members],
        ]
        for before, after in zip(stages, stages[1:]):
            m.d.sync += [later.eq(earlier) for earlier, later in zip(before, after)]
        reads = [Signal(name=f"reads_{k}") for k in range(OPERAND_LATENCY + 1)]
        m.d.comb += reads[0].eq(live.banks.any() & ~slot.reset)
        m.d.sync += [later.eq(earlier) for earlier, later in zip(reads, reads[1:])]
        m.d.comb += [
            self.inp.en.eq(reads[0]),
            self.inp.addr.eq(issue.src),
            self.wgt.en.eq(reads[1]),  # a cycle later, as `TernaryDot` takes them
            self.wgt.addr.eq(stages[1][1].wgt),
            dot.en.eq(reads[OPERAND_LATENCY]),
            dot.inp.eq(self.inp.data),
            dot.wgt.eq(self.wgt.data),
        ]
        used = [live.banks for live, _ in stages]
        m.d.sync += self.busy.eq(Cat(Cat(banks[k] for banks in used).any() for k in range(cfg.acc_banks)))
        self._accumulate(m, stages, dot.sums)
        return m

    def _stage(self, k: int) -> tuple[data.View, data.View]:
        return Signal(self._live, name=f"live_{k}"), Signal(self._slot, name=f"slot_{k}", reset_less=True)

    def _accumulate(self, m: Module, stages: list[tuple[data.View, data.View]], sums: data.View) -> None:
        """Read and choose the accumulators, and add."""
        entry = len(self.write.data)
        ahead, address, choose, execute = stages[-2 - ACC_STAGES :]
        result, older, acc = (Signal(entry, name=name, reset_less=True) for name in ("result", "older", "acc"))
        place = Signal.like(self.write.addr)
        m.d.sync += self.read.en.eq(Mux(ahead[1].clear, 0, ahead[0].banks))
        m.d.comb += self.read.addr.eq(address[1].place)
        # the issues before the one at `address`, the next to execute first
        latest = [(live.banks, slot.place) for live, slot in (choose, execute)] + [(self.write.en, place)]
        match = [Signal(name=f"match_{k + 1}") for k in range(len(latest))]
        for found, (banks, at) in zip(match, latest):
            m.d.sync += found.eq((self.read.en & banks).any() & (at == address[1].place))
        following = [Signal(name=f"following_{k}", attrs=KEEP) for k in range(_COPIES)]
        chosen = Mux(match[1] | match[2], Mux(match[1], result, older), self.read.data)
        m.d.sync += older.eq(result)
        with m.If(choose[1].clear):
            m.d.sync += acc.eq(0)
        with m.Else():
            m.d.sync += acc.eq(chosen)
        m.d.sync += [copy.eq(match[0]) for copy in following]
        size = entry // _COPIES
        parts = [(copy, slice(k * size, (k + 1) * size)) for k, copy in enumerate(following)]
        taken = Cat(Mux(copy, result[part], acc[part]) for copy, part in parts)
        lanes = [(taken[k * _LANE : (k + 1) * _LANE].as_signed(), sums[k]) for k in range(entry // _LANE)]
        with m.If(execute[1].reset):
            m.d.sync += result.eq(0)
        with m.Elif(execute[0].banks.any()):
            m.d.sync += result.eq(Cat(added(lane, term.value, term.minus)[:_LANE] for lane, term in lanes))
        m.d.sync += [self.write.en.eq(execute[0].banks), place.eq(execute[1].place), self.retire.eq(execute[0].last)]
        m.d.comb += [self.write.addr.eq(place), self.write.data.eq(result)]


class Ternary(wiring.Component):
    """Executes the ternary queue in order, each instruction on the accumulators as the one before left them.

    Members, besides those of every unit (`unit_members`):
        cmd: in, the ternary queue
        from_store, from_load: in, tokens that its instructions take
        to_store, to_load: out, tokens that they give
        inp, twgt, uop: out, read ports of the scratchpads
        read, write: out, ports of the accumulators
        busy: out, banks that it uses
        compute_busy: in, banks that the compute unit uses

    Instructions follow each other through sequencer and pipeline without a gap. An issue waits while the compute unit
    uses its bank (hw/rtl/ternary.py). Tokens are given in the order of the queue, when the last issue is
    written. Back-pressure: an instruction waits at the head of the queue for its tokens; then one waits inside for the
    one before it, and `TERNARY_ORDER_DEPTH` for the room of the tokens that they give.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "cmd": In(command_signature()),
                "from_store": In(Token()),
                "from_load": In(Token()),
                "to_store": Out(Token()),
                "to_load": Out(Token()),
                "inp": Out(SramRead(cfg, Mem.INP)),
                "twgt": Out(SramRead(cfg, Mem.TWGT)),
                "uop": Out(SramRead(cfg, Mem.TUOP)),
                "read": Out(TernaryRead(cfg)),
                "write": Out(TernaryWrite(cfg)),
                "busy": Out(cfg.acc_banks),
                "compute_busy": In(cfg.acc_banks),
                **unit_members(),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connects sequencer and pipeline; takes the tokens of an instruction first and gives its tokens last."""
        m = Module()
        m.submodules.sequencer = sequencer = TernarySequencer(self.cfg)
        m.submodules.execute = execute = TernaryExecute(self.cfg)
        m.submodules.order = order = Fifo(shape=push_layout(), depth=TERNARY_ORDER_DEPTH)
        wiring.connect(m, sequencer.o, execute.issues)
        wiring.connect(m, wiring.flipped(self.uop), sequencer.uop)
        for outer, inner in (
            (self.inp, execute.inp),
            (self.twgt, execute.wgt),
            (self.read, execute.read),
            (self.write, execute.write),
        ):
            wiring.connect(m, wiring.flipped(outer), inner)
        jobs = Signal(range(capacity(TERNARY_ORDER_DEPTH) + 1))  # taken and not written
        m.d.sync += jobs.eq(jobs + self.cmd.ready - execute.retire)
        permitted = self._take(m, sequencer, order)
        self._give(m, order, execute.retire)
        m.d.comb += [
            execute.compute_busy.eq(self.compute_busy),
            self.busy.eq(execute.busy),
            sequencer.halt.eq(self.halt),
            self.idle.eq((jobs == 0) & (self.halt | (order.level == 0))),
            self.activity.busy.eq(order.level != 0),
            self.activity.token_wait.eq(self.cmd.valid & ~permitted),
            self.activity.insn.eq(self.cmd.ready),
            self.activity.ended.eq(order.o.valid & order.o.ready),
            self.activity.progress.eq(self.cmd.ready | (sequencer.o.valid & sequencer.o.ready) | execute.retire),
        ]
        keep_first(m, self.fault, fault_of(sequencer.fault))
        return m

    def _take(self, m: Module, sequencer: TernarySequencer, order: Fifo) -> Value:
        """Sends the first instruction to the sequencer; returns whether it has its tokens."""
        flags = data.View(insn_layout(self.cfg, "TERNARY"), Value.cast(self.cmd.payload.insn))
        permitted, may = Signal(), Signal()
        m.d.comb += [
            permitted.eq((~flags.pop_prev | self.from_store.valid) & (~flags.pop_next | self.from_load.valid)),
            may.eq(self.cmd.valid & permitted & ~self.halt & order.i.ready),
            sequencer.jobs.valid.eq(may),
            sequencer.jobs.payload.eq(self.cmd.payload),
            self.cmd.ready.eq(may & sequencer.jobs.ready),
            order.i.valid.eq(self.cmd.ready),
            order.may.eq(self.cmd.valid),
            *(order.i.payload[name].eq(flags[name]) for name in ("push_prev", "push_next")),
            self.from_store.ready.eq(self.cmd.ready & flags.pop_prev),
            self.from_load.ready.eq(self.cmd.ready & flags.pop_next),
        ]
        return permitted

    def _give(self, m: Module, order: Fifo, retire: Value) -> None:
        """The oldest instruction goes, with its tokens, when it is written and the channels have room."""
        head, leaves, ended = order.o.payload, Signal(), Signal()
        written, some = Signal(range(capacity(TERNARY_ORDER_DEPTH) + 1)), Signal()  # instructions; more than none
        prev, following = ~head.push_prev | self.to_store.ready, ~head.push_next | self.to_load.ready
        with m.If(retire & ~leaves):
            m.d.sync += [written.eq(written + 1), some.eq(1)]
        with m.Elif(leaves & ~retire):
            m.d.sync += [written.eq(written - 1), some.eq(written != 1)]
        m.d.comb += [
            ended.eq(order.o.valid & (retire | some)),
            order.o.ready.eq(ended & ((prev & following) | self.halt)),
            leaves.eq(order.o.valid & order.o.ready),
            self.to_store.valid.eq(ended & head.push_prev & following),
            self.to_load.valid.eq(ended & head.push_next & prev),
        ]
