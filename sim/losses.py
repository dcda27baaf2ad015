"""Where the cycles of a launch go beyond its bound: losses with their names, statements and remedies.

The bound is the least time of the launch's products, of the bytes that it must load and of those that it must store,
whichever is largest. Each loss is what the timing model saves when its cause is taken out of the program: loads that
wait for the tile before, tensors that are loaded again, short rows, loads of micro-ops, work of the ALU. The largest is
taken out first, and the next one from what remains; so the bound and the losses add up to the cycles. What then is left
is divided by the timeline: start and end, and instructions with little work each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from ..hw.isa import MICRO_OPS, Mem, Op, Queue, depth, entry_bytes, instruction, known_isa, ops_of, scratchpad_of
from ..hw.show import table
from ..hw.units import FLAGS, POP_NEXT
from ..runtime.access import DramAccess, dram_access
from ..runtime.launch import ARENA, Launch
from .dram import ZYNQ_HP, Dram, bandwidths
from .profile import owned_cycles, spent_cycles
from .statements import Statement, statements
from .timing.engine import Timing, placed, simulate
from .timing.program import Columns, Move, Write

MATTERS = 0.1  # share of the cycles from which a loss is a warning
_SHOWN, _WIDTH = 0.01, 60  # share of the cycles from which a loss has a row in tables; characters of its place
_LISTED = 0.001  # share of the cycles from which a loss is listed
_MANY = 32  # instructions from which their number is a reason
_FEW = 16  # micro-op issues, or beats, below which an instruction is tiny
_LARGE = 10_000  # instructions from which losses are taken out in a fixed order, which needs half the time
_TENSORS = 3  # most tensors whose loads are looked at one by one
_PER_SUM = 4  # additions of accumulators per result from which they are a reduction
_SUMS = 2  # additions of sums of products per result from which these are one reduction
_AGAIN = 1.5  # bytes stored per byte of the tensor from which it goes through DRAM
_NOTHING = Move(0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, -1, True, 0, False)  # an instruction that does nothing


@dataclass(frozen=True)
class Loss:
    """Cycles beyond the bound that have one cause, `name`.

    `path` are the names of the operator and the statement where most of them are, `tensor` the one concerned if it is
    one. `cause` and `remedy` are sentences. `certain`: the remedy changes the schedule alone, not what is computed.
    """

    name: str
    cycles: int
    path: tuple[str, ...]
    tensor: str
    cause: str
    remedy: str
    certain: bool

    @property
    def statement(self) -> str:
        """The innermost name of its path, "launch" where there is none."""
        return self.path[-1] if self.path else "launch"

    @property
    def text(self) -> str:
        """Name, cause and remedy."""
        return f"{self.name}: {self.cause}: {self.remedy}"

    def to_dict(self) -> dict[str, object]:
        """JSON-ready values."""
        found: dict[str, object] = {"name": self.name, "cycles": self.cycles, "path": [*self.path]}
        return found | {"statement": self.statement, "tensor": self.tensor, "cause": self.cause, "remedy": self.remedy}


@dataclass(frozen=True)
class Explanation:
    """`cycles` of a launch are its `bound` and those of its `losses`, the largest first; `limit` names the bound.

    >>> import tilewright as tw
    >>> found = tw.explain("examples/digits/digits.onnx")
    >>> found.bound + sum(loss.cycles for loss in found.losses) == found.cycles
    True
    """

    cycles: int
    bound: int
    limit: str
    losses: tuple[Loss, ...]

    @property
    def warnings(self) -> list[Loss]:
        """The losses that matter and have a certain remedy."""
        return [loss for loss in self.losses if loss.certain and loss.cycles >= MATTERS * self.cycles]

    def to_dict(self) -> dict[str, object]:
        """JSON-ready values."""
        return {"cycles": self.cycles, "bound": self.bound, "losses": [loss.to_dict() for loss in self.losses]}

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Rows of a table: name, cycles, share, operator and statement, cause and remedy; small losses are one row."""

        def row(name: str, cycles: int, *told: str) -> tuple[str, ...]:
            return name, f"{cycles:,}", f"{100 * cycles / max(self.cycles, 1):.1f} %", *told

        yield row("bound", self.bound, "", self.limit)
        large = [loss for loss in self.losses if loss.cycles >= _SHOWN * self.cycles]
        for loss in large:
            where = " / ".join(loss.path)[:_WIDTH] or loss.statement
            yield row(loss.name, loss.cycles, where, f"{loss.cause}: {loss.remedy}")
        if small := self.losses[len(large) :]:
            yield row(
                "smaller ones",
                sum(loss.cycles for loss in small),
                "",
                f"{len(small)} loss{'es' if len(small) > 1 else ''}",
            )

    def __repr__(self) -> str:
        lines = [f"{self.cycles:,} cycles, at least {self.bound:,} ({self.limit})"]
        lines += [" ".join((cycles, share, name, *rest)) for name, cycles, share, *rest in list(self.rows())[1:]]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        head = ("loss", "cycles", "share", "statement", "cause: remedy")
        return table(f"{self.cycles:,} cycles", head, self.rows())


