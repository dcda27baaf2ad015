"""The counters of an instruction's loops: its micro-ops, in `iter_in` trips, in `iter_out` rounds of those."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Module, Mux, Signal, Value

from ...isa import ITER_BITS


class Loops(NamedTuple):
    """Where the next issue of a job stands: `at` is the address of its micro-op, in the `first` trip or a later one.

    `uop_last` is 1 at the last micro-op of a trip, `inner_last` in the last trip of a round, `outer_last` in the last
    round.
    """

    at: Signal
    first: Signal
    uop_last: Signal
    inner_last: Signal
    outer_last: Signal

    @property
    def last(self) -> Value:
        """1 at the last issue of the job."""
        return self.uop_last & self.inner_last & self.outer_last


def count_loops(m: Module, fields, uop_bits: int, load: Value, advance: Value) -> Loops:
    """Counts the loops of the instruction `fields`, from `load` on, by one issue with each `advance`.

    Addresses of micro-ops have `uop_bits`. What is the last one is found one cycle ahead, so that no comparison is in
    the way of what begins then.
    """
    begin, before, at = (Signal(uop_bits, name=name) for name in ("uop_begin", "uop_before_last", "uop_at"))
    trips, inner, outer = (Signal(ITER_BITS, name=name) for name in ("trips", "inner_left", "outer_left"))
    uop_last, inner_last, outer_last, first = Signal(), Signal(), Signal(), Signal()
    one_uop, one_trip = Signal(), Signal()
    with m.If(advance):
        m.d.sync += [at.eq(Mux(uop_last, begin, at + 1)), uop_last.eq(Mux(uop_last, one_uop, at == before))]
        with m.If(uop_last):
            m.d.sync += [first.eq(0), inner.eq(Mux(inner_last, trips, inner - 1))]
            m.d.sync += inner_last.eq(Mux(inner_last, one_trip, inner == 2))
            with m.If(inner_last):
                m.d.sync += [outer.eq(outer - 1), outer_last.eq(outer == 2)]
    with m.If(load):
        m.d.sync += [begin.eq(fields.uop_bgn), before.eq(fields.uop_end - 2), at.eq(fields.uop_bgn)]
        m.d.sync += [flag.eq(fields.uop_bgn + 1 == fields.uop_end) for flag in (one_uop, uop_last)]
        m.d.sync += [count.eq(fields.iter_in) for count in (trips, inner)]
        m.d.sync += [flag.eq(fields.iter_in == 1) for flag in (one_trip, inner_last)]
        m.d.sync += [outer.eq(fields.iter_out), outer_last.eq(fields.iter_out == 1), first.eq(1)]
    return Loops(at, first, uop_last, inner_last, outer_last)
