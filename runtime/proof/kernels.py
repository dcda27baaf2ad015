"""The accesses of instructions to scratchpads, with the micro-ops that they execute; each kind is judged once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ...hw.config import UOP_BYTES
from ...hw.errors import AccessError, ProgramError
from ...hw.isa import MICRO_OPS, SCRATCHPADS, Mem, room, row_of
from ..access import Access, out_of_range, scratchpad_accesses
from .instructions import Instructions
from .touched import Sets, Touches, Use

ReadUops = Callable[[int, int], np.ndarray]
_NONE = np.zeros((0, 3), np.int64)


class Kinds:
    """Kinds of instructions by what they touch; the uses of each, and the sets of cells of each scratchpad."""

    def __init__(self, program: Instructions):
        self.program = program
        self._uses: dict[Mem, list[Use]] = {mem: [] for mem in SCRATCHPADS}
        self._classes: dict[Mem, tuple[list[np.ndarray], np.ndarray]] = {}
        self._count = 0
        self.sets = {mem: Sets(room(program.cfg, mem)) for mem in SCRATCHPADS}

    def add(self, accesses: Iterable[Access]) -> int:
        """The number of a new kind, with these accesses."""
        self._classes.clear()
        for n, a in enumerate(accesses):
            self._uses[a.mem].append(Use(self._count, n, self.sets[a.mem].number(a.entries), a.write, a.updates))
        self._count += 1
        return self._count - 1

    def touches(self, mem: Mem, kind: np.ndarray) -> tuple[Touches, np.ndarray]:
        """(what instructions of these kinds do to `mem`, the class of each of its entries)."""
        if mem not in self._classes:
            self._classes[mem] = self.sets[mem].classes()
        classes, of_entry = self._classes[mem]
        return Touches(kind, self._count, self._uses[mem], classes, int(of_entry.max(initial=0)) + 1), of_entry


def check_transfers(program: Instructions) -> list[list[Access]]:
    """The accesses of each form that need no micro-ops. Raises `AccessError` for an entry that does not exist."""
    found = [[] if "uop_bgn" in f else scratchpad_accesses(program.cfg, f, _NONE) for f in program.forms]
    problems = {form: problem for form, some in enumerate(found) if (problem := out_of_range(program.cfg, some))}
    if problems:
        k = int(np.flatnonzero(np.isin(program.form, list(problems)))[0])
        raise AccessError(f"{program.name(k)} {problems[int(program.form[k])]}", k)
    return found


def micro_ops_of(program: Instructions) -> list[tuple[Mem | None, Mem | None]]:
    """For each form, the scratchpads whose micro-ops it executes, and loads."""
    known: dict[tuple[int, int | None], tuple[Mem | None, Mem | None]] = {}
    found = []
    for f in program.forms:
        kind = f["op"], f.get("mem")
        if kind not in known:
            row = row_of(*kind)
            known[kind] = row.executes, row.loads if row.loads in MICRO_OPS else None
        found.append(known[kind])
    return found


def buffers_of_micro_ops(program: Instructions, static: list[list[Access]]) -> Kinds:
    """Kinds by form, of the buffers of micro-ops alone: what these hold is not asked."""
    kinds = Kinds(program)
    for f, (executes, loads), accesses in zip(program.forms, micro_ops_of(program), static):
        if executes is not None and f["iter_out"] and f["iter_in"]:
            end = min(f["uop_end"], program.cfg.uop_depth)
            kinds.add([Access(executes, False, slice(min(f["uop_bgn"], end), end))])
        else:
            kinds.add(accesses if loads is not None else [])
    return kinds


class Executed:
    """The kind of every instruction, `kind`, (n,), from the micro-ops that it finds in the order `topological`.

    Raises `AccessError` for an entry or a micro-op that does not exist, `ProgramError` for micro-ops that are not
    known.
    """

    def __init__(self, program: Instructions, topological: list[int], static: list[list[Access]], read_uops: ReadUops):
        self.program, self.kinds, self._read_uops = program, Kinds(program), read_uops
        cfg = program.cfg
        micro_ops = micro_ops_of(program)
        of_form = [-1 if executes else self.kinds.add(some) for (executes, _), some in zip(micro_ops, static)]
        self.kind = np.array(of_form, np.intp)[program.form]
        self._words = {mem: np.zeros(cfg.uop_depth, np.uint32) for mem in MICRO_OPS}
        self._known = {mem: np.zeros(cfg.uop_depth, bool) for mem in MICRO_OPS}  # of the program, not of one before
        self._kind_of: dict[tuple[int, bytes], int] = {}
        self._first: list[int] = []  # the first instruction of each of these kinds
        self._forms, self._micro_ops = program.form.tolist(), micro_ops
        self._static = len(of_form) - of_form.count(-1)
        busy = np.array([executes is not None or loads is not None for executes, loads in micro_ops], bool)
        order = np.array(topological, np.intp)
        problem: ProgramError | None = None
        try:
            self._walk(order[busy[program.form[order]]].tolist())
        except ProgramError as exc:
            problem = exc
        self._judge()  # what is wrong with an earlier instruction is named first
        if problem is not None:
            raise problem

    def _walk(self, order: list[int]) -> None:
        """Number the kinds of instructions that execute micro-ops, and load these."""
        for k in order:
            form = self._forms[k]
            executes, loads = self._micro_ops[form]
            if executes is not None:
                self.kind[k] = self._executes(k, form, executes)
            elif loads is not None and self.program.forms[form]["x_size"]:
                self._load(k, form, loads)

    def _executes(self, k: int, form: int, mem: Mem) -> int:
        f, depth = self.program.forms[form], self.program.cfg.uop_depth
        first, end = f["uop_bgn"], f["uop_end"]
        if not first <= end <= depth:
            text = f"executes micro-ops {first}..{end - 1}: must be among 0..{depth - 1}"
            raise AccessError(f"{self.program.name(k)} {text}", k)
        if f["iter_out"] and f["iter_in"] and np.count_nonzero(self._known[mem][first:end]) < end - first:
            text = f"executes micro-ops that no LOAD.{mem.name} loads: cannot be verified"
            raise ProgramError(f"{self.program.name(k)} {text}")
        words = self._words[mem][first:end]
        key = (form, words.tobytes())
        kind = self._kind_of.setdefault(key, len(self._first))
        if kind == len(self._first):
            self._first.append(k)
        return self._static + kind

    def _judge(self) -> None:
        """Add the kinds in the order of their numbers, their micro-ops decoded together."""
        program = self.program
        words = [np.frombuffer(some, np.uint32) for _, some in self._kind_of]
        every = np.concatenate([np.zeros(0, np.uint32), *words]).astype(np.uint64)
        fields, end = program.isa.uop.decode(every[:, None]), 0
        uops = np.stack([fields["dst"], fields["src"], fields["wgt"]], axis=1)
        for k, some in zip(self._first, words):
            end += len(some)
            accesses = scratchpad_accesses(program.cfg, program.forms[self._forms[k]], uops[end - len(some) : end])
            problem = out_of_range(program.cfg, accesses)
            if problem:
                raise AccessError(f"{program.name(k)} {problem}", k)
            self.kinds.add(accesses)

    def _load(self, k: int, form: int, mem: Mem) -> None:
        f = self.program.forms[form]
        try:
            words = self._read_uops(int(self.program.dram_base[k]) * UOP_BYTES, f["x_size"])
        except ProgramError as exc:
            raise ProgramError(f"{self.program.name(k)}: {exc}") from None
        some = slice(f["sram_base"], f["sram_base"] + f["x_size"])
        self._words[mem][some] = np.asarray(words, np.uint32)
        self._known[mem][some] = True
