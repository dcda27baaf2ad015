"""The front of STORE: instructions into rows of accumulators and where in DRAM they go."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..axi import beat_size
from ..layouts import INDEX_BITS, insn_layout
from ..load.beats import beat_shift
from ..ports import ADDRESS_BITS, BEATS_BITS, command_signature

PAR_ROW_BITS = 23  # of the PAR index of any row that an instruction can name


def pushes(cfg: Config) -> tuple[str, ...]:
    """The flags by which a STORE gives tokens: to the compute queue, and with unit ternary to its queue."""
    return ("push_prev", "push_next") if "ternary" in cfg.units else ("push_prev",)


def row_layout(cfg: Config) -> data.StructLayout:
    """`entries` accumulators from `base` on, which go to `beats` beats from beat address `addr`, part `part`.

    `empty` where there are none, `single` where there is one; both are known before `entries`.
    With `quant` they are requantised with PAR entry `par`, and after every `width` of them with one `par_step` further.
    """
    return data.StructLayout(
        {
            "base": 33,
            "entries": 32,
            "empty": 1,
            "single": 1,
            "addr": ADDRESS_BITS - beat_size(cfg),
            "beats": BEATS_BITS,
            "part": 6,
            **({"quant": 1, "par": PAR_ROW_BITS, "par_step": 6, "width": 16} if "requant" in cfg.extensions else {}),
            "last": 1,
            "push": len(pushes(cfg)),
            "index": INDEX_BITS,
        }
    )


class StoreRows(wiring.Component):
    """Turns a STORE into rows: one each, or a single one where they are adjacent; a row of 0 entries for a NOP.

    Adjacent rows stay one where their parameters differ: `row_layout` says how these change.

    Members:
        cmd: in, STORE instructions
        row: out, their rows
        idle: out, nothing is inside

    Latency `ROW_LATENCY`; one row per cycle, one instruction in `STORE_INTERVAL`: whether the first stage has room does
    not depend on `row` in the same cycle.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {"cmd": In(command_signature()), "row": Out(stream.Signature(row_layout(cfg))), "idle": Out(1)}
        )

    def elaborate(self, platform):
        """First stage: the instruction; second: its rows. Neither has comparisons before its product or `ready`."""
        m, row = Module(), self.row.payload
        taken, word, number = Signal(), Signal(128, reset_less=True), Signal(INDEX_BITS, reset_less=True)
        flags = pushes(self.cfg)
        push, index, base, entries = (Signal(n, reset_less=True) for n in (len(flags), INDEX_BITS, 33, 32))
        insn = data.View(insn_layout(self.cfg, "STORE"), word)
        empty, one = Signal(reset_less=True), Signal(reset_less=True)
        left, at, stride, size = (Signal(n, reset_less=True) for n in (16, 34, 16, 16))
        # of the first stage: it has a single row, and the factor of `x_size` to that row's entries; of the second stage
        single, factor, last = Signal(), Signal(16, reset_less=True), Signal()
        ended = Signal()
        m.d.comb += [
            ended.eq(~self.row.valid | (self.row.ready & last)),
            self.cmd.ready.eq(~taken),
            self.idle.eq(~taken & ~self.row.valid),
        ]
        new = data.View(insn_layout(self.cfg, "STORE"), Value.cast(self.cmd.payload.insn))
        dense, some = new.x_stride == new.x_size, new.y_size != 0
        with m.If(self.cmd.ready):
            m.d.sync += [word.eq(self.cmd.payload.insn), number.eq(self.cmd.payload.index)]
            m.d.sync += [single.eq(dense | (new.x_size == 0) | ~some), factor.eq(Mux(dense, new.y_size, some))]
        m.d.sync += taken.eq(Mux(taken, ~ended, self.cmd.valid))
        with m.If(self.row.ready):
            m.d.sync += [left.eq(left - 1), last.eq(left == 2), at.eq(at + stride), base.eq(base + size)]
        with m.If(ended):
            m.d.sync += [
                self.row.valid.eq(taken),
                base.eq(insn.sram_base),
                entries.eq(insn.x_size * factor),
                empty.eq((insn.x_size == 0) | (factor == 0)),
                one.eq((insn.x_size == 1) & (factor == 1)),
                push.eq(Cat(insn[flag] for flag in flags)),
                index.eq(number),
                left.eq(insn.y_size),
                last.eq(single | (insn.y_size == 1)),
                at.eq(insn.dram_base),
                stride.eq(insn.x_stride),
                size.eq(insn.x_size),
            ]
        if "requant" in self.cfg.extensions:
            self._parameters(m, word, ended)
        shift = beat_shift(self.cfg, Mem.OUT)
        m.d.comb += [row.base.eq(base), row.entries.eq(entries), row.push.eq(push), row.index.eq(index)]
        m.d.comb += [row.last.eq(last), row.empty.eq(empty), row.single.eq(one)]
        if shift >= 0:
            m.d.comb += [row.addr.eq(at << shift), row.beats.eq(entries << shift)]
        else:
            part = at[:-shift]
            m.d.comb += [
                row.addr.eq(at >> -shift),
                row.part.eq(part),
                row.beats.eq((part + entries + ((1 << -shift) - 1)) >> -shift),
            ]
        return m

    def _parameters(self, m: Module, word, ended) -> None:
        """The fields of rows that only a requantising STORE has."""
        row, insn = self.row.payload, data.View(insn_layout(self.cfg, "STOREQ"), word)
        quant, par, step, width = (Signal(n, reset_less=True) for n in (1, PAR_ROW_BITS, 6, 16))
        with m.If(self.row.ready):
            m.d.sync += par.eq(par + step)
        with m.If(ended):
            m.d.sync += [
                quant.eq(insn.mem == Mem.OUTQ),
                par.eq(insn.par_base),
                step.eq(insn.par_step),
                width.eq(insn.x_size),
            ]
        m.d.comb += [row.quant.eq(quant), row.par.eq(par), row.par_step.eq(step), row.width.eq(width)]
