"""Proves that a launch writes before it reads, in scratchpads and buffers, and that it writes its outputs whole.

Scratchpads and temporaries start with values of another program, or scratchpads with what `Left` says. Inputs,
constants and states have values from the start; `launch.check_dram` checks that no store reaches the first two. DRAM is
cut at every boundary of an access, so that accesses are few cells; each kind of instruction is judged once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...hw.config import UOP_BYTES, Config
from ...hw.errors import AccessError, ProgramError, UnwrittenError
from ...hw.isa import INSTRUCTIONS, MICRO_OPS, SCRATCHPADS, Mem, room, row_of
from ..access import Access, dram_access, joined, out_of_range, row_access, scratchpad_accesses
from ..arrays import Array
from ..buffer import Buffer
from .conflicts import MOST_EVENTS, Events, Sets, Touches, Use, repeated_ranges, unwritten
from .order import Instructions

USE = 1 << 20  # the number of a DRAM access within its instruction, after its scratchpad accesses
ReadUops = Callable[[int, int], Array]
_NONE = np.zeros((0, 3), np.int64)
EMPTY = ("temp", "output")  # kinds of buffers without values when a launch starts


@dataclass(frozen=True)
class Left:
    """What launches left in the scratchpads: of each which entries were written, bool, and its micro-ops, uint32."""

    written: dict[Mem, Array]
    words: dict[Mem, Array]

    @staticmethod
    def nothing(cfg: Config) -> Left:
        """Before the first launch."""
        written = {mem: np.zeros(room(cfg, mem), bool) for mem in SCRATCHPADS}
        return Left(written, {mem: np.zeros(cfg.uop_depth, np.uint32) for mem in MICRO_OPS})


class DramTouches:
    """The accesses of `program` to DRAM, in the order `topological`, to cells that some instruction writes.

    Cell c is the bytes `bounds[c]..bounds[c + 1] - 1`. The spans `watched`, int64 (n, 2), are divided into cells even
    where they are only read. A write with a symbol counts as a write of all bytes that it may touch; with `surely` only
    of the bytes that it writes for every value.
    """

    def __init__(
        self,
        program: Instructions,
        topological: Array,
        watched: Array | None = None,
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
        """The events, in parts of at most `MOST_EVENTS`, or of one cell."""
        total = int((self._end - self._first).sum())
        parts = min(-(-total // MOST_EVENTS), self.count)
        edges = np.linspace(0, self.count, parts + 1).astype(np.int64)
        for first, end in zip(edges[:-1], edges[1:]):
            low, high = np.maximum(self._first, first), np.minimum(self._end, end)
            owner, cls = repeated_ranges(low, np.maximum(high - low, 0))
            idle = np.zeros(len(cls), bool)
            use = np.full(len(cls), USE, np.int32)
            yield Events(self._turn.astype(np.int32)[owner], cls.astype(np.int32), self._write[owner], idle, use)

    def touched(self, spans: Array) -> set[int]:
        """The instructions that read or write some of the bytes of `spans`, which are joined."""
        return set(
            self._at[_meets(np.stack([self.bounds[self._first], self.bounds[self._end]], axis=1), spans)].tolist()
        )


def _meets(spans: Array, others: Array) -> Array:
    """Whether each of `spans` overlaps one of `others`, which are joined; bool (n,)."""
    if not len(others):
        return np.zeros(len(spans), bool)
    behind = np.searchsorted(others[:, 1], spans[:, 0], side="right")
    starts = np.append(others[:, 0], np.iinfo(np.int64).max)
    return starts[behind] < spans[:, 1]


def _spans(program: Instructions, surely: bool) -> tuple[Array, Array, Array]:
    """(instruction, first byte and end, whether it writes) of every row of every access."""
    cfg, isa = program.cfg, program.isa
    symbols = program.symbols
    parts: list[tuple[Array, Array, Array]] = []
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


class Kinds:
    """Kinds of instructions with equal accesses: their uses, and the sets of cells of each scratchpad."""

    def __init__(self, program: Instructions):
        self.program = program
        self._uses: dict[Mem, list[Use]] = {mem: [] for mem in SCRATCHPADS}
        self._classes: dict[Mem, tuple[list[Array], Array]] = {}
        self._count = 0
        self.sets = {mem: Sets(room(program.cfg, mem)) for mem in SCRATCHPADS}

    def add(self, accesses: Iterable[Access]) -> int:
        """The number of a new kind, with these accesses."""
        self._classes.clear()
        for n, a in enumerate(accesses):
            self._uses[a.mem].append(Use(self._count, n, self.sets[a.mem].number(a.entries), a.write, a.updates))
        self._count += 1
        return self._count - 1

    def touches(self, mem: Mem, kind: Array) -> tuple[Touches, Array]:
        """(the accesses to `mem` of instructions of these kinds, the class of each of its entries)."""
        if mem not in self._classes:
            self._classes[mem] = self.sets[mem].classes()
        classes, of_entry = self._classes[mem]
        return Touches(kind, self._count, self._uses[mem], classes, int(of_entry.max(initial=0)) + 1), of_entry

    def written(self, mem: Mem) -> list[slice | Array]:
        """The sets of entries of `mem` that instructions write."""
        return [self.sets[mem].cells[use.cells] for use in self._uses[mem] if use.write]

    def distinguish(self, mem: Mem, entries: Array) -> int:
        """The number of the set of these entries, which are in classes of their own from now on."""
        self._classes.pop(mem, None)
        return self.sets[mem].number(entries)


def check_transfers(program: Instructions) -> list[list[Access]]:
    """The accesses of each form that need no micro-ops. Raises `AccessError` for an entry that does not exist."""
    accesses = [[] if "uop_bgn" in f else scratchpad_accesses(program.cfg, f, _NONE) for f in program.forms]
    problems = {
        form: problem for form, touched in enumerate(accesses) if (problem := out_of_range(program.cfg, touched))
    }
    if problems:
        k = int(np.flatnonzero(np.isin(program.form, list(problems)))[0])
        raise AccessError(f"{program.name(k)} {problems[int(program.form[k])]}", k)
    return accesses


def micro_ops_of(program: Instructions) -> list[tuple[Mem | None, Mem | None]]:
    """For each form, the scratchpads whose micro-ops it executes, and loads."""
    known: dict[tuple[int, int | None], tuple[Mem | None, Mem | None]] = {}
    micro_ops = list[tuple[Mem | None, Mem | None]]()
    for f in program.forms:
        kind = f["op"], f.get("mem")
        if kind not in known:
            row = row_of(*kind)
            known[kind] = row.executes, row.loads if row.loads in MICRO_OPS else None
        micro_ops.append(known[kind])
    return micro_ops


def buffers_of_micro_ops(program: Instructions, static: list[list[Access]]) -> Kinds:
    """The kinds of all forms with their accesses to micro-op buffers only; their contents do not matter."""
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

    `left` is what it finds on chip when it starts, and `words` are the micro-ops that it leaves. Raises `AccessError`
    for an entry or a micro-op that does not exist, `ProgramError` for micro-ops that are not known.
    """

    def __init__(
        self,
        program: Instructions,
        topological: list[int],
        static: list[list[Access]],
        read_uops: ReadUops,
        left: Left,
    ):
        self.program, self.kinds, self._read_uops = program, Kinds(program), read_uops
        micro_ops = micro_ops_of(program)
        of_form = [-1 if executes else self.kinds.add(some) for (executes, _), some in zip(micro_ops, static)]
        self.kind = np.array(of_form, np.intp)[program.form]
        self.words = {mem: left.words[mem].copy() for mem in MICRO_OPS}
        self._known = {mem: left.written[mem].copy() for mem in MICRO_OPS}  # by this program, or by those before it
        self._kind_of: dict[tuple[int, bytes], int] = {}
        self._first: list[int] = []  # the first instruction of each of these kinds
        self._forms: list[int] = program.form.tolist()
        self._micro_ops = micro_ops
        self._static = len(of_form) - of_form.count(-1)
        busy = np.array([executes is not None or loads is not None for executes, loads in micro_ops], bool)
        order = np.array(topological, np.intp)
        problem: ProgramError | None = None
        try:
            self._walk(order[busy[program.form[order]]].tolist())
        except ProgramError as exc:
            problem = exc
        self._judge()  # an error of an earlier instruction comes first
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
        words = self.words[mem][first:end]
        key = (form, words.tobytes())
        kind = self._kind_of.setdefault(key, len(self._first))
        if kind == len(self._first):
            self._first.append(k)
        return self._static + kind

    def _judge(self) -> None:
        """Add the kinds in the order of their numbers, their micro-ops decoded together."""
        program = self.program
        words = [np.frombuffer(kernel, np.uint32) for _, kernel in self._kind_of]
        all_words = np.concatenate([np.zeros(0, np.uint32), *words]).astype(np.uint64)
        fields, end = program.isa.uop.decode(all_words[:, None]), 0
        uops = np.stack([fields["dst"], fields["src"], fields["wgt"]], axis=1)
        for k, kernel in zip(self._first, words):
            end += len(kernel)
            accesses = scratchpad_accesses(program.cfg, program.forms[self._forms[k]], uops[end - len(kernel) : end])
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
        entries = slice(f["sram_base"], f["sram_base"] + f["x_size"])
        self.words[mem][entries] = np.asarray(words, np.uint32)
        self._known[mem][entries] = True


