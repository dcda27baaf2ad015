"""Dot products of input vectors with ternary weights: nothing is multiplied.

`sum over i of inp[b][i] * w[t][c][i]` for every lane, where w is in {-1, 0, 1}. Inputs go in pairs: x0 + x1 and x0 - x1
are made once for all channels, and with a sign these, x0, x1 and 0 are all that two weights can ask for. The sign stays
beside the value: the tree adds or subtracts, so that nothing is negated before the accumulators.
"""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import TERNARY_BITS, Config
from ...isa import Mem
from ..latencies import LEVELS_PER_STAGE, PAIR_STAGES, ternary_array_latency
from ..ports import entry_bits, register


def sum_bits(cfg: Config) -> int:
    """Bits of a signed sum beside its sign."""
    return cfg.inp_bits + cfg.block_in.bit_length() - 1


def term_layout(cfg: Config) -> data.StructLayout:
    """A sum: `value`, or with `minus` the value negated."""
    return data.StructLayout({"value": signed(sum_bits(cfg)), "minus": 1})


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
        super().__init__(
            {
                "en": In(1),
                "inp": In(entry_bits(cfg, Mem.INP)),
                "wgt": In(entry_bits(cfg, Mem.TWGT)),
                "sums": Out(data.ArrayLayout(term_layout(cfg), lanes)),
            }
        )

    def elaborate(self, platform) -> Module:
        """Pairs, choices, trees."""
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


def _tree(m: Module, enables: list[Signal], terms: list[tuple], name: str) -> tuple[Value, Value]:
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


def _added(one: tuple, other: tuple) -> tuple[Value, Value]:
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
