"""Dot products of input vectors with the rows of a weight tile, or products with one of its rows.

`sums[b * block_out + o] = sum over i of inp[b][i] * wgt[o][i]`, exact for all operands; with `rows`
`sums[b * block_out + o] = inp[b][o] * wgt[row][o]`, by the same multipliers with zeros beside the diagonal. Several
taps add products with the neighbours of both: those of tap t are 2 t multipliers beside the diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..latencies import LEVELS_PER_STAGE, PRODUCT_STAGES, array_latency
from ..ports import entry_bits, register

ARRAY = "array"  # the domain of multipliers whose clock is twice the core's
_HALF = 1 << 15  # added to a pair of products: the lower one stays within its 16 bits


def sum_bits(cfg: Config) -> int:
    """Bits of a signed sum."""
    return cfg.inp_bits + cfg.wgt_bits + cfg.block_in.bit_length() - 1


def packs(cfg: Config) -> bool:
    """True where pairs of products share a multiplier."""
    return cfg.dsp_packing and cfg.block_out > 1


# inputs and weights of the groups of channels that share multipliers
_Operands = Sequence[tuple[Sequence[Value], Sequence[Value]]]
_Multiply = Callable[[_Operands, str], list[list[Value]]]  # products of each group, from its operands and a name


class Dot(wiring.Component):
    """Dot products of one input entry with one weight entry in each cycle.

    Members:
        en: in, operands stand at `inp` and `wgt`
        inp, wgt: in, entries of the scratchpads
        rows: in, multiply element by element with one row of `wgt`; where DWGEMM exists
        row: in, its number
        near: in, the entries behind `inp`; with extension `depthwise_rows`, as `extra`
        extra: in, of how many of them the products with the rows behind `row` are added; where not 0, `row` is the
            first of a group of `row_taps`
        sums: out, one for each lane

    Latency `array_latency(cfg)`, interval 1, no back-pressure; stages without operands keep their contents.

    With `cfg.dsp_packing` the products of two output channels come from one 25 x 18 bit multiplier: with
    k = (w1 << 16) + w0, k * x + 2**15 holds w1 * x above its low 16 bits, and w0 * x + 2**15, which is not negative, in
    these: so nothing is borrowed, and the low sum is too large by 2**15 for each product, which its top bit shows.
    Operands, products and their sums with 2**15 have registers, so that a DSP holds all of it.

    With `cfg.array_clock` 2 a multiplier and its registers are in domain `ARRAY`, whose clock has an edge at every edge
    of the core's clock and one between. In the first half of a cycle the multiplier takes the operands of the lower
    half of the channels, in the second half those of the upper, whose products come a cycle later.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        self._channels = 2 if packs(cfg) else 1  # that share a multiplier
        near = {"near": In((cfg.row_taps - 1) * entry_bits(cfg, Mem.INP)), "extra": In(range(cfg.row_taps))}
        super().__init__(
            {
                "en": In(1),
                "inp": In(entry_bits(cfg, Mem.INP)),
                "wgt": In(entry_bits(cfg, Mem.WGT)),
                "rows": In(1),
                "row": In(cfg.block_in.bit_length() - 1),
                **(near if cfg.row_taps > 1 else {}),
                "sums": Out(data.ArrayLayout(signed(sum_bits(cfg)), cfg.lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Operand registers, products, trees."""
        m, cfg = Module(), self.cfg
        stages = array_latency(cfg) - 1  # enables behind the first register
        enables = [Signal(name=f"en_{k + 1}") for k in range(stages)]
        for enable, before in zip(enables, [self.en, *enables]):
            m.d.sync += enable.eq(before)
        chosen, inp = (Signal(len(self.inp), name=name, reset_less=True) for name in ("inp_chosen", "inp_held"))
        wgt = Signal(len(self.wgt), name="wgt_chosen", reset_less=True)
        with m.If(self.en):
            m.d.sync += [chosen.eq(self.inp), wgt.eq(self._weights(m))]
        with m.If(enables[0]):
            m.d.sync += inp.eq(chosen)
        block = cfg.block_in
        x = [[_element(inp, b * block + i, cfg.inp_bits) for i in range(block)] for b in range(cfg.batch)]
        w = [[_element(wgt, o * block + i, cfg.wgt_bits) for i in range(block)] for o in range(cfg.block_out)]
        make = self._pairs if packs(cfg) else self._singles
        w = [make(m, enables[0], o, w) for o in range(0, cfg.block_out, self._channels)]
        turns = cfg.array_clock
        multiply = self._in_turn(m, enables[1:]) if turns > 1 else self._at_once(m, enables[1:])
        for b in range(cfg.batch):
            for k in range(len(w) // turns):
                at = [turn * len(w) // turns + k for turn in range(turns)]
                channels = [self._channels * group for group in at]
                operands = [(self._inputs(m, enables[0], b, o, x[b]), w[group]) for o, group in zip(channels, at)]
                for turn, (o, products) in enumerate(zip(channels, multiply(operands, f"b{b}_o{channels[0]}"))):
                    sums = self._sums(m, enables[1 + PRODUCT_STAGES + turn :], products, f"b{b}_o{o}")
                    if turn + 1 < turns:  # wait for the later half
                        sums = [register(m, enables[-1], s, f"early_b{b}_o{o}_{c}") for c, s in enumerate(sums)]
                    m.d.comb += [self.sums[b * cfg.block_out + o + c].eq(value) for c, value in enumerate(sums)]
        return m

    def _weights(self, m: Module) -> Value:
        """The tile, or a diagonal tile of one row."""
        cfg, bits = self.cfg, self.cfg.wgt_bits
        if "depthwise" not in cfg.extensions:
            return self.wgt
        size = cfg.block_out * bits
        row = Signal(size)
        with m.Switch(self.row):
            for k in range(cfg.block_in):
                with m.Case(k):
                    m.d.comb += row.eq(self.wgt[k * size : (k + 1) * size])
        diagonal: list[Value] = [C(0, bits)] * (cfg.block_in * cfg.block_out)
        for o in range(cfg.block_out):
            diagonal[o * cfg.block_in + o] = row[o * bits : (o + 1) * bits]
        group = self.wgt.word_select(self.row[(cfg.row_taps - 1).bit_length() :], cfg.row_taps * size)
        for t in range(1, cfg.row_taps):
            tap = Mux(self.extra >= t, group[t * size : (t + 1) * size], 0)
            for o in range(cfg.block_out):
                diagonal[o * cfg.block_in + _beside(cfg, o, t)] = tap[o * bits : (o + 1) * bits]
        return Mux(self.rows, Cat(diagonal), self.wgt)

    def _inputs(self, m: Module, enable: Value, b: int, o: int, x: list[Value]) -> list[Value]:
        """The inputs, chosen from all, of the multipliers of channel `o` and, where packed, of channel `o + 1`."""
        cfg, bits = self.cfg, self.cfg.inp_bits
        mine = [*x]
        for t in range(1, cfg.row_taps):
            for c in range(o, o + self._channels):
                i, name = _beside(cfg, c, t), f"b{b}_c{c}_t{t}"
                tap = _element(self.near, ((t - 1) * cfg.batch + b) * cfg.block_in + c, bits)
                whole = _element(self.inp, b * cfg.block_in + i, bits)
                chosen = register(m, self.en, Mux(self.rows, tap, whole), f"x_chosen_{name}")
                mine[i] = register(m, enable, chosen, f"x_{name}")
        return mine

    def _singles(self, m: Module, enable: Value, o: int, w: list[list[Value]]) -> list[Value]:
        """The weights of channel `o`, held."""
        return [register(m, enable, value, f"w_o{o}_{i}") for i, value in enumerate(w[o])]

    def _pairs(self, m: Module, enable: Value, o: int, w: list[list[Value]]) -> list[Value]:
        """The multiplicands (w1 << 16) + w0 of channels `o` and `o + 1`, held: w1 is one less where w0 is negative."""
        pairs = []
        for i, (w0, w1) in enumerate(zip(w[o], w[o + 1])):
            high = (w1 + w0[-1].as_signed())[:9]  # -128 * 2**16 - 128 needs 25 bits
            pairs.append(register(m, enable, Cat(w0, w0[-1].replicate(16 - len(w0)), high).as_signed(), f"k_o{o}_{i}"))
        return pairs

    def _product(self, m: Module, enables: Sequence[Signal], a: Value, b: Value, name: str, domain: str) -> Value:
        """The product of held operands, with 2**15 where it is a pair, in the registers of a DSP."""
        product = register(m, enables[0], a * b, f"m_{name}", domain)
        return register(m, enables[1], (product + _HALF)[:32] if packs(self.cfg) else product, f"p_{name}", domain)

    def _at_once(self, m: Module, enables: list[Signal]) -> _Multiply:
        """Multipliers in the core's clock."""

        def multiply(operands: _Operands, name: str) -> list[list[Value]]:
            ((x, w),) = operands
            pairs = enumerate(zip(x, w))
            return [[self._product(m, enables, a, b, f"{name}_{i}", "sync") for i, (a, b) in pairs]]

        return multiply

    def _in_turn(self, m: Module, enables: list[Signal]) -> _Multiply:
        """Multipliers in twice the core's clock, for two groups of channels in turn."""
        cycle, seen = Signal(), Signal(reset_less=True)
        early = Signal()  # the first half of a cycle
        m.d.sync += cycle.eq(~cycle)
        m.d[ARRAY] += seen.eq(cycle)
        m.d.comb += early.eq(cycle ^ seen)
        steps = [enables[0], *(Signal(name=f"step_{k}", reset_less=True) for k in range(PRODUCT_STAGES + 1))]
        for before, step in zip(steps, steps[1:]):
            m.d[ARRAY] += step.eq(before)

        def multiply(operands: _Operands, name: str) -> list[list[Value]]:
            found: list[list[Value]] = [[], []]
            (x, w), (other_x, other_w) = operands
            for i in range(len(x)):
                a, b = (
                    register(m, steps[0], mine if mine is its else Mux(early, mine, its), f"{k}_{name}_{i}", ARRAY)
                    for k, mine, its in (("x", x[i], other_x[i]), ("w", w[i], other_w[i]))
                )
                product = self._product(m, steps[1:], a, b, f"{name}_{i}", ARRAY)
                late = register(m, steps[1 + PRODUCT_STAGES], product, f"late_{name}_{i}", ARRAY)
                found[0].append(register(m, enables[1], product, f"first_{name}_{i}"))
                found[1].append(register(m, enables[2], late, f"second_{name}_{i}"))
            return found

        return multiply

    def _sums(self, m: Module, enables: list[Signal], products: list[Value], name: str) -> list[Value]:
        """The sums of a channel or of two, from products that are held."""
        if not packs(self.cfg):
            return [_tree(m, enables, products, f"t_{name}")]
        low = _tree(m, enables, [p[:16] for p in products], f"t_{name}_low")
        high = _tree(m, enables, [p[16:].as_signed() for p in products], f"t_{name}_high")
        return [Cat(low[:-1], ~low[-1]).as_signed(), high]


def _beside(cfg: Config, channel: int, tap: int) -> int:
    """The multiplier of `channel` for `tap`, which the channel that shares its inputs does not use."""
    return (channel + 2 * tap) % cfg.block_in


def _element(entry: Value, k: int, bits: int) -> Value:
    return entry[k * bits : (k + 1) * bits].as_signed()


def _tree(m: Module, enables: list[Signal], values: list[Value], name: str) -> Value:
    """The sum of `values`, signed or not; `LEVELS_PER_STAGE` levels of adders before each register, whose enables are
    `enables`."""
    level = 0
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2])]
        level += 1
        if level % LEVELS_PER_STAGE == 0 or len(values) == 1:
            stage = (level - 1) // LEVELS_PER_STAGE
            values = [register(m, enables[stage], v, f"{name}_{stage}_{k}") for k, v in enumerate(values)]
    return values[0]
