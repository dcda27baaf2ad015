"""Changes to the elaborated core by which its simulation runs faster; the results and their cycles are the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from amaranth.hdl import Cat, ClockDomain, ClockSignal, DomainRenamer, Fragment, Instance, Module, Mux, Signal, Value

from ...hw.config import Config
from ...hw.isa import Mem
from ...hw.rtl.compute.gemm import Dot
from ...hw.rtl.control import Control
from ...hw.rtl.fetch import INSN_BITS, Fetch
from ...hw.rtl.fifo import Fifo
from ...hw.rtl.latencies import array_latency
from ...hw.rtl.mover import Mover
from ...hw.rtl.ports import entry_bits
from ...hw.rtl.read_port import ReadPort
from ...hw.rtl.store import Store
from ...hw.units import units

Gated = Fetch | Mover | ReadPort | Store
SETTLE = 8  # cycles that what a unit does behind its work may take; tests find 1 too few
CLOCK, ENABLE = "clk_", "en_"  # before the name of a unit, in names of ports


def gate(top: Fragment) -> dict[str, Signal]:
    """Give units of the elaborated core `top` clocks of their own; returns their ports by name.

    `clk_<unit>` is in, `en_<unit>` is out: the next edge of that clock is needed. It follows no input of the core.
    """
    m, ports = Module(), {}
    parts = dict(components(top))
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


def components(fragment: Fragment, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """The components inside `fragment`, inner ones first, with names of those around them up to the engine."""
    for part, name, _ in fragment.subfragments:
        inner = () if name in ("core", "engine") else (*path, name or "")
        yield from components(part, inner)
        if part.origins:
            yield inner, part.origins[0]


def _rename(fragment: Fragment, unit: object, domain: str) -> None:
    """Put all of `unit` that has the common clock into `domain`."""
    for k, (part, name, where) in enumerate(fragment.subfragments):
        if part.origins and part.origins[0] is unit:
            fragment.subfragments[k] = (DomainRenamer({"sync": domain})(part), name, where)
        else:
            _rename(part, unit, domain)


SOURCE = Path(__file__).with_name("array.cpp")
_LANE = 32  # bits of a sum as the function gives it


def with_function(fragment: Fragment) -> dict[str, Signal]:
    """Put the function in the place of the multiplier array of the elaborated core `fragment`; no port is added."""
    for k, (part, name, where) in enumerate(fragment.subfragments):
        dot = part.origins[0] if part.origins else None
        if isinstance(dot, Dot):
            fragment.subfragments[k] = (Fragment.get(_array(dot), None), name, where)
        else:
            with_function(part)
    return {}


def defines(cfg: Config) -> dict[str, int]:
    """What array.cpp is compiled with."""
    names = ("inp_bits", "wgt_bits", "batch", "block_in", "block_out", "row_taps")
    return {name.upper(): getattr(cfg, name) for name in names}


def module(cfg: Config) -> str:
    """Verilog of the module that calls the function, where `en`, with a rising edge."""
    inp, wgt = cfg.row_taps * entry_bits(cfg, Mem.INP), entry_bits(cfg, Mem.WGT)
    sums = _LANE * cfg.lanes
    return f"""
module tilewright_array (
  input clk, input en, input rows, input [31:0] row, input [31:0] extra,
  input [{inp - 1}:0] inp, input [{wgt - 1}:0] wgt, output reg [{sums - 1}:0] sums = 0
);
  import "DPI-C" function void tilewright_array(
    input bit [{inp - 1}:0] inp, input bit [{wgt - 1}:0] wgt, input int rows, input int row, input int extra,
    output bit [{sums - 1}:0] sums
  );
  reg [{sums - 1}:0] found;
  always @(posedge clk) if (en) begin
    tilewright_array(inp, wgt, {{31'd0, rows}}, row, extra, found);
    sums <= found;
  end
endmodule
"""


def _array(dot: Dot) -> Module:
    """The function with the ports of `dot`; sums wait for as long as they take there."""
    m, cfg = Module(), dot.cfg
    taps = cfg.row_taps > 1
    sums = Signal(_LANE * cfg.lanes)
    m.submodules.function = Instance(
        "tilewright_array",
        i_clk=ClockSignal(),
        i_en=dot.en,
        i_inp=Cat(dot.inp, dot.near) if taps else dot.inp,
        i_wgt=dot.wgt,
        i_rows=dot.rows,
        i_row=Cat(dot.row, Signal(32 - len(dot.row))),
        i_extra=Cat(dot.extra, Signal(32 - len(dot.extra))) if taps else Signal(32),
        o_sums=sums,
    )
    enable = dot.en
    for k in range(1, array_latency(cfg)):
        before, earlier = enable, sums
        enable, sums = Signal(name=f"en_{k}"), Signal.like(sums, name=f"sums_{k}", reset_less=True)
        m.d.sync += enable.eq(before)
        with m.If(enable):
            m.d.sync += sums.eq(earlier)
    for k in range(cfg.lanes):
        m.d.comb += dot.sums[k].eq(sums[_LANE * k :][:_LANE].as_signed())
    return m
