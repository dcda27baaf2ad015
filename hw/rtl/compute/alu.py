"""The tensor ALU: `o = op(a, b)` on every 32-bit lane of an accumulator entry, wrapping."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import OPERATIONS, AluOp
from ..latencies import MULTIPLIER_LATENCY, groups, multipliers
from ..ports import Products

OP_BITS = 3
_OPERATIONS = (AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.SHR)  # without multipliers


def multiplies(op: Value) -> Value:
    """1 where operation `op` needs the multipliers."""
    return op.matches(*(row.op for row in OPERATIONS.values() if row.multiplies))


def choice_layout() -> data.StructLayout:
    """An operation of `Alu`, one bit for each; none where it multiplies."""
    return data.StructLayout({op.name: 1 for op in _OPERATIONS})


def chosen(op: Value) -> dict[str, Value]:
    """The bits of `choice_layout` for operation `op`."""
    return {known.name: op == known for known in _OPERATIONS}


class Alu(wiring.Component):
    """The operations without multipliers; combinational.

    Members:
        choice: in, the operation
        a, b: in, entries
        other: in, the result where there is no operation; 0 where there is one
        o: out, the entry of results

    SHR shifts right with the sign, a negative amount to the left: from 31 on only the sign is left, from -32 on
    nothing.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        entry = cfg.acc_entry_bits
        operands = {name: In(entry) for name in ("a", "b", "other")}
        super().__init__({"choice": In(choice_layout()), **operands, "o": Out(entry)})

    def elaborate(self, platform) -> Module:
        """All lanes alike: every result, of which one is let through. Those with a carry come last."""
        m, on = Module(), self.choice
        for k in range(self.cfg.lanes):
            lane = slice(32 * k, 32 * (k + 1))
            a, b, total = self.a[lane], self.b[lane], Signal(33, name=f"total_{k}")
            early = self.other[lane] | Mux(on.SHR, _shifted(a, b), 0)
            less, more = (early | Mux(on.MIN, x, 0) | Mux(on.MAX, y, 0) for x, y in ((a, b), (b, a)))
            m.d.comb += [
                total.eq(_added(a, b, on.ADD)),
                self.o[lane].eq(Mux(total[-1], more, less) | Mux(on.ADD, total[:32], 0)),
            ]
        return m


def _added(a: Value, b: Value, add: Value) -> Value:
    """`a + b` in the low 32 bits, and, without `add`, `a > b` in the carry of the same adder.

    The carry is that of a' + ~b', where a' and b' are `a` and `b` with the top bit inverted: numbers without sign that
    are as far apart. A comparison of its own would put two more gates before its shorter carry chain.
    """
    invert = ~add
    return Cat(a[:31], a[31] ^ invert) + Cat(b[:31] ^ invert.replicate(31), b[31])


def _shifted(a: Value, b: Value) -> Value:
    """SHR of one lane, by one rotation to the right: by n = b mod 32, which to the left by -b is the same. Bit k comes
    from bit k + n for a shift to the right where that is below 32, for one to the left where it is not; the others are
    filled, and all of them where b is beyond 31 or -32. Which ones is found beside the rotation.
    """
    left, high = b[31], b[5:31]
    within = Mux(left, high.all(), ~high.any())
    turned = (Cat(a, a) >> b[:5])[:32]
    from_a = ((C((1 << 32) - 1, 32) >> b[:5]) ^ left.replicate(32)) & within.replicate(32)
    return (turned & from_a) | ((a[31] & ~left).replicate(32) & ~from_a)


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
