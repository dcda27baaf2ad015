"""Dot products of input vectors with the rows of a weight tile, or products with one of its rows.

`sums[b * block_out + o] = sum over i of inp[b][i] * wgt[o][i]`, exact for all operands; with `rows`
`sums[b * block_out + o] = inp[b][o] * wgt[row][o]`, by the same multipliers with zeros beside the diagonal. Several
taps add products with the neighbours of both: those of tap t are 2 t multipliers beside the diagonal.
"""

from __future__ import annotations

from collections.abc import Callable

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


# for each entry of a batch the products of held inputs with the weights of channels that share multipliers
_Multiply = Callable[[list[list[Value]], list[Value], int], list[list[Value]]]


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
    of the core's clock and one between. In the first half of a cycle it takes an input of the lower half of `block_in`,
    in the second half one of the upper half, and the DSP adds both products: the first level of the tree. The sum of
    two low products is -32512 to 32768: with 2**15 - 1 it stays within its 16 bits. The adders of the low tree add what
    is missing as their carries, but for 1.
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
        block, channels = cfg.block_in, self._channels
        x = [[_element(inp, b * block + i, cfg.inp_bits) for i in range(block)] for b in range(cfg.batch)]
        w = [[_element(wgt, o * block + i, cfg.wgt_bits) for i in range(block)] for o in range(cfg.block_out)]
        multiply = self._in_turn(m, enables) if cfg.array_clock > 1 else self._at_once(m, enables)
        trees = enables[PRODUCT_STAGES + cfg.array_clock :]  # of the levels that the multipliers leave
        for o in range(0, cfg.block_out, channels):
            inputs = [self._inputs(m, enables[0], b, o, x[b]) for b in range(cfg.batch)]
            weights = [Cat(each) for each in zip(*w[o : o + channels])]
            for b, products in enumerate(multiply(inputs, weights, o)):
                sums = self._sums(m, trees, products, f"b{b}_o{o}")
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

    def _multiplicand(self, weights: Value) -> Value:
        """The factor of a channel's weight, or of two: (w1 << 16) + w0, where a negative w0 takes 1 from w1."""
        bits = self.cfg.wgt_bits
        if self._channels == 1:
            return weights.as_signed()
        w0, w1 = weights[:bits], weights[bits:].as_signed()
        high = (w0[-1].as_signed() + w1)[:9]  # -128 * 2**16 - 128 needs 25 bits
        return Cat(w0, w0[-1].replicate(16 - bits), high).as_signed()

    def _at_once(self, m: Module, enables: list[Signal]) -> _Multiply:
        """Multipliers in the core's clock; a product, with 2**15 where it is a pair, is in the registers of a DSP."""
        step, add, hold = enables[1], enables[2], enables[0]

        def multiply(inputs: list[list[Value]], weights: list[Value], o: int) -> list[list[Value]]:
            w = [register(m, hold, self._multiplicand(word), f"w_o{o}_{i}") for i, word in enumerate(weights)]
            found: list[list[Value]] = []
            for b, x in enumerate(inputs):
                made = [register(m, step, a * k, f"m_b{b}_o{o}_{i}") for i, (a, k) in enumerate(zip(x, w))]
                whole = [(value + _HALF)[:32] for value in made] if packs(self.cfg) else made
                found.append([register(m, add, value, f"p_b{b}_o{o}_{i}") for i, value in enumerate(whole)])
            return found

        return multiply

    def _in_turn(self, m: Module, enables: list[Signal]) -> _Multiply:
        """Multipliers in twice the core's clock, each for two inputs in turn, whose products they add."""
        cycle, seen, early = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        m.d.sync += cycle.eq(~cycle)
        # `early` is 1 in the first half of a cycle, the one after that in which both bits are the same
        m.d[ARRAY] += [seen.eq(cycle), early.eq(cycle == seen)]
        steps = [enables[1], *(Signal(name=f"step_{k}", reset_less=True) for k in range(PRODUCT_STAGES + 1))]
        m.d[ARRAY] += [step.eq(before) for before, step in zip(steps, steps[1:])]
        half, offset = self.cfg.block_in // 2, _HALF - 1 if packs(self.cfg) else 0

        def operands(values: list[Value], name: str) -> list[Value]:
            once = [register(m, steps[0], value, f"{name}_{i}_0", ARRAY) for i, value in enumerate(values)]
            return [register(m, steps[1], value, f"{name}_{i}_1", ARRAY) for i, value in enumerate(once)]

        def turns(values: list[Value]) -> list[Value]:
            return [Mux(early, first, second) for first, second in zip(values[:half], values[half:])]

        def multiply(inputs: list[list[Value]], weights: list[Value], o: int) -> list[list[Value]]:
            held = [register(m, enables[0], word, f"w_o{o}_{i}") for i, word in enumerate(weights)]
            w = operands([self._multiplicand(word) for word in turns(held)], f"k_o{o}")
            found: list[list[Value]] = []
            for b, x in enumerate(inputs):
                sums: list[Value] = []
                for i, (a, k) in enumerate(zip(operands(turns(x), f"x_b{b}_o{o}"), w)):
                    made = register(m, steps[2], a * k, f"m_b{b}_o{o}_{i}", ARRAY)
                    total = Signal(signed(len(made) + 1), name=f"p_b{b}_o{o}_{i}", reset_less=True)
                    with m.If(steps[3]):
                        m.d[ARRAY] += total.eq(made + Mux(early, total, offset))  # the first product comes late
                    sums.append(register(m, enables[1 + PRODUCT_STAGES], total, f"s_b{b}_o{o}_{i}"))
                found.append(sums)
            return found

        return multiply

    def _sums(self, m: Module, enables: list[Signal], products: list[Value], name: str) -> list[Value]:
        """The sums of a channel or of two, from products that are held."""
        if not packs(self.cfg):
            return [_tree(m, enables, products, f"t_{name}")]
        turns = self.cfg.array_clock > 1
        low, high = [p[:16] for p in products], [p[16:].as_signed() for p in products]
        high = _tree(m, enables, high, f"t_{name}_high")
        if not turns:
            low = _tree(m, enables, low, f"t_{name}_low")
            return [Cat(low[:-1], ~low[-1]).as_signed(), high]
        low = _tree(m, enables, [low[0] + 1, *low[1:]], f"t_{name}_low", carry=True)
        return [Cat(low[:-2], ~low[-2], ~(low[-2] | low[-1])).as_signed(), high]


