"""The memories of sim/spec.py in their fast form, arrays, and the caches of actions on them.

Elements are int8 or int32 in contiguous rows, so that an instruction is a view or a gather; micro-op lists, index
tables and actions are kept from instruction to instruction.

`Sums` holds products that are not in the accumulators yet. A convolution adds many short products to the same
accumulators, one instruction after the other. They are added up as float32, in the order in which they are made, and
put into the accumulators when something else uses these: that saves rounding to integers and changing the order for
each of them. Sums of float32 are exact while no more products of elements are added than their rounding allows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import cast

import numpy as np

from ...hw.config import TABLE_SIZE, Config
from ...hw.errors import AccessError
from ...hw.isa import MICRO_OPS, PAR, Isa, Mem, depth, entry_bytes, room, row_of, scratchpad_of
from ..memory import Lru
from .loops import Nest, Operands, factor

Put = Callable[[np.ndarray], None]


@dataclass(slots=True)
class _Sum:
    """The sum of results of `depth` products per element, which `put` takes to accumulators `low` to `high`."""

    total: np.ndarray
    depth: int
    put: Put
    low: int
    high: int


class Sums:
    """The open sums of one model; no two of them share accumulators."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Sum] = {}

    def add(
        self,
        key: Hashable,
        limits: tuple[int, int],
        put: Put,
        result: np.ndarray,
        depth: int,
        most: int,
        starts: bool = False,
    ) -> None:
        """Take `result`, float32 of `depth` products per element, to the accumulators that `put` knows, now or later.

        `limits` are the first and the last of these. Equal keys stand for the same accumulators, to which results are
        added in the same order. Sums have up to `most` products per element. One that `starts` is new: `put` does not
        add it but overwrites.
        """
        found = self._open.get(key)
        if found is not None and not starts and found.depth + depth <= most:
            np.add(found.total, result, found.total)
            found.depth += depth
            return
        self.settle(*limits)
        self._open[key] = _Sum(result, depth, put, *limits)

    def settle(self, low: int, high: int) -> None:
        """Put the sums for any of the accumulators `low` to `high` there."""
        if not self._open:
            return
        ended = []
        for key, one in self._open.items():
            if one.low <= high and low <= one.high:
                ended.append(key)
        for key in ended:
            one = self._open.pop(key)
            one.put(one.total)

    def settle_all(self) -> None:
        """Put all sums into their accumulators."""
        while self._open:
            _, one = self._open.popitem()
            one.put(one.total)


Action = Callable[[], object]  # executes; its result is ignored

_PLAN_BYTES = 64 << 20  # index tables kept
_KERNEL_BYTES = 8 << 20  # micro-op lists kept
_PIECES = 16  # of one instruction kept ready to run; longer instructions are cut again each time


class State:
    """Scratchpads and DRAM.

    Narrow values are held as int8, whatever their width in DRAM, one row per vector that a product reads: `inp`
    (entries * batch, block_in), `wgt` (entries * block_out, block_in), `twgt` (entries * ternary_blocks * block_out,
    block_in); `operands` are matrices made of them. `acc` is int32 (entries, batch * block_out), without what `sums`
    still holds; `uop` and `tuop` the micro-op words of `kernels`, `dram` uint8 bytes. `par` has the decoded fields of
    the post-processing parameters, int64 (entries, block_out) each, `tables` the values of all tables, int32
    (tables, 256).
    """

    def __init__(self, cfg: Config, dram: np.ndarray):
        self.cfg, self.isa, self.dram = cfg, Isa(cfg), dram
        self.depth = {mem: depth(cfg, mem) for mem in Mem}
        self.room = room(cfg, Mem.PAR)  # entries of parameters and of tables
        self.entry_bytes = {mem: entry_bytes(cfg, mem) for mem in Mem}
        self.inp = np.zeros((cfg.inp_depth * cfg.batch, cfg.block_in), np.int8)
        self.wgt = np.zeros((cfg.wgt_depth * cfg.block_out, cfg.block_in), np.int8)
        self.twgt = np.zeros((self.depth[Mem.TWGT] * cfg.ternary_blocks * cfg.block_out, cfg.block_in), np.int8)
        self.acc = np.zeros((cfg.acc_depth, cfg.lanes), np.int32)
        self.sums, self.operands = Sums(), {mem: Operands() for mem in (Mem.INP, Mem.WGT, Mem.TWGT)}
        self.kernels = {mem: Kernels(self.isa, self.depth[mem]) for mem in MICRO_OPS}
        self.uop, self.tuop = (self.kernels[mem].words for mem in (Mem.UOP, Mem.TUOP))
        self.par = {name: np.zeros((cfg.par_entries, cfg.block_out), np.int64) for name in PAR.fields}
        self.tables = np.zeros((cfg.tables, TABLE_SIZE), np.int32)
        self.plans: Lru = Lru(_PLAN_BYTES)

    def array(self, mem: Mem) -> np.ndarray:
        """The scratchpad of vectors that `mem` addresses."""
        return {Mem.INP: self.inp, Mem.WGT: self.wgt, Mem.TWGT: self.twgt}.get(scratchpad_of(mem), self.acc)

    def finish(self) -> None:
        """Put everything into the memories, and keep nothing made of them: they may change between runs."""
        self.sums.settle_all()
        for operands in self.operands.values():
            operands.clear()

    def check(self, mem: Mem, low: int, high: int) -> None:
        """Raise `AccessError` unless entries `low` to `high` of the scratchpad of `mem` exist."""
        if low < 0 or high >= self.depth[mem]:
            raise AccessError(f"{mem.name} entries {low}..{high} are outside 0..{self.depth[mem] - 1}")

    def check_rows(self, low: int, high: int) -> None:
        """Raise `AccessError` unless rows `low` to `high` of the weights exist."""
        rows = len(self.wgt)
        if low < 0 or high >= rows:
            raise AccessError(f"WGT rows {low}..{high} are outside 0..{rows - 1}")


