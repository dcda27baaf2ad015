"""Checks a certificate against its launch, in time linear in the program and without a search.

It shares no code with the proof that issued it: what instructions touch (runtime/access.py, bounds.py) is common to
both, what follows from it is derived here again, in the simplest way. Each claim of a clock must follow from the claims
of the instruction before it in its queue and of those whose tokens it takes; as all of these come earlier in the
certificate's order, what is claimed holds. The rest are comparisons of clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import numpy as np

from ...hw.config import UOP_BYTES
from ...hw.errors import CertificateError
from ...hw.isa import MICRO_OPS, SCRATCHPADS, Op, known_isa, room, row_of
from ...hw.units import channels, queues
from ..access import Access, dram_access, out_of_range, scratchpad_accesses
from ..bounds import check_dram
from ..launch import Launch
from .certificate import Certificate, check_subject


def check(launch: Launch, certificate: Certificate) -> None:
    """Raise `CertificateError` unless `certificate` proves `launch`.

    Also what `check_dram` raises where an instruction leaves its buffer, which no certificate heals.
    """
    check_subject(launch, certificate)
    check_dram(launch)
    checker = _Checker(launch, certificate)
    checker.order()
    checker.tokens()
    checker.memory()


class _Checker:
    def __init__(self, launch: Launch, certificate: Certificate):
        self.launch, self.cfg, self.isa = launch, launch.cfg, known_isa(launch.cfg)
        self.clocks, self.sequence = certificate.clocks.astype(np.int64), certificate.order.astype(np.int64)
        self.depths = certificate.queue_depth, certificate.token_depth
        if certificate.queue_depth > self.cfg.queue_depth or certificate.token_depth > self.cfg.token_depth:
            self.refuse(f"it assumes depths {self.depths}; those of {self.cfg.name} are less")
        if min(self.depths) < 1:
            self.refuse(f"it assumes depths {self.depths}")
        self.insns = self.isa.decode(launch.insn)
        self.n, self.queues = len(self.insns), queues(self.cfg)
        for k, f in enumerate(self.insns):
            if self.isa.undecodable(f) or (f["op"] == Op.FINISH) != (k == self.n - 1):
                self.refuse(f"instruction {k} cannot be decoded, or FINISH is not the last")
        if self.clocks.shape != (self.n, len(self.queues)) or not self.n:
            self.refuse(f"it has {self.clocks.shape} clocks; must be {(self.n, len(self.queues))}")
        self.queue = np.array([self.isa.queue(f) for f in self.insns])
        self.at = [np.flatnonzero(self.queue == queue) for queue in self.queues]

    def refuse(self, text: str) -> NoReturn:
        raise CertificateError(f"launch {self.launch.name!r}: its certificate does not hold: {text}; compile it again")

    def order(self) -> None:
        """The order is an execution: of all instructions, each queue in its own order, none before it is fetched."""
        if not np.array_equal(np.sort(self.sequence), np.arange(self.n)):
            self.refuse("its order is not one of all instructions")
        self.rank = np.empty(self.n, np.int64)
        self.rank[self.sequence] = np.arange(self.n)
        room_at = np.full(self.n, -1)  # when there is room for an instruction in its queue
        for at in self.at:
            if (np.diff(self.rank[at]) < 0).any():
                self.refuse("its order is not that of a queue")
            room_at[at[self.depths[0] :]] = self.rank[at[: -self.depths[0]]]
        late = np.flatnonzero(np.maximum.accumulate(room_at) >= self.rank)
        if len(late):
            self.refuse(f"instruction {late[0]} would execute before there is room for it in its queue")

    def tokens(self) -> None:
        """Clocks follow from the queues and tokens, no channel holds too many, and FINISH knows that all is done."""
        known = np.zeros_like(self.clocks)
        own = np.zeros(self.n, np.int64)
        for at in self.at:
            known[at[1:]] = self.clocks[at[:-1]]
            own[at] = np.arange(1, len(at) + 1)
        for channel in channels(self.cfg):
            push = np.array([k for k in self.at[channel.source] if self.insns[k][channel.push]], np.int64)
            pop = np.array([k for k in self.at[channel.target] if self.insns[k][channel.pop]], np.int64)
            if len(push) != len(pop) or (self.rank[push] >= self.rank[pop]).any():
                self.refuse(f"tokens {channel} are not taken, or taken before they are given")
            known[pop] = np.maximum(known[pop], self.clocks[push])
            depth = self.depths[1]
            crowded = own[pop[:-depth]] > self.clocks[push[depth:], channel.target]
            if crowded.any():
                self.refuse(f"instruction {push[depth:][crowded][0]} may give one token {channel} too many")
        known[np.arange(self.n), self.queue] = own
        wrong = np.flatnonzero((self.clocks > known).any(axis=1) | (self.clocks[np.arange(self.n), self.queue] != own))
        if len(wrong):
            self.refuse(f"the clock of instruction {wrong[0]} does not follow")
        counts = [len(at) for at in self.at]
        if self.clocks[-1].tolist() != counts or self.rank[-1] != self.n - 1:
            self.refuse("FINISH does not wait for everything")
        self.own = own

    def memory(self) -> None:
        """Every access is ordered behind all that conflict with it, and reads what was written."""
        memories = {mem: _Cells(len(self.queues), room(self.cfg, mem)) for mem in SCRATCHPADS}
        dram, moved = self._buffers()
        for k, accesses in self._accesses():
            number = int(self.launch.reloc[k])
            touched = [(memories[a.mem], a.entries, a.write, a.updates, a.entries) for a in accesses]
            if k in moved:
                some, surely, write = moved[k]
                touched.append((dram[number], some, write, False, surely))
            queue = int(self.queue[k])
            for cells, some, write, updates, _ in touched:
                if (not write or updates) and not cells.written[some].all():
                    self.refuse(f"instruction {k} reads what nothing wrote")
                if (cells.newest(some, write, queue) > self.clocks[k]).any():
                    self.refuse(f"instruction {k} is not ordered behind one that touches the same memory")
            for cells, some, write, _, surely in touched:
                cells.last[0 if write else 1, queue, some] = self.own[k]
                if write:
                    cells.written[surely] = True
        for k, b in enumerate(self.launch.buffers):
            if b.kind == "output" and not dram[k].written.all():
                self.refuse(f"output {b.name!r} is not written whole")

    def _buffers(self) -> tuple[dict[int, _Cells], dict[int, tuple[_Some, _Some, bool]]]:
        """The buffers that programs write, cut into cells where an access begins or ends, so that they are few whatever
        a buffer's size; and of each instruction with accesses to one: the cells that it may touch, those that it
        writes surely, and whether it writes.
        """
        buffers, symbols = self.launch.buffers, self.launch.patches.symbols
        ends = {k: [np.array([[0, b.nbytes]])] for k, b in enumerate(buffers) if b.kind in ("output", "temp", "state")}
        spans: dict[int, tuple[np.ndarray, np.ndarray, bool]] = {}
        for k, number in enumerate(self.launch.reloc.tolist()):
            access = dram_access(self.cfg, self.insns[k], symbols.get(k)) if number in ends else None
            if access is not None and len(some := _not_empty(access.spans())):
                surely = _not_empty(access.sure_spans()) if access.write else some[:0]
                spans[k] = some, surely, access.write
                ends[number] += [some, surely]
        edges = {k: np.unique(np.concatenate(found)) for k, found in ends.items()}
        cells = {k: _Cells(len(self.queues), len(at) - 1, buffers[k].kind == "state") for k, at in edges.items()}
        at = {k: edges[int(self.launch.reloc[k])] for k in spans}
        return cells, {k: (_between(at[k], a), _between(at[k], b), write) for k, (a, b, write) in spans.items()}

    def _accesses(self) -> Iterator[tuple[int, list[Access]]]:
        """Every instruction in the certificate's order, with its accesses to scratchpads."""
        held = {mem: np.full(self.cfg.uop_depth, -1, np.int64) for mem in MICRO_OPS}
        known: dict[tuple[object, ...], list[Access]] = {}
        for k in self.sequence.tolist():
            f = self.insns[k]
            row = row_of(f["op"], f.get("mem"))
            words = np.zeros(0, np.int64)
            if row.executes is not None:
                if not f["uop_bgn"] <= f["uop_end"] <= self.cfg.uop_depth:  # an error even where loops have no trips
                    self.refuse(f"instruction {k} executes micro-ops that do not exist")
                if f["iter_out"] and f["iter_in"]:
                    words = held[row.executes][f["uop_bgn"] : f["uop_end"]]
                if (words < 0).any():
                    self.refuse(f"instruction {k} executes micro-ops that are not known")
            key = (*(value for name, value in f.items() if name not in _MOVES), row.format, words.tobytes())
            if key not in known:
                uops = self.isa.uop.decode(words.astype(np.uint64)[:, None])
                known[key] = scratchpad_accesses(self.cfg, f, np.stack([uops["dst"], uops["src"], uops["wgt"]], axis=1))
                if out_of_range(self.cfg, known[key]):
                    self.refuse(f"instruction {k} touches an entry that does not exist")
            yield k, known[key]
            if row.loads is not None and row.loads in held and f["x_size"]:
                data = self.launch.buffers[self.launch.reloc[k]].data
                if data is None:
                    self.refuse(f"instruction {k} loads micro-ops that are not constant")
                first = f["dram_base"] * UOP_BYTES
                loaded = data[first : first + f["x_size"] * UOP_BYTES].view("<u4")
                held[row.loads][f["sram_base"] : f["sram_base"] + f["x_size"]] = loaded


def _not_empty(spans: np.ndarray) -> np.ndarray:
    return spans[spans[:, 0] < spans[:, 1]]


def _between(edges: np.ndarray, spans: np.ndarray) -> _Some:
    """The cells of `spans`, both ends of which are among `edges`."""
    ends = np.searchsorted(edges, spans)
    if len(ends) == 1:
        return slice(*ends[0].tolist())
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(first, end) for first, end in ends)])


_Some = slice | np.ndarray
_MOVES = ("dram_base", "pop_prev", "pop_next", "push_prev", "push_next")


class _Cells:
    """A memory: for each cell the last position of each queue that wrote it, and read it; whether it has a value."""

    def __init__(self, queues: int, cells: int, written: bool = False):
        self.last = np.zeros((2, queues, cells), np.int64)
        self.written = np.full(cells, written)

    def newest(self, some: _Some, write: bool, queue: int) -> np.ndarray:
        """Per queue, the last position that conflicts with an access of `queue` to these cells."""
        before = self.last[:, :, some] if write else self.last[:1, :, some]
        found = before.max(axis=(0, 2), initial=0)
        found[queue] = 0
        return found
