"""Instructions that do nothing, put into a program at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..hw.isa import INSTRUCTIONS, OPERATIONS, AluOp, Isa, Mem, Op, queue_of, row_of
from ..runtime.launch import Launch


def within(extensions: frozenset[str], units: tuple[str, ...], f: dict[str, int]) -> bool:
    """True where `extensions` and `units` suffice for the instruction with the fields `f`."""
    row = row_of(f["op"], f.get("mem"))
    if row.unit and row.unit not in units:
        return False
    return extensions.issuperset(row.extensions + (OPERATIONS[f["alu_op"]].extensions if "alu_op" in f else ()))


def _idlers() -> list[tuple[str, dict[str, int]]]:
    """(format, fields) of instructions that do nothing."""
    size, far = {"y_size": 3, "x_size": 2, "x_stride": 9}, {"sram_base": 3, "dram_base": 1 << 20}
    kinds = [("LOAD", {"op": Op.LOAD, "mem": mem, **size, "x_size": 0}) for mem in (Mem.INP, Mem.WGT, Mem.ACC)]
    kinds += [("LOAD", {"op": Op.LOAD, "mem": Mem.UOP}), ("LOAD", {"op": Op.LOAD, "mem": Mem.ACC, **far, "x_size": 7})]
    kinds += [("LOAD", {"op": Op.LOAD, "mem": Mem.INP, "x_size": 0, "y_size": 2, "x_pad_0": 3, "y_pad_1": 2, **far})]
    kinds += [("STORE", {"op": Op.STORE, "mem": mem, **far}) for mem in (Mem.UOP, Mem.OUT)]
    kinds += [("STORE", {"op": Op.STORE, "mem": Mem.OUT, **size, empty: 0}) for empty in ("x_size", "y_size")]
    once = {"uop_bgn": 0, "uop_end": 1, "iter_out": 3, "iter_in": 2}
    kinds += [("GEMM", {"op": Op.GEMM, **once, empty: 0}) for empty in ("uop_end", "iter_out", "iter_in")]
    kinds += [("DWGEMM", {"op": Op.DWGEMM, **once, "iter_in": 0})]
    alu = {"op": Op.ALU, "alu_op": AluOp.MIN, **once}
    kinds += [("ALU", alu | {empty: 0}) for empty in ("uop_end", "iter_out", "iter_in")]
    entry = {"use_imm": 1, "imm": -1, "iter_out": 0}
    kinds += [("ALU", alu | entry | {"alu_op": op}) for op, row in OPERATIONS.items() if row.reads is not None]
    pads = {"x_size": 0, "y_size": 2, "y_pad_0": 1, "x_pad_1": 2}
    par = {"op": Op.LOAD, "mem": Mem.PAR, **far, "x_pad_0": 2}
    kinds += [("LOAD", par | {empty: 2}) for empty in ("x_size", "y_size")]
    kinds += [("STOREQ", {"op": Op.STORE, "mem": Mem.OUTQ, **far, "par_base": 1023, "x_size": 3})]
    kinds += [("LOAD", {"op": Op.LOAD, "mem": mem.id, **far, **pads}) for mem in (Mem.TWGT, Mem.TUOP)]
    kinds += [("TERNARY", {"op": Op.TERNARY, **once, empty: 0}) for empty in ("uop_end", "iter_out", "iter_in")]
    return kinds


def every_idler() -> list[tuple[str, dict[str, int]]]:
    """(format, fields) of instructions that do nothing, of every kind and for each reason."""
    kinds = []
    for row in INSTRUCTIONS:
        if row.mem is not None:
            kinds += [(row.format, row.fields | {"x_size": 0, "y_size": 1})]
            kinds += [(row.format, row.fields | {"x_size": 1, "y_size": 0})] * (not row.one_row and not row.empty)
        operations: list[dict[str, int]] = [{}]
        if row.op == Op.ALU:
            operations = [{"alu_op": op, "use_imm": 1} for op in OPERATIONS]
        for chosen in operations if row.loops else ():
            once = row.fields | chosen | {"uop_end": 1, "iter_out": 1, "iter_in": 1}
            kinds += [(row.format, once | {empty: 0}) for empty in ("uop_end", "iter_out", "iter_in")]
    return kinds


def with_idlers(
    launch: Launch,
    rng: np.random.Generator,
    count: int,
    extensions: frozenset[str],
    kinds: Sequence[tuple[str, dict[str, int]]] = (),
) -> Launch:
    """`launch` with `count` instructions that do nothing, without tokens, at random positions; some of `extensions`.

    `kinds` are (format, fields) of those to choose from; a few that are typical where there are none.
    """
    isa = Isa(launch.cfg)
    kinds = [kind for kind in kinds or _idlers() if within(extensions, launch.cfg.units, kind[1])]
    insn, reloc, queues = launch.insn, launch.reloc, [isa.queue(f) for f in isa.decode(launch.insn)]
    order = np.arange(len(insn))
    for _ in range(count):
        name, fields = kinds[int(rng.integers(len(kinds)))]
        queue = queue_of(fields["op"], fields.get("mem"))
        if queue not in queues:
            continue
        last = len(queues) - 1 - queues[::-1].index(queue)
        at = int(rng.integers(last + 1))  # FINISH is ordered behind the last one of each queue
        queues.insert(at, queue)
        insn = np.insert(insn, at, isa.formats[name].encode(1, **fields), axis=0)
        reloc, order = np.insert(reloc, at, -1).astype(np.int32), np.insert(order, at, -1)
    return Launch(launch.cfg, launch.name, insn, reloc, launch.buffers, patches=launch.patches.moved(order))