def check_scratchpads(program: Instructions, topological: Array, kinds: Kinds, kind: Array, left: Left) -> None:
    """Raise `UnwrittenError` for an entry of a scratchpad that is read before an instruction writes it.

    Entries that are written in `left` have values from the start. The program has no races: a write that comes first in
    one order comes first in all. Micro-ops were checked before.
    """
    reads: list[tuple[int, Mem, Array, int]] = []
    for mem in SCRATCHPADS:
        if mem in MICRO_OPS:
            continue
        before = kinds.distinguish(mem, np.flatnonzero(left.written[mem]))
        touches, of_entry = kinds.touches(mem, kind[topological])
        ready = np.zeros(touches.count, bool)
        ready[touches.classes[before]] = True
        for events in touches.events():
            first = _first(events, touches.count, ready)
            if first is not None:
                turn, classes, writer = first
                reads.append((turn, mem, np.flatnonzero(np.isin(of_entry, classes)), writer))
    if reads:
        turn, mem, entries, writer = min(reads, key=lambda one: one[0])
        where = f"{mem.name} entries {entries[0]}..{entries[-1]}"
        _refuse(program, topological, turn, where, writer)


def check_buffers(program: Instructions, topological: Array, buffers: Sequence[Buffer], bases: Sequence[int]) -> None:
    """Raise `UnwrittenError` for bytes of a buffer of kind temp or output that are read before they are written.

    Also for bytes of an output that no instruction writes. `bases` are the addresses at which `program` has `buffers`.
    A store with a symbol counts for the bytes that it writes for every value.
    """
    empty = [(buffer, base) for buffer, base in zip(buffers, bases) if buffer.kind in EMPTY]
    if not empty:
        return
    spans = np.array([(base, base + buffer.nbytes) for buffer, base in empty], np.int64)
    touches = DramTouches(program, topological, spans, surely=True)
    inside = np.zeros(touches.count + 1, np.int64)
    for begin, end in np.searchsorted(touches.bounds, spans).tolist():
        inside[begin] += 1
        inside[end] -= 1
    ready = np.cumsum(inside)[:-1] == 0
    written = np.zeros(touches.count, bool)
    earliest: tuple[int, Array, int] | None = None
    for events in touches.events():
        written[events.cls[events.write]] = True
        first = _first(events, touches.count, ready)
        if first is not None and (earliest is None or first[0] < earliest[0]):
            earliest = first
    if earliest is not None:
        turn, cells, writer = earliest
        where = _bytes(touches.bounds, cells, empty)
        _refuse(program, topological, turn, where, writer)
    for buffer, base in empty:
        begin, end = np.searchsorted(touches.bounds, (base, base + buffer.nbytes)).tolist()
        left = begin + np.flatnonzero(~written[begin:end])
        if buffer.kind == "output" and len(left):
            where = _bytes(touches.bounds, left, empty)
            raise UnwrittenError(f"no instruction writes {where}, of an output: its values would be left from before")


