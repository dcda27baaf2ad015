"""Clocks of their own for units that are often idle: the simulator evaluates nothing of them while they have no edge.

Verilator evaluates all logic behind a clock at each of its edges. In most cycles fetch, movers, read ports and the
store unit have nothing to do, so the harness leaves their edges out while `en_<unit>` is low. The circuit is the same:
on a board, and where waveforms are asked for, all these clocks are one.

A unit needs edges while it has work, while it may take some, while a token waits to be taken from it, in resets, and
`SETTLE` cycles longer. After these its registers stay as they are, but for data that nobody reads as valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from amaranth.hdl import Cat, ClockDomain, DomainRenamer, Fragment, Module, Mux, Signal, Value

from ...hw.rtl.control import Control
from ...hw.rtl.fetch import INSN_BITS, Fetch
from ...hw.rtl.fifo import Fifo
from ...hw.rtl.load.mover import Mover
from ...hw.rtl.read_port import ReadPort
from ...hw.rtl.store.unit import Store
from ...hw.units import units

Gated = Fetch | Mover | ReadPort | Store
SETTLE = 8  # cycles that what a unit does behind its work may take; tests find 1 too few
CLOCK, ENABLE = "clk_", "en_"  # before the name of a unit, in names of ports


def gate(top: Fragment) -> dict[str, Signal]:
    """Give units of the elaborated core `top` clocks of their own; returns their ports by name.

    `clk_<unit>` is in, `en_<unit>` is out: the next edge of that clock is needed. It follows no input of the core.
    """
    m, ports = Module(), {}
    parts = dict(_parts(top, ()))
    (control,) = (part for part in parts.values() if isinstance(part, Control))
    sync = top.domains["sync"]
    resets = sync.rst | control.clear
    for path, unit in parts.items():
        if not isinstance(unit, Gated):
            continue
        name = "_".join(path)
        domain = ClockDomain(name)
        clock, enable = Signal(name=CLOCK + name), Signal(name=ENABLE + name)
        domain.clk, domain.rst = clock, sync.rst
        top.add_domains(domain)
        awake, settles = Signal(name=f"awake_{name}"), Signal(SETTLE, name=f"settles_{name}")
        m.d.comb += [awake.eq(resets | _works(m, unit, path, parts)), enable.eq(awake | settles.any())]
        m.d.sync += settles.eq(Mux(awake, ~0, settles >> 1))
        _rename(top, unit, name)
        ports |= {clock.name: clock, enable.name: enable}
    top.add_subfragment(Fragment.get(m, None), "gating")
    return ports


def gates(verilog: str) -> list[str]:
    """The units with clocks of their own in the `verilog` of a core, by name."""
    inputs = re.findall(rf"^  input {CLOCK}(\w+);$", verilog, re.M)  # of the core, and of blocks inside
    return list(dict.fromkeys(inputs))


def _works(m: Module, unit: Gated, path: tuple[str, ...], parts: Mapping[tuple[str, ...], object]) -> Value:
    """`unit`, which is `parts[path]`, has work, or may take some with the next edge."""
    if isinstance(unit, Mover):
        return ~unit.idle | unit.cmd.valid
    if isinstance(unit, Fetch):
        queues = (getattr(unit, queue.name) for queue in units(unit.cfg))
        # a beat of several instructions is taken with its last one
        beats = unit.beats.valid if unit.cfg.axi_bits > INSN_BITS else _moves(unit.beats)
        return unit.start | unit.halt | unit.req.valid | beats | _moves(*queues)
    if isinstance(unit, ReadPort):
        words = [unit.words] if unit.width > 1 else []
        return ~unit.idle | unit.halt | _moves(*unit.req, *unit.beats, *words)
    seen = Signal()  # of an instruction that waits for its token something is found ahead
    m.d.sync += seen.eq(unit.cmd.valid)
    waits = unit.cmd.valid & seen & unit.activity.token_wait
    answers = parts[(*path, "bursts", "answers")]
    assert isinstance(answers, Fifo)
    return ~unit.idle | unit.halt | answers.o.valid | (unit.cmd.valid & ~waits)


def _moves(*streams) -> Value:
    """One of `streams` has a transfer."""
    return Cat(stream.valid & stream.ready for stream in streams).any()


def _parts(fragment: Fragment, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """The components inside `fragment`, inner ones first, with names of those around them up to the engine."""
    for part, name, _ in fragment.subfragments:
        inner = () if name in ("core", "engine") else (*path, name or "")
        yield from _parts(part, inner)
        if part.origins:
            yield inner, part.origins[0]


def _rename(fragment: Fragment, unit: object, domain: str) -> None:
    """Put all of `unit` that has the common clock into `domain`."""
    for k, (part, name, where) in enumerate(fragment.subfragments):
        if part.origins and part.origins[0] is unit:
            fragment.subfragments[k] = (DomainRenamer({"sync": domain})(part), name, where)
        else:
            _rename(part, unit, domain)
