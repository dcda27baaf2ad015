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
        a = pipe.register(0, Mux(alu.en, _part(alu.a, alu.group, bits), _part(ppu.a, ppu.group, bits)), "a")
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
            scaled, stored = lane.results(*(v[32 * k : 32 * (k + 1)].as_signed() for v in (a, b)))
            m.d.comb += [alu.o[32 * k : 32 * (k + 1)].eq(scaled), ppu.o[8 * k : 8 * (k + 1)].eq(stored)]
        return m


def _part(entry: Value, group: Value, bits: int) -> Value:
    return entry.word_select(group, bits) if len(entry) > bits else entry


class _Pipeline:
    """Registers between stages; those of a stage hold while nothing is in it."""

    def __init__(self, m: Module, enters: Value):
        self.m, self.busy = m, [enters]
        for k in range(REQUANTISE_LATENCY):
            self.busy.append(Signal(name=f"busy_{k + 1}"))
            m.d.sync += self.busy[k + 1].eq(self.busy[k])

    def register(self, stage: int, value: Value, name: str, *, until: int | None = None) -> Signal:
        """`value`, which is computed in `stage`, for the stage after it, or in stage `until`."""
        for k in range(stage, stage + 1 if until is None else until):
            out = Signal(value.shape(), name=f"{name}_{k + 1}", reset_less=True)
            with self.m.If(self.busy[k]):
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
        par = self.par
        biased = self._register(1, (a + Mux(self.kinds[1][0], par.bias, 0))[:32], "biased")
        b = self._register(1, b, "b")
        multiplier, exponent, single = (
            self._register(1, value, name)
            for value, name in ((par.multiplier, "multiplier"), (par.exponent, "exponent"), (par.mode, "single"))
        )
        product = self.kinds[2][1]
        double = ~single & ~product
        to_left = double & ~exponent[5]
        x = self._register(2, (biased << Mux(to_left, exponent[:5], 0))[:32].as_signed(), "x")
        y = self._register(2, Mux(product, b, Cat(multiplier, C(0, 1)))[:32].as_signed(), "y")
        # 31 - exponent, whose bits are those of exponent inverted but for the sign
        shift = Mux(product, 0, Mux(to_left, 31, Cat(~exponent[:5], exponent[5])))
        shift = self._register(2, shift, "shift", until=7)
        double, twice = (
            self._register(2, v, name, until=6) for v, name in ((double, "double"), (double & exponent[5], "twice"))
        )
        return self._round(self._multiply(x, y), double, twice, shift)

    def _multiply(self, x: Value, y: Value) -> Value:
        """The product in stage 6 of the operands in stage 3."""
        (x0, x1), (y0, y1) = ((v[:16], v[16:32].as_signed()) for v in (x, y))
        low, middle, other, high = (
            self._register(3, u * v, name)
            for u, v, name in ((x0, y0, "p_low"), (x1, y0, "p_middle"), (x0, y1, "p_other"), (x1, y1, "p_high"))
        )
        middle = self._register(4, middle + other, "middles")
        outer = self._register(4, Cat(low[:32], high[:32]).as_signed(), "outer")
        return self._register(5, (outer + middle.shift_left(16))[:64].as_signed(), "product")

    def _round(self, product: Value, double: Value, twice: Value, shift: Value) -> tuple[Value, Value]:
        par, high = self.par, product[31:64].as_signed()
        minus = twice & product[63]  # such a tie goes away from zero when r rounds up to the nearest
        up = Mux(product[30], Mux(minus, 0, 1), Mux(minus, -1, 0))
        once = self._register(6, Mux(double, Cat(C(0, 31), (high + up)[:33]), product)[:64].as_signed(), "once")
        shifted = Cat(C(0, 1), once).as_signed() >> shift
        rest, sign = shifted[_ENOUGH:65], once[63]
        low = self._register(7, shifted[1:33], "shifted")
        last = self._register(7, shifted[0], "last")
        beyond = self._register(7, Mux(sign, ~rest.all(), rest.any()), "beyond")
        sign = self._register(7, sign, "sign")
        scaled = (low + last)[:32]
        near = low[:_ENOUGH].as_signed()
        far = Mux(sign, C(-(1 << _ENOUGH - 1), _ENOUGH), C((1 << _ENOUGH - 1) - 1, _ENOUGH)).as_signed()
        zero = self._register(1, par.zero_point, "zero_point", until=8)
        total = self._register(8, Mux(beyond, far, near) + zero + last, "total")
        least, most = (self._register(1, par[name], name, until=9) for name in ("low", "high"))
        raised = Mux(total < least, least, total)
        return scaled, Mux(raised > most, most, raised)[:8]
