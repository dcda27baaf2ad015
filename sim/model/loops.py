"""The indices of a GEMM or ALU instruction as a nest of loops: the fast form of `indices` in sim/spec.py.

An instruction issues triples (dst, src, wgt): two loops of its own around a list of micro-ops. `factor` finds
the loops that the list was unrolled from, so that other modules see `base + sum(axis offsets)` and never a
single micro-op, unless the list is irregular: then one axis holds a table of offsets. That makes whole instructions
array operations, whose limits are known before the first.

`Operands` keeps what was gathered for products. A tile of inputs meets several tiles of weights, and the other way
round: each is gathered and converted to float32 once, until something is loaded over it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import reduce
from math import prod
from typing import NamedTuple

import numpy as np

_BYTES = 1 << 19  # of all operands of a scratchpad; more would leave the processor's caches before they are used again


class Operands:
    """The operands that were made of entries of one scratchpad."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[int, int, np.ndarray]] = {}
        self._bytes = 0

    def get(self, key: Hashable, limits: tuple[int, int], make: Callable[[], np.ndarray]) -> np.ndarray:
        """The operand of `key`, made of entries from the first to the last of `limits`; the result of `make` if new."""
        found = self._kept.get(key)
        if found is not None:
            return found[2]
        operand = make()
        self._bytes += operand.nbytes
        if self._bytes > _BYTES:
            self.clear()
            self._bytes = operand.nbytes
        self._kept[key] = (*limits, operand)
        return operand

    def changed(self, low: int, high: int) -> None:
        """To be called when the entries `low` to `high` were loaded: operands made of any of them are dropped."""
        stale = []
        for key, (first, last, _) in self._kept.items():
            if first <= high and low <= last:
                stale.append(key)
        for key in stale:
            self._bytes -= self._kept.pop(key)[2].nbytes

    def clear(self) -> None:
        """Drop all operands."""
        self._kept.clear()
        self._bytes = 0


DST, SRC, WGT = 0, 1, 2
Triple = tuple[int, int, int]


class Axis(NamedTuple):
    """One loop of `n` trips: trip k adds `k * step`, or row k of `table` where the steps are irregular.

    `table` is int64 (n, 3) as bytes, relative to its first row, so that axes compare and hash by value.
    """

    n: int
    step: Triple
    table: bytes = b""

    def offsets(self, column: int) -> np.ndarray:
        """The offset that each trip adds to one index, int64 (n,)."""
        if self.table:
            return np.frombuffer(self.table, np.int64).reshape(-1, 3)[:, column]
        return np.arange(self.n, dtype=np.int64) * self.step[column]

    def varies(self, column: int) -> bool:
        """True where any trip changes the index."""
        return bool(self.offsets(column).any()) if self.table else self.step[column] != 0

    def limits(self, column: int) -> tuple[int, int]:
        """The smallest and the largest offset."""
        if self.table:
            offsets = self.offsets(column)
            return int(offsets.min()), int(offsets.max())
        last = (self.n - 1) * self.step[column]
        return min(0, last), max(0, last)

    def last(self) -> Triple:
        """The offsets that the last trip adds."""
        return _triple(int(self.offsets(c)[-1]) for c in range(3))

    def part(self, start: int, stop: int) -> tuple[Axis, Triple]:
        """The trips `start:stop` as an axis, and the offsets of its first trip."""
        if not self.table:
            return Axis(stop - start, self.step), _triple(start * s for s in self.step)
        rows = np.frombuffer(self.table, np.int64).reshape(-1, 3)[start:stop]
        return Axis(stop - start, self.step, (rows - rows[0]).tobytes()), _triple(rows[0].tolist())


class Nest(NamedTuple):
    """Loops, outermost first, around one triple, which starts at `base`."""

    base: Triple
    axes: tuple[Axis, ...]

    def within(self, outer: Sequence[tuple[int, Triple]]) -> Nest:
        """This nest inside loops (trips, step), the outermost first."""
        return Nest(self.base, _merge((*(Axis(n, step) for n, step in outer), *self.axes)))

    def without(self, *columns: int) -> Nest:
        """The nest with the indices in `columns` held at 0."""
        keep = np.array([c not in columns for c in range(3)], np.int64)

        def masked(axis: Axis) -> Axis:
            step = _triple(s * k for s, k in zip(axis.step, keep.tolist()))
            rows = np.frombuffer(axis.table, np.int64).reshape(-1, 3) * keep
            return Axis(axis.n, step, rows.tobytes() if rows.any() else b"")

        base = _triple(b * k for b, k in zip(self.base, keep.tolist()))
        return Nest(base, _merge(tuple(map(masked, self.axes))))

    def limits(self, column: int) -> tuple[int, int]:
        """The smallest and the largest index."""
        pairs = [axis.limits(column) for axis in self.axes]
        return self.base[column] + sum(p[0] for p in pairs), self.base[column] + sum(p[1] for p in pairs)

    def pieces(self, fits: Callable[[Sequence[Axis]], bool], *, ordered: bool) -> Iterator[Nest]:
        """Nests with the same triples, each of which `fits`; `ordered`: one after the other they keep the order.

        The longest loop is cut first, or the outermost where the order counts; a single triple always fits.
        """
        if not self.axes or fits(self.axes):
            yield self
            return
        which = 0 if ordered else max(range(len(self.axes)), key=lambda i: self.axes[i].n)
        outer, cut, inner = self.axes[:which], self.axes[which], self.axes[which + 1 :]
        size = cut.n
        while size > 1 and not fits((*outer, cut.part(0, size)[0], *inner)):
            size = (size + 1) // 2
        for start in range(0, cut.n, size):
            axis, at = cut.part(start, min(start + size, cut.n))
            piece = Nest(_add(self.base, at), (*outer, *([axis] if axis.n > 1 else []), *inner))
            yield from piece.pieces(fits, ordered=ordered) if size == 1 else (piece,)


