"""The compute unit: GEMM and ALU on the accumulators, loads of micro-ops and accumulators, FINISH."""

from __future__ import annotations

from enum import IntEnum

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem, Op
from ..fifo import Fifo
from ..latencies import ORDER_DEPTH, capacity, has_functions
from ..mover import Mover, move_of
from ..ports import (
    InputRead,
    Requantise,
    SramRead,
    SramWrite,
    StoreRead,
    TernaryRead,
    TernaryWrite,
    Token,
    beat_signature,
    command_signature,
    fault_of,
    insn_layout,
    keep_first,
    push_layout,
    request_signature,
    unit_members,
)
from ..scratchpad import Scratchpad
from .accumulators import Accumulators
from .alu import Functions, Multiplier, Rescale
from .interlock import Interlock
from .pipeline import Execute
from .sequencer import Sequencer

_IN_FLIGHT_BITS = capacity(ORDER_DEPTH).bit_length()  # of a number of instructions whose tokens are not given yet


class Kind(IntEnum):
    """The event that an instruction waits for before its tokens are given."""

    NOTHING = 0
    JOB = 1
    LOAD = 2


_ORDER = data.StructLayout({"kind": Kind, "push": push_layout(), "finish": 1})  # a dispatched instruction


class Compute(wiring.Component):
    """Executes the compute queue in order: each instruction meets the memories as the one before left them.

    Members, besides those of every unit (`unit_members`):
        cmd: in, the compute queue
        from_load, from_store: in, tokens that its instructions take
        to_load, to_store: out, tokens that they give
        req: out, requests of micro-op and accumulator loads to the read port
        beats: in, their data
        inp, wgt: out, read ports of the scratchpads
        store: in, the store unit's read port of the accumulators
        requantise: in, the store unit's use of the multipliers; with extension `requant`
        write_par: in, write port of the parameters; with extension `requant`
        ternary_read, ternary_write: in, ports of unit `ternary` at the accumulators; these and the next two with it
        busy: out, one bit per bank: that unit may not enter it
        ternary_busy: in, one bit per bank: that unit is in it
        finish: out, FINISH has executed
        product: out, an issue of GEMM or DWGEMM leaves the sequencer

    GEMM and ALU follow each other through the sequencer and the pipeline without a gap (hw/rtl/compute/sequencer.py,
    hw/rtl/compute/pipeline.py). A load is requested at once; loads, GEMM and ALU pass each other where they touch
    different memory (hw/rtl/compute/interlock.py). Tokens are given in the order of the queue, so that a token says
    that all before it is done. Back-pressure: an instruction waits at the head of the queue for its tokens; then at
    most `LOADS_IN_FLIGHT` loads are in flight, and one GEMM or ALU waits inside for the one before it.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        post = {"requantise": In(Requantise(cfg)), "write_par": In(SramWrite(cfg, Mem.PAR))}
        ternary = {"ternary_read": In(TernaryRead(cfg)), "ternary_write": In(TernaryWrite(cfg))}
        ternary |= {"busy": Out(cfg.acc_banks), "ternary_busy": In(cfg.acc_banks)}
        super().__init__(
            {
                "cmd": In(command_signature()),
                "from_load": In(Token()),
                "from_store": In(Token()),
                "to_load": Out(Token()),
                "to_store": Out(Token()),
                "req": Out(request_signature(cfg)),
                "beats": In(beat_signature(cfg)),
                "inp": Out(InputRead(cfg)),
                "wgt": Out(SramRead(cfg, Mem.WGT)),
                "store": In(StoreRead(cfg)),
                **(post if "requant" in cfg.extensions else {}),
                **(ternary if "ternary" in cfg.units else {}),
                "finish": Out(1),
                "product": Out(1),
                **unit_members(),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Sequencer, pipeline and mover, faults, counters."""
        m, cfg = Module(), self.cfg
        m.submodules.sequencer = sequencer = Sequencer(cfg)
        m.submodules.execute = execute = Execute(cfg)
        m.submodules.mover = mover = Mover(cfg, mems=(Mem.UOP, Mem.ACC))
        m.submodules.interlock = interlock = Interlock(cfg)
        m.submodules.order = order = Fifo(shape=_ORDER, depth=ORDER_DEPTH)
        self._memories(m, sequencer, execute, mover)
        wiring.connect(m, sequencer.o, execute.issues)
        for outer, inner in ((self.req, mover.req), (self.beats, mover.beats)):
            wiring.connect(m, wiring.flipped(outer), inner)
        for outer, inner in ((self.inp, execute.inp), (self.wgt, execute.wgt)):
            wiring.connect(m, wiring.flipped(outer), inner)
        moved, leaves, kind = mover.done.valid, order.o.valid & order.o.ready, order.o.payload.kind
        jobs_ended = _finished(m, "jobs", execute.retire, leaves & (kind == Kind.JOB))
        loads_ended = _finished(m, "loads", moved, leaves & (kind == Kind.LOAD))
        self._tokens(m, order, jobs_ended, loads_ended)
        permitted, job, load = self._dispatch(m, sequencer, mover, interlock.room, order)
        jobs = Signal(_IN_FLIGHT_BITS)
        m.d.sync += jobs.eq(jobs + job - execute.retire)
        self._interlock(m, interlock, sequencer, load, job)
        m.d.comb += [
            interlock.written.eq(moved),
            interlock.drained.eq(jobs == 0),
            mover.done.ready.eq(1),
            mover.hold.eq(interlock.hold),
            sequencer.halt.eq(self.halt),
            self.product.eq(interlock.passes & interlock.issue.dot & ~interlock.issue.bubble),
            self.idle.eq((jobs == 0) & mover.idle & (self.halt | (order.level == 0))),
            self.activity.busy.eq(order.level != 0),
            self.activity.token_wait.eq(self.cmd.valid & ~permitted),
            self.activity.memory_wait.eq(mover.memory_wait & ~sequencer.o.valid),
            self.activity.insn.eq(self.cmd.ready),
            self.activity.ended.eq(order.o.valid & order.o.ready),
            self.activity.bytes.eq(mover.bytes),
            self.activity.progress.eq(
                self.cmd.ready | (sequencer.o.valid & sequencer.o.ready) | execute.retire | mover.progress
            ),
        ]
        keep_first(m, self.fault, fault_of(sequencer.fault), fault_of(mover.fault))
        return m

    def _memories(self, m: Module, sequencer: Sequencer, execute: Execute, mover: Mover) -> None:
        """Micro-ops and accumulators with the blocks that read and write them; the multipliers."""
        m.submodules.uops = uops = Scratchpad(self.cfg, mem=Mem.UOP)
        m.submodules.accumulators = acc = Accumulators(self.cfg)
        wiring.connect(m, mover.write_uop, uops.write)
        wiring.connect(m, sequencer.uop, uops.read)
        wiring.connect(m, mover.write_acc, acc.load)
        wiring.connect(m, wiring.flipped(self.store), acc.store)
        for name in ("dst", "src", "write"):
            wiring.connect(m, getattr(execute, name), getattr(acc, name))
        if "ternary" in self.cfg.units:
            for name in ("ternary_read", "ternary_write"):
                wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(acc, name))
        if "requant" in self.cfg.extensions:
            m.submodules.multiplier = multiplier = Rescale(self.cfg)
            wiring.connect(m, wiring.flipped(self.requantise), multiplier.ppu)
            wiring.connect(m, wiring.flipped(self.write_par), multiplier.write)
        else:
            m.submodules.multiplier = multiplier = Multiplier(self.cfg)
        wiring.connect(m, execute.multiplier, multiplier.alu)
        if has_functions(self.cfg):
            m.submodules.functions = functions = Functions(self.cfg)
            wiring.connect(m, wiring.flipped(self.write_par), functions.write)
            wiring.connect(m, execute.functions, functions.use)

    def _dispatch(
        self, m: Module, sequencer: Sequencer, mover: Mover, room: Value, order: Fifo
    ) -> tuple[Value, Value, Value]:
        """Sends the first instruction to the sequencer, to the mover, or, where it moves and computes nothing, just on;
        returns whether it has its tokens, and whether it goes as a job or a load."""
        command, move = self.cmd.payload, mover.cmd.payload
        insn = Value.cast(command.insn)
        flags, plain, padded = (data.View(insn_layout(self.cfg, name), insn) for name in ("FINISH", "LOAD", "LOADP"))
        permitted, may, loads, moving, nothing, goes = (Signal() for _ in range(6))
        job, load = Signal(), Signal()
        m.d.comb += [
            permitted.eq((~flags.pop_prev | self.from_load.valid) & (~flags.pop_next | self.from_store.valid)),
            may.eq(self.cmd.valid & permitted & ~self.halt & order.i.ready),
            *move_of(self.cfg, command, move),
            loads.eq((flags.op == Op.LOAD) | (flags.op == Op.LOADP)),
            moving.eq(loads & Mux(flags.op == Op.LOADP, padded.x_size.any(), plain.x_size.any())),
            nothing.eq((loads & ~moving) | (flags.op == Op.FINISH)),
            mover.cmd.valid.eq(may & moving & room),
            sequencer.jobs.valid.eq(may & ~moving & ~nothing),
            sequencer.jobs.payload.eq(command),
            job.eq(sequencer.jobs.valid & sequencer.jobs.ready),
            load.eq(mover.cmd.valid & mover.cmd.ready),
            # where it goes has room: the tokens, which come late, are one gate away from `ready`
            goes.eq(nothing | Mux(moving, room & mover.cmd.ready, sequencer.jobs.ready)),
            self.cmd.ready.eq(may & goes),
            order.i.valid.eq(self.cmd.ready),
            order.may.eq(self.cmd.valid),
            order.i.payload.kind.eq(Mux(nothing, Kind.NOTHING, Mux(moving, Kind.LOAD, Kind.JOB))),
            order.i.payload.push.eq(move.push),
            order.i.payload.finish.eq(flags.op == Op.FINISH),
            self.from_load.ready.eq(self.cmd.ready & flags.pop_prev),
            self.from_store.ready.eq(self.cmd.ready & flags.pop_next),
        ]
        return permitted, job, load

    def _interlock(self, m: Module, interlock: Interlock, sequencer: Sequencer, load: Value, job: Value) -> None:
        """The interlock's view of commands and issues."""
        m.d.comb += [
            interlock.load.eq(load),
            *move_of(self.cfg, self.cmd.payload, interlock.move),
            interlock.dispatch.eq(job),
            interlock.insn.eq(self.cmd.payload.insn),
            interlock.issue.eq(sequencer.o.payload),
            interlock.passes.eq(sequencer.o.valid & sequencer.o.ready),
            sequencer.may_begin.eq(interlock.may_begin),
            sequencer.may_issue.eq(interlock.may_issue),
        ]
        wiring.connect(m, sequencer.stages, interlock.stages)
        if "ternary" in self.cfg.units:
            m.d.comb += [self.busy.eq(interlock.busy), interlock.ternary.eq(self.ternary_busy)]

    def _tokens(self, m: Module, order: Fifo, jobs: Value, loads: Value) -> None:
        """The oldest instruction goes, with its tokens, when it has ended and the channels have room."""
        head, ended = order.o.payload, Signal()
        room = {"prev": ~head.push.push_prev | self.to_load.ready, "next": ~head.push.push_next | self.to_store.ready}
        m.d.comb += [
            ended.eq(order.o.valid & Mux(head.kind == Kind.JOB, jobs, Mux(head.kind == Kind.LOAD, loads, 1))),
            order.o.ready.eq(ended & ((room["prev"] & room["next"]) | self.halt)),
            self.to_load.valid.eq(ended & head.push.push_prev & room["next"]),
            self.to_store.valid.eq(ended & head.push.push_next & room["prev"]),
            self.finish.eq(order.o.valid & order.o.ready & head.finish),
        ]


def _finished(m: Module, name: str, one: Value, taken: Value) -> Value:
    """1 when the oldest of the instructions that each end with `one` has ended; `taken` counts it off."""
    ended = Signal(_IN_FLIGHT_BITS, name=f"{name}_ended")
    some, several = Signal(name=f"{name}_some"), Signal(name=f"{name}_several")  # ended is more than 0, than 1
    with m.If(one & ~taken):
        m.d.sync += [ended.eq(ended + 1), some.eq(1), several.eq(some)]
    with m.Elif(taken & ~one):
        m.d.sync += [ended.eq(ended - 1), some.eq(several), several.eq(ended > 2)]
    return one | some
