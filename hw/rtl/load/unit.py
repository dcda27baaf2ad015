"""The load unit: inputs and weights from DRAM into their scratchpads."""

from __future__ import annotations

from amaranth.hdl import Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..layouts import insn_layout
from ..ports import SramWrite, Token, beat_signature, command_signature, request_signature, unit_members
from .mover import Mover, move_of


class Load(wiring.Component):
    """Executes LOAD and LOADP of INP and WGT in order, requests of the next ones ahead of the data of this one.

    Members, besides those of every unit (`unit_members`):
        cmd: in, the load queue
        from_compute: in, tokens that its instructions take
        to_compute: out, tokens that they give
        from_ternary, to_ternary: as those two; with unit `ternary`
        req: out, requests to the read port
        beats: in, their data
        write_inp, write_wgt: out, write ports of the scratchpads

    Latency and interval: the mover's; one instruction is taken per cycle. Back-pressure: an instruction waits for its
    token and for the mover; a token that cannot be given stops the writes.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        ternary = {"from_ternary": In(Token()), "to_ternary": Out(Token())}
        super().__init__(
            {
                "cmd": In(command_signature()),
                "from_compute": In(Token()),
                "to_compute": Out(Token()),
                "req": Out(request_signature(cfg)),
                "beats": In(beat_signature(cfg)),
                "write_inp": Out(SramWrite(cfg, Mem.INP)),
                "write_wgt": Out(SramWrite(cfg, Mem.WGT)),
                **(ternary if "ternary" in cfg.units else {}),
                **unit_members(),
            }
        )

    def elaborate(self, platform):
        """Tokens around the mover."""
        m = Module()
        m.submodules.mover = mover = Mover(self.cfg, mems=(Mem.INP, Mem.WGT))
        for name in ("req", "beats", "write_inp", "write_wgt", "fault"):
            outer, inner = getattr(self, name), getattr(mover, name)
            wiring.connect(m, inner, wiring.flipped(outer))
        flags = data.View(insn_layout(self.cfg, "FINISH"), Value.cast(self.cmd.payload.insn))
        permitted = ~flags.pop_next | self.from_compute.valid
        gives = mover.done.payload
        to_compute, room = mover.done.valid & gives.push_next, ~gives.push_next | self.to_compute.ready
        if "ternary" in self.cfg.units:
            others = ~gives.push_prev | self.to_ternary.ready
            m.d.comb += [
                self.from_ternary.ready.eq(self.cmd.ready & flags.pop_prev),
                self.to_ternary.valid.eq(mover.done.valid & gives.push_prev & room),
            ]
            permitted &= ~flags.pop_prev | self.from_ternary.valid
            to_compute, room = to_compute & others, room & others
        m.d.comb += [
            mover.cmd.valid.eq(self.cmd.valid & permitted & ~self.halt),
            *move_of(self.cfg, self.cmd.payload, mover.cmd.payload),
            self.cmd.ready.eq(mover.cmd.valid & mover.cmd.ready),
            self.from_compute.ready.eq(self.cmd.ready & flags.pop_next),
            self.to_compute.valid.eq(to_compute),
            mover.done.ready.eq(room),
            self.idle.eq(mover.idle),
            self.activity.busy.eq(~mover.idle),
            self.activity.token_wait.eq(self.cmd.valid & ~permitted),
            self.activity.memory_wait.eq(mover.memory_wait),
            self.activity.insn.eq(self.cmd.ready),
            self.activity.ended.eq(mover.done.valid & mover.done.ready),
            self.activity.bytes.eq(mover.bytes),
            self.activity.progress.eq(self.cmd.ready | mover.progress),
        ]
        return m
