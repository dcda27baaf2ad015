"""The multipliers that ALU MUL, ALU RESCALE and the post-processing unit share, with the parameters of channels.

    t = a + bias                              post-processing only; wraps at 32 bits
    x = t << max(exponent, 0)                 mode `double`; wraps at 32 bits
    double: h = (x * multiplier + 2**30) >> 31,  r = h / 2**max(-exponent, 0), ties away from zero
    single: r = (t * multiplier + 2**(30 - exponent)) >> (31 - exponent)
    RESCALE: r, low 32 bits;  post-processing: min(max(zero_point + r, low), high)
    MUL: a * b, low 32 bits: mode `single` with multiplier b and exponent 31

Adding half of a power of two before a shift is the same as adding, after it, the last bit that was shifted out; so
all roundings to the nearest are one more bit of the shifter and the carry of an adder. Ties of negative numbers go away
from zero when 1 is subtracted before.
"""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from ...config import Config
from ...isa import PAR, Mem
from ..latencies import REQUANTISE_LATENCY, multipliers
from ..layouts import format_layout
from ..ports import Products, Requantise, SramWrite
from ..scratchpad import Parameters, channels

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

    def elaborate(self, platform) -> Module:
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
    """Registers between stages; those of a stage hold while nothing is in it, those of a delay while nothing moves."""

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

    def __init__(self, pipe: _Pipeline, number: int, par: data.View, kinds: list):
        self.pipe, self.number, self.par, self.kinds = pipe, number, par, kinds

    def _register(self, stage: int, value: Value, name: str, until: int | None = None) -> Signal:
        return self.pipe.register(stage, value, f"{name}_{self.number}", until=until)

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
        x = self._register(3, (biased << left)[:32].as_signed(), "x")
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
        shifted = self._register(9, (Cat(C(0, 1), once).as_signed() >> shift)[:65], "shifted")
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
