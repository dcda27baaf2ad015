"""Dot products of input vectors with the rows of a weight tile, or products with one of its rows.

`sums[b * block_out + o] = sum over i of inp[b][i] * wgt[o][i]`, exact for all operands; with `rows`
`sums[b * block_out + o] = inp[b][o] * wgt[row][o]`, by the same multipliers with zeros beside the diagonal. Several
taps add products with the neighbours of both: those of tap t are 2 t multipliers beside the diagonal.
"""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..latencies import LEVELS_PER_STAGE, array_latency
from ..ports import entry_bits


def sum_bits(cfg: Config) -> int:
    """Bits of a signed sum."""
    return cfg.inp_bits + cfg.wgt_bits + cfg.block_in.bit_length() - 1


def packs(cfg: Config) -> bool:
    """True where pairs of products share a multiplier."""
    return cfg.dsp_packing and cfg.block_out > 1


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
    k = (w1 << 16) + w0, k * x holds w0 * x in its low 16 bits and, less the borrow of that, w1 * x above. The
    borrow is bit 15; the adders of the tree take it as their carry.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
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

    def elaborate(self, platform) -> Module:
        """Operand registers, products, trees."""
        m, cfg = Module(), self.cfg
        stages = array_latency(cfg) - 1  # enables behind the first register
        enables = [Signal(name=f"en_{k + 1}") for k in range(stages)]
        for enable, before in zip(enables, [self.en, *enables]):
            m.d.sync += enable.eq(before)
        inp, wgt = (
            Signal(len(v), name=name, reset_less=True) for name, v in (("inp_held", self.inp), ("wgt_held", self.wgt))
        )
        with m.If(self.en):
            m.d.sync += [inp.eq(self.inp), wgt.eq(self._weights(m))]
        block = cfg.block_in
        x = [[_element(inp, b * block + i, cfg.inp_bits) for i in range(block)] for b in range(cfg.batch)]
        w = [[_element(wgt, o * block + i, cfg.wgt_bits) for i in range(block)] for o in range(cfg.block_out)]
        for b in range(cfg.batch):
            for o in range(0, cfg.block_out, 2 if packs(cfg) else 1):
                at, name = b * cfg.block_out + o, f"b{b}_o{o}"
                mine = self._inputs(m, b, o, x[b])
                if packs(cfg):
                    low, high = self._pair(m, enables, mine, w[o], w[o + 1], name)
                    m.d.comb += [self.sums[at].eq(low), self.sums[at + 1].eq(high)]
                else:
                    m.d.comb += self.sums[at].eq(self._single(m, enables, mine, w[o], name))
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
        weights = [self.wgt[k : k + bits] for k in range(0, len(self.wgt), bits)]
        for k, weight in enumerate(weights):
            o, i = divmod(k, cfg.block_in)
            weights[k] = Mux(self.rows, row[o * bits : (o + 1) * bits] if o == i else 0, weight)
        group = self.wgt.word_select(self.row[(cfg.row_taps - 1).bit_length() :], cfg.row_taps * size)
        for t in range(1, cfg.row_taps):
            tap = Mux(self.extra >= t, group[t * size : (t + 1) * size], 0)
            for o in range(cfg.block_out):
                k = o * cfg.block_in + _beside(cfg, o, t)
                weights[k] = Mux(self.rows, tap[o * bits : (o + 1) * bits], self.wgt[k * bits : (k + 1) * bits])
        return Cat(weights)

    def _inputs(self, m: Module, b: int, o: int, x: list[Value]) -> list[Value]:
        """The inputs of the multipliers of channel `o`, and of the next where they are packed, from those of all."""
        cfg, bits = self.cfg, self.cfg.inp_bits
        mine = [*x]
        for t in range(1, cfg.row_taps):
            for c in range(o, o + (2 if packs(cfg) else 1)):
                i = _beside(cfg, c, t)
                tap = _element(self.near, ((t - 1) * cfg.batch + b) * cfg.block_in + c, bits)
                whole = _element(self.inp, b * cfg.block_in + i, bits)
                mine[i] = _register(m, self.en, Mux(self.rows, tap, whole), f"x_b{b}_c{c}_t{t}")
        return mine

    def _single(self, m: Module, enables: list[Signal], x: list[Value], w: list[Value], name: str) -> Value:
        products = [_register(m, enables[0], a * b, f"p_{name}_{i}") for i, (a, b) in enumerate(zip(x, w))]
        return _tree(m, enables[1:], products, [], f"t_{name}")

    def _pair(
        self, m: Module, enables: list[Signal], x: list[Value], w0: list[Value], w1: list[Value], name: str
    ) -> tuple[Value, Value]:
        low, high, borrows = [], [], []
        for i, (a, b0, b1) in enumerate(zip(x, w0, w1)):
            k = Signal(signed(25), name=f"k_{name}_{i}")  # -128 * 2**16 - 128 needs 25 bits
            m.d.comb += k.eq(b1.shift_left(16) + b0)
            p = _register(m, enables[0], k * a, f"p_{name}_{i}", 33)
            low.append(p[:16].as_signed())
            high.append(p[16:32].as_signed())
            borrows.append(p[15])
        return (
            _tree(m, enables[1:], low, [], f"t_{name}_low"),
            _tree(m, enables[1:], high, borrows, f"t_{name}_high"),
        )


def _beside(cfg: Config, channel: int, tap: int) -> int:
    """The multiplier of `channel` that multiplies `tap`, apart from those of the channel that shares its inputs."""
    return (channel + 2 * tap) % cfg.block_in


def _element(entry: Value, k: int, bits: int) -> Value:
    return entry[k * bits : (k + 1) * bits].as_signed()


def _register(m: Module, enable: Value, value: Value, name: str, bits: int | None = None) -> Signal:
    out = Signal(signed(bits or len(value)), name=name, reset_less=True)
    with m.If(enable):
        m.d.sync += out.eq(value)
    return out


def _tree(m: Module, enables: list[Signal], values: list[Value], carries: list[Value], name: str) -> Value:
    """The sum of `values` and of the one-bit `carries`, of which there are as many as values, or none.

    n values have n - 1 adders, each with room for one carry; the carry left over is added to the first value. Stage
    `s` has `LEVELS_PER_STAGE` levels of adders and registers enabled by `enables[s]`. The carries of a level
    are used in that level, so that none needs a register: a level of n values takes n / 2 of them in its adders and
    hands the rest, one bit each, to the levels behind it with its results.
    """
    if carries:
        values = [values[0] + carries[0], *values[1:]]
        carries = carries[1:]
    level = 0
    while len(values) > 1:
        used, carries = carries[: len(values) // 2], carries[len(values) // 2 :]
        pairs = zip(values[::2], values[1::2])
        values = [_add(a, b, used[k] if used else None) for k, (a, b) in enumerate(pairs)]
        level += 1
        if level % LEVELS_PER_STAGE == 0 or len(values) == 1:
            stage = (level - 1) // LEVELS_PER_STAGE
            values = [_register(m, enables[stage], v, f"{name}_{stage}_{k}") for k, v in enumerate(values)]
            carries = [_register(m, enables[stage], c, f"{name}_{stage}_c{k}", 1) for k, c in enumerate(carries)]
            carries = [c[0] for c in carries]
    return values[0]


def _add(a: Value, b: Value, carry: Value | None) -> Value:
    """`a + b + carry`, written so that the carry enters the carry chain: 2a + 1 and 2b + carry, less their last bit."""
    if carry is None:
        return a + b
    total = Cat(C(1, 1), a).as_signed() + Cat(carry, b).as_signed()
    return total[1:].as_signed()
