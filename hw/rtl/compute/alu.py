"""The tensor ALU: operations on every 32-bit lane of an accumulator entry, and the multipliers that it shares.

`Alu` computes `o = op(a, b)` at once, wrapping. `Rescale` has the multipliers of MUL, RESCALE and the post-processing
unit, with the parameters of channels:

    t = a + bias                              post-processing only; wraps at 32 bits
    x = t << max(exponent, 0)                 mode `double`; wraps at 32 bits
    double: h = (x * multiplier + 2**30) >> 31,  r = h / 2**max(-exponent, 0), ties away from zero
    single: r = (t * multiplier + 2**(30 - exponent)) >> (31 - exponent)
    RESCALE: r, low 32 bits;  post-processing: min(max(zero_point + r, low), high)
    MUL: a * b, low 32 bits: mode `single` with multiplier b and exponent 31

Adding half of a power of two before a shift is the same as adding, after it, the last bit that was shifted out; so
all roundings to the nearest are one more bit of the shifter and the carry of an adder. Ties of negative numbers go away
from zero when 1 is subtracted before.

LOOKUP and REDUCE go beside the multipliers and take as long:

    LOOKUP: o[k] = table[min(max(a[k], -128), 127) + 128]
    REDUCE: o[k] = sum or maximum of a over the channels of k's row
"""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...config import TABLE_SIZE, Config
from ...isa import OPERATIONS, PAR, REDUCTIONS, AluOp, Mem
from ..latencies import (
    MULTIPLIER_LATENCY,
    PLACE_LATENCY,
    REQUANTISE_LATENCY,
    RESCALE_LATENCY,
    TABLE_LATENCY,
    groups,
    multipliers,
)
from ..ports import Products, Requantise, SramWrite, format_layout, group_bits, lane_bits, register
from ..scratchpad import Parameters, channels


def multiplies(op: Value) -> Value:
    """1 where operation `op` needs the multipliers."""
    return op.matches(*(row.op for row in OPERATIONS.values() if row.multiplies and row.op < 1 << len(op)))


def choice_layout() -> data.StructLayout:
    """Control bits of `Alu`: a sum, a shift, or a choice between both operands, of the larger one with `MAX`.
    All are 0 for an operation that multiplies."""
    return data.StructLayout(dict.fromkeys(("ADD", "SHR", "compare", "MAX"), 1))


def chosen(op: Value) -> dict[str, Value]:
    """The bits of `choice_layout` for operation `op`."""
    alone = {known.name: op == known for known in (AluOp.ADD, AluOp.SHR, AluOp.MAX)}
    return {**alone, "compare": op.matches(AluOp.MIN, AluOp.MAX)}


