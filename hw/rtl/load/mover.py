"""The mover of all loads: strided two-dimensional tiles from DRAM, padded, into scratchpads."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem, Op
from ..fifo import Fifo
from ..latencies import REQUEST_DEPTH, TILE_DEPTH
from ..layouts import insn_layout
from ..ports import move_signature, request_signature
from .beats import loaded_as
from .planner import Planner, tile_layout
from .walker import Walker
from .writer import Writer, writer_members


def move_of(cfg: Config, command, move) -> list:
    """Statements that make `move` (see `move_layout`) the LOAD or LOADP `command`."""
    insn = Value.cast(command.insn)
    load, flags = data.View(insn_layout(cfg, "LOAD"), insn), data.View(insn_layout(cfg, "FINISH"), insn)
    names = ("y_size", "x_size", "x_stride", "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
    padded = data.View(insn_layout(cfg, "LOADP"), insn)
    # of the two opcodes the lowest bit tells which, in a register that no other decoding waits for
    assert (Op.LOAD & 1, Op.LOADP & 1) == (0, 1)
    loadp = load.op[0] if "pad_value" in cfg.extensions else Const(0, 1)
    return [
        *(move[name].eq(load[name]) for name in ("mem", "sram_base", "dram_base")),
        *(move[name].eq(Mux(loadp, padded[name], load[name])) for name in names),
        move.pad_value.eq(Mux(loadp, padded.pad_value, 0)),
        *(move.push[flag].eq(flags[flag]) for flag in ("push_prev", "push_next")),
        move.index.eq(command.index),
    ]


class Mover(wiring.Component):
    """sram[base + y * W + x] = pad, or dram[base + (y - y_pad_0) * x_stride + (x - x_pad_0)], for W x H entries.

    W = x_pad_0 + x_size + x_pad_1, H = y_pad_0 + y_size + y_pad_1; micro-ops are one row, and neither they nor PAR have
    pads. ACC8 widens int8. Nothing is moved where x_size is 0.

    Members:
        cmd: in, LOADs whose tokens are already taken
        req: out, requests to the read port
        beats: in, their data
        write_<mem>: out, write port of each scratchpad of `mems`
        done: out, executed commands in order, with the tokens that they give
        hold: in, write nothing now
        idle: out, nothing is inside
        fault: out, a bus error or an entry beyond its scratchpad
        bytes: out, bytes that were moved in this cycle
        memory_wait: out, the next entry is due and its data are not here
        progress: out, something was written

    Latency: `PLAN_LATENCY` to the request, `WRITE_LATENCY` from beat to scratchpad; `done` is valid in the cycle of the
    last write. Interval: one beat, one padding entry or (entries smaller than a beat) one entry per cycle, also from
    row to row and from command to command; the requests of `TILE_DEPTH` commands run ahead.
    Back-pressure: `hold`, and `done` that is not taken, stop the writes.
    """

    def __init__(self, cfg: Config, *, mems: tuple[Mem, ...]):
        self.cfg, self.mems, self.names = cfg, mems, loaded_as(cfg, mems)
        super().__init__({"cmd": In(move_signature()), "req": Out(request_signature(cfg)), **writer_members(cfg, mems)})

    def elaborate(self, platform):
        """Planner (requests), descriptor FIFO, walker (entries), writer (beats)."""
        m = Module()
        m.submodules.planner = planner = Planner(self.cfg, mems=self.names)
        m.submodules.descriptors = fifo = Fifo(shape=tile_layout(), depth=TILE_DEPTH)
        m.submodules.walker = walker = Walker(self.cfg, mems=self.names)
        m.submodules.writer = writer = Writer(self.cfg, mems=self.mems)
        wiring.connect(m, wiring.flipped(self.cmd), planner.cmd)
        # registers between the planner and the arbiter of the read port
        m.submodules.requests = requests = Fifo(shape=self.req.payload.shape(), depth=REQUEST_DEPTH)
        wiring.connect(m, planner.req, requests.i)
        wiring.connect(m, requests.o, wiring.flipped(self.req))
        wiring.connect(m, planner.tile, fifo.i)
        wiring.connect(m, fifo.o, walker.tile)
        m.d.comb += [requests.may.eq(planner.req.valid), fifo.may.eq(planner.tile.valid)]
        wiring.connect(m, walker.step, writer.step)
        wiring.connect(m, wiring.flipped(self.beats), writer.beats)
        wiring.connect(m, writer.done, wiring.flipped(self.done))
        for mem in self.mems:
            name = f"write_{mem.name.lower()}"
            wiring.connect(m, getattr(writer, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, writer.fault, wiring.flipped(self.fault))
        m.d.comb += [
            writer.hold.eq(self.hold),
            self.idle.eq(planner.idle & (fifo.level == 0) & writer.idle),
            self.bytes.eq(writer.bytes),
            self.memory_wait.eq(writer.memory_wait),
            self.progress.eq(writer.progress),
        ]
        return m