@lru_cache(8)
def explain(launch: Launch, dram: Dram = ZYNQ_HP) -> Explanation:
    """The bound and the losses of `launch` on the memory `dram`, by the timing model."""
    return _Search(launch, dram).explanation()


def merged(launches: Sequence[Explanation]) -> Explanation:
    """Of several launches, one after the other."""
    losses = sorted((loss for one in launches for loss in one.losses), key=lambda loss: -loss.cycles)
    limit = " and ".join(dict.fromkeys(one.limit for one in launches)) or "nothing"
    return Explanation(sum(one.cycles for one in launches), sum(one.bound for one in launches), limit, tuple(losses))


@dataclass(frozen=True)
class _Cause:
    """A cause of lost cycles: `remove` takes it out of a program."""

    name: str
    remove: Callable[[Columns], Columns]
    tensor: str = ""


class _Search:
    """The search for the losses of one launch."""

    def __init__(self, launch: Launch, dram: Dram):
        self.launch, self.dram, self.cfg = launch, dram, launch.cfg
        self.program, self.address = placed(launch, self.cfg)
        self.fields = known_isa(self.cfg).decode(launch.insn)
        self.timing = self.timed(self.program)
        self.transfers = _Transfers(launch, self.fields)
        self.paths = launch.known_origins.paths
        self.of = launch.known_origins.of

    def timed(self, program: Columns) -> Timing:
        return simulate(self.cfg, self.dram, program, self.address)

    @cached_property
    def statements(self) -> list[Statement]:
        return statements(self.launch, self.timing.timeline())

    def explanation(self) -> Explanation:
        """The bound, and the losses in the order of their cycles."""
        limits = self.limits()
        limit = max(limits, key=limits.__getitem__)
        cycles = self.timing.cycles
        losses: list[Loss] = []
        now, timing = self.program, self.timing
        for cause, alone in self.ordered():
            program = cause.remove(now)
            after = alone if alone is not None and now is self.program else self.timed(program)
            if after.cycles < timing.cycles:
                losses += self.by_operator(cause, timing, after)
                now, timing = program, after
        bound = min(round(limits[limit]), timing.cycles)
        losses += self.divided(timing, bound, limit)
        large = [loss for loss in losses if loss.cycles >= max(_LISTED * cycles, 1)]
        if rest := cycles - bound - sum(loss.cycles for loss in large):
            large.append(Loss("uneven", rest, (), "", *_TOLD["uneven"], False))
        return Explanation(cycles, bound, limit, tuple(sorted(large, key=lambda loss: -loss.cycles)))

    def ordered(self) -> Sequence[tuple[_Cause, Timing | None]]:
        """The causes that the launch has with the timing without each alone, if known; the most expensive first."""
        causes = list(self.causes())
        if self.program.count > _LARGE:
            return [(cause, None) for cause in causes]
        alone: list[tuple[_Cause, Timing]] = [(cause, self.timed(cause.remove(self.program))) for cause in causes]
        alone.sort(key=lambda one: one[1].cycles)
        return alone

    def causes(self) -> Iterator[_Cause]:
        yield _Cause("no_overlap_of_loads", lambda p: _untied(p, Queue.LOAD))
        yield _Cause("no_overlap_of_stores", lambda p: _untied(p, Queue.COMPUTE))
        again = self.transfers.again
        tensors = sorted(again, key=lambda name: -again[name])
        single = len({path[:1] for path in self.paths if path}) < 2
        for tensor in tensors[:_TENSORS] if single else ():
            yield _Cause("loaded_again", lambda p, tensor=tensor: self.once(p, {tensor}), tensor)
        if others := set(tensors[_TENSORS:] if single else tensors):
            yield _Cause("loaded_again", lambda p: self.once(p, others))
        if self.transfers.spilled:
            yield _Cause("sums_in_dram", self.kept_on_chip)
        yield _Cause("short_rows", _dense)
        for name, at in (("micro_ops", self.loads_of_micro_ops), ("alu", self.alu), ("resets", self.resets)):
            if len(at):
                yield _Cause(name, lambda p, at=at: _emptied(p, at))

    # what is in the program

    @cached_property
    def loads_of_micro_ops(self) -> list[int]:
        rows = [instruction(f["op"], f.get("mem")) for f in self.fields]
        return [k for k, row in enumerate(rows) if row is not None and row.loads == Mem.UOP]

    @cached_property
    def alu(self) -> list[int]:
        kinds = ops_of("ALU")
        return [k for k, f in enumerate(self.fields) if f["op"] in kinds]

    @cached_property
    def resets(self) -> list[int]:
        return [k for k, f in enumerate(self.fields) if f.get("reset") and f["op"] != Op.TERNARY]

    def limits(self) -> dict[str, float]:
        """The least cycles of the products, and of the bytes that are loaded and stored once."""
        widths = bandwidths(self.cfg, self.dram)
        products = {"products": 0, "products of unit ternary": 0}
        for k, f in enumerate(self.fields):
            if "wgt_out" in f and not f["reset"]:
                name = "products of unit ternary" if f["op"] == Op.TERNARY else "products"
                products[name] += self.program.work[k].cycles
        loaded, stored = self.transfers.distinct(False), self.transfers.distinct(True)
        moved = {"loads": loaded / widths["load"], "stores": stored / widths["store"]}
        return products | moved | {"all transfers": (loaded + stored) / widths["both"]}

    # programs without a cause

    def once(self, program: Columns, tensors: set[str]) -> Columns:
        """`program` without the loads of `tensors` that were loaded before."""
        work = list(program.work)
        for k, left in self.transfers.new.items():
            if left == 1 or self.transfers.name[k] not in tensors or not isinstance(work[k], Move):
                continue
            move = work[k]
            if left == 0:
                work[k] = _empty(move)
            elif move.rows > 1:
                work[k] = move._replace(rows=max(1, round(move.rows * left)))
            else:
                work[k] = move._replace(length=max(1, round(move.length * left)), ahead=0)
        return replace(program, work=work)

    def kept_on_chip(self, program: Columns) -> Columns:
        """`program` without the stores of sums that others replace, and without their loads."""
        return _emptied(program, self.transfers.spilled)

    # what remains

    def by_operator(self, cause: _Cause, before: Timing, after: Timing) -> Iterator[Loss]:
        """The loss of `cause`, divided among the operators of the launch."""
        saved = before.cycles - after.cycles
        owned = owned_cycles(self.launch, before.timeline()) - owned_cycles(self.launch, after.timeline())
        by_path = {path: int(owned[self.of == number].sum()) for number, path in enumerate(self.paths)}
        operators = list(dict.fromkeys(path[:1] for path in by_path))
        shares = {op: sum(n for path, n in by_path.items() if path[:1] == op) for op in operators}
        shares = {op: n for op, n in shares.items() if n >= max(_LISTED * self.timing.cycles, 1)}
        scale = saved / max(sum(shares.values()), 1)
        left = saved
        for number, (op, share) in enumerate(sorted(shares.items(), key=lambda item: item[1])):
            cycles = left if number == len(shares) - 1 else int(share * scale)
            left -= cycles
            yield self.loss(cause, cycles, max((p for p in by_path if p[:1] == op), key=by_path.__getitem__))
        if not shares:
            yield self.loss(cause, saved, ())

    def loss(self, cause: _Cause, cycles: int, path: tuple[str, ...]) -> Loss:
        if cause.name in ("micro_ops", "alu", "resets") and (tiny := self.tiny(path)):
            return Loss("tiny_instructions", cycles, path, "", tiny, _TINY, True)
        text, remedy, certain, tensor = self.told(cause, path)
        return Loss(cause.name, cycles, path, tensor, text, remedy, certain)

    def tiny(self, path: tuple[str, ...]) -> str:
        """What is told of the statement `path` where its GEMM or ALU instructions are many and tiny; else empty."""
        operator = [each for each in self.statements if each.path[:1] == path[:1] and each.loops]
        one = max(operator, key=lambda each: (each.path == path, each.loops), default=None)
        if one is None or one.loops < _MANY or one.issues >= _FEW * one.loops:
            return ""
        text = f"{one.loops:,} instructions of {one.issues / one.loops:.1f} micro-ops each"
        initial, issues = sum(each.initial for each in operator), sum(each.initial_issues for each in operator)
        if initial < _MANY or issues >= _FEW * initial:
            return text
        return f"{text}; {initial:,} set accumulators, which decompose_reduction does for whole tiles"

    def told(self, cause: _Cause, path: tuple[str, ...]) -> tuple[str, str, bool, str]:
        """(cause, remedy, whether it is certain, tensor)."""
        if cause.name == "loaded_again":
            return self.told_again(cause, path)
        mine = [each for each in self.statements if each.path == path]
        if cause.name == "short_rows":
            moved = max((m for s in mine for m in s.transfers.values()), key=lambda m: m.rows, default=None)
            tensor = moved.buffer if moved else ""
            rows = f"{moved.rows:,} rows of {moved.nbytes // moved.rows} bytes" if moved else "short rows"
            text = f"{_shown(tensor) or 'a tensor'} moves in {rows} that are not adjacent in DRAM"
            return text, "choose a layout or a loop order in which a tile is contiguous in DRAM", True, tensor
        if cause.name == "alu":
            return *self.told_alu(path), ""
        if cause.name in _WAITS:
            return self.told_waiting(cause, path)
        return *_TOLD[cause.name], True, ""

    def told_waiting(self, cause: _Cause, path: tuple[str, ...]) -> tuple[str, str, bool, str]:
        store = cause.name == "no_overlap_of_stores"
        moved = [m for s in self.statements if s.path[:1] == path[:1] for m in s.moved(store)]
        moved = [m for m in moved if store or m.mem in (Mem.INP, Mem.WGT)]
        most = max(moved, key=lambda m: (len(set(m.spans)) > 1, m.cycles), default=None)
        places = len(set(most.first)) if most else 1
        tensor = most.buffer if most else ""
        what = _WAITS[cause.name].format(_shown(tensor) or "a tensor")
        if places > 1:
            remedy = "larger tiles, which take longer to compute than to move, or more slots or threads for it"
            return f"{what}, in {places} places by turns", remedy, True, tensor
        remedy = 'bind a loop over its tiles to "vthread.x"'
        return what, remedy if store else f"{remedy}, or annotate its load with more slots", True, tensor

    def told_again(self, cause: _Cause, path: tuple[str, ...]) -> tuple[str, str, bool, str]:
        again = self.transfers.again
        here = [m.buffer for s in self.statements if s.path == path for m in s.moved(store=False) if m.buffer in again]
        tensor = cause.tensor or max(here or again, key=again.__getitem__)
        mem, loaded, distinct = self.transfers.loaded[tensor]
        text = f"{tensor}, {distinct:,} bytes, is loaded {loaded / distinct:.1f} times"
        if tensor == ARENA:
            loaded, distinct = self.transfers.of_operator(tensor, self.operator(path))
            text = f"it loads {loaded - distinct:,} of its {loaded:,} bytes of activations again"
        room = depth(self.cfg, scratchpad_of(mem)) * entry_bytes(self.cfg, mem)
        if distinct <= room:
            remedy = "it fits on chip: load it outside the loops that do not change it (compute_at further out)"
        else:
            remedy = (
                "it does not fit on chip: keep each tile of it while all that uses it runs, by loops that it does not "
                "depend on inside its load, or make the other operands' tiles larger"
            )
        return text, remedy, True, tensor

    def told_alu(self, path: tuple[str, ...]) -> tuple[str, str, bool]:
        mine = [each for each in self.statements if each.path[:1] == path[:1]]
        results = sum(m.nbytes for s in mine for m in s.moved(store=True)) / self.cfg.out_entry_bytes or 1
        for s in mine:
            if s.summed >= _SUMS * results:
                text = f"the ALU adds {s.summed / results:.0f} sums of products per result"
                return text, "let GEMM accumulate: the loop of the reduction inside, on the same accumulators", True
            if s.added - s.summed >= _PER_SUM * results or s.spread:
                many = f"{s.added / results:.0f} additions per result" if s.added > s.summed else "products"
                remedy = "GEMM with weights of ones or a diagonal does this, DWGEMM channel by channel, in one issue"
                return f"the ALU does {many}, which are GEMM's work", remedy, True
        issues = sum(self.program.work[k].issues for k in self.alu if self.paths[self.of[k]][:1] == path[:1])
        text = f"the ALU takes {issues / results:.1f} micro-ops per result, in which no product is issued"
        return text, "take fewer operations, or leave shifts and clamps to a store that requantises (REQUANTISE)", False

    def operator(self, path: tuple[str, ...]) -> np.ndarray:
        """The positions of the instructions of the operator of `path`."""
        return np.flatnonzero(np.array([each[:1] == path[:1] for each in self.paths])[self.of])

    def divided(self, timing: Timing, bound: int, limit: str) -> Iterator[Loss]:
        """What the causes leave, by the timeline of the program without them."""
        left = timing.cycles - bound
        timeline = timing.timeline()
        queue, work = _LIMITED.get(limit, Queue.COMPUTE), spent_cycles(timeline)
        at = np.flatnonzero((timeline.queue == queue) & (timeline.start >= 0))
        if queue == Queue.COMPUTE:
            products = [k for k in at.tolist() if "wgt_out" in self.fields[k] and not self.fields[k]["reset"]]
            at = np.array(products, int)
        if not len(at):
            at = np.arange(self.program.count)
        begin, last = int(timeline.start[at].clip(0).min()), int(timeline.end[at].max())
        ends = min(max(begin + timing.cycles - last, 0), left)
        loads = np.flatnonzero((timeline.queue == Queue.LOAD) & (timeline.issue < begin))
        path = self.most(loads if len(loads) else at[:1], work)
        text = f"nothing overlaps the first {begin:,} cycles, of loads, and the last {max(timing.cycles - last, 0):,}"
        yield Loss("start_and_end", ends, path, "", text, _ENDS, False)
        left -= ends
        works = [self.program.work[k] for k in at.tolist()]
        sizes = [_size(work) for work in works]
        where = self.most(at, work)
        mean = sum(sizes) / max(len(sizes), 1)
        overhead = left if mean < _FEW else min(left, max(int(work[at].sum()) - bound, 0))
        text = f"{len(sizes):,} instructions of {mean:.1f} {'micro-ops' if queue == Queue.COMPUTE else 'beats'} each"
        yield Loss("tiny_instructions", overhead, where, "", text, _TINY, mean < _FEW)

    def most(self, at: np.ndarray, cycles: np.ndarray) -> tuple[str, ...]:
        """The path whose instructions among those `at` take most of their `cycles`."""
        spent = np.bincount(self.of[at], cycles[at], len(self.paths))
        return self.paths[int(spent.argmax())]


