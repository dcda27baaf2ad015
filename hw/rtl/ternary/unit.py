"""Unit ternary: executes its queue beside the compute unit, on banks of accumulators that this does not use."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..faults import fault_of, keep_first
from ..fifo import Fifo
from ..latencies import TERNARY_ORDER_DEPTH, capacity
from ..layouts import insn_layout, push_layout
from ..ports import SramRead, TernaryRead, TernaryWrite, Token, command_signature, unit_members
from .pipeline import TernaryExecute
from .sequencer import TernarySequencer


class Ternary(wiring.Component):
    """Executes the ternary queue in order, each instruction on the accumulators as the one before left them.

    Members, besides those of every unit (`unit_members`):
        cmd: in, the ternary queue
        from_store, from_load: in, tokens that its instructions take
        to_store, to_load: out, tokens that they give
        inp, twgt, uop: out, read ports of the scratchpads
        read, write: out, ports of the accumulators
        busy: out, banks that it uses
        compute_busy: in, banks that the compute unit uses

    Instructions follow each other through sequencer and pipeline without a gap. An issue waits while the compute unit
    uses its bank (hw/rtl/ternary/pipeline.py). Tokens are given in the order of the queue, when the last issue is
    written. Back-pressure: an instruction waits at the head of the queue for its tokens; then one waits inside for the
    one before it, and `TERNARY_ORDER_DEPTH` for the room of the tokens that they give.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "cmd": In(command_signature()),
                "from_store": In(Token()),
                "from_load": In(Token()),
                "to_store": Out(Token()),
                "to_load": Out(Token()),
                "inp": Out(SramRead(cfg, Mem.INP)),
                "twgt": Out(SramRead(cfg, Mem.TWGT)),
                "uop": Out(SramRead(cfg, Mem.TUOP)),
                "read": Out(TernaryRead(cfg)),
                "write": Out(TernaryWrite(cfg)),
                "busy": Out(cfg.acc_banks),
                "compute_busy": In(cfg.acc_banks),
                **unit_members(),
            }
        )

    def elaborate(self, platform) -> Module:
        """Sequencer, pipeline, tokens."""
        m = Module()
        m.submodules.sequencer = sequencer = TernarySequencer(self.cfg)
        m.submodules.execute = execute = TernaryExecute(self.cfg)
        m.submodules.order = order = Fifo(shape=push_layout(), depth=TERNARY_ORDER_DEPTH)
        wiring.connect(m, sequencer.o, execute.issues)
        wiring.connect(m, wiring.flipped(self.uop), sequencer.uop)
        for outer, inner in (
            (self.inp, execute.inp),
            (self.twgt, execute.wgt),
            (self.read, execute.read),
            (self.write, execute.write),
        ):
            wiring.connect(m, wiring.flipped(outer), inner)
        jobs = Signal(range(capacity(TERNARY_ORDER_DEPTH) + 1))  # taken and not written
        m.d.sync += jobs.eq(jobs + self.cmd.ready - execute.retire)
        permitted = self._take(m, sequencer, order)
        self._give(m, order, execute.retire)
        m.d.comb += [
            execute.compute_busy.eq(self.compute_busy),
            self.busy.eq(execute.busy),
            sequencer.halt.eq(self.halt),
            self.idle.eq((jobs == 0) & (self.halt | (order.level == 0))),
            self.activity.busy.eq(order.level != 0),
            self.activity.token_wait.eq(self.cmd.valid & ~permitted),
            self.activity.insn.eq(self.cmd.ready),
            self.activity.ended.eq(order.o.valid & order.o.ready),
            self.activity.progress.eq(self.cmd.ready | (sequencer.o.valid & sequencer.o.ready) | execute.retire),
        ]
        keep_first(m, self.fault, fault_of(sequencer.fault))
        return m

    def _take(self, m: Module, sequencer: TernarySequencer, order: Fifo) -> Value:
        """Sends the first instruction to the sequencer; returns whether it has its tokens."""
        flags = data.View(insn_layout(self.cfg, "TERNARY"), Value.cast(self.cmd.payload.insn))
        permitted, may = Signal(), Signal()
        m.d.comb += [
            permitted.eq((~flags.pop_prev | self.from_store.valid) & (~flags.pop_next | self.from_load.valid)),
            may.eq(self.cmd.valid & permitted & ~self.halt & order.i.ready),
            sequencer.jobs.valid.eq(may),
            sequencer.jobs.payload.eq(self.cmd.payload),
            self.cmd.ready.eq(may & sequencer.jobs.ready),
            order.i.valid.eq(self.cmd.ready),
            order.may.eq(self.cmd.valid),
            *(order.i.payload[name].eq(flags[name]) for name in ("push_prev", "push_next")),
            self.from_store.ready.eq(self.cmd.ready & flags.pop_prev),
            self.from_load.ready.eq(self.cmd.ready & flags.pop_next),
        ]
        return permitted

    def _give(self, m: Module, order: Fifo, retire: Value) -> None:
        """The oldest instruction goes, with its tokens, when it is written and the channels have room."""
        head, leaves, ended = order.o.payload, Signal(), Signal()
        written, some = Signal(range(capacity(TERNARY_ORDER_DEPTH) + 1)), Signal()  # instructions; more than none
        prev, following = ~head.push_prev | self.to_store.ready, ~head.push_next | self.to_load.ready
        with m.If(retire & ~leaves):
            m.d.sync += [written.eq(written + 1), some.eq(1)]
        with m.Elif(leaves & ~retire):
            m.d.sync += [written.eq(written - 1), some.eq(written != 1)]
        m.d.comb += [
            ended.eq(order.o.valid & (retire | some)),
            order.o.ready.eq(ended & ((prev & following) | self.halt)),
            leaves.eq(order.o.valid & order.o.ready),
            self.to_store.valid.eq(ended & head.push_prev & following),
            self.to_load.valid.eq(ended & head.push_next & prev),
        ]