def _beside(cfg: Config, channel: int, tap: int) -> int:
    """The multiplier of `channel` for `tap`, which the channel that shares its inputs does not use."""
    return (channel + 2 * tap) % cfg.block_in


def _element(entry: Value, k: int, bits: int) -> Value:
    return entry[k * bits : (k + 1) * bits].as_signed()


def _tree(m: Module, enables: list[Signal], values: list[Value], name: str, *, carry: bool = False) -> Value:
    """The sum of `values`, signed or not; `LEVELS_PER_STAGE` levels of adders before each register, whose enables are
    `enables`. With `carry`, for values without sign, each adder adds 1."""
    level = 0
    while len(values) > 1:
        values = [_carried(a, b) if carry else a + b for a, b in zip(values[::2], values[1::2])]
        level += 1
        if level % LEVELS_PER_STAGE == 0 or len(values) == 1:
            stage = (level - 1) // LEVELS_PER_STAGE
            values = [register(m, enables[stage], v, f"{name}_{stage}_{k}") for k, v in enumerate(values)]
    return values[0]


def _carried(a: Value, b: Value) -> Value:
    """`a + b + 1` of numbers without sign, by one carry chain."""
    bits = max(len(a), len(b)) + 1
    return (a - ~Cat(b, C(0, bits - len(b))))[:bits]