class Kernels:
    """A scratchpad of `depth` micro-ops: its `words`, uint32 (depth,), and the loops that they were unrolled from.

    `ranges` caches the loops by range of micro-ops, until `changed` is called.
    """

    def __init__(self, isa: Isa, depth: int):
        self._isa, self.words = isa, np.zeros(depth, np.uint32)
        self._known: Lru[Nest] = Lru(_KERNEL_BYTES)
        self.ranges: dict[tuple[int, int], Nest] = {}

    def changed(self) -> None:
        """To be called when micro-ops were loaded: ranges hold other kernels now."""
        self.ranges.clear()

    def kernel(self, begin: int, end: int) -> Nest:
        """The micro-ops `begin:end` as loops; the same object while they are unchanged and in the cache."""
        nest = self.ranges.get((begin, end))
        if nest is None:
            words = self.words[begin:end]
            nest = self._known.get(words.tobytes(), lambda: self._factor(words), lambda _: 32 * len(words) + 512)
            self.ranges[begin, end] = nest
        return nest

    def _factor(self, words: np.ndarray) -> Nest:
        fields = self._isa.uop.decode(words.astype(np.uint64)[:, None])
        return factor(np.stack([fields["dst"], fields["src"], fields["wgt"]], axis=1))


def nothing() -> None:
    """The action of an instruction that moves and computes nothing."""


def loop_action(state: State, f: dict[str, int], prepare: Callable[[Nest], Iterator[Action]]) -> Action:
    """The action of the instruction `f`, which executes micro-ops.

    `prepare` turns the instruction's nest into actions, to run in order; it is called again when the micro-ops change.
    Raises `AccessError` for micro-ops that do not exist.
    """
    begin, end = f["uop_bgn"], f["uop_end"]
    if end < begin:
        raise AccessError(f"micro-ops end at {end}, before they begin at {begin}")
    if end > state.cfg.uop_depth:
        raise AccessError(f"micro-ops {begin}..{end - 1} are outside 0..{state.cfg.uop_depth - 1}")
    if begin == end or not f["iter_out"] or not f["iter_in"]:
        return nothing
    loops = [
        (f[f"iter_{loop}"], (f[f"dst_{loop}"], f[f"src_{loop}"], f.get(f"wgt_{loop}", 0))) for loop in ("out", "in")
    ]
    kernels = state.kernels[cast(Mem, row_of(f["op"]).executes)]
    ranges, span = kernels.ranges, (begin, end)
    bound: Nest | None = None
    ready: list[Action] = []

    def execute() -> None:
        nonlocal bound, ready
        kernel = ranges.get(span) or kernels.kernel(begin, end)
        if kernel is not bound:
            actions = prepare(kernel.within(loops))
            ready = list(islice(actions, _PIECES + 1))
            if len(ready) > _PIECES:
                bound = None
                for action in chain(ready, actions):
                    action()
                return
            bound = kernel
        for action in ready:
            action()

    return execute
