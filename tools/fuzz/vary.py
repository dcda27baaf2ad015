"""Other values in the fields that an instruction does not use: the program means what it meant.

A legal program has most fields in a corner of their range: scratchpads are small, memory is, and a step is bounded by
what it steps through. A field that does nothing, such as the stride of one row, may hold anything, and must do nothing.
"""

from __future__ import annotations

import numpy as np

from tilewright.hw.isa import FLAGS, OPERATIONS, Field, Isa, Op, row_of
from tilewright.runtime.launch import Launch
from tilewright.sim.memory import put

_PADS = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
_NEVER = {"op", "mem", *FLAGS}


def unused(f: dict[str, int]) -> set[str]:
    """The fields of the decoded instruction `f` that may have any value and change nothing."""
    row = row_of(f["op"], f.get("mem"))
    if row.mem is not None:
        return _unused_moving(f)
    return _unused_looping(f) if row.loops else set()


def _unused_moving(f: dict[str, int]) -> set[str]:
    row, every = row_of(f["op"], f["mem"]), set(f) - _NEVER
    padded = any(f[name] for name in _PADS) if row.pads else False
    if row.empty or not f["x_size"]:
        return every - {"x_size"}
    if not row.one_row and not f["y_size"] and not (row.pads and f["y_pad_0"] + f["y_pad_1"]):
        return every - {"y_size", *(_PADS[:2] if row.pads else ())}
    found = set() if row.pads else {name for name in _PADS if name in f}
    if row.one_row:
        found |= {"y_size", "x_stride"}
    elif f["y_size"] <= 1:
        found |= {"x_stride", "par_step"} & every
    if row.pads and not padded:
        found |= {"pad_value"} & every
    return found


def _unused_looping(f: dict[str, int]) -> set[str]:
    steps = {name for name in f if name.endswith(("_out", "_in")) and name[:4] in ("dst_", "src_", "wgt_")}
    trips = {"_out": "iter_out", "_in": "iter_in"}
    found = {"reset"} if f["op"] == Op.ALU else set()
    if f["op"] == Op.ALU:
        found |= {"src_out", "src_in"} if f["use_imm"] else {"imm"}
    if f["uop_bgn"] >= f["uop_end"] or not f["iter_out"] or not f["iter_in"]:
        found |= steps | {name for name in trips.values() if f[name]}
        if f["uop_bgn"] >= f["uop_end"]:
            found |= set(trips.values())
        if f["op"] == Op.ALU and not OPERATIONS[f["alu_op"]].counted and not OPERATIONS[f["alu_op"]].names:
            found.add("imm")  # others decide whether it can be decoded
        return found
    return found | {name for name in steps for end, trip in trips.items() if name.endswith(end) and f[trip] == 1}


def varied(launch: Launch, rng: np.random.Generator, share: float = 0.5) -> Launch:
    """`launch` with another value in such a `share` of the fields that nothing uses."""
    isa = Isa(launch.cfg)
    insn = launch.insn.copy()
    for k, f in enumerate(isa.decode(insn)):
        form = isa.format_of(f["op"], f.get("mem", 0))
        assert form is not None
        names = sorted(unused(f) - ({"dram_base"} if launch.reloc[k] >= 0 else set()))
        for name in names:
            if rng.random() < share:
                put(insn[k], form.fields[name], any_value(form.fields[name], rng))
    return Launch(launch.cfg, launch.name, insn, launch.reloc, launch.buffers, patches=launch.patches)


def any_value(field: Field, rng: np.random.Generator) -> int:
    """A value of `field`: a limit, or one of which each doubling is as likely."""
    low, high = field.limits
    if rng.random() < 0.2:
        return low if rng.random() < 0.3 else high
    size = int(rng.integers(field.bits + 1))
    value = int(rng.integers(1 << max(size - 1, 0), 1 << size)) if size else 0
    return min(max(-value if field.signed and rng.random() < 0.5 else value, low), high)
