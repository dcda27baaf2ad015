"""What a program touches in DRAM, cut at every boundary of an access, so that accesses are few cells."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...hw.isa import INSTRUCTIONS
from ..access import dram_access, joined, row_access
from .instructions import Instructions
from .touched import MOST_EVENTS, Events, repeated_ranges

USE = 1 << 20  # the place of an access to DRAM among those of its instruction: behind those of scratchpads


class DramTouches:
    """The accesses of `program` to DRAM, in the order `topological`, among bytes that some instruction writes.

    `watched`, int64 (n, 2), are spans of bytes that are cells besides, where only reads are, too. Cell c is the bytes
    `bounds[c]..bounds[c + 1] - 1`. A write with a symbol counts as a write of all that it may touch; with `surely`
    only of what it writes for any value, as one must that makes values ready.
    """

    def __init__(
        self,
        program: Instructions,
        topological: np.ndarray,
        watched: np.ndarray | None = None,
        surely: bool = False,
    ):
        at, spans, write = _spans(program, surely)
        written = joined(spans[write]) if write.any() else np.zeros((0, 2), np.int64)
        self.written = written
        kept = written if watched is None else joined(np.concatenate([written, watched]))
        near = _meets(spans, kept)
        self._at, self._write, spans = at[near], write[near], spans[near]
        edges = [spans.reshape(-1)] + ([] if watched is None else [watched.reshape(-1)])
        self.bounds = np.unique(np.concatenate(edges)) if len(spans) or watched is not None else np.zeros(1, np.int64)
        self._first, self._end = np.searchsorted(self.bounds, spans[:, 0]), np.searchsorted(self.bounds, spans[:, 1])
        turn = np.empty(program.n, np.int64)
        turn[topological] = np.arange(program.n)
        self._turn = turn[self._at]
        order = np.argsort(self._turn, kind="stable")
        self._at, self._write, self._turn = self._at[order], self._write[order], self._turn[order]
        self._first, self._end = self._first[order], self._end[order]

    @property
    def count(self) -> int:
        """How many cells there are."""
        return len(self.bounds)

    def events(self) -> Iterator[Events]:
        """All events, at most `MOST_EVENTS` or those of one cell at a time."""
        total = int((self._end - self._first).sum())
        parts = min(-(-total // MOST_EVENTS), self.count)
        edges = np.linspace(0, self.count, parts + 1).astype(np.int64)
        for first, end in zip(edges[:-1], edges[1:]):
            low, high = np.maximum(self._first, first), np.minimum(self._end, end)
            each = np.maximum(high - low, 0)
            owner, cls = repeated_ranges(low, each)
            idle = np.zeros(len(cls), bool)
            use = np.full(len(cls), USE, np.int32)
            yield Events(self._turn.astype(np.int32)[owner], cls.astype(np.int32), self._write[owner], idle, use)

    def touched(self, spans: np.ndarray) -> set[int]:
        """The instructions that read or write some of the bytes of `spans`, which are joined."""
        return set(
            self._at[_meets(np.stack([self.bounds[self._first], self.bounds[self._end]], axis=1), spans)].tolist()
        )


def _meets(spans: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which `spans` have a byte in one of `others`, which are joined; bool (n,)."""
    if not len(others):
        return np.zeros(len(spans), bool)
    behind = np.searchsorted(others[:, 1], spans[:, 0], side="right")
    starts = np.append(others[:, 0], np.iinfo(np.int64).max)
    return starts[behind] < spans[:, 1]


def _spans(program: Instructions, surely: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(instruction, bytes from and to, whether it writes them) of every row of every access."""
    cfg, isa = program.cfg, program.isa
    symbols = program.symbols
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    moved = np.zeros(program.n, bool)
    moved[list(symbols)] = True
    for row in INSTRUCTIONS:
        if row.mem is None or row.scratchpad is None:
            continue
        at = np.flatnonzero((program.op == row.op) & (program.mem == row.mem.id) & ~moved)
        if not len(at):
            continue
        access = row_access(cfg, row, isa.formats[row.format].decode(program.insn[at]))
        rows, pitch = (np.broadcast_to(column, len(at)) for column in (access.rows, access.pitch))
        dense = pitch == access.nbytes
        nbytes, rows = np.where(dense, access.nbytes * rows, access.nbytes), np.where(dense & (rows > 0), 1, rows)
        rows = np.where(nbytes > 0, rows, 0)
        owner, number = repeated_ranges(np.zeros(len(at), np.int64), rows)
        start = np.asarray(access.start)[owner] + number * pitch[owner]
        spans = np.stack([start, start + nbytes[owner]], axis=1)
        parts.append((at[owner], spans, np.full(len(owner), access.write)))
    for (k, symbol), f in zip(symbols.items(), isa.decode(program.insn[list(symbols)])):
        access = dram_access(cfg, f, symbol)
        if access is not None:
            spans = access.sure_spans() if surely and access.write else access.spans()
            parts.append((np.full(len(spans), k), spans, np.full(len(spans), access.write)))
    if not parts:
        return np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros(0, bool)
    at, spans, write = (np.concatenate(columns) for columns in zip(*parts))
    return at, spans, write
