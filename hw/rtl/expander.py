"""Weights of 4 bits on their way into the weight scratchpad: each becomes 8 bits, times the scale of its row."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import GROUP_BITS, Config
from ..isa import Mem
from .ports import BYTES_BITS, entry_bits, lane_bits, register, word_bits


def shared(cfg: Config) -> bool:
    """True where a beat has twice the bits of an entry's scales, so that every other entry begins in its upper half."""
    return cfg.axi_bits > GROUP_BITS * cfg.block_out


def beats(cfg: Config, *, inside: bool = False) -> int:
    """Beats of an entry of WGT4, in which its weights begin; of one that begins `inside` a beat, those of weights."""
    if shared(cfg):
        return cfg.block_in // 2 + (0 if inside else 1)
    return (cfg.block_in + 1) * GROUP_BITS * cfg.block_out // cfg.axi_bits


class Expander(wiring.Component):
    """data[i] = value[i] * scale[row of i] for the weights of a beat; an entry is the scales of its rows, 4 bits each
    without sign, then its weights, 4 bits each.

    Members:
        take: in, the beat is taken; once for each beat of an entry
        beat: in, its data
        chunk: in, its number among the beats of its entry, from 0 on
        inside: in, the entry begins in the upper half of a beat: that of the entry before, or one of its own
        first: in, no entry was taken before from the same request
        more: out, the beat has nothing but the scales of an entry that begins `inside` it: it does not count as a chunk
        en: out, lanes of the entry that the weights of this beat fill
        bytes: out, bytes of the beat that belong to the entry; scales `inside` a beat count with the first weights
        data: out, the weights of the latest beat as the scratchpad has them, `word_bits`

    Latency 1 for `data`, none for others; one beat per cycle, no back-pressure.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "take": In(1),
                "beat": In(cfg.axi_bits),
                "chunk": In(range(beats(cfg))),
                "inside": In(1),
                "first": In(1),
                "more": Out(1),
                "en": Out(entry_bits(cfg, Mem.WGT) // lane_bits(cfg, Mem.WGT)),
                "bytes": Out(BYTES_BITS),
                "data": Out(word_bits(cfg, Mem.WGT)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Registers of the scales, of a beat's weights and of the scales that these need; products behind them."""
        m, cfg = Module(), self.cfg
        scales = Signal(GROUP_BITS * cfg.block_out, reset_less=True)
        if shared(cfg):
            self._shared(m, scales)
        else:
            self._alone(m, scales)
        return m

    def _alone(self, m: Module, scales: Signal) -> None:
        """A beat has either scales or weights of one entry."""
        cfg, ahead = self.cfg, len(scales) // self.cfg.axi_bits
        piece, weights = Signal(range(beats(cfg))), self.chunk >= ahead  # of weights
        m.d.comb += [piece.eq(self.chunk - ahead), self.bytes.eq(cfg.axi_bits // 8)]
        with m.If(weights):
            m.d.comb += self.en.eq(0b11 << (piece << 1))
        with m.If(self.take & ~weights):
            m.d.sync += scales.eq(Cat(scales, self.beat)[-len(scales) :])
        self._multiply(m, [self.beat], [self._scales_of(scales, piece, cfg.axi_bits)])

    def _shared(self, m: Module, scales: Signal) -> None:
        """Half a beat has scales, or a lane of weights; lanes of an entry `inside` are in order, others swapped."""
        begun, half = Signal(), self.cfg.axi_bits // 2
        low, high = self.beat[:half], self.beat[half:]
        ends = self.chunk == beats(self.cfg) - 1  # of an entry that begins with a beat
        m.d.comb += self.more.eq(self.inside & self.first & ~begun & (self.chunk == 0))
        with m.If(self.more):
            m.d.comb += self.bytes.eq(0)
        with m.Elif(self.inside):
            m.d.comb += [self.en.eq(0b11 << (self.chunk << 1)), self.bytes.eq(half // 8 * Mux(self.chunk == 0, 3, 2))]
        with m.Else():
            m.d.comb += [self.en.eq(0b11 << (self.chunk << 1) >> 1), self.bytes.eq(half // 8 * Mux(ends, 1, 2))]
        with m.If(self.take):
            m.d.sync += begun.eq(self.more)
            with m.If(~self.inside & (self.chunk == 0)):
                m.d.sync += scales.eq(low)
            with m.Elif(self.more | (~self.inside & ends)):
                m.d.sync += scales.eq(high)
        even, odd = self.chunk << 1, Signal(range(self.cfg.block_in))
        m.d.comb += odd.eq((self.chunk << 1) + Mux(self.inside, 1, -1))
        fresh = Mux(~self.inside & (self.chunk == 0), low, scales)
        self._multiply(
            m,
            [Mux(self.inside, low, high), Mux(self.inside, high, low)],
            [self._scales_of(fresh, even, half), self._scales_of(scales, odd, half)],
        )

    def _scales_of(self, scales: Value, piece: Value, bits: int) -> Value:
        """The scales of the weights of piece `piece` of an entry, in pieces of `bits`: of its rows, or of its one."""
        row = GROUP_BITS * self.cfg.block_in
        return scales.word_select(piece >> max(row // bits, 1).bit_length() - 1, GROUP_BITS * max(bits // row, 1))

    def _multiply(self, m: Module, pieces: list[Value], scales: list[Value]) -> None:
        """`data` from pieces of weights and the scales of their rows, which are equally many weights each."""
        products = []
        for k, found in enumerate(zip(pieces, scales)):
            values, factors = (
                register(m, C(1), value, f"{name}_{k}") for name, value in zip(("values", "scales"), found)
            )
            row = len(values) // (len(factors) // GROUP_BITS)
            for at in range(0, len(values), GROUP_BITS):
                products.append(_product(values[at : at + GROUP_BITS], factors.word_select(at // row, GROUP_BITS)))
        m.d.comb += self.data.eq(Cat(products))


def _product(value: Value, scale: Value) -> Value:
    """`value * scale` in 8 bits: the sum of both halves of `scale` times `value`, each bit of which is a LUT."""
    low, high = (Cat(_function(k, value, scale[at : at + 2]) for k in range(6)).as_signed() for at in (0, 2))
    return (low + (high << 2))[: 2 * GROUP_BITS]


def _function(bit: int, value: Value, scale: Value) -> Value:
    """Bit `bit` of `value`, 4 bits with sign, times `scale`, 2 bits without, as a table of both."""
    products = ((k % 16 - 16 * (k % 16 > 7)) * (k // 16) for k in range(64))
    return C(sum((product >> bit & 1) << k for k, product in enumerate(products)), 64).bit_select(Cat(value, scale), 1)
