"""What each statement of a schedule, or each operator, does in a launch: transfers, micro-op issues and cycles."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..hw.config import Config
from ..hw.isa import MICRO_OPS, AluOp, Mem, Op, known_isa, mem_of, room, row_of
from ..runtime.access import dram_access, scratchpad_accesses
from ..runtime.device import Timeline
from ..runtime.launch import Launch
from ..runtime.metrics import with_micro_ops
from .profile import owned_cycles


@dataclass
class Transfers:
    """The loads or stores of one statement between `buffer` and `mem`, in the order of the program.

    One value per instruction: `first` scratchpad entry, and of `spans` the first byte in the buffer, rows, bytes of a
    row, and bytes from one row to the next; rows that are adjacent in DRAM are one. `cycles` belong to them (see
    `profile`).
    """

    buffer: str
    mem: Mem
    first: list[int] = field(default_factory=list)
    spans: list[tuple[int, int, int, int]] = field(default_factory=list)
    cycles: int = 0

    @property
    def count(self) -> int:
        """Number of instructions."""
        return len(self.spans)

    @property
    def rows(self) -> int:
        """Rows that are not adjacent."""
        return sum(rows for _, rows, _, _ in self.spans)

    @property
    def nbytes(self) -> int:
        """Bytes moved."""
        return sum(rows * row for _, rows, row, _ in self.spans)


@dataclass
class Statement:
    """The facts of one path of origins.

    `at` are the positions of its instructions. `cycles` belong to it (see `profile`). It has `loops` GEMM and ALU
    instructions, with micro-op `issues`; `initial` of them are GEMM that sets accumulators, with `initial_issues`.
    `added` are issues of ADD with two accumulators, `summed` those of them that add sums of products, `spread` issues
    of MUL with an accumulator that is an operand of several.
    """

    path: tuple[str, ...]
    at: list[int] = field(default_factory=list)
    cycles: int = 0
    issues: int = 0
    loops: int = 0
    initial: int = 0
    initial_issues: int = 0
    added: int = 0
    summed: int = 0
    spread: int = 0
    transfers: dict[tuple[str, bool], Transfers] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The innermost name, or "launch" for instructions that belong to no operator."""
        return self.path[-1] if self.path else "launch"

    def moved(self, store: bool) -> list[Transfers]:
        """The loads of tensors, or the stores, one entry per buffer. Loads of micro-ops are left out."""
        return [each for (_, stores), each in self.transfers.items() if stores == store]


def statements(launch: Launch, timeline: Timeline) -> list[Statement]:
    """The facts of every statement of `launch`, in the order of their first instruction."""
    origins = launch.known_origins
    found = [Statement(path) for path in origins.paths]
    owned = owned_cycles(launch, timeline)
    products = np.zeros(launch.cfg.acc_depth, bool)  # accumulators that GEMM wrote last
    for k, (number, (f, uops)) in enumerate(zip(origins.of.tolist(), with_micro_ops(launch, known_isa(launch.cfg)))):
        statement = found[number]
        statement.at.append(k)
        statement.cycles += int(owned[k])
        if row_of(f["op"], f.get("mem")).loads in MICRO_OPS:
            continue
        if "uop_bgn" in f:
            _count_loops(statement, f, uops)
            _count_sums(statement, launch.cfg, f, uops, products)
        elif (moved := _transfer(statement, launch, k, f)) is not None:
            moved.cycles += int(owned[k])
    return sorted((each for each in found if each.at), key=lambda each: each.at[0])


def _count_loops(statement: Statement, f: dict[str, int], uops: np.ndarray) -> None:
    count = f["iter_out"] * f["iter_in"] * len(uops)
    statement.loops += 1
    statement.issues += count
    if f.get("reset") or f.get("overwrite"):
        statement.initial += 1
        statement.initial_issues += count
    if f["op"] != Op.ALU or f["use_imm"]:
        return
    if f["alu_op"] == AluOp.ADD:
        statement.added += count
    elif f["alu_op"] == AluOp.MUL:
        distinct = len(np.unique(uops[:, 1]))
        distinct *= (f["iter_out"] if f["src_out"] else 1) * (f["iter_in"] if f["src_in"] else 1)
        statement.spread += count if distinct < count else 0


def _count_sums(statement: Statement, cfg: Config, f: dict[str, int], uops: np.ndarray, products: np.ndarray) -> None:
    """Count additions of accumulators that hold `products`, and keep those up to date."""
    accesses = [access for access in scratchpad_accesses(cfg, f, uops) if access.mem == Mem.ACC]
    if f["op"] != Op.ALU:
        for access in accesses:
            products[access.entries] = not f["reset"]
    elif f["alu_op"] == AluOp.ADD and not f["use_imm"]:
        read = [products[access.entries] for access in accesses if not access.write]
        if read and np.concatenate(read).mean() > 0.5:
            statement.summed += f["iter_out"] * f["iter_in"] * len(uops)


def _transfer(statement: Statement, launch: Launch, k: int, f: dict[str, int]) -> Transfers | None:
    """Add instruction `k` to its transfers and return them; None for an instruction that moves nothing."""
    access = dram_access(launch.cfg, f)
    if access is None:
        return None
    buffer, mem = launch.buffers[launch.reloc[k]].name, mem_of(f["op"], f["mem"])
    moved = statement.transfers.setdefault((buffer, access.write), Transfers(buffer, mem))
    moved.first.append(f["sram_base"])
    if access.pitch == access.nbytes:
        moved.spans.append((access.start, 1, access.rows * access.nbytes, access.rows * access.nbytes))
    else:
        moved.spans.append((access.start, access.rows, access.nbytes, access.pitch))
    return moved


_HELD = (Mem.UOP, Mem.INP, Mem.WGT, Mem.ACC, Mem.PAR, Mem.TWGT, Mem.TUOP)


def occupancy(launch: Launch) -> dict[str, tuple[int, int]]:
    """The entries of each scratchpad that the launch accesses, and those that there are, by the memory's name."""
    cfg, isa = launch.cfg, known_isa(launch.cfg)
    used = {mem: np.zeros(room(cfg, mem), bool) for mem in _HELD}
    for f, uops in with_micro_ops(launch, isa):
        for access in scratchpad_accesses(cfg, f, uops):
            used[access.mem][access.entries] = True
    return {mem.name: (int(cells.sum()), len(cells)) for mem, cells in used.items() if cells.any()}
