"""The tensor ALU: `o = op(a, b)` on every 32-bit lane of an accumulator entry, wrapping."""

from __future__ import annotations

from collections.abc import Callable

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import OPERATIONS, AluOp
from ..latencies import groups, multipliers
from ..ports import Products

OP_BITS = 3


def multiplies(op: Value) -> Value:
    """1 where operation `op` needs the multipliers."""
    return op.matches(*(row.op for row in OPERATIONS.values() if row.multiplies))


class Alu(wiring.Component):
    """The operations without multipliers; combinational.

    Members:
        op: in, an `AluOp` that does not multiply
        a, b: in, entries
        o: out, the entry of results

    SHR shifts right with the sign, a
    negative amount to the left: from 31 on only the sign is left, from -32 on nothing.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        entry = cfg.acc_entry_bits
        super().__init__({"op": In(OP_BITS), "a": In(entry), "b": In(entry), "o": Out(entry)})

    def elaborate(self, platform) -> Module:
        """All lanes alike."""
        m = Module()
        a, b = ([value[32 * k : 32 * (k + 1)].as_signed() for k in range(self.cfg.lanes)] for value in (self.a, self.b))
        with m.Switch(self.op):
            for op, lane in _LANES.items():
                with m.Case(op):
                    m.d.comb += self.o.eq(Cat(lane(x, y)[:32] for x, y in zip(a, b)))
            with m.Default():
                m.d.comb += self.o.eq(Cat((x + y)[:32] for x, y in zip(a, b)))
        return m


def _shifted(a: Value, b: Value) -> Value:
    """SHR of one lane, by one shifter: to the left by n is `a * 2**32` to the right by 32 - n, whose low five bits
    are those of b = -n."""
    left, high = b[31], b[5:31]
    amount = Mux(~left & high.any(), 31, b[:5])
    return Mux(left & ~high.all(), 0, Mux(left, Cat(C(0, 32), a), Cat(a, a[31].replicate(32))) >> amount)


_LANES: dict[AluOp, Callable[[Value, Value], Value]] = {
    AluOp.MIN: lambda a, b: Mux(a < b, a, b),
    AluOp.MAX: lambda a, b: Mux(a < b, b, a),
    AluOp.SHR: _shifted,
}


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

    def elaborate(self, platform) -> Module:
        """Operand registers, partial products in registers, their sum."""
        m, bits, alu = Module(), 32 * multipliers(self.cfg), self.alu
        a, b, en = Signal(bits, reset_less=True), Signal(bits, reset_less=True), Signal()
        m.d.sync += en.eq(alu.en)
        for k in range(groups(self.cfg)):
            part = slice(k * bits, (k + 1) * bits)
            with m.If(alu.en & (alu.group == k)):
                m.d.sync += [a.eq(alu.a[part]), b.eq(alu.b[part])]
        for k in range(multipliers(self.cfg)):
            (a0, a1), (b0, b1) = ((v[32 * k : 32 * k + 16], v[32 * k + 16 : 32 * k + 32]) for v in (a, b))
            parts = [Signal(32, name=f"part_{k}_{name}", reset_less=True) for name in ("low", "ab", "ba")]
            with m.If(en):
                m.d.sync += [part.eq(u * v) for part, u, v in zip(parts, (a0, a1, a0), (b0, b0, b1))]
            low, ab, ba = parts
            m.d.comb += alu.o[32 * k : 32 * (k + 1)].eq(low + (ab + ba).shift_left(16))
        return m
