"""Signals for readers of waveforms: the instructions of each unit by name, the levels of queues and token channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from amaranth.hdl import Cat, Const, Fragment, Module, ResetInserter, Signal, Value

from ...hw.config import Config
from ...hw.isa import AluOp, Isa, Op
from ...hw.isa.table import INSTRUCTIONS
from ...hw.rtl.ports import INDEX_BITS, insn_layout
from ...hw.units import channels, units
from .speedups import components

SCOPE = "program"  # of the signals, inside the top module
UNKNOWN = "?"  # name of an instruction that cannot be decoded


def show(top: Fragment) -> dict[str, Signal]:
    """Add module `SCOPE` to the elaborated core `top`; it has no ports.

    For every unit: `<unit>`, the name of the instruction that it took last, 0 while none executes; `<unit>_index`, its
    position in the program; `<unit>_waits`, the name of the instruction at the head of its queue; `<unit>_queue`, the
    instructions in the queue. For every token channel `<source>_to_<target>`, its tokens. Names are ASCII, the last
    character in the low byte.
    """
    m, found = Module(), dict[tuple[str, ...], Any](components(top))  # Amaranth declares their ports at run time
    control, cfg = found[("control",)], found[()].cfg
    for k, unit in enumerate(units(cfg)):
        queue, activity = found[(f"queue_{unit.name}",)], found[(unit.name,)].activity
        head = _name(m, cfg, control.heads[k].insn, f"{unit.name}_head")
        name, waits = Signal.like(head, name=unit.name), Signal.like(head, name=f"{unit.name}_waits")
        index = Signal(INDEX_BITS, name=f"{unit.name}_index")
        level = Signal.like(queue.level, name=f"{unit.name}_queue")
        under_way = Signal(INDEX_BITS, name=f"{unit.name}_under_way")
        m.d.sync += under_way.eq(under_way + activity.insn - activity.ended)
        with m.If(activity.insn):
            m.d.sync += [name.eq(head), index.eq(control.heads[k].index)]
        with m.Elif(under_way == activity.ended):
            m.d.sync += name.eq(0)
        with m.If(control.waiting[k]):
            m.d.comb += waits.eq(head)
        m.d.comb += level.eq(queue.level)
    for channel in channels(cfg):
        source, target = (units(cfg)[queue].name for queue in channel)
        tokens = found[(f"tokens_{source}_{target}",)]
        level = Signal.like(tokens.level, name=f"{source}_to_{target}")
        m.d.comb += level.eq(tokens.level)
    top.add_subfragment(Fragment.get(ResetInserter(control.clear)(m), None), SCOPE)
    return {}


def _names(cfg: Config) -> Iterator[tuple[Mapping[str, int], str]]:
    """(values of fields that tell it apart, name) of every instruction of `cfg`."""
    for row in INSTRUCTIONS:
        for more in ([{"alu_op": op} for op in AluOp] if row.op == Op.ALU else [{}]) if not row.missing(cfg) else ():
            fields = {**row.fields, **more}
            yield fields, Isa(cfg).mnemonic(fields)


def _name(m: Module, cfg: Config, insn: Value, name: str) -> Signal:
    """A signal with the name of the instruction `insn`."""
    names = list(_names(cfg))
    text = Signal(8 * max(len(word) for _, word in names), name=name)
    m.d.comb += text.eq(_ascii(UNKNOWN))
    for fields, word in names:
        layout = insn_layout(cfg, "ALU" if "alu_op" in fields else "LOAD")
        with m.If(Cat(layout(insn)[key] == value for key, value in fields.items()).all()):
            m.d.comb += text.eq(_ascii(word))
    return text


def _ascii(text: str) -> Const:
    return Const(int.from_bytes(text.encode(), "big"), 8 * len(text))
