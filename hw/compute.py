"""The compute unit: GEMM and ALU on the accumulators, loads of micro-ops and accumulators, FINISH."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .alu import Multiplier
from .config import Config
from .execute import Execute
from .isa import Mem, Op
from .layouts import insn_layout
from .mover import Mover, move_of
from .ports import (
    Requantise,
    SramRead,
    SramWrite,
    StoreRead,
    Token,
    beat_signature,
    command_signature,
    request_signature,
    unit_members,
)
from .regs import Error
from .rescale import Rescale
from .scratchpad import Accumulators, Scratchpad
from .sequencer import Sequencer

_IN_FLIGHT_BITS = 6  # of the instructions in the sequencer and the pipeline, or in the mover
_OWED_BITS = 7  # of the tokens owed to one channel: from half of that on nothing more is dispatched


class Compute(wiring.Component):
    """Executes the compute queue in order: each instruction meets the memories as the one before left them.

    Members: `cmd` the compute queue; its tokens `from_load`, `from_store`, `to_load`, `to_store`; `req` and `beats` the
    read port of micro-op and accumulator loads; `inp`, `wgt` read ports of the scratchpads; `store` the accumulators as
    STORE reads them; with extension `requant` the multipliers as the post-processing unit uses them, `requantise`, and
    `write_par`, the PAR scratchpad; `finish` (FINISH has executed); and those of every unit.

    GEMM and ALU follow each other through the sequencer and the pipeline without a gap (hw/sequencer.py,
    hw/execute.py). A load is requested at once, but written when all GEMM and ALU before it are over; those behind it
    start when it is written. What moves and computes nothing (empty loops, x_size = 0, FINISH) passes through
    the pipeline, so that tokens are given in order.
    Back-pressure: an instruction waits at the head of the queue for its tokens and for the loads before it.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        post = {"requantise": In(Requantise(cfg)), "write_par": In(SramWrite(cfg, Mem.PAR))}
        super().__init__(
            {
                "cmd": In(command_signature()),
                "from_load": In(Token()),
                "from_store": In(Token()),
                "to_load": Out(Token()),
                "to_store": Out(Token()),
                "req": Out(request_signature(cfg)),
                "beats": In(beat_signature(cfg)),
                "inp": Out(SramRead(cfg, Mem.INP)),
                "wgt": Out(SramRead(cfg, Mem.WGT)),
                "store": In(StoreRead(cfg)),
                **(post if "requant" in cfg.extensions else {}),
                "finish": Out(1),
                **unit_members(),
            }
        )

    def elaborate(self, platform) -> Module:
        """Dispatch between the sequencer and the mover, tokens, faults, counters."""
        m, cfg = Module(), self.cfg
        m.submodules.sequencer = sequencer = Sequencer(cfg)
        m.submodules.execute = execute = Execute(cfg)
        m.submodules.mover = mover = Mover(cfg, mems=(Mem.UOP, Mem.ACC))
        self._memories(m, sequencer, execute, mover)
        wiring.connect(m, sequencer.o, execute.visits)
        for outer, inner in ((self.req, mover.req), (self.beats, mover.beats)):
            wiring.connect(m, wiring.flipped(outer), inner)
        for outer, inner in ((self.inp, execute.inp), (self.wgt, execute.wgt)):
            wiring.connect(m, wiring.flipped(outer), inner)
        retire, push, moved, done = execute.retire, execute.retired.push, mover.done.valid, mover.done.payload
        owed = [
            _give(m, "load", self.to_load, (retire & push.push_prev) | (moved & done.push_prev)),
            _give(m, "store", self.to_store, (retire & push.push_next) | (moved & done.push_next)),
        ]
        m.d.comb += [mover.done.ready.eq(1), self.finish.eq(retire & execute.retired.finish)]
        jobs, moves, permitted = self._dispatch(m, sequencer, mover, retire, (owed[0] | owed[1])[-1])
        m.d.comb += [
            mover.hold.eq(jobs != 0),
            sequencer.halt.eq(self.halt),
            self.idle.eq((jobs == 0) & mover.idle & (self.halt | ((owed[0] | owed[1]) == 0))),
            self.activity.busy.eq((jobs | moves) != 0),
            self.activity.token_wait.eq(self.cmd.valid & ~permitted),
            self.activity.memory_wait.eq(mover.memory_wait & (jobs == 0)),
            self.activity.insn.eq(self.cmd.ready),
            self.activity.bytes.eq(mover.bytes),
            self.activity.progress.eq(
                self.cmd.ready | (sequencer.o.valid & sequencer.o.ready) | retire | mover.progress
            ),
        ]
        with m.If(self.fault.code == Error.NONE):
            for fault in (mover.fault, sequencer.fault):
                with m.If(fault.code != Error.NONE):
                    m.d.sync += [self.fault.code.eq(fault.code), self.fault.index.eq(fault.index)]
        return m

    def _memories(self, m: Module, sequencer: Sequencer, execute: Execute, mover: Mover) -> None:
        """Micro-ops and accumulators, and who reads and writes them; the multipliers."""
        m.submodules.uops = uops = Scratchpad(self.cfg, mem=Mem.UOP)
        m.submodules.accumulators = acc = Accumulators(self.cfg)
        wiring.connect(m, mover.write_uop, uops.write)
        wiring.connect(m, sequencer.uop, uops.read)
        wiring.connect(m, mover.write_acc, acc.load)
        wiring.connect(m, wiring.flipped(self.store), acc.store)
        for name in ("dst", "src", "write"):
            wiring.connect(m, getattr(execute, name), getattr(acc, name))
        if "requant" in self.cfg.extensions:
            m.submodules.multiplier = multiplier = Rescale(self.cfg)
            wiring.connect(m, wiring.flipped(self.requantise), multiplier.ppu)
            wiring.connect(m, wiring.flipped(self.write_par), multiplier.write)
        else:
            m.submodules.multiplier = multiplier = Multiplier(self.cfg)
        wiring.connect(m, execute.multiplier, multiplier.alu)

    def _dispatch(
        self, m: Module, sequencer: Sequencer, mover: Mover, retire: Value, choked: Value
    ) -> tuple[Value, Value, Value]:
        """Sends the first instruction to the sequencer or the mover; returns how many are in each, and whether the
        first one has its tokens."""
        command, move = self.cmd.payload, mover.cmd.payload
        flags = data.View(insn_layout(self.cfg, "FINISH"), Value.cast(command.insn))
        permitted, may, moving = Signal(), Signal(), Signal()
        jobs, moves, left = Signal(_IN_FLIGHT_BITS), Signal(_IN_FLIGHT_BITS), Signal(_IN_FLIGHT_BITS)
        loads = (flags.op == Op.LOAD) | (flags.op == Op.LOADP)
        job = sequencer.jobs.payload
        m.d.comb += [
            permitted.eq((~flags.pop_prev | self.from_load.valid) & (~flags.pop_next | self.from_store.valid)),
            may.eq(self.cmd.valid & permitted & ~self.halt & ~choked),
            *move_of(self.cfg, command, move),
            moving.eq(loads & (move.x_size != 0)),
            left.eq(moves - mover.done.valid),
            mover.cmd.valid.eq(may & moving),
            sequencer.jobs.valid.eq(may & ~moving & (left == 0)),
            job.insn.eq(command.insn),
            job.index.eq(command.index),
            job.void.eq(loads | (flags.op == Op.FINISH)),
            job.finish.eq(flags.op == Op.FINISH),
            job.push.eq(move.push),
            self.cmd.ready.eq((mover.cmd.valid & mover.cmd.ready) | (sequencer.jobs.valid & sequencer.jobs.ready)),
            self.from_load.ready.eq(self.cmd.ready & flags.pop_prev),
            self.from_store.ready.eq(self.cmd.ready & flags.pop_next),
        ]
        m.d.sync += [
            jobs.eq(jobs + (sequencer.jobs.valid & sequencer.jobs.ready) - retire),
            moves.eq(left + (mover.cmd.valid & mover.cmd.ready)),
        ]
        return jobs, moves, permitted


def _give(m: Module, name: str, channel, event: Value) -> Signal:
    """Gives a token for every `event`; returns how many are owed because the channel is full."""
    owed = Signal(_OWED_BITS, name=f"owed_to_{name}")
    m.d.comb += channel.valid.eq(event | (owed != 0))
    m.d.sync += owed.eq(owed + event - (channel.valid & channel.ready))
    return owed