_LIMITED = {"products": Queue.COMPUTE, "loads": Queue.LOAD, "stores": Queue.STORE, "all transfers": Queue.LOAD}
_ENDS = "make the first and the last tile smaller, or put several functions in one program (build_into)"
_TINY = "move loops inside the instruction: compute_at an outer loop, larger tiles"
_WAITS = {
    "no_overlap_of_loads": "loads of {} wait for the products of the tile before, in the same entries",
    "no_overlap_of_stores": "compute waits for the store to {} of the tile before, whose accumulators it needs",
}
_TOLD = {
    "sums_in_dram": (
        "sums are stored to DRAM and loaded again",
        "keep them in accumulators until the reduction ends: its loop belongs inside that of the store",
    ),
    "micro_ops": (
        "compute waits for lists of micro-ops",
        "larger tiles need fewer lists, and tiles of equal shape share one",
    ),
    "resets": (
        "instructions set accumulators to 0",
        "decompose_reduction at the outermost loop of the reduction, around whole tiles",
    ),
    "uneven": (
        "the units are busy at different times",
        "give every tile the same share of loads, products and stores",
    ),
}


def _shown(tensor: str) -> str:
    """A buffer's name for authors: they do not know that the activations of a network lie in one."""
    return "the activations" if tensor == ARENA else tensor


