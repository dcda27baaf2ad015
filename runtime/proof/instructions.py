"""The instructions of a program for proofs: by columns, and decoded once for all that differ in tokens or address."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...hw.config import Config
from ...hw.errors import ExecutionError
from ...hw.isa import FLAGS, Op, instruction, known_isa
from ...hw.units import Queue, absent_flags, channels, queues
from ..device import TRANSFERS
from ..launch import Origins
from ..symbols.symbol import Symbol

_ROWS = [[instruction(op, mem) for mem in range(8)] for op in range(8)]
_QUEUES = np.array([[-1 if row is None else row.queue for row in rows] for rows in _ROWS], np.int64)


class Instructions:
    """The instructions `insn`, uint64 (n, 2), of a program that ends with its only FINISH.

    `forms` are decoded instructions, without token flags and DRAM address, and `form` is the number of each
    instruction's; `queue` is its queue, `position` its place there, from 1, `at` those of a queue. `pops` and `pushes`
    are the numbers of its channels in `channels`. `op` is the opcode; `mem`, the memory id, and `dram_base` are
    meaningless for one without an address. `origins` name the operators of messages.

    Raises `ExecutionError` for an instruction that cannot be decoded, and for a missing or misplaced FINISH.
    """

    def __init__(
        self,
        cfg: Config,
        insn: np.ndarray,
        symbols: Mapping[int, Symbol] | None = None,
        origins: Origins | None = None,
    ):
        self.cfg, self.isa, self.insn, self.symbols = cfg, known_isa(cfg), insn, symbols or {}
        self._origins = origins
        self.queues, self.channels = queues(cfg), channels(cfg)
        self.n = len(insn)
        low = insn[:, 0]
        fields = self.isa.formats["LOAD"].fields
        flag_bits = [fields[flag].lo for flag in FLAGS]
        mask = np.uint64(sum(1 << bit for bit in flag_bits))
        address = np.uint64(((1 << fields["dram_base"].bits) - 1) << fields["dram_base"].lo)
        dropped = np.where(TRANSFERS[(low & np.uint64(7)).astype(np.intp)], mask | address, mask)
        self.dram_base = (low & address) >> np.uint64(fields["dram_base"].lo)
        self.form, words = _numbered(low & ~dropped, insn[:, 1])
        self.forms = self.isa.decode(words)
        flags = np.zeros(self.n, np.int64)
        for k, bit in enumerate(flag_bits):
            flags |= (low >> np.uint64(bit) & np.uint64(1)).astype(np.int64) << k
        self._check_decodable(flags)
        self.op = (low & np.uint64(7)).astype(np.intp)
        self.mem = (low >> np.uint64(fields["mem"].lo) & np.uint64(7)).astype(np.intp)
        self.of_queue = _QUEUES[self.op, self.mem]
        self._check_finish()
        self.queue: list[int] = self.of_queue.tolist()
        self.at = [np.flatnonzero(self.of_queue == queue) for queue in self.queues]
        self.position = np.zeros(self.n, np.int64)
        for mine in self.at:
            self.position[mine] = np.arange(1, len(mine) + 1)
        key = (self.of_queue * (1 << len(FLAGS)) + flags).tolist()
        pops, pushes = self._named()
        self.pops = [pops[k] for k in key]
        self.pushes = [pushes[k] for k in key]

    def _named(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """The channels that an instruction pops, and pushes, by its queue and flags."""
        sides: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = ([], [])
        every = [(n, c.source, c.target, FLAGS.index(c.push), FLAGS.index(c.pop)) for n, c in enumerate(self.channels)]
        for queue in self.queues:
            for flags in range(1 << len(FLAGS)):
                sides[0].append(tuple(n for n, _, target, _, pop in every if target == queue and flags >> pop & 1))
                sides[1].append(tuple(n for n, source, _, push, _ in every if source == queue and flags >> push & 1))
        return sides

    def _check_decodable(self, flags: np.ndarray) -> None:
        wrong = np.array([self.isa.undecodable(f) is not None for f in self.forms], bool)
        absent, nowhere = np.zeros(len(self.forms), np.int64), {q: absent_flags(self.cfg, q) for q in self.queues}
        bits = {q: sum(1 << n for n, flag in enumerate(FLAGS) if flag in nowhere[q]) for q in self.queues}
        for k in np.flatnonzero(~wrong).tolist():
            absent[k] = bits[Queue(_QUEUES[self.forms[k]["op"], self.forms[k].get("mem", 0)])]
        for k in np.flatnonzero(wrong[self.form] | (flags & absent[self.form] != 0)).tolist():
            raise ExecutionError(f"{self.name(k)}: {self.isa.undecodable(self.decoded(k))}", k)

    def _check_finish(self) -> None:
        ends = np.array([f["op"] == Op.FINISH for f in self.forms], bool)
        finishes = np.flatnonzero(ends[self.form]).tolist() if self.n else []
        if finishes != [self.n - 1]:
            found = f"FINISH at {finishes}" if finishes else "no FINISH"
            raise ExecutionError(f"program has {found}: must have exactly one, as its last instruction")

    def decoded(self, k: int) -> dict[str, int]:
        """The fields of instruction `k`."""
        return self.isa.decode(self.insn[k : k + 1])[0]

    def name(self, k: int) -> str:
        """Instruction `k` for a message, with the operator that it is for."""
        moved = f" + {self.symbols[k]}" if k in self.symbols else ""
        path = self._origins.paths[self._origins.of[k]] if self._origins else ()
        of = f" of {path[0]}" if path else ""
        return f"instruction {k} ({self.isa.disassemble(self.decoded(k))}{moved}){of}"


def _numbered(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the number of each pair of words, from 0 in the order of first appearance; the pairs, uint64 (m, 2))."""
    known: dict[tuple[int, int], int] = {}
    number = [known.setdefault(pair, len(known)) for pair in zip(low.tolist(), high.tolist())]
    return np.array(number, np.intp), np.array(list(known), np.uint64).reshape(-1, 2)
