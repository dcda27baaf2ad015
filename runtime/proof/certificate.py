"""Certificates, the results of proofs (an order of the instructions, and their clocks), and their checker.

`runtime/verify.py` issues a certificate, a `.tw` file carries it, and `check` checks it in linear time, without the
search of the proof. Both use the accesses of instructions (runtime/access.py, `launch.check_dram`); all else is derived
here again. Each clock must follow from the clock before it in its queue and the clocks whose tokens it takes, which
come earlier in the certificate's order; conflicts are then comparisons of clocks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ...hw.config import UOP_BYTES
from ...hw.errors import CertificateError
from ...hw.isa import FLAGS, MICRO_OPS, SCRATCHPADS, Op, instruction, known_isa, room, row_of
from ...hw.units import channels, queues
from ..access import Access, dram_access, out_of_range, scratchpad_accesses
from ..arrays import Array
from ..launch import Launch, check_dram

_MOVES = ("dram_base", *FLAGS)
_NONE = np.zeros((0, 3), np.int64)
_Some = slice | Array


@dataclass(frozen=True, eq=False)
class Certificate:
    """That a launch has neither deadlock nor race, and reads nothing before it is written.

    It holds on accelerators whose command queues and token channels are at least `queue_depth` and `token_depth` deep.
    `order`, int32 (n,), is one possible order of execution. `clocks`, int32 (n, queues): the number of instructions of
    each queue that are done in every execution when instruction k is done, itself included. `subject` is the digest of
    the launch, in hex. Raises `CertificateError` for arrays of another form.
    """

    queue_depth: int
    token_depth: int
    subject: str
    order: Array
    clocks: Array

    def __post_init__(self) -> None:
        n = len(self.order)
        for name, array, form in (("order", self.order, (n,)), ("clocks", self.clocks, (n, *self.clocks.shape[1:2]))):
            if array.dtype != np.int32 or array.shape != form or name == "clocks" and array.ndim != 2:
                found = f"{array.dtype} {array.shape}"
                raise CertificateError(f"certificate: {name} is {found}; must be int32, a row per instruction")


def subject_of(launch: Launch) -> str:
    """The digest of the parts of `launch` that a proof depends on: of constants only the micro-ops."""
    digest = hashlib.sha256(f"{launch.cfg.fingerprint:016x}".encode())
    for array in (launch.insn, launch.reloc, launch.patches.columns):
        digest.update(np.ascontiguousarray(array, "<u8" if array.dtype.kind == "u" else "<i8").tobytes())
    digest.update(repr(list(launch.patches.limits.items())).encode())
    kernels = _of_micro_ops(launch)
    for k, b in enumerate(launch.buffers):
        digest.update(repr((b.name, b.nbytes, b.align, b.kind)).encode())
        if k in kernels and b.data is not None:
            digest.update(b.data.tobytes())
    return digest.hexdigest()


def _of_micro_ops(launch: Launch) -> set[int]:
    """The buffers from which micro-ops are loaded."""
    low = known_isa(launch.cfg).formats["LOAD"].fields["mem"].lo
    words = launch.insn[:, 0]
    keys = words & np.uint64(7) | (words >> np.uint64(low) & np.uint64(7)) << np.uint64(3)
    rows = {key: instruction(key & 7, key >> 3) for key in np.unique(keys).tolist()}
    loads = [key for key, row in rows.items() if row is not None and row.loads in MICRO_OPS]
    return set(launch.reloc[np.isin(keys, loads)].tolist())


def check_subject(launch: Launch, certificate: Certificate) -> None:
    """Raise `CertificateError` unless `certificate` belongs to `launch`; `check` tells whether it is right."""
    subject = subject_of(launch)
    if subject != certificate.subject:
        raise CertificateError(
            f"launch {launch.name!r}: its certificate is for {certificate.subject[:16]}, it is {subject[:16]}: one of "
            "both was changed; compile the program again"
        )


def check(launch: Launch, certificate: Certificate, before: Sequence[tuple[Launch, Certificate]] = ()) -> None:
    """Raise `CertificateError` unless `certificate` proves `launch`; also raises as `check_dram` does.

    The launches `before`, with certificates that hold, run right before it: it may read what they wrote on chip.
    """
    check_subject(launch, certificate)
    check_dram(launch)
    checker = _Checker(launch, certificate)
    for each in before:
        checker.follow(_Checker(*each))
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
        self.written = {mem: np.zeros(room(self.cfg, mem), bool) for mem in SCRATCHPADS}  # before it starts
        self.words = {mem: np.full(self.cfg.uop_depth, -1, np.int64) for mem in MICRO_OPS}  # on chip, -1: not known

    def follow(self, other: _Checker) -> None:
        """Start with what the launch of `other` leaves on chip."""
        for _, accesses in other._accesses():
            for a in accesses:
                if a.write:
                    self.written[a.mem][a.entries] = True
        for mem, words in other.words.items():
            self.words[mem] = np.where(words < 0, self.words[mem], words)

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
        """Every access follows all conflicting accesses in every execution, and reads written values."""
        sizes, clocks = len(self.queues), np.append(self.clocks, np.zeros((self.n, 1), np.int64), axis=1)
        memories = {mem: _Cells(sizes, room(self.cfg, mem)) for mem in SCRATCHPADS}
        for mem, cells in memories.items():
            cells.wrote[self.written[mem], -1] = 0
        dram, moved = self._buffers()
        for k, accesses in self._accesses():
            touched = [(memories[a.mem], a.entries, a.write, a.updates, a.entries) for a in accesses]
            if k in moved:
                some, surely, write = moved[k]
                touched.append((dram[int(self.launch.reloc[k])], some, write, False, surely))
            clock, queue, own = clocks[k], int(self.queue[k]), self.own[k]
            for cells, some, write, updates, _ in touched:
                if (not write or updates) and np.count_nonzero(cells.wrote[some] > clock):
                    if cells.wrote[some, -1].any():
                        self.refuse(f"instruction {k} reads what nothing wrote")
                    self._refuse_order(k)
                if write and np.count_nonzero(cells.touched[some] > clock):
                    self._refuse_order(k)
            for cells, some, write, _, surely in touched:
                cells.touched[some, queue] = own
                if write:
                    cells.wrote[some, queue] = own
                    cells.wrote[surely, -1] = 0
        for k, b in enumerate(self.launch.buffers):
            if b.kind == "output" and dram[k].wrote[:, -1].any():
                self.refuse(f"output {b.name!r} is not written whole")

    def _refuse_order(self, k: int) -> NoReturn:
        self.refuse(f"instruction {k} is not ordered behind one that touches the same memory")

    def _buffers(self) -> tuple[dict[int, _Cells], dict[int, tuple[_Some, _Some, bool]]]:
        """(Written buffers by number; by instruction possible cells, cells surely written, whether it writes).

        A buffer is cut into cells where an access begins or ends, so that their number does not depend on its size.
        """
        buffers, symbols = self.launch.buffers, self.launch.patches.symbols
        ends = {k: [np.array([[0, b.nbytes]])] for k, b in enumerate(buffers) if b.kind in ("output", "temp", "state")}
        accesses: dict[int, list[tuple[int, int, int, bool]]] = {k: [] for k in ends}
        for k, number in enumerate(self.launch.reloc.tolist()):
            access = dram_access(self.cfg, self.insns[k], symbols.get(k)) if number in ends else None
            if access is not None and len(some := _not_empty(access.spans())):
                surely = _not_empty(access.sure_spans()) if access.write else some[:0]
                accesses[number].append((k, len(some), len(surely), access.write))
                ends[number] += [some, surely]
        cells, by_instruction = dict[int, _Cells](), dict[int, tuple[_Some, _Some, bool]]()
        for number, spans in ends.items():
            edges_of_all = np.concatenate(spans)
            edges = np.unique(edges_of_all)
            cells[number] = _Cells(len(self.queues), len(edges) - 1, buffers[number].kind == "state")
            at, done = np.searchsorted(edges, edges_of_all).tolist(), 1  # the first edges are the buffer's
            for k, some, surely, write in accesses[number]:
                sure = done + some
                by_instruction[k] = _between(at[done:sure]), _between(at[sure : sure + surely]), write
                done = sure + surely
        return cells, by_instruction

    def _accesses(self) -> Iterator[tuple[int, list[Access]]]:
        """Every instruction in the certificate's order, with its accesses to scratchpads."""
        words, uops = self.words, {mem: self._indices(words) for mem, words in self.words.items()}
        known: dict[tuple[int, int, bytes], list[Access]] = {}
        kinds = self._kinds()
        sequence: list[int] = self.sequence.tolist()
        for k in sequence:
            f = self.insns[k]
            row = row_of(f["op"], f.get("mem"))
            executed, names = _NONE, b""
            if row.executes is not None:
                if not f["uop_bgn"] <= f["uop_end"] <= self.cfg.uop_depth:  # an error even where loops have no trips
                    self.refuse(f"instruction {k} executes micro-ops that do not exist")
                if f["iter_out"] and f["iter_in"]:
                    some = slice(f["uop_bgn"], f["uop_end"])
                    if np.count_nonzero(words[row.executes][some] < 0):
                        self.refuse(f"instruction {k} executes micro-ops that are not known")
                    executed, names = uops[row.executes][some], words[row.executes][some].tobytes()
            key = (*kinds[k], names)
            if key not in known:
                known[key] = scratchpad_accesses(self.cfg, f, executed)
                if out_of_range(self.cfg, known[key]):
                    self.refuse(f"instruction {k} touches an entry that does not exist")
            yield k, known[key]
            if row.loads is not None and row.loads in words and f["x_size"]:
                data = self.launch.buffers[int(self.launch.reloc[k])].data
                if data is None:
                    self.refuse(f"instruction {k} loads micro-ops that are not constant")
                some, first = slice(f["sram_base"], f["sram_base"] + f["x_size"]), f["dram_base"] * UOP_BYTES
                words[row.loads][some] = data[first : first + f["x_size"] * UOP_BYTES].view("<u4")
                uops[row.loads][some] = self._indices(words[row.loads][some])

    def _indices(self, words: Array) -> Array:
        fields = self.isa.uop.decode(words.astype(np.uint64)[:, None])
        return np.stack([fields["dst"], fields["src"], fields["wgt"]], axis=1).astype(np.int64)

    def _kinds(self) -> list[tuple[int, int]]:
        """The words of each instruction without tokens and DRAM address, on which no on-chip access depends."""
        kept: dict[tuple[int, int | None], int] = {}
        words = list[tuple[int, int]]()
        for f, (low, high) in zip(self.insns, self.launch.insn.tolist()):
            op, mem = f["op"], f.get("mem")
            if (op, mem) not in kept:
                fields = self.isa.formats[row_of(op, mem).format].fields
                moves = [fields[name] for name in _MOVES if name in fields]
                kept[op, mem] = ~sum(((1 << field.bits) - 1) << field.lo for field in moves)
            words.append((low & kept[op, mem], high))
        return words


def _not_empty(spans: Array) -> Array:
    return spans[spans[:, 0] < spans[:, 1]]


def _between(ends: list[list[int]]) -> _Some:
    """The cells between the pairs of `ends`."""
    if len(ends) == 1:
        return slice(*ends[0])
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(first, end) for first, end in ends)])


class _Cells:
    """A memory: for each cell the last positions of the queues that wrote it, and that touched it.

    A last column, to compare with a clock of 0, is 1 in `wrote` where nothing did.
    """

    def __init__(self, queues: int, cells: int, written: bool = False):
        self.wrote, self.touched = np.zeros((2, cells, queues + 1), np.int64)
        self.wrote[:, -1] = not written