class Alu(wiring.Component):
    """The operations without multipliers; combinational.

    Members:
        choice: in, the operation
        a, b: in, entries
        other: in, results of the multipliers
        use: in, one bit for each group of lanes: `other` is the result; where there is no operation alone
        shifted: out, the entry of results of SHR, 0 for any other operation
        o: out, the entry of results of the others, 0 for SHR; apart from `shifted`, as a shift takes many gates and
            they a carry chain

    SHR shifts right with the sign, a negative amount to the left: from 31 on only the sign is left, from -32 on
    nothing.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        entry = cfg.acc_entry_bits
        operands = {name: In(entry) for name in ("a", "b", "other")}
        results = {"o": Out(entry), "shifted": Out(entry)}
        super().__init__({"choice": In(choice_layout()), **operands, "use": In(groups(cfg)), **results})

    def elaborate(self, platform: object) -> Module:
        """Each lane computes every result and lets one through; one gate follows the results that have a carry."""
        m, on = Module(), self.choice
        lanes = [slice(32 * k, 32 * (k + 1)) for k in range(self.cfg.lanes)]
        for k, lane in enumerate(lanes):
            a, b, total = self.a[lane], self.b[lane], Signal(34, name=f"total_{k}")
            early = Mux(self.use[k // multipliers(self.cfg)], self.other[lane], 0) | Mux(on.compare, a, 0)
            m.d.comb += [
                total.eq(_added(a, b, on)),
                self.o[lane].eq(Mux(total[-1], b, early) | Mux(on.ADD, total[:32], 0)),
            ]
        m.d.comb += self.shifted.eq(_shifted(m, [(self.a[lane], self.b[lane]) for lane in lanes], on.SHR))
        return m


def _added(a: Value, b: Value, on: data.View) -> Value:
    """With `ADD` `a + b` in the low 32 bits; with `compare`, by the same adder, in the highest bit whether `b` is the
    result: a > b for the smaller one, a <= b for the larger one. That bit is 0 with neither.

    The carry of a' + ~b', where a' and b' are `a` and `b` with the top bit inverted, is a > b: they are numbers without
    sign that are as far apart. `compare` lets it pass the next bit, and `MAX` inverts it in the one behind, so that no
    gate is between the carry chain and the choice. A comparison of its own would put two more gates before its shorter
    chain.
    """
    invert = ~on.ADD
    second = Cat(b[:31] ^ invert.replicate(31), b[31], on.compare, on.MAX)
    return (Cat(a[:31], a[31] ^ invert) + second)[: len(second)]


def _shifted(m: Module, lanes: list[tuple[Value, Value]], shift: Value) -> Value:
    """SHR of each (a, b) with `shift`, else 0; by one rotation to the right: by n = b mod 32, which to the left by -b
    is the same. Bit k comes from bit k + n for a shift to the right where that is below 32, for one to the left where
    it is not; the others are filled, and all of them where b is beyond 31 or -32. Which ones is found beside the
    rotation, whose levels choose one of four words.
    """
    turned = [a for a, _ in lanes]
    for name, at in (("turn_1", 0), ("turn_4", 2)):
        steps = [Cat(a, a).bit_select(b[at : at + 2] << at, 32) for a, (_, b) in zip(turned, lanes)]
        turned = _level(m, name, steps)
    from_a = _level(m, "mask", [(C((1 << 32) - 1, 32) >> b[:5]) ^ b[31].replicate(32) for _, b in lanes])
    ends = []
    for (a, b), whole, mask in zip(lanes, turned, from_a):
        within, fill = Signal(), Signal()
        m.d.comb += [
            within.eq(shift & ~(b[5:31] ^ b[31].replicate(26)).any()),
            fill.eq(shift & a[31] & ~b[31]),
        ]
        mask = mask & within.replicate(32)
        ends.append((Mux(b[4], Cat(whole[16:], whole[:16]), whole) & mask) | (fill.replicate(32) & ~mask))
    return Cat(_level(m, "end", ends))


def _level(m: Module, name: str, values: list[Value]) -> list[Signal]:
    """`values` of at most six bits for each of theirs, from a block of their own: synthesis maps a block by itself, so
    each bit to one LUT. Together with others it trades LUTs for smaller ones, and takes a third more of them."""
    m.submodules[name] = block = Module()
    out = [Signal(value.shape(), name=f"{name}_{k}") for k, value in enumerate(values)]
    block.d.comb += [wire.eq(value) for wire, value in zip(out, values)]
    return out


class Multiplier(wiring.Component):
    """Low halves of 32 x 32 bit products, `multipliers(cfg)` lanes in each cycle: MUL where there is no RESCALE.

    Members:
        alu: in, operands of ALU, never with `rescale`

    Latency `MULTIPLIER_LATENCY`, interval 1, no back-pressure. Each
    lane has three 16 x 16 bit multipliers: the product of the high halves is beyond bit 32.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({"alu": In(Products(cfg))})

    def elaborate(self, platform: object) -> Module:
        """Operand registers, partial products in registers, their sum, so that a DSP holds the first three stages."""
        m, bits, alu = Module(), 32 * multipliers(self.cfg), self.alu
        a, b = Signal(bits, reset_less=True), Signal(bits, reset_less=True)
        enables = [Signal(name=f"en_{k + 1}") for k in range(MULTIPLIER_LATENCY - 1)]
        for enable, before in zip(enables, [alu.en, *enables]):
            m.d.sync += enable.eq(before)
        for k in range(groups(self.cfg)):
            part = slice(k * bits, (k + 1) * bits)
            with m.If(alu.en & (alu.group == k)):
                m.d.sync += [a.eq(alu.a[part]), b.eq(alu.b[part])]
        for k in range(multipliers(self.cfg)):
            (a0, a1), (b0, b1) = ((v[32 * k : 32 * k + 16], v[32 * k + 16 : 32 * k + 32]) for v in (a, b))
            parts = {"low": a0 * b0, "ab": a1 * b0, "ba": a0 * b1}
            for stage in (0, 1):
                parts = {name: register(m, enables[stage], v, f"{name}_{stage}_{k}") for name, v in parts.items()}
            low = register(m, enables[2], parts["low"], f"low_2_{k}")
            high = register(m, enables[2], (parts["ab"] + parts["ba"])[:16], f"high_2_{k}")
            m.d.comb += alu.o[32 * k : 32 * (k + 1)].eq(low + high.shift_left(16))
        return m


