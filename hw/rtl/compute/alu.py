"""The tensor ALU: `o = op(a, b)` on every 32-bit lane of an accumulator entry, wrapping."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import OPERATIONS, AluOp
from ..latencies import MULTIPLIER_LATENCY, groups, multipliers
from ..ports import Products

OP_BITS = 3


def multiplies(op: Value) -> Value:
    """1 where operation `op` needs the multipliers."""
    return op.matches(*(row.op for row in OPERATIONS.values() if row.multiplies))


def choice_layout() -> data.StructLayout:
    """An operation of `Alu`, one bit for each; none where it multiplies."""
    return data.StructLayout({op.name: 1 for op in _LANES})


def chosen(op: Value) -> dict[str, Value]:
    """The bits of `choice_layout` for operation `op`."""
    return {known.name: op == known for known in _LANES}


class Alu(wiring.Component):
    """The operations without multipliers; combinational.

    Members:
        choice: in, the operation
        a, b: in, entries
        o: out, the entry of results; 0 without an operation

    SHR shifts right with the sign, a
    negative amount to the left: from 31 on only the sign is left, from -32 on nothing.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        entry = cfg.acc_entry_bits
        super().__init__({"choice": In(choice_layout()), "a": In(entry), "b": In(entry), "o": Out(entry)})

    def elaborate(self, platform) -> Module:
        """All lanes alike: every result, of which one is let through."""
        m = Module()
        a, b = ([value[32 * k : 32 * (k + 1)].as_signed() for k in range(self.cfg.lanes)] for value in (self.a, self.b))
        for k, (x, y) in enumerate(zip(a, b)):
            results = [Mux(self.choice[op.name], lane(x, y)[:32], 0) for op, lane in _LANES.items()]
            m.d.comb += self.o[32 * k : 32 * (k + 1)].eq(functools.reduce(operator.or_, results))
        return m


def _less(a: Value, b: Value) -> Value:
    """`a < b`, as of numbers without sign that are as far apart: then the last carry tells, and nothing follows it."""
    return Cat(a[:31], ~a[31]) < Cat(b[:31], ~b[31])


def _shifted(a: Value, b: Value) -> Value:
    """SHR of one lane, by one shifter: to the left by n is `a * 2**32` to the right by 32 - n, whose low five bits
    are those of b = -n. Whether b is beyond those is found beside the shifter."""
    left, high = b[31], b[5:31]
    within = Mux(left, high.all(), ~high.any())
    shifted = Mux(left, Cat(C(0, 32), a), Cat(a, a[31].replicate(32))) >> b[:5]
    return Mux(within, shifted[:32], (a[31] & ~left).replicate(32))


_LANES: dict[AluOp, Callable[[Value, Value], Value]] = {
    AluOp.MIN: lambda a, b: Mux(_less(a, b), a, b),
    AluOp.MAX: lambda a, b: Mux(_less(a, b), b, a),
    AluOp.ADD: lambda a, b: a + b,
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
                parts = {name: _register(m, enables[stage], v, f"{name}_{stage}_{k}") for name, v in parts.items()}
            low = _register(m, enables[2], parts["low"], f"low_2_{k}")
            high = _register(m, enables[2], (parts["ab"] + parts["ba"])[:16], f"high_2_{k}")
            m.d.comb += alu.o[32 * k : 32 * (k + 1)].eq(low + high.shift_left(16))
        return m


def _register(m: Module, enable: Value, value: Value, name: str) -> Signal:
    out = Signal(value.shape(), name=name, reset_less=True)
    with m.If(enable):
        m.d.sync += out.eq(value)
    return out
