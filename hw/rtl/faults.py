"""The first error of a block, which stays until the block is reset."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, ValueLike
from amaranth.lib.wiring import PureInterface

from ..regs import Error

Event = tuple[ValueLike, ValueLike, ValueLike]  # whether it happens in this cycle, its code, its instruction's index


def keep_first(m: Module, fault: PureInterface, *events: Event) -> None:
    """Keep in `fault`, a `Fault` of which the block is the source, the first of `events`.

    Of several in one cycle it is the one that is named first.
    """
    with m.If(fault.code == Error.NONE):
        for happens, code, index in reversed(events):
            with m.If(happens):
                m.d.sync += [fault.code.eq(code), fault.index.eq(index)]


def keep_first_seen(m: Module, fault: PureInterface, *events: Event) -> None:
    """`keep_first` one cycle later: it keeps a register of the events, so that no comparison delays what it enables."""
    seen, code, index = Signal(), Signal.like(fault.code), Signal.like(fault.index)
    *earlier, (happens, its_code, its_index) = events
    m.d.sync += [seen.eq(happens), code.eq(its_code), index.eq(its_index)]
    for happens, its_code, its_index in reversed(earlier):
        with m.If(happens):
            m.d.sync += [seen.eq(1), code.eq(its_code), index.eq(its_index)]
    keep_first(m, fault, (seen, code, index))


def fault_of(fault: PureInterface) -> Event:
    """The `fault` of a part of a block as an event for `keep_first`."""
    return fault.code != Error.NONE, fault.code, fault.index