_ENOUGH = 10  # bits of r that show, with any zero point, on which side of int8 it is


class Rescale(wiring.Component):
    """`multipliers(cfg)` lanes, each with four 16 x 16 bit multipliers; one group of lanes enters per cycle.

    Members:
        alu: in, operands of ALU
        ppu: in, entries of the post-processing unit; waits while `alu` is used
        write: in, write port of the parameters

    Latency `RESCALE_LATENCY` for `alu`, `REQUANTISE_LATENCY` for `ppu`; interval 1. Back-pressure: none on `alu`, whose
    pipeline cannot wait; `ppu` enters in the cycles that `alu` leaves. ALU never waits for STORE but for tokens, so
    neither can keep the other for ever.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({"alu": In(Products(cfg)), "ppu": In(Requantise(cfg)), "write": In(SramWrite(cfg, Mem.PAR))})

    def elaborate(self, platform: object) -> Module:
        """The choice between ALU and post-processing unit; then all lanes alike."""
        m, cfg, alu, ppu = Module(), self.cfg, self.alu, self.ppu
        m.submodules.parameters = parameters = Parameters(cfg)
        wiring.connect(m, wiring.flipped(self.write), parameters.write)
        count, bits = multipliers(cfg), 32 * multipliers(cfg)
        group = Mux(alu.en, alu.group, ppu.group)
        enters, stores, product = Signal(), Signal(), Signal()
        m.d.comb += [
            ppu.ready.eq(~alu.en),
            stores.eq(ppu.en & ppu.ready),
            enters.eq(alu.en | stores),
            product.eq(alu.en & ~alu.rescale),
            parameters.en.eq(enters),
            parameters.addr.eq(Mux(alu.en, alu.par, ppu.par)),
            parameters.group.eq(group),
        ]
        pipe = _Pipeline(m, enters)
        # apart, as words of memory arrive late
        entry = pipe.register(0, _part(ppu.a, ppu.group, bits), "entry")
        a = pipe.register(0, _part(alu.a, alu.group, bits), "a")
        b = pipe.register(0, _part(alu.b, alu.group, bits), "b")
        kinds = [(stores, product)]
        for k in range(REQUANTISE_LATENCY):
            kinds.append(tuple(Signal(name=f"{name}_{k + 1}") for name in ("stores", "product")))
            m.d.sync += [later.eq(now) for later, now in zip(kinds[k + 1], kinds[k])]
        m.d.comb += ppu.o_en.eq(kinds[REQUANTISE_LATENCY][0])
        size = PAR.width
        for k in range(count):
            c = k % channels(cfg)
            par = data.View(format_layout(PAR), parameters.o[c * size : (c + 1) * size])
            lane = _Lane(pipe, k, par, kinds)
            part = slice(32 * k, 32 * (k + 1))
            scaled, stored = lane.results(Mux(kinds[1][0], entry[part], a[part]).as_signed(), b[part].as_signed())
            m.d.comb += [alu.o[32 * k : 32 * (k + 1)].eq(scaled), ppu.o[8 * k : 8 * (k + 1)].eq(stored)]
        return m


def _part(entry: Value, group: Value, bits: int) -> Value:
    return entry.word_select(group, bits) if len(entry) > bits else entry


class _Pipeline:
    """Registers between stages; a stage keeps its values while it is empty, a delay while nothing moves."""

    def __init__(self, m: Module, enters: Value):
        self.m, self.busy = m, [enters]
        for k in range(REQUANTISE_LATENCY):
            self.busy.append(Signal(name=f"busy_{k + 1}"))
            m.d.sync += self.busy[k + 1].eq(self.busy[k])
        self.moves = Signal(name="moves")
        m.d.comb += self.moves.eq(Cat(self.busy[1:]).any())

    def register(self, stage: int, value: Value, name: str, *, until: int | None = None) -> Signal:
        """`value`, which is computed in `stage`, for the stage after it, or in stage `until`, out of a delay: registers
        with one enable, which may be a shift register, and one more, whose output is early."""
        until = stage + 1 if until is None else until
        for k in range(stage, until):
            out = Signal(value.shape(), name=f"{name}_{k + 1}", reset_less=True)
            with self.m.If(self.busy[k] if k == until - 1 else self.moves):
                self.m.d.sync += out.eq(value)
            value = out
        return value


class _Lane:
    """One lane: `par` are its parameters in stage 1, `kinds` whether stage k stores or makes plain products."""

    def __init__(self, pipe: _Pipeline, number: int, par: data.View, kinds: list[Value]):
        self.pipe, self.number, self.par, self.kinds = pipe, number, par, kinds

    def _register(self, stage: int, value: Value, name: str, until: int | None = None) -> Signal:
        return self.pipe.register(stage, value, f"{name}_{self.number}", until=until)

    def _level(self, name: str, value: Value, bits: int) -> Value:
        return _level(self.pipe.m, f"{name}_{self.number}", [value[:bits]])[0]

    def results(self, a: Value, b: Value) -> tuple[Value, Value]:
        """R in stage `RESCALE_LATENCY`, int8 in stage `REQUANTISE_LATENCY`, of the operands in stage 1."""
        a, b = self._register(1, a, "a"), self._register(1, b, "b", until=3)
        bias, multiplier, exponent, single = (
            self._register(1, value, name)
            for value, name in (
                (self.par.bias, "bias"),
                (self.par.multiplier, "multiplier"),
                (self.par.exponent, "exponent"),
                (self.par.mode, "single"),
            )
        )
        biased = self._register(2, (a + Mux(self.kinds[2][0], bias, 0))[:32], "biased")
        product = self.kinds[2][1]
        double = ~single & ~product
        to_left = double & ~exponent[5]
        left = self._register(2, Mux(to_left, exponent[:5], 0), "left")
        # 31 - exponent, whose bits are those of exponent inverted but for the sign
        shift = Mux(product, 0, Mux(to_left, 31, Cat(~exponent[:5], exponent[5])))
        shift = self._register(2, shift, "shift", until=9)
        double, twice = (
            self._register(2, v, name, until=8) for v, name in ((double, "double"), (double & exponent[5], "twice"))
        )
        multiplier = self._register(2, multiplier, "multiplier")
        for at in (0, 2):
            biased = self._level(f"left_{at}", biased << (left[at : at + 2] << at), 32)
        x = self._register(3, (biased << (left[4] << 4))[:32].as_signed(), "x")
        # the top bit apart from a choice with 0: as a reset it would have a register of its own, outside of the DSP
        y = Cat(Mux(self.kinds[3][1], b[:31], multiplier), self.kinds[3][1] & b[31])
        y = self._register(3, y.as_signed(), "y")
        return self._round(self._multiply(x, y), double, twice, shift)

    def _multiply(self, x: Value, y: Value) -> Value:
        """The product in stage 8 of the operands in stage 4."""
        (x0, x1), (y0, y1) = ((v[:16], v[16:32].as_signed()) for v in (x, y))
        low, middle, other, high = (
            self._register(5, self._register(4, u * v, f"{name}_made"), name)
            for u, v, name in ((x0, y0, "p_low"), (x1, y0, "p_middle"), (x0, y1, "p_other"), (x1, y1, "p_high"))
        )
        middle = self._register(6, middle + other, "middles")
        outer = self._register(6, Cat(low[:32], high[:32]).as_signed(), "outer")
        return self._register(7, (outer + middle.shift_left(16))[:64].as_signed(), "product")

    def _round(self, product: Value, double: Value, twice: Value, shift: Value) -> tuple[Value, Value]:
        high = product[31:64].as_signed()
        minus = twice & product[63]  # such a tie goes away from zero when r rounds up to the nearest
        once = _plus(high, minus.replicate(33).as_signed(), product[30])[:33]
        once = self._register(8, Mux(double, Cat(C(0, 31), once), product)[:64].as_signed(), "once")
        shifted = Cat(C(0, 1), once)
        for at in (0, 2, 4):
            shifted = self._level(f"right_{at}", shifted.as_signed() >> (shift[at : at + 2] << at), 65)
        shifted = self._register(9, shifted, "shifted")
        last, low, rest = shifted[0], shifted[1:33], shifted[_ENOUGH:65]
        return (low + last)[:32], self._stored(low[:_ENOUGH].as_signed(), last, rest)

    def _stored(self, near: Value, last: Value, rest: Value) -> Value:
        """int8 in stage `REQUANTISE_LATENCY`, of r in stage `RESCALE_LATENCY`: its low bits, where `rest`, all above,
        are their sign."""
        end = REQUANTISE_LATENCY
        sign = rest[-1]
        far = Cat((~sign).replicate(_ENOUGH - 1), sign).as_signed()
        beyond = Mux(sign, ~rest.all(), rest.any())
        near, last = self._register(end - 2, Mux(beyond, far, near), "near"), self._register(end - 2, last, "last")
        zero = self._register(1, self.par.zero_point, "zero_point", until=end - 1)
        total = self._register(end - 1, _plus(near, zero, last), "total")
        least, most = (self._register(1, self.par[name], name, until=end - 1) for name in ("low", "high"))
        crossed = self._register(end - 1, least > most, "crossed")  # then `most` holds for all
        least, most = self._register(end - 1, least, "low"), self._register(end - 1, most, "high")
        under, over = total < least, total > most
        return Mux(Mux(under, crossed, over), most, Mux(under, least, total))[:8]


def _plus(a: Value, b: Value, carry: Value) -> Value:
    """`a + b + carry`, written so that the carry enters the carry chain: 2a + 1 and 2b + carry, less their last bit."""
    total = Cat(C(1, 1), a).as_signed() + Cat(carry, b).as_signed()
    return total[1:].as_signed()


_WORD = 32  # bits of a value
_PLACE_BITS = (TABLE_SIZE - 1).bit_length()
_END = RESCALE_LATENCY - 1  # the stage in which the results are chosen


class FunctionUse(wiring.Signature):
    """ALU's use of the functions: in every cycle with `lookup` or `reduce` one group of lanes enters, the first group
    of an entry first.

    Members:
        lookup, reduce: out, lanes enter
        group: out, their group
        imm: out, the table or the reduction
        a: out, the entry
        o: in, results of the group that entered `RESCALE_LATENCY` cycles before, 32 bits each; 0 where none did
    """

    def __init__(self, cfg: Config):
        super().__init__(
            {
                "lookup": Out(1),
                "reduce": Out(1),
                "group": Out(group_bits(cfg)),
                "imm": Out(range(max(cfg.tables, len(REDUCTIONS)))),
                "a": Out(cfg.acc_entry_bits),
                "o": In(_WORD * multipliers(cfg)),
            }
        )


class Functions(wiring.Component):
    """The operations that the extensions of `cfg` have.

    Members:
        use: in, operands of ALU
        write: in, write port of the parameters; the tables follow them

    Latency `RESCALE_LATENCY`, interval 1, no back-pressure.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({"use": In(FunctionUse(cfg)), "write": In(SramWrite(cfg, Mem.PAR))})

    def elaborate(self, platform: object) -> Module:
        """LOOKUP and REDUCE, and a register for the result that is chosen."""
        m, use = Module(), self.use
        found = []
        if "lookup" in self.cfg.extensions:
            looks = _delayed(m, use.lookup, _END, "looks")
            found.append(Mux(looks[-1], self._values(m, looks), 0))
        if "lane_reduce" in self.cfg.extensions:
            reduces = _delayed(m, use.reduce, _END, "reduces")
            found.append(Mux(reduces[-1], self._reduced(m), 0))
        chosen = found[0] if len(found) == 1 else found[0] | found[1]
        m.d.sync += use.o.eq(chosen)
        return m

    def _values(self, m: Module, looks: list[Value]) -> Value:
        """Table entries of the lanes, in stage `_END`; each lane has a copy of the tables."""
        cfg, use, count = self.cfg, self.use, multipliers(self.cfg)
        part = Signal(_WORD * count, reset_less=True)
        with m.If(use.lookup):
            m.d.sync += part.eq(use.a.word_select(use.group, len(part)) if len(use.a) > len(part) else use.a)
        begin = _END - TABLE_LATENCY + 1  # the stage in which the memories get the places
        table = _delayed(m, use.imm[: (cfg.tables - 1).bit_length()], begin, "table", reset_less=True)[-1]
        beat, address, beats = self._written(m)
        low = (lane_bits(cfg, Mem.PAR) // _WORD).bit_length() - 1  # of a place: the value's number in its row
        values = []
        for k in range(count):
            place = Signal(_PLACE_BITS, name=f"place_{k}", reset_less=True)
            m.d.sync += place.eq(_place(part[_WORD * k : _WORD * (k + 1)]))
            place = _delayed(m, place, begin - PLACE_LATENCY, f"place_{k}", reset_less=True)[-1]
            m.submodules[f"table_{k}"] = memory = Memory(shape=len(beat), depth=beats, init=[])
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [write.en.eq(address[-1]), write.addr.eq(address[:-1]), write.data.eq(beat)]
            m.d.comb += [read.en.eq(looks[begin]), read.addr.eq(Cat(place, table) >> low)]
            held = Signal(len(beat), name=f"held_{k}", reset_less=True)
            with m.If(looks[begin + 1]):
                m.d.sync += held.eq(read.data)
            number = _delayed(m, place[:low], _END - begin, f"number_{k}", reset_less=True)[-1]
            values.append(held.word_select(number, _WORD) if low else held)
        return Cat(values)

    def _written(self, m: Module) -> tuple[Value, Value, int]:
        """A beat for the tables, one cycle late; its address with an enable above, and the beats of all tables."""
        cfg, write = self.cfg, self.write
        used = cfg.table_words * _WORD // lane_bits(cfg, Mem.PAR)  # beats of an entry
        entries = cfg.tables * cfg.table_entries
        beat, en, entry = Signal.like(write.data), Signal(used), Signal(range(entries))
        m.d.sync += [
            beat.eq(write.data),
            entry.eq(write.addr - cfg.par_entries),
            en.eq(Mux(write.addr >= cfg.par_entries, write.en, 0)),
        ]
        number = Signal(range(used))
        for k in range(1, used):
            with m.If(en[k]):
                m.d.comb += number.eq(k)
        return beat, Cat(number, entry, en.any()), used * entries

    def _reduced(self, m: Module) -> Value:
        """Reductions for the lanes of a group, in stage `_END`: a tree of registers over the channels of each row."""
        cfg, use, block, count = self.cfg, self.use, self.cfg.block_out, multipliers(self.cfg)
        first = _delayed(m, use.reduce & (use.group == 0), _END, "first")
        most = _delayed(m, use.imm == REDUCTIONS.index("max"), _END, "most", reset_less=True)
        rows = [use.a[_WORD * k : _WORD * (k + 1)].as_signed() for k in range(cfg.lanes)]
        for stage in range(_END):  # what is there when a stage takes nothing stays: all groups of an entry read it
            if stage and len(rows) > cfg.batch:
                rows = [_combined(a, b, most[stage]) for a, b in zip(rows[::2], rows[1::2])]
            values = [Signal(_WORD, name=f"row_{stage + 1}_{k}", reset_less=True) for k in range(len(rows))]
            with m.If(first[stage]):
                m.d.sync += [value.eq(row) for value, row in zip(values, rows)]
            rows = [value.as_signed() for value in values]
        group = _delayed(m, use.group, _END, "group", reset_less=True)[-1]
        if count >= block:  # whole rows
            mine = Cat(row.as_unsigned().replicate(block) for row in rows)
            return mine.word_select(group, _WORD * count) if len(mine) > _WORD * count else mine
        row = group >> (block // count).bit_length() - 1
        return Cat(rows).word_select(row, _WORD).replicate(count)


def _delayed(m: Module, value: Value, stages: int, name: str, *, reset_less: bool = False) -> list[Value]:
    """`value` and its values of 1 to `stages` cycles ago."""
    found = [value]
    for k in range(stages):
        found.append(Signal(value.shape(), name=f"{name}_{k + 1}", reset_less=reset_less))
        m.d.sync += found[-1].eq(found[-2])
    return found


def _place(a: Value) -> Value:
    """`min(max(a, -128), 127) + 128`."""
    high, sign = a[_PLACE_BITS - 1 :], a[-1]
    within = (high == 0) | high.all()
    return Mux(within, Cat(a[: _PLACE_BITS - 1], ~a[_PLACE_BITS - 1]), (~sign).replicate(_PLACE_BITS))


def _combined(a: Value, b: Value, most: Value) -> Value:
    """The sum of both, or with `most` the larger one, by one adder."""
    other = Cat(most, b.as_unsigned() ^ most.replicate(_WORD)).as_signed()  # b, or -b
    total = (Cat(C(1, 1), a).as_signed() + other)[1 : _WORD + 2]
    below = total[_WORD]  # with `most`: a < b
    return Mux(most, Mux(below, b, a), total[:_WORD])[:_WORD].as_signed()
