"""The second part of the mover: the entries of a tile, one after the other."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..fifo import KEEP
from ..layouts import INDEX_BITS, push_layout
from .beats import PART_BITS, beat_shift, chunks, count_bits
from .planner import tile_layout


def step_layout(cfg: Config) -> data.StructLayout:
    """One entry to write: padding, or data from part `part` of a beat, with which the beat ends (`leave`) or not.

    `data` and `single`, known ahead for the writer: it is neither padding nor `empty`; it is at most one beat.
    """
    return data.StructLayout(
        {
            "mem": 3,
            "empty": 1,
            "pad": 1,
            "data": 1,
            "single": 1,
            "pad_value": 8,
            "addr": count_bits(cfg) + 1,
            "part": PART_BITS,
            "leave": 1,
            "last": 1,
            "push": push_layout(),
            "index": INDEX_BITS,
        }
    )


class Walker(wiring.Component):
    """Walks the entries of a tile, one per cycle, without a pause between tiles.

    Members:
        tile: in, descriptions of tiles
        step: out, entries to write

    Latency `WALK_LATENCY`.
    """

    def __init__(self, cfg: Config, *, mems: tuple[Mem, ...]):
        self.cfg, self.mems = cfg, mems
        super().__init__({"tile": In(stream.Signature(tile_layout())), "step": Out(stream.Signature(step_layout(cfg)))})

    def elaborate(self, platform):
        """Counters of column, row, entries so far, and the position in the beat."""
        m = Module()
        tile, step = self.tile.payload, Signal(step_layout(self.cfg), reset_less=True)
        x, y, count = Signal(17), Signal(17), Signal(count_bits(self.cfg))
        row_offset = Signal(PART_BITS)  # position in its beat of the row's first entry, less the tile's
        column = Signal(PART_BITS)  # entries of the row so far, without padding
        advance, x_last, last, pad, full, single, in_row = (Signal() for _ in range(7))
        part = Signal(PART_BITS)
        # the first column or row of a tile, and the last of those behind it: known ahead, as `tile.ready` needs them
        left, right, top, bottom = Signal(init=1), Signal(), Signal(init=1), Signal()
        # not `step.valid`, in registers of their own: for the payload, and for `tile.ready`
        free, empty = Signal(init=1, attrs=KEEP), Signal(init=1, attrs=KEEP)
        m.d.comb += [
            advance.eq(self.tile.valid & (~self.step.valid | self.step.ready)),
            x_last.eq(Mux(left, tile.one_column, right)),
            last.eq((x_last & Mux(top, tile.one_row, bottom)) | tile.empty),
            in_row.eq((y >= tile.y_begin) & (y < tile.y_end)),
            pad.eq(~in_row | (x < tile.x_begin) | (x > tile.x_final)),
            part.eq(tile.offset + row_offset + column),
            self.tile.ready.eq((empty | self.step.ready) & last),
            self.step.payload.eq(step),
        ]
        self._end_of_beat(m, tile.mem, part, full, single)
        ends = (~tile.dense | (y == tile.y_final)) & (x == tile.x_final)
        with m.If(~self.step.valid | self.step.ready):
            m.d.sync += [self.step.valid.eq(self.tile.valid), free.eq(~self.tile.valid), empty.eq(~self.tile.valid)]
        with m.If(free | self.step.ready):
            m.d.sync += [
                step.mem.eq(tile.mem),
                step.empty.eq(tile.empty),
                step.pad.eq(pad),
                step.data.eq(~pad & ~tile.empty),
                step.single.eq(single),
                step.pad_value.eq(tile.pad_value),
                step.addr.eq(tile.base + count),
                step.part.eq(part),
                step.leave.eq(full | ends),
                step.last.eq(last),
                step.push.eq(tile.push),
                step.index.eq(tile.index),
            ]
        with m.If(advance):
            m.d.sync += [
                count.eq(count + ~count[-1]),  # stays beyond every scratchpad
                x.eq(x + 1),
                left.eq(x_last | tile.empty),
                right.eq(x + 1 == tile.x_last),
                column.eq(column + ~pad),
            ]
            with m.If(x_last | tile.empty):
                m.d.sync += x.eq(0)
            with m.If(x_last):
                m.d.sync += [y.eq(y + 1), top.eq(0), bottom.eq(y + 1 == tile.y_last)]
                with m.If(in_row & ~tile.dense):
                    m.d.sync += [row_offset.eq(row_offset + tile.offset_step), column.eq(0)]
            with m.If(last):
                m.d.sync += [y.eq(0), top.eq(1), count.eq(0), row_offset.eq(0), column.eq(0)]
        return m

    def _end_of_beat(self, m: Module, mem, part, full, single) -> None:
        with m.Switch(mem):
            for name in self.mems:
                with m.Case(name.id):
                    bits = max(-beat_shift(self.cfg, name), 0)
                    m.d.comb += full.eq(part[:bits].all() if bits else 1)
                    m.d.comb += single.eq(chunks(self.cfg, name) == 1)
