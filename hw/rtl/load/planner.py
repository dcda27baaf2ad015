"""The first part of the mover: the requests of a command, and its tile as the walker walks it."""

from __future__ import annotations

from amaranth.hdl import C, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..fifo import Fifo
from ..latencies import COMMAND_DEPTH
from ..layouts import INDEX_BITS, move_layout, push_layout
from ..ports import move_signature, request_signature
from .beats import PART_BITS, beat_shift, in_units


def tile_layout() -> data.StructLayout:
    """A tile as the walker walks it: last column and row; first, last and one past the last of what is not padding.

    `one_column` and `one_row`: the last one is the first, too.
    """
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
            "one_column": 1,
            "one_row": 1,
            "pad_value": 8,
            "dense": 1,
            "offset": PART_BITS,
            "offset_step": PART_BITS,
            "push": push_layout(),
            "index": INDEX_BITS,
        }
    )


def _begun_layout() -> data.StructLayout:
    """A command without the pads that it has not, its sums, and what its requests are: none, one, one for all rows."""
    sums = dict.fromkeys(("x_final", "y_final", "y_end"), 17)
    flags = dict.fromkeys(("dense", "whole", "none", "one", "empty"), 1)
    return data.StructLayout({"cmd": move_layout(), "rows": 16, **sums, **flags})


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
        """Commands; first stage: sums and products of one; second: the rest of its sums, then its rows."""
        m = Module()
        m.submodules.commands = commands = Fifo(shape=self.cmd.payload.shape(), depth=COMMAND_DEPTH)
        wiring.connect(m, wiring.flipped(self.cmd), commands.i)
        cmd, taken, begun = commands.o.payload, Signal(), Signal(_begun_layout(), reset_less=True)  # first stage
        active, described = Signal(), Signal()  # second stage; its tile is in the FIFO
        rows, at, stride = Signal(16), Signal(34), Signal(16)
        product, whole, area = (Signal(n, reset_less=True) for n in (32, 1, 32))  # registers of one multiplier
        tile, mem, length = Signal(tile_layout(), reset_less=True), Signal(3), Signal(16)
        ended, load, none, one = (Signal() for _ in range(4))  # `none`, `one`: so many rows are left
        m.d.comb += [
            ended.eq(~active | ((none | (one & self.req.ready)) & (described | self.tile.ready))),
            load.eq(taken & ended),
            commands.o.ready.eq(~taken | ended),
            self.req.valid.eq(active & ~none),
            self.tile.valid.eq(active & ~described),
            self.tile.payload.eq(tile),
            self.idle.eq(~commands.o.valid & ~taken & ~active),
        ]
        with m.If(commands.o.ready):
            m.d.sync += [taken.eq(commands.o.valid), product.eq(cmd.x_size * cmd.y_size), *self._begin(begun, cmd)]
        with m.If(ended):
            m.d.sync += [active.eq(taken), described.eq(0)]
        with m.Elif(self.tile.ready):
            m.d.sync += described.eq(1)
        with m.If(self.req.valid & self.req.ready):
            m.d.sync += [rows.eq(rows - 1), none.eq(one), one.eq(rows == 2), at.eq(at + stride)]
        with m.If(load):
            m.d.sync += [
                mem.eq(begun.cmd.mem),
                stride.eq(begun.cmd.x_stride),
                at.eq(begun.cmd.dram_base),
                rows.eq(begun.rows),
                none.eq(begun.none),
                one.eq(begun.one),
                length.eq(begun.cmd.x_size),
                whole.eq(begun.whole),
                area.eq(product),
                *self._describe(tile, begun),
            ]
        self._request(m, mem, at, Mux(whole, area, length))
        return m

    def _begin(self, begun, cmd) -> list:
        """First sums of `cmd`; the rest waits for the second stage."""
        uops = [mem for mem in self.mems if mem in (Mem.UOP, Mem.TUOP)]
        flat = cmd.mem == uops[0].id if uops else Const(0, 1)  # micro-ops are one row
        bare = C(1, 1) if self.mems == (Mem.PAR,) else flat
        left, right, above, below = (Mux(bare, 0, cmd[f"{name}_pad_{k}"]) for name in "xy" for k in (0, 1))
        rows = Mux(flat, 1, cmd.y_size)
        dense, nothing = flat | (cmd.x_stride == cmd.x_size), (cmd.x_size == 0) | (rows == 0)
        return [
            begun.cmd.eq(cmd),
            begun.cmd.x_pad_0.eq(left),
            begun.cmd.x_pad_1.eq(right),
            begun.cmd.y_pad_0.eq(above),
            begun.cmd.y_pad_1.eq(below),
            begun.rows.eq(rows),
            begun.dense.eq(dense),
            begun.whole.eq(dense & ~flat),
            begun.none.eq(nothing),
            begun.one.eq(~nothing & (dense | (rows == 1))),
            begun.empty.eq((cmd.x_size == 0) | ~(rows.any() | above.any() | below.any())),
            begun.x_final.eq(left + cmd.x_size - 1),
            begun.y_final.eq(above + rows - 1),
            begun.y_end.eq(above + rows),
        ]

    def _describe(self, tile, begun) -> list:
        cmd = begun.cmd
        x_last, y_last = ((begun[f"{axis}_final"] + cmd[f"{axis}_pad_1"])[:17] for axis in "xy")
        return [
            tile.x_begin.eq(cmd.x_pad_0),
            tile.x_last.eq(x_last),
            tile.y_begin.eq(cmd.y_pad_0),
            tile.y_last.eq(y_last),
            tile.one_column.eq(x_last == 0),
            tile.one_row.eq(y_last == 0),
            tile.base.eq(cmd.sram_base),
            tile.offset.eq(cmd.dram_base[:PART_BITS]),
            tile.offset_step.eq(cmd.x_stride[:PART_BITS]),
            *(tile[name].eq(begun[name]) for name in ("empty", "x_final", "y_final", "y_end", "dense")),
            *(tile[name].eq(cmd[name]) for name in ("mem", "pad_value", "push", "index")),
        ]

    def _request(self, m: Module, mem, at, entries) -> None:
        """Beats of `entries` entries from entry `at` on."""
        req = self.req.payload
        with m.Switch(mem):
            for name in self.mems:
                shift = beat_shift(self.cfg, name)
                with m.Case(name.id):
                    if shift >= 0:
                        first, count = (in_units(name, value) for value in (at, entries))
                        m.d.comb += [req.addr.eq(first << shift), req.beats.eq(count << shift)]
                    else:
                        end = at[:-shift] + entries + ((1 << -shift) - 1)
                        m.d.comb += [req.addr.eq(at >> -shift), req.beats.eq(end >> -shift)]
