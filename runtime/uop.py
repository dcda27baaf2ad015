"""Micro-op kernels: loops over micro-ops as instructions, and which kernels are in the on-chip buffers.

Each kernel is stored once in DRAM; the least recently used ones leave the on-chip buffer.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..hw.config import UOP_BYTES, Config
from ..hw.errors import CapacityError, EncodingError, ProgramError
from ..hw.isa import INSTRUCTIONS, ITER_BITS, MICRO_OPS, OPERATIONS, Format, Isa, Mem, Op, depth, row_of
from ..hw.units import Channel, Queue
from .access import Access
from .arrays import Array
from .buffer import Buffer, integers
from .tokens import Row, joined, nop, parameters_joined

_AT_ONCE = 256  # micro-ops in a load of several kernels, so that the first do not wait for the last
MAX_TRIPS = (1 << ITER_BITS) - 1
Loops = tuple[tuple[int, ...], ...]  # (extent, dst, src, wgt step) of each


class UopCache:
    """Contents of an on-chip micro-op buffer, `depth` entries, at this point of the recorded program.

    A kernel that fits no gap evicts the least recently used kernels, which are loaded again when they are needed.
    """

    def __init__(self, depth: int):
        self.depth = depth
        self._resident: OrderedDict[bytes, tuple[int, int]] = (
            OrderedDict()
        )  # (first entry, size), used longest ago first
        self._places: list[tuple[int, int]] = []  # the same, ascending

    def place(self, key: bytes, n: int) -> tuple[int, bool]:
        """(first entry on chip, whether it must be loaded) of the kernel `key` of `n` <= depth micro-ops."""
        if key in self._resident:
            self._resident.move_to_end(key)
            return self._resident[key][0], False
        while (start := self._gap(n)) is None:
            _, place = self._resident.popitem(last=False)
            self._places.remove(place)
        self._resident[key] = (start, n)
        insort(self._places, (start, n))
        return start, True

    def _gap(self, n: int) -> int | None:
        end = 0
        for start, size in self._places:
            if start - end >= n:
                return end
            end = start + size
        return end if self.depth - end >= n else None


class Kernels:
    """The micro-op kernels of a program of `isa`: the contents of each on-chip buffer, and the `loads`.

    In DRAM the kernels of each buffer lie together, so that several can be loaded at once.
    """

    def __init__(self, isa: Isa):
        self.loads = list[Row]()
        self._offsets = {mem: dict[bytes, int]() for mem in MICRO_OPS}  # of distinct kernels in DRAM, in entries
        self._sizes = dict.fromkeys(MICRO_OPS, 0)
        self._caches = {mem: UopCache(depth(isa.cfg, mem)) for mem in MICRO_OPS}
        self._most = isa.formats["LOAD"].fields["x_size"].limits[1]  # narrower than the largest micro-op buffer

    def place(self, mem: Mem, words: Array) -> tuple[int, bool]:
        """(first entry, whether it must be loaded) of the kernel `words`, uint32 (n,), in the buffer `mem`."""
        return self._caches[mem].place(words.tobytes(), len(words))

    def loading(self, mem: Mem, start: int, words: Array, origin: int) -> Iterator[Row]:
        """The loads, for `origin`, of `words` to entries of `mem` from `start` on."""
        offset = self._offsets[mem].setdefault(words.tobytes(), self._sizes[mem])
        self._sizes[mem] = max(self._sizes[mem], offset + len(words))
        row = row_of(Op.LOAD, mem)
        for k in range(0, len(words), self._most):
            n = min(self._most, len(words) - k)
            fields = {**row.fields, "sram_base": start + k, "dram_base": offset + k}
            fields |= {"y_size": 1, "x_size": n, "x_stride": n}
            access = Access(mem, True, slice(start + k, start + k + n), True)
            self.loads.append(Row("LOAD", row.queue, fields, [access], origin=origin))
            yield self.loads[-1]

    def in_front(self, mem: Mem, rows: list[Row]) -> list[Row]:
        """`rows`, with tokens of their own, and in front of all the loads of micro-ops to `mem`.

        One token, the first in its channel, orders these. Raises `CapacityError` where they do not all fit.
        """
        loads = [row for row in self.loads if row.fields["mem"] == mem.id]
        if not loads:
            return rows
        need, holds = sum(row.fields["x_size"] for row in loads), self._caches[mem].depth
        if need > holds:
            raise CapacityError(
                f"the kernels in {mem.name} have {need} micro-ops, it holds {holds}: with tokens='explicit' all must "
                "fit; use tokens='auto'"
            )
        target = _queue_of(mem)
        order, carrier, moved = Channel(loads[-1].queue, target), nop(target, 0), set(map(id, loads))
        loads[-1].fields[order.push] = carrier.fields[order.pop] = 1
        return [*loads, carrier, *(row for row in rows if id(row) not in moved)]

    def buffer(self, name: str) -> list[Buffer]:
        """The buffer `name` of all kernels, now set in their loads; an empty list where there are no kernels."""
        data, starts = bytearray(), dict[int, int]()
        for mem, kernels in self._offsets.items():
            starts[mem.id] = len(data) // UOP_BYTES
            data += b"".join(kernels)
        if not data:
            return []
        buffer = Buffer(name, (len(data),), 8, False, "constant", np.frombuffer(data, np.uint8))
        for row in self.loads:
            row.buffer = buffer
            row.fields["dram_base"] += starts[row.fields["mem"]]
        return [buffer]

    def ahead(self, rows: Sequence[Row]) -> list[Row]:
        """`rows` in the order of `loaded_ahead`, with joined loads of parameters."""
        ordered, self.loads = loaded_ahead(rows, self.loads)
        return parameters_joined(ordered)


def loaded_ahead(rows: Sequence[Row], loads: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """(`rows` with each of `loads`, the loads of micro-ops, one step ahead of its jobs; the loads after that).

    A step is a sequence of jobs of one queue. While a step is computed, the micro-ops of the next are loaded; to load
    all at once would delay the operands of the first step, whose micro-ops come first. Loads of a memory keep their
    order; a load that continues the previous load is joined with it.
    """
    known, ordered, own = set(map(id, loads)), list[Row](), set[int]()
    front = 0
    for row in rows:
        if id(row) not in known:
            ordered.append(row)
            continue
        at = _ahead(ordered, row, front, own)
        first = at == front
        merged = joined(ordered[at - 1], row) if at and id(ordered[at - 1]) in own else None
        if merged is None or merged.fields["x_size"] > _AT_ONCE:
            ordered.insert(at, row)
            own.add(id(row))
            front += first
        else:
            ordered[at - 1] = merged
            own.add(id(merged))
    return ordered, [row for row in ordered if id(row) in own]


def _ahead(ordered: Sequence[Row], load: Row, front: int, loads: set[int]) -> int:
    """The position for `load` in `found`: after `front`, and after the last of `loads` to the same memory."""
    (access,) = load.accesses
    queue, at = _queue_of(access.mem), len(ordered)
    steps, inside = 0, True  # steps passed so far; whether the rows still belong to the same step
    for k in range(len(ordered) - 1, front - 1, -1):
        row = ordered[k]
        if id(row) in loads:
            if row.fields["mem"] == load.fields["mem"]:
                return k + 1
        elif row.queue == queue and row.format != "LOAD":
            steps += not inside
            if steps > 1 or any(_overlap(used, access) for used in row.accesses):
                return at
            inside, at = True, k
        else:
            inside = False
    return at if steps else front


def _overlap(one: Access, other: Access) -> bool:
    """Whether two accesses of micro-ops have entries in common."""
    assert isinstance(other.entries, slice)
    if one.mem != other.mem:
        return False
    assert isinstance(one.entries, slice)
    return one.entries.start < other.entries.stop and other.entries.start < one.entries.stop


def _queue_of(mem: Mem) -> Queue:
    """The queue whose instructions execute the micro-ops in `mem`."""
    return next(row.queue for row in INSTRUCTIONS if row.executes == mem)


def merge_loops(loops: Sequence[tuple[int, ...]], most: int) -> Loops:
    """`loops` [(extent, step, ...)] from the outermost in, with loops that continue each other merged, order kept.

    No merged loop runs more than `most` times.
    """
    out: list[tuple[int, ...]] = []
    for extent, *steps in reversed(loops):
        inner = out[-1] if out else (0,)
        if out and extent * inner[0] <= most and all(a == b * inner[0] for a, b in zip(steps, inner[1:])):
            out[-1] = (inner[0] * extent, *inner[1:])
        elif extent > 1:
            out.append((extent, *steps))
    return tuple(reversed(out))


def grid(loops: Sequence[tuple[int, ...]], base: tuple[int, ...]) -> Array:
    """Indices, int64 (trips, len(base)), of `loops` [(extent, step, ...)] from the outermost in, added to `base`."""
    out = np.array([base], np.int64)
    for extent, *steps in loops:
        trips = np.arange(extent, dtype=np.int64)[:, None] * np.array(steps, np.int64)
        out = (out[:, None, :] + trips).reshape(-1, len(base))
    return out


def encode_uops(fmt: Format, indices: Array) -> Array:
    """Micro-op words, uint32 (n,), of `indices`, int64 (n, 3): dst, src, wgt."""
    words = fmt.encode(len(indices), dst=indices[:, 0], src=indices[:, 1], wgt=indices[:, 2])
    return words[:, 0].astype(np.uint32)


@dataclass(frozen=True)
class Kernel:
    """Loops [(extent, dst, src, wgt)] over micro-ops (n, 3), and the fields that all its instructions share."""

    format: str
    loops: Loops
    uops: Array
    fields: dict[str, int]


def pieces(kernel: Kernel, cfg: Config) -> Iterator[tuple[Loops, Array]]:
    """The instructions of `kernel` in order: (at most two loops, micro-ops that fit the buffer) of each.

    Raises `ProgramError` for a kernel that does nothing.
    """
    if not len(kernel.uops) or any(extent < 1 for extent, *_ in kernel.loops):
        raise ProgramError(f"{kernel.format.lower()}: loops and micro-ops must run at least once")
    free = order_free(kernel)
    instruction, inner = _divided(kernel.loops, free, cfg)
    uops = kernel.uops if inner is None else (inner[:, None, :] + kernel.uops[None]).reshape(-1, 3)
    if len(uops) <= cfg.uop_depth or free or not instruction:
        for k in range(0, len(uops), cfg.uop_depth):
            yield instruction, uops[k : k + cfg.uop_depth]
        return
    extent, *steps = instruction[0]
    for trip in range(extent):  # unrolled: only then may a kernel be cut without changing the order
        yield from pieces(replace(kernel, loops=instruction[1:], uops=uops + trip * np.array(steps)), cfg)


@lru_cache(1024)  # most kernels of a program have the loops of others
def _divided(loops: Loops, free: bool, cfg: Config) -> tuple[Loops, Array | None]:
    """(At most two loops for the instruction, offsets of micro-ops by the other loops, int64 (n, 3), or None)."""
    instruction, rest = choose_loops(merge_loops(loops, MAX_TRIPS), free, cfg)
    return instruction, grid(rest, (0, 0, 0)) if rest else None


def order_free(kernel: Kernel) -> bool:
    """True where the iterations of `kernel` may run in any order."""
    f = kernel.fields
    if kernel.format != "ALU":
        starts = (kernel.uops[:, 0] - kernel.uops[0, 0]).tobytes()
        return not f.get("overwrite") or _all_differ(tuple((n, d) for n, d, *_ in kernel.loops), starts)
    if f["use_imm"]:
        return True
    all_indices = grid(kernel.loops, (0, 0, 0))[:, None, :2] + kernel.uops[None, :, :2]
    dst, src = all_indices[..., 0].reshape(-1), all_indices[..., 1].reshape(-1)
    disjoint = not np.isin(dst, src).any()
    commutes = f["op"] == Op.ALU and OPERATIONS[f["alu_op"]].order_free
    return disjoint and (commutes or len(np.unique(dst)) == len(dst))


@lru_cache(1024)  # kernels of one shape differ in their first entry alone
def _all_differ(loops: tuple[tuple[int, int], ...], starts: bytes) -> bool:
    """True if loops (extent, step) over int64 `starts` name no index twice."""
    indices = grid(loops, (0,)) + np.frombuffer(starts, np.int64)
    return len(np.unique(indices)) == indices.size


def choose_loops(loops: Loops, free: bool, cfg: Config) -> tuple[Loops, Loops]:
    """(at most two loops for the instruction, the others, which become micro-ops).

    Where the order is `free`, the longest loops go to the instruction; otherwise the outermost that fit its fields.
    """
    limits = tuple(depth(cfg, mem) for mem in (Mem.ACC, Mem.INP, Mem.WGT))
    fits = [loop[0] <= MAX_TRIPS and all(0 <= s < m for s, m in zip(loop[1:], limits)) for loop in loops]
    real = [k for k, loop in enumerate(loops) if loop[0] > 1]
    if free:
        chosen = sorted(sorted((k for k in real if fits[k]), key=lambda k: (-loops[k][0], k))[:2])
    else:
        chosen = list[int]()
        for k in range(len(loops)):
            if not fits[k] or len(chosen) == 2:
                break
            chosen.append(k)
    return tuple(loops[k] for k in chosen), tuple(loop for k, loop in enumerate(loops) if k not in chosen)


def loop_fields(kernel: Kernel, loops: Loops) -> dict[str, int]:
    """The fields of an instruction of `kernel` with at most two `loops`, without the range of micro-ops."""
    outer, inner = ((1, 0, 0, 0),) * (2 - len(loops)) + loops
    fields = dict(kernel.fields, iter_out=outer[0], iter_in=inner[0])
    for k, index in enumerate(("dst", "src") if kernel.format == "ALU" else ("dst", "src", "wgt"), 1):
        fields |= {f"{index}_out": outer[k], f"{index}_in": inner[k]}
    return fields


def encoded(kernel: Kernel, isa: Isa, uops: Array) -> Array:
    """The words of `uops`. Raises `CapacityError` for an index that the configuration does not have."""
    try:
        return encode_uops(isa.uop, uops)
    except EncodingError as exc:
        name, rows = kernel.format.lower(), isa.cfg.wgt_depth
        what = f"beyond a scratchpad of {isa.cfg.name}"
        if name == "dwgemm" and uops[:, 2].max() >= rows:
            counted = "groups of weight rows" if kernel.fields.get("extra_taps") else "weight rows"
            what = f"beyond the {rows} {counted} of a micro-op (steps of loops reach the others)"
        raise CapacityError(f"{name} reaches {what}: {exc}") from None


def uop_array(uops: Array, columns: int) -> Array:
    """`uops` as int64 (n, `columns`). Raises `ProgramError` for another shape or dtype."""
    array = np.asarray(uops)
    if array.ndim != 2 or array.shape[1] != columns or array.dtype.kind not in "iu":
        raise ProgramError(f"micro-ops must be integers of shape (n, {columns}), not {array.dtype} {array.shape}")
    return array.astype(np.int64)


def need_extensions(cfg: Config, names: Iterable[str]) -> None:
    """Raise `ProgramError` where `cfg` lacks one of the extensions `names`."""
    for name in names:
        if name not in cfg.extensions:
            raise ProgramError(f"extension {name} is not in configuration {cfg.name}; choose one that has it")


def check_taps(cfg: Config, taps: int, depthwise: bool) -> dict[str, int]:
    """The field of `taps` taps of GEMM, or of DWGEMM. Raises `ProgramError` for a number that it does not have."""
    (taps,) = integers("gemm: taps", (taps,), 1)
    if taps == 1:
        return {}
    need_extensions(cfg, ["depthwise_rows"])
    if not depthwise or not 1 < taps <= cfg.row_taps:
        raise ProgramError(f"gemm: taps = {taps}: {cfg.name} takes 1 to {cfg.row_taps}, and with depthwise alone")
    return {"extra_taps": taps - 1}
