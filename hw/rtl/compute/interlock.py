"""Lets the loads of the compute queue and its GEMM and ALU instructions pass each other.

Loads go through the mover, GEMM and ALU ("jobs") through sequencer and pipeline; both in order, and at the same time.
A younger one passes an older one unless both touch the same micro-ops or the same bank of accumulators.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import ITER_BITS, Mem
from ..latencies import LOADS_IN_FLIGHT, REACH_LATENCY, SPANS_LATENCY, memory_cycles
from ..ports import address_bits, insn_layout, move_layout
from ..scratchpad import bank
from .accumulators import Exclusion
from .sequencer import Stages, banks_of, elementwise, issue_layout

_SLOT_BITS = (LOADS_IN_FLIGHT - 1).bit_length()


class Interlock(wiring.Component):
    """Keeps loads and jobs apart that touch the same memory, in the order in which they were dispatched.

    Members:
        load: in, a load is dispatched; only with `room`
        move: in, that load
        room: out, a load can be dispatched
        written: in, the oldest load is in memory
        hold: out, the load that the mover writes next has to wait
        dispatch: in, a job is dispatched
        insn: in, that job
        stages: in, positions of the jobs in the sequencer
        may_begin: out, the job that waits there may begin
        may_issue: out, the issue at its output may go on
        issue: in, that issue
        passes: in, it goes on
        drained: in, no job is in flight
        busy: out, banks that unit `ternary` may not enter (`Exclusion`); this and the next with that unit
        ternary: in, banks in which that unit is

    - A job begins when the older loads of micro-ops in its range are in memory.
    - An issue goes on when the older loads into the banks of its accumulators are in memory.
    - A load of micro-ops is written when the older jobs have begun, and the one that executes, if the load changes
      micro-ops in its range, has read them all.
    - A load of accumulators is written when the older jobs have begun, the one that executes has shown not to touch
      its banks or has ended, and results on their way to its banks are written, which is known `memory_cycles` to
      twice as many later, or when nothing is on its way.
    - With unit `ternary` a load of accumulators is written when that unit has left its banks, too.

    The banks of a job are known after its first trip around the micro-ops: those of their indices, and of the indices
    plus the steps of all trips.
    Latency: one cycle from the last condition to `hold`; to `may_begin` and `may_issue` from `written` two.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        self._ternary = "ternary" in cfg.units
        ternary = {"busy": Out(cfg.acc_banks), "ternary": In(cfg.acc_banks)}
        super().__init__(
            {
                "load": In(1),
                "move": In(move_layout()),
                "room": Out(1),
                "written": In(1),
                "hold": Out(1),
                "dispatch": In(1),
                "insn": In(128),
                "stages": In(Stages()),
                "may_begin": Out(1),
                "may_issue": Out(1),
                "issue": In(issue_layout(cfg)),
                "passes": In(1),
                "drained": In(1),
                **(ternary if self._ternary else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Tracks the loads in flight and the jobs that are older; derives which of them may go on."""
        m, stages = Module(), self.stages
        newest = Signal(_SLOT_BITS)  # slot of the next load
        oldest, second = Signal(_SLOT_BITS), Signal(_SLOT_BITS, init=1)  # slots of the next ones to be written
        valid, uops, free = (Signal(LOADS_IN_FLIGHT, name=name) for name in ("valid", "uops", "free"))
        taken, done, fill = (Signal(LOADS_IN_FLIGHT, name=name) for name in ("taken", "done", "fill"))
        m.d.comb += [
            self.room.eq(~valid.bit_select(newest, 1)),
            fill.eq(Const(1) << newest & ~valid),  # the slot that would be taken, as `load` comes late
            taken.eq(self.load << newest),
            done.eq(self.written << oldest),
            self.hold.eq(~Mux(self.written, free.bit_select(second, 1), free.bit_select(oldest, 1))),
        ]
        m.d.sync += [
            newest.eq(newest + self.load),
            oldest.eq(oldest + self.written),
            second.eq(second + self.written),
            valid.eq((valid & ~done) | taken),
            uops.eq((uops & ~fill) | Mux(self.move.mem == Mem.UOP, fill, 0)),
        ]
        older, (banks, known) = self._older(m, fill), self._load_banks(m, fill, newest)
        reads, touched = self._uops(m, fill, valid & uops), self._job_banks(m)
        recent = self._recent(m)
        claimed = self._exclusion(m, valid & ~uops & known, banks)
        inside = {"reading": stages.reading, "word": stages.word, "spare": stages.spare_last}
        inside["issuing"] = stages.issuing & stages.issue_last
        for k in range(LOADS_IN_FLIGHT):
            begun = ~(older["occupied"][k] & stages.occupied)
            shown = ~(older["running"][k] & stages.running & Mux(uops[k], reads[k], (touched & banks[k]).any()))
            left = ~(_any(older[name][k] & last for name, last in inside.items()) | (recent & banks[k]).any())
            if self._ternary:
                left &= claimed[k] & ~(self.ternary & banks[k]).any()
            with m.If(done[k]):  # the next one there begins anew
                m.d.sync += free[k].eq(0)
            with m.Elif(valid[k] & begun & shown & (uops[k] | left)):
                m.d.sync += free[k].eq(1)
        self._issues(m, valid & ~uops, older, banks)
        return m

    def _exclusion(self, m: Module, known: Value, banks: list[Signal]) -> Value:
        """Tells unit `ternary` which banks are in use, also by the loads `known`; returns one bit per load,
        set where that unit has seen its banks."""
        claimed = Signal(LOADS_IN_FLIGHT)
        if not self._ternary:
            return claimed
        m.submodules.exclusion = exclusion = Exclusion(self.cfg)
        m.d.sync += claimed.eq(known)
        m.d.comb += [
            exclusion.issue.eq(Mux(self.stages.issuing, self.issue.banks, 0)),
            exclusion.multiply.eq(self.issue.multiply),
            exclusion.loads.eq(_any(Mux(known[k], banks[k], 0) for k in range(LOADS_IN_FLIGHT))),
            self.busy.eq(exclusion.busy),
        ]
        return claimed

    def _older(self, m: Module, fill: Value) -> dict[str, Signal]:
        """By position of a job or an issue: one bit per load, set where the job there is older than the load; for the
        slot that is taken next, anything that is there is."""
        stages = self.stages
        names = ("occupied", "running", "reading", "word", "spare", "issuing")
        older = {name: Signal(LOADS_IN_FLIGHT, name=f"older_{name}") for name in names}
        moves = {
            "occupied": (self.dispatch, Const(0, LOADS_IN_FLIGHT)),
            "running": (stages.begin, older["occupied"]),
            "reading": (stages.advance, older["running"]),
            "word": (stages.fetch, older["reading"]),
            "spare": (~stages.spare, older["word"]),
            "issuing": (stages.step, Mux(stages.spare, older["spare"], older["word"])),
        }
        for name, (move, before) in moves.items():
            m.d.sync += older[name].eq(Mux(move, before, older[name]) | fill)
        return older

    def _uops(self, m: Module, fill: Value, valid: Value) -> Value:
        """Makes `may_begin`; returns one bit per load, set where it writes micro-ops in the executing job's range."""
        job, new = (data.View(insn_layout(self.cfg, "GEMM"), insn) for insn in (self.stages.job, self.insn))
        begin, end = Signal.like(job.uop_bgn, name="begin"), Signal.like(job.uop_end, name="end")
        waits, wanted, reads = Signal(LOADS_IN_FLIGHT), Signal(LOADS_IN_FLIGHT), Signal(LOADS_IN_FLIGHT)
        with m.If(self.stages.begin):
            m.d.sync += [begin.eq(job.uop_bgn), end.eq(job.uop_end)]
        for k in range(LOADS_IN_FLIGHT):
            first, beyond = Signal(16, name=f"first_{k}"), Signal(17, name=f"beyond_{k}")
            with m.If(fill[k]):
                m.d.sync += [first.eq(self.move.sram_base), beyond.eq(self.move.sram_base + self.move.x_size)]
            m.d.comb += [
                reads[k].eq((begin < beyond) & (first < end)),
                wanted[k].eq((new.uop_bgn < beyond) & (first < new.uop_end)),
            ]
        m.d.sync += waits.eq(Mux(self.dispatch, wanted, waits) & valid)
        m.d.comb += self.may_begin.eq(waits == 0)
        return reads

    def _load_banks(self, m: Module, fill: Value, newest: Signal) -> tuple[list[Signal], Signal]:
        """The banks that each load writes; all of them until its entries are multiplied out, which with unit `ternary`
        is `known`."""
        cfg, move, bits = self.cfg, self.move, address_bits(self.cfg, Mem.ACC)
        banks = [Signal(cfg.acc_banks, name=f"banks_{k}") for k in range(LOADS_IN_FLIGHT)]
        width, height = (self._side(m, axis, bits) for axis in ("x", "y"))
        product, behind = Signal(2 * bits + 2), Signal(2 * bits + 3)
        loads, slots = (
            _delayed(m, name, value, REACH_LATENCY) for name, value in (("load", self.load), ("slot", newest))
        )
        bases = _delayed(m, "base", Value.cast(move.sram_base), REACH_LATENCY)
        m.d.sync += [
            product.eq(width * height),
            behind.eq(product + bases[-2]),  # with the product in one multiplier
        ]
        known = Signal(LOADS_IN_FLIGHT)
        if self._ternary:
            m.d.sync += known.eq((known | (loads[-1] << slots[-1])) & ~fill)
        for k in range(LOADS_IN_FLIGHT):
            with m.If(fill[k]):
                m.d.sync += banks[k].eq(~0)
            with m.Elif(loads[-1] & (slots[-1] == k)):
                m.d.sync += banks[k].eq(banks_of(cfg, bank(cfg, bases[-1][:bits]), behind))
        return banks, known

    def _side(self, m: Module, axis: str, bits: int) -> Signal:
        """Entries of the load in direction `axis` with its pads, two cycles ago."""
        move = self.move
        widths = {"size": 16, "pads": 5, "total": bits + 1}
        size, pads, total = (Signal(n, name=f"{axis}_{name}") for name, n in widths.items())
        m.d.sync += [
            size.eq(move[f"{axis}_size"]),
            pads.eq(move[f"{axis}_pad_0"] + move[f"{axis}_pad_1"]),
            total.eq(_capped(size + pads, bits)),
        ]
        return total

    def _job_banks(self, m: Module) -> Value:
        """The banks that the executing job may touch."""
        cfg, stages, bits = self.cfg, self.stages, address_bits(self.cfg, Mem.ACC)
        gemm, alu = (data.View(insn_layout(cfg, name), stages.job) for name in ("GEMM", "ALU"))
        if cfg.acc_banks == 1:
            return Const(1, 1)
        begun, tensor, shown = Signal(), Signal(), Signal()
        m.d.sync += begun.eq(stages.begin)  # `begin` comes late in its cycle
        first = stages.issuing & stages.issue_first & (stages.issue_tag == stages.tag) & ~self.issue.bubble
        with m.If(begun):
            m.d.sync += [tensor.eq(elementwise(gemm.op) & ~alu.use_imm), shown.eq(0)]
        with m.Elif(first & stages.issue_ends):
            m.d.sync += shown.eq(1)
        spans, ready = self._spans(m, begun)
        count, rows = cfg.acc_banks, (cfg.bank_depth - 1).bit_length()
        touched = Const(0, count)
        for name, span, used in zip(("dst", "src"), spans, (Const(1, 1), tensor)):
            # `low[k]`: a first index is in bank k or before it; of the last bank that is certain
            index, low, top = (
                self.issue[name][:bits],
                Signal(count - 1, name=f"{name}_low"),
                Signal(bits, name=f"{name}_top"),
            )
            reach = Signal(bits + 2, name=f"{name}_reach")
            m.d.comb += reach.eq(top + span)
            with m.If(begun):
                m.d.sync += [low.eq(0), top.eq(0)]
            with m.Elif(first):
                after = ~index[rows:] if count == 2 else Cat(index[rows:] <= k for k in range(count - 1))
                m.d.sync += [low.eq(low | after), top.eq(Mux(index > top, index, top))]
            touched |= Mux(used, _between(low, reach[rows:], count), 0)
        return Mux(shown & ready & ~begun, touched, (1 << count) - 1)

    def _spans(self, m: Module, begun: Value) -> tuple[list[Signal], Value]:
        """Distances that the executing job's trips take `dst` and `src`, one product per cycle; 1 when known."""
        bits = address_bits(self.cfg, Mem.ACC)
        gemm, alu = (data.View(insn_layout(self.cfg, name), self.stages.job) for name in ("GEMM", "ALU"))
        spans = [Signal(bits + 1, name=f"{name}_span") for name in ("dst", "src")]
        steps = [Signal(bits, name=f"{name}_{loop}") for name in ("dst", "src") for loop in ("out", "in")]
        trips = [Signal(ITER_BITS, name=f"trips_{loop}") for loop in ("out", "in")]
        product, result = Signal(ITER_BITS + bits), Signal(ITER_BITS + bits)
        distance, ready, phases = Signal(bits + 1), Signal(), Signal(SPANS_LATENCY - 2)
        m.d.sync += [product.eq(trips[0] * steps[0]), result.eq(product), distance.eq(_capped(result, bits))]
        with m.If(begun):
            m.d.sync += [trip.eq(gemm[f"iter_{loop}"] - 1) for trip, loop in zip(trips, ("out", "in"))]
            m.d.sync += [step.eq(Mux(elementwise(gemm.op), alu[step.name], gemm[step.name])) for step in steps]
        with m.Else():
            m.d.sync += [trips[0].eq(trips[1]), trips[1].eq(trips[0])]
            m.d.sync += [step.eq(after) for step, after in zip(steps, steps[1:])]
        m.d.sync += [phases.eq(Mux(begun, 1, phases << 1)), ready.eq(~begun & (ready | phases[-1]))]
        for span, both in zip(spans, (phases[-4:-2], phases[-2:])):
            with m.If(begun):
                m.d.sync += span.eq(0)
            with m.Elif(both.any()):
                m.d.sync += span.eq(_capped(span + distance, bits))
        return spans, ready

    def _recent(self, m: Module) -> Value:
        """The banks of the issues that may not have read and written yet."""
        cfg, passed = self.cfg, Signal(self.cfg.acc_banks)
        period = memory_cycles(cfg)
        new, old, timer = Signal(cfg.acc_banks), Signal(cfg.acc_banks), Signal(range(period))
        m.d.comb += passed.eq(Mux(self.passes, self.issue.banks, 0))
        with m.If(self.drained):
            m.d.sync += [new.eq(0), old.eq(0), timer.eq(0)]
        with m.Else():
            m.d.sync += [new.eq(new | passed), timer.eq(timer + 1)]
            with m.If(timer == period - 1):
                m.d.sync += [new.eq(passed), old.eq(new)]
        return new | old

    def _issues(self, m: Module, valid: Value, older: dict[str, Signal], banks: list[Signal]) -> None:
        """Makes `may_issue`, from the banks that older loads write."""
        pending, stages = Signal(self.cfg.acc_banks), self.stages

        def of(position: str) -> Value:
            return _any(Mux(valid[k] & ~older[position][k], banks[k], 0) for k in range(LOADS_IN_FLIGHT))

        following = Mux(stages.spare, of("spare"), of("word"))
        m.d.sync += pending.eq(Mux(stages.step, following, of("issuing")))
        m.d.comb += self.may_issue.eq(~(pending & self.issue.banks).any())


def _any(values: Iterable[Value]) -> Value:
    return functools.reduce(operator.or_, values)


def _capped(value: Value, bits: int) -> Value:
    """`value`, or 1 << bits where that is less."""
    return Mux(value[bits:].any(), 1 << bits, value)


def _between(low: Value, reach: Value, count: int) -> Value:
    """One bit for each of `count` banks: it has a bit in `low`, as the last one needs none, and `reach` is at least its
    number."""
    reached = [reach.any()] if count == 2 else [reach >= k for k in range(1, count)]
    return Cat(low[0], *(low[k] & reached[k - 1] for k in range(1, count - 1)), reached[-1])


def _delayed(m: Module, name: str, value: Value, cycles: int) -> list[Signal]:
    """`value` one to `cycles` cycles ago."""
    later = [Signal.like(value, name=f"{name}_{k + 1}") for k in range(cycles)]
    m.d.sync += [after.eq(before) for after, before in zip(later, (value, *later))]
    return later
