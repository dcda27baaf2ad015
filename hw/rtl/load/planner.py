"""The first part of the mover: the requests of a command, and its tile as the walker walks it."""

from __future__ import annotations

from amaranth.hdl import C, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..layouts import INDEX_BITS, push_layout
from ..ports import move_signature, request_signature
from .beats import PART_BITS, beat_shift, in_units


def tile_layout() -> data.StructLayout:
    """A tile as the walker walks it: last column and row; first, last and one past the last of what is not padding."""
    return data.StructLayout(
        {
            "mem": 3,
            "empty": 1,
            "base": 16,
            "x_last": 17,
            "y_last": 17,
            "x_begin": 4,
            "x_final": 17,
            "y_begin": 4,
            "y_final": 17,
            "y_end": 17,
            "pad_value": 8,
            "dense": 1,
            "offset": PART_BITS,
            "offset_step": PART_BITS,
            "push": push_layout(),
            "index": INDEX_BITS,
        }
    )


class Planner(wiring.Component):
    """Turns a command into requests, one per row or one for a tile without gaps, and the walker's description.

    Members:
        cmd: in, LOADs
        req: out, requests to the read port
        tile: out, descriptions for the walker
        idle: out, nothing is inside

    Latency `TILE_LATENCY`; one request per cycle.
    """

    def __init__(self, cfg: Config, *, mems: tuple[Mem, ...]):
        self.cfg, self.mems = cfg, mems
        super().__init__(
            {
                "cmd": In(move_signature()),
                "req": Out(request_signature(cfg)),
                "tile": Out(stream.Signature(tile_layout())),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        """First stage: the command; second: its sums and products, then its rows."""
        m = Module()
        new, taken, cmd = self.cmd.payload, Signal(), Signal.like(self.cmd.payload, reset_less=True)
        active, described = Signal(), Signal()  # second stage; its tile is in the FIFO
        rows, entries, at = Signal(16), Signal(32), Signal(34)
        tile, mem, stride = Signal(tile_layout(), reset_less=True), Signal(3), Signal(16)
        ended, load, dense, none, one = (Signal() for _ in range(5))  # `none`, `one`: so many rows are left
        m.d.comb += [
            ended.eq(~active | ((none | (one & self.req.ready)) & (described | self.tile.ready))),
            load.eq(taken & ended),
            self.cmd.ready.eq(~taken | load),
            self.req.valid.eq(active & ~none),
            self.tile.valid.eq(active & ~described),
            self.tile.payload.eq(tile),
            self.idle.eq(~taken & ~active),
        ]
        with m.If(self.cmd.ready):
            m.d.sync += [taken.eq(self.cmd.valid), cmd.eq(self.cmd.payload)]
            m.d.sync += dense.eq(self._flat(new) | (new.x_stride == new.x_size))
        with m.If(ended):
            m.d.sync += [active.eq(taken), described.eq(0)]
        with m.Elif(self.tile.ready):
            m.d.sync += described.eq(1)
        with m.If(self.req.valid & self.req.ready):
            m.d.sync += [rows.eq(rows - 1), none.eq(one), one.eq(rows == 2), at.eq(at + stride)]
        flat = self._flat(cmd)
        with m.If(load):
            count = Mux(flat, 1, cmd.y_size)
            nothing = (cmd.x_size == 0) | (count == 0)
            m.d.sync += [
                mem.eq(cmd.mem),
                stride.eq(cmd.x_stride),
                at.eq(cmd.dram_base),
                rows.eq(count),
                none.eq(nothing),
                one.eq(~nothing & (dense | (count == 1))),
                entries.eq(cmd.x_size * Mux(dense, count, 1)),
            ]
            m.d.sync += self._describe(tile, cmd, flat, dense)
        self._request(m, mem, at, entries)
        return m

    def _flat(self, cmd) -> Value:
        """`cmd` loads micro-ops, which are one row."""
        return cmd.mem == Mem.UOP if Mem.UOP in self.mems else Const(0, 1)

    def _describe(self, tile, cmd, flat, dense) -> list:
        bare = C(1, 1) if self.mems == (Mem.PAR,) else flat
        pad = {name: Mux(bare, 0, cmd[name]) for name in ("x_pad_0", "x_pad_1", "y_pad_0", "y_pad_1")}
        rows = Mux(flat, 1, cmd.y_size)
        height = pad["y_pad_0"] + rows + pad["y_pad_1"]
        return [
            tile.mem.eq(cmd.mem),
            tile.empty.eq((cmd.x_size == 0) | (height == 0)),
            tile.base.eq(cmd.sram_base),
            tile.x_begin.eq(pad["x_pad_0"]),
            tile.x_final.eq(pad["x_pad_0"] + cmd.x_size - 1),
            tile.x_last.eq(pad["x_pad_0"] + cmd.x_size + pad["x_pad_1"] - 1),
            tile.y_begin.eq(pad["y_pad_0"]),
            tile.y_final.eq(pad["y_pad_0"] + rows - 1),
            tile.y_end.eq(pad["y_pad_0"] + rows),
            tile.y_last.eq(height - 1),
            tile.pad_value.eq(cmd.pad_value),
            tile.dense.eq(dense),
            tile.offset.eq(cmd.dram_base[:PART_BITS]),
            tile.offset_step.eq(cmd.x_stride[:PART_BITS]),
            tile.push.eq(cmd.push),
            tile.index.eq(cmd.index),
        ]

    def _request(self, m: Module, mem, at, entries) -> None:
        """Beats of `entries` entries from entry `at` on."""
        req = self.req.payload
        with m.Switch(mem):
            for name in self.mems:
                shift = beat_shift(self.cfg, name)
                with m.Case(name):
                    if shift >= 0:
                        first, count = (in_units(name, value) for value in (at, entries))
                        m.d.comb += [req.addr.eq(first << shift), req.beats.eq(count << shift)]
                    else:
                        end = at[:-shift] + entries + ((1 << -shift) - 1)
                        m.d.comb += [req.addr.eq(at >> -shift), req.beats.eq(end >> -shift)]