def _size(work: object) -> int:
    """Micro-op issues or beats of an instruction."""
    if isinstance(work, Move):
        return work.rows * -(-work.length // work.per_beat)
    if isinstance(work, Write):
        return work.rows * -(-work.length // work.per_beat)
    return getattr(work, "issues", 0)


def _empty(work: object) -> object:
    """The work of an instruction that keeps its tokens alone."""
    if isinstance(work, Move):
        return work._replace(rows=0, lead=1, between=0, tail=0, empty=True, ahead=0)
    return work._replace(entries=0, rows=1) if isinstance(work, Write) else _NOTHING


def _emptied(program: Columns, at: Iterable[int]) -> Columns:
    work = list(program.work)
    for k in at:
        work[k] = _empty(work[k])
    return replace(program, work=work)


def _untied(program: Columns, queue: int) -> Columns:
    """`program` in which no instruction of `queue` waits for the queue behind it, which uses its entries."""
    place = FLAGS.index(POP_NEXT)
    flags = list(program.flags)
    flags[place] = [has and at != queue for has, at in zip(flags[place], program.queue.tolist())]
    return replace(program, flags=flags)


def _dense(program: Columns) -> Columns:
    """`program` in which the rows of every transfer are adjacent in DRAM."""
    work = list(program.work)
    for k, each in enumerate(work):
        if isinstance(each, Move) and each.rows > 1:
            work[k] = each._replace(rows=1, length=each.rows * each.length, step=0)
        elif isinstance(each, Write) and each.rows > 1:
            rows, entries, length = 1, each.rows * each.entries, each.rows * each.length
            work[k] = each._replace(rows=rows, entries=entries, length=length, step=length)
    return replace(program, work=work)


class _Transfers:
    """The DRAM traffic of a launch, by instruction: tensor, bytes, and share of the bytes that no load before had.

    What is stored is new to the next load of it. `again` are bytes loaded again by tensor, `loaded` its memory, bytes
    loaded and different bytes; `spilled` the stores of sums that others replace, and the loads of these sums.
    """

    def __init__(self, launch: Launch, fields: list[dict[str, int]]):
        self.name, self.nbytes, self.new = dict[int, str](), dict[int, int](), dict[int, float]()
        self.again, self.loaded = dict[str, int](), dict[str, tuple[Mem, int, int]]()
        self.spilled: list[int] = []
        granules, ends = dict[str, int](), dict[str, int]()
        accesses = list(_accesses(launch, fields))
        for _, name, mem, access in accesses:
            granules[name] = math.gcd(granules.get(name, 0), entry_bytes(launch.cfg, mem))
            ends[name] = max(ends.get(name, 0), access.end)
        held = {name: np.zeros(-(-ends[name] // granule), bool) for name, granule in granules.items()}
        stored = {name: np.zeros_like(cells) for name, cells in held.items()}
        last, twice, moved = dict[tuple, int](), dict[str, list[int]](), dict[str, int]()
        loads, operands = dict[str, list[int]](), {ARENA}  # tensors that are more than sums
        for k, name, mem, access in accesses:
            at, nbytes = _cells(access, granules[name]), access.rows * access.nbytes
            self.name[k], self.nbytes[k] = name, nbytes
            if access.write:
                span = name, access.start, access.rows, access.nbytes, access.pitch
                if span in last:
                    twice.setdefault(name, []).append(last[span])
                last[span] = k
                moved[name] = moved.get(name, 0) + nbytes
                stored[name][at], held[name][at] = True, False
                continue
            loads.setdefault(name, []).append(k)
            if scratchpad_of(mem) != Mem.ACC:
                operands.add(name)
            self.new[k] = fresh = 1 - float(held[name][at].mean())
            held[name][at] = True
            mem, all_bytes, distinct = self.loaded.get(name, (mem, 0, 0))
            self.loaded[name] = mem, all_bytes + nbytes, distinct + round(fresh * nbytes)
        self._stored = {name: int(stored[name].sum()) * granules[name] for name in moved}
        for name, (_, all_bytes, distinct) in self.loaded.items():
            if all_bytes > distinct:
                self.again[name] = all_bytes - distinct
        for name in [name for name in moved if name in loads and name not in operands]:
            if moved[name] >= _AGAIN * self._stored[name]:
                self.spilled += twice.get(name, []) + loads[name]
                self.again.pop(name, None)
                del self.loaded[name]

    def distinct(self, store: bool) -> int:
        """Bytes that must be loaded, or stored."""
        return sum(self._stored.values()) if store else sum(distinct for _, _, distinct in self.loaded.values())

    def of_operator(self, tensor: str, at: np.ndarray) -> tuple[int, int]:
        """(bytes, bytes that no load before had) that the instructions `at` load of `tensor`."""
        here = [k for k in at.tolist() if k in self.new and self.name[k] == tensor]
        return sum(self.nbytes[k] for k in here), sum(round(self.new[k] * self.nbytes[k]) for k in here)


def _accesses(launch: Launch, fields: list[dict[str, int]]) -> Iterator[tuple[int, str, Mem, DramAccess]]:
    """(instruction, tensor, memory, bytes) of every load and store of a tensor."""
    for k, f in enumerate(fields):
        row, access = instruction(f["op"], f.get("mem")), dram_access(launch.cfg, f)
        if row is None or row.mem in (None, *MICRO_OPS) or access is None or launch.reloc[k] < 0:
            continue
        yield k, launch.buffers[launch.reloc[k]].name, row.mem, access


def _cells(access: DramAccess, size: int) -> np.ndarray:
    """The cells of `size` bytes that `access` covers."""
    first = (access.start + access.pitch * np.arange(access.rows)) // size
    return (first[:, None] + np.arange(-(-access.nbytes // size))).reshape(-1)