def _first(events: Events, count: int, ready: Array | None) -> tuple[int, Array, int] | None:
    """(turn, classes, turn of a later write to them or -1) of the first read before any write, if there is one."""
    early = unwritten(events, count, ready)
    if not len(early):
        return None
    turn = int(events.turn[early].min())
    classes = np.unique(events.cls[early[events.turn[early] == turn]])
    later = events.write & (events.turn > turn) & np.isin(events.cls, classes)
    return turn, classes, int(events.turn[later].min()) if later.any() else -1


def _bytes(bounds: Array, cells: Array, buffers: Sequence[tuple[Buffer, int]]) -> str:
    """The bytes of the first buffer that `cells` touch, for a message."""
    start = int(bounds[cells[0]])
    buffer, base = next((b, at) for b, at in buffers if at <= start < at + b.nbytes)
    stop = min(int(bounds[cells[-1] + 1]), base + buffer.nbytes)
    return f"bytes {start - base:#x}..{stop - base - 1:#x} of buffer {buffer.name!r}"


def _refuse(program: Instructions, topological: Array, turn: int, where: str, writer: int) -> None:
    k = int(topological[turn])
    text = f"{program.name(k)} reads {where} before any instruction writes them"
    if writer >= 0:
        text += f"; {program.name(int(topological[writer]))} does later"
    raise UnwrittenError(text, k)
