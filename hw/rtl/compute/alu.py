"""The tensor ALU: `o = op(a, b)` on every 32-bit lane of an accumulator entry, wrapping."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import OPERATIONS, AluOp
from ..latencies import MULTIPLIER_LATENCY, groups, multipliers
from ..ports import Products, register

OP_BITS = 3


def multiplies(op: Value) -> Value:
    """1 where operation `op` needs the multipliers."""
    return op.matches(*(row.op for row in OPERATIONS.values() if row.multiplies))


def choice_layout() -> data.StructLayout:
    """What `Alu` does, one bit each: a sum, a shift, or a choice between both operands, of the larger one with `MAX`.
    None of them where it multiplies."""
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
        other: in, the result where there is no operation; 0 where there is one
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
        super().__init__({"choice": In(choice_layout()), **operands, "o": Out(entry), "shifted": Out(entry)})

    def elaborate(self, platform) -> Module:
        """All lanes alike: every result, of which one is let through. One gate is behind those with a carry."""
        m, on = Module(), self.choice
        for k in range(self.cfg.lanes):
            lane = slice(32 * k, 32 * (k + 1))
            a, b, total = self.a[lane], self.b[lane], Signal(34, name=f"total_{k}")
            early = self.other[lane] | Mux(on.compare, a, 0)
            m.d.comb += [
                total.eq(_added(a, b, on)),
                self.o[lane].eq(Mux(total[-1], b, early) | Mux(on.ADD, total[:32], 0)),
                self.shifted[lane].eq(_shifted(a, b, on.SHR)),
            ]
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


def _shifted(a: Value, b: Value, shift: Value) -> Value:
    """SHR of one lane with `shift`, else 0; by one rotation to the right: by n = b mod 32, which to the left by -b is
    the same. Bit k comes from bit k + n for a shift to the right where that is below 32, for one to the left where it
    is not; the others are filled, and all of them where b is beyond 31 or -32. Which ones is found beside the rotation.
    """
    left, high = b[31], b[5:31]
    within = shift & ~(high ^ left.replicate(len(high))).any()
    turned = (Cat(a, a) >> b[:5])[:32]
    from_a = ((C((1 << 32) - 1, 32) >> b[:5]) ^ left.replicate(32)) & within.replicate(32)
    return (turned & from_a) | ((shift & a[31] & ~left).replicate(32) & ~from_a)


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
                parts = {name: register(m, enables[stage], v, f"{name}_{stage}_{k}") for name, v in parts.items()}
            low = register(m, enables[2], parts["low"], f"low_2_{k}")
            high = register(m, enables[2], (parts["ab"] + parts["ba"])[:16], f"high_2_{k}")
            m.d.comb += alu.o[32 * k : 32 * (k + 1)].eq(low + high.shift_left(16))
        return m
