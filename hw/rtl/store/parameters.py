"""LOAD of PAR, which the store queue executes."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem, Op
from ..axi import beat_size
from ..layouts import INDEX_BITS, insn_layout
from ..load.beats import beat_shift, in_units
from ..load.mover import Mover, move_of
from ..load.writer import writer_members
from ..ports import ADDRESS_BITS, command_signature, request_signature
from .rows import pushes


class StoreLoads(wiring.Component):
    """Passes the store queue's instructions on, in order; in place of an executed LOAD of PAR an empty STORE that gives
    its token.

    Members:
        cmd: in, instructions of the store queue
        o: out, the STOREs among them, and the empty ones
        req: out, requests to the read port
        beats: in, their data
        write_par: out, write port of the parameters
        stored: out, a STORE leaves, not what stands for a LOAD
        first: out, beat address of the LOAD at `cmd`
        may: in, that LOAD may be taken
        idle, fault, bytes, memory_wait, progress: out, as of `Mover`

    No latency for STORE, the mover's for LOAD. Back-pressure: a LOAD waits for `may`, what follows a LOAD for it.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        members = writer_members(cfg, (Mem.PAR,))
        del members["done"], members["hold"]  # `done` goes to `o`; no parameter is in use once a LOAD may be taken
        super().__init__(
            {
                "cmd": In(command_signature()),
                "o": Out(command_signature()),
                "stored": Out(1),
                "first": Out(ADDRESS_BITS - beat_size(cfg)),
                "may": In(1),
                "req": Out(request_signature(cfg)),
                **members,
            }
        )

    def elaborate(self, platform) -> Module:
        """The mover, and the STORE that stands for its LOAD."""
        m, cfg = Module(), self.cfg
        m.submodules.mover = mover = Mover(cfg, mems=(Mem.PAR,))
        for name in ("req", "beats", "write_par", "fault"):
            outer, inner = getattr(self, name), getattr(mover, name)
            wiring.connect(m, inner, wiring.flipped(outer))
        insn = Value.cast(self.cmd.payload.insn)
        entry = data.View(insn_layout(cfg, "LOAD"), insn).dram_base
        n = len(pushes(cfg))
        loads, loading, index, push = (
            Signal(),
            Signal(),
            Signal(INDEX_BITS, reset_less=True),
            Signal(n, reset_less=True),
        )
        done, ended, waits = Signal(128), Signal(), Signal()  # the LOAD has ended; what stands for it waits
        m.d.comb += [
            loads.eq(data.View(insn_layout(cfg, "FINISH"), insn).op == Op.LOAD),
            *move_of(cfg, self.cmd.payload, mover.cmd.payload),
            mover.cmd.valid.eq(self.cmd.valid & loads & ~loading & self.may),
            self.first.eq(in_units(Mem.PAR, entry) << beat_shift(cfg, Mem.PAR)),
            self.stored.eq(self.o.valid & self.o.ready & ~loading),
            mover.done.ready.eq(1),
            ended.eq(mover.done.valid | waits),
            _tokens(cfg, data.View(insn_layout(cfg, "STORE"), done)).eq(push),
            self.o.valid.eq(Mux(loading, ended, self.cmd.valid & ~loads)),
            self.o.payload.insn.eq(Mux(loading, done, insn)),
            self.o.payload.index.eq(Mux(loading, index, self.cmd.payload.index)),
            self.cmd.ready.eq(~loading & Mux(loads, mover.cmd.ready & self.may, self.o.ready)),
            self.idle.eq(~loading),
            self.bytes.eq(mover.bytes),
            self.memory_wait.eq(mover.memory_wait),
            self.progress.eq(mover.progress),
        ]
        m.d.sync += waits.eq(ended & ~self.o.ready)
        with m.If(loading):
            m.d.sync += loading.eq(~(ended & self.o.ready))
        with m.Else():
            m.d.sync += [loading.eq(mover.cmd.valid & mover.cmd.ready), index.eq(self.cmd.payload.index)]
            m.d.sync += push.eq(_tokens(cfg, mover.cmd.payload.push))
        return m


def _tokens(cfg: Config, flags: data.View) -> Value:
    """The tokens that an instruction of the store queue gives."""
    return Cat(flags[name] for name in pushes(cfg))
