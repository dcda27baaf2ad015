"""Amaranth views of the declarations in hw/isa: one layout per instruction format, and the micro-op's."""

from __future__ import annotations

from amaranth.hdl import signed, unsigned
from amaranth.lib import data

from ..config import Config
from ..isa import Format, Isa
from ..units import units

INDEX_BITS = 32  # position of an instruction in its program


def format_layout(fmt: Format) -> data.FlexibleLayout:
    """The fields of `fmt` at their positions in its word."""
    return data.FlexibleLayout(
        fmt.width,
        {f.name: data.Field(signed(f.bits) if f.signed else unsigned(f.bits), f.lo) for f in fmt.fields.values()},
    )


def insn_layout(cfg: Config, name: str) -> data.FlexibleLayout:
    """The 128-bit word of format `name` (`LOAD`, `GEMM`, ...) in configuration `cfg`."""
    return format_layout(Isa(cfg).formats[name])


def uop_layout(cfg: Config) -> data.FlexibleLayout:
    """The 32-bit micro-op of configuration `cfg`."""
    return format_layout(Isa(cfg).uop)


def command_layout() -> data.StructLayout:
    """An entry of a command queue: the instruction word and its position in the program."""
    return data.StructLayout({"insn": 128, "index": INDEX_BITS})


def watch_layout(cfg: Config) -> data.StructLayout:
    """What happens in one cycle, for whoever watches a program (sim/rtl/watch.py): events, then what is counted.

    Events of instructions: `start`: fetching starts; `<unit>_taken`: the unit takes one from its queue; `<unit>_ended`:
    its oldest one ends. Counted from `product` on: `product`: an issue of GEMM or DWGEMM leaves the sequencer; the
    reason why the head of the unit's queue waits, `<unit>_token` or `<unit>_unit`; `<unit>_memory`: execution waits for
    the bus; `store_bank`: STORE waits for its accumulators or the multipliers.
    """
    events = (f"{unit.name}_{what}" for unit in units(cfg) for what in ("taken", "ended"))
    counted = (f"{unit.name}_{what}" for unit in units(cfg) for what in ("token", "unit", "memory"))
    return data.StructLayout({"start": 1, **dict.fromkeys((*events, "product", *counted, "store_bank"), 1)})


def push_layout() -> data.StructLayout:
    """Tokens that an executed instruction gives."""
    return data.StructLayout({"push_prev": 1, "push_next": 1})


def move_layout() -> data.StructLayout:
    """One LOAD or LOADP for a mover: the fields of the instruction, widened to the larger format of the two."""
    pads = dict.fromkeys(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), 4)
    return data.StructLayout(
        {
            "mem": 3,
            "sram_base": 16,
            "dram_base": 32,
            "y_size": 16,
            "x_size": 16,
            "x_stride": 16,
            **pads,
            "pad_value": signed(8),
            "push": push_layout(),
            "index": INDEX_BITS,
        }
    )