def factor(uops: np.ndarray) -> Nest:
    """The loops that unroll to `uops`, int64 (n, 3) with n >= 1."""
    heads = np.ascontiguousarray(uops, np.int64)
    axes: list[Axis] = []
    while len(heads) > 1:
        steps = np.diff(heads, axis=0)
        breaks = np.flatnonzero((steps != steps[0]).any(axis=1))
        run = int(breaks[0]) + 1 if len(breaks) else len(heads)
        if len(heads) % run or (steps.reshape(-1, 3)[np.arange(len(steps)) % run != run - 1] != steps[0]).any():
            axes.extend(_irregular(heads))
            break
        axes.append(Axis(run, _triple(steps[0].tolist())))
        heads = heads[::run]
    return Nest(_triple(uops[0].tolist()), _merge(tuple(reversed(axes))))


def _irregular(heads: np.ndarray) -> list[Axis]:
    """The axes, innermost first, of a list that does not begin with a loop: a table, within loops that repeat it."""
    for size in range(2, len(heads) // 2 + 1):
        if len(heads) % size == 0:
            blocks = heads.reshape(-1, size, 3)
            block = blocks[0] - blocks[0, 0]
            if (blocks - blocks[:, :1] == block).all():
                outer = factor(blocks[:, 0]).axes
                if not any(axis.table for axis in outer):
                    return [Axis(size, (0, 0, 0), block.tobytes()), *reversed(outer)]
    return [Axis(len(heads), (0, 0, 0), (heads - heads[0]).tobytes())]


def grid(axes: Sequence[Axis], column: int) -> np.ndarray:
    """The offset of every trip, int64, one dimension per axis."""
    return reduce(np.add.outer, (axis.offsets(column) for axis in axes), np.zeros((), np.int64))


def distinct(axes: Sequence[Axis], column: int) -> bool:
    """True where the steps alone prove that no index repeats; False for axes with tables."""
    reach = 0
    for step, n in sorted((abs(axis.step[column]), axis.n) for axis in axes):
        if step <= reach:
            return False
        reach += step * (n - 1)
    return not any(axis.table for axis in axes)


def uses(axes: Sequence[Axis], column: int) -> np.ndarray:
    """How often each index is used, from the smallest to the largest: int64 (span,).

    Loops of any length cost a few array operations: n uses are combined from runs of 1, 2, 4, ... uses.
    """
    counts = np.ones(1, np.int64)
    for axis in sorted(axes, key=lambda a: not a.table):
        if axis.table:
            low, _ = axis.limits(column)
            offsets = (axis.offsets(column) - low).astype(np.intp)  # numpy 1 needs intp where indices have 32 bits
            counts = np.bincount(offsets).astype(np.int64)  # at most one axis has a table, and it comes first
            continue
        step, n = abs(axis.step[column]), axis.n
        total = np.zeros(len(counts) + step * (n - 1), np.int64)
        run, length, done = counts, 1, 0
        while n:
            if n & 1:
                total[done * step : done * step + len(run)] += run
                done += length
            n >>= 1
            if n:
                longer = np.zeros(len(run) + length * step, np.int64)
                longer[: len(run)] = run
                longer[length * step :] += run
                run, length = longer, 2 * length
        counts = total
    return counts


def trips(axes: Sequence[Axis]) -> int:
    """Trips of all axes together, their product."""
    return prod(axis.n for axis in axes)


def _merge(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Drop loops of one trip, and merge an outer loop that continues an inner one. The sequence is unchanged."""
    out: list[Axis] = []
    for axis in axes:
        if axis.n == 1:
            continue
        if out and not axis.table and not out[-1].table and out[-1].step == _triple(axis.n * s for s in axis.step):
            out[-1] = Axis(out[-1].n * axis.n, axis.step)
        else:
            out.append(axis)
    return tuple(out)


def _add(a: Triple, b: Triple) -> Triple:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def _triple(values) -> Triple:
    a, b, c = values
    return a, b, c
