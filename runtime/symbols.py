"""Symbols: inputs of a run on which addresses depend; patches: the instructions with such addresses."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..hw.errors import ProgramError
from .arrays import Array
from .schema import NAME, Int, Kind, check_fields, is_a

MOST_LIMIT = 1 << 20  # values of a symbol: positions of a text, words of a vocabulary
MOST_STEP = 1 << 40  # larger than any memory, small enough that offsets stay below 2**63
KINDS: dict[str, Kind] = {
    "name": NAME,
    "limit": Int(1, MOST_LIMIT),
    "step": Int(0, MOST_STEP),
    "block": Int(1, MOST_LIMIT),
    "within": Int(0, MOST_STEP),
}
COLUMNS = ("instruction", "symbol", "step", "block", "within")


@dataclass(frozen=True)
class Symbol:
    """How an address moves with the value v of the symbol `name`, which is in 0..limit-1.

    The address is `step * (v // block) + within * (v % block)` entries after the recorded offset:
    `Symbol("position", 64, step=1)` moves one entry per position, `Symbol("position", 64, block=16, within=1)` repeats
    16 entries. Raises `ProgramError` for numbers out of range.
    """

    name: str
    limit: int
    step: int = 0
    block: int = 1
    within: int = 0

    def __post_init__(self) -> None:
        try:
            check_fields(vars(self), KINDS)
        except ProgramError as exc:
            raise ProgramError(f"symbol {self.name!r}: {exc}") from None

    def __str__(self) -> str:
        ratio = self.name if self.block == 1 else f"({self.name} // {self.block})"
        parts = [(self.step, ratio), (self.within, f"({self.name} % {self.block})")]
        return " + ".join(f"{count} * {of}" if count > 1 else of for count, of in parts if count) or f"0 * {self.name}"

    @property
    def most(self) -> int:
        """The largest offset that a value makes."""
        last, rest = divmod(self.limit - 1, self.block)
        before = self.step * (last - 1) + self.within * (self.block - 1) if last else 0
        return max(self.step * last + self.within * rest, before)

    def offsets(self) -> Array:
        """The offsets that values make, each once, ascending; int64 (n,)."""
        return _offsets(self.limit, self.block, self.step, self.within)

    def scaled(self, size: int) -> Symbol:
        """The same in bytes, of entries of `size` bytes. Raises `ProgramError` where these are too many."""
        return _scaled(self, size)


@functools.lru_cache(64)  # many instructions of a program have one symbol
def _scaled(symbol: Symbol, size: int) -> Symbol:
    for key, count in (("step", symbol.step), ("within", symbol.within)):
        if count * size > MOST_STEP:
            most = f"at most {MOST_STEP // size:,} entries of {size} bytes are allowed"
            raise ProgramError(f"symbol {symbol.name!r}: {key} = {count}: {most}")
    return replace(symbol, step=symbol.step * size, within=symbol.within * size)


@functools.lru_cache(64)
def _offsets(limit: int, block: int, step: int, within: int) -> Array:
    ratio, rest = np.divmod(np.arange(limit, dtype=np.int64), block)
    offsets = np.unique(step * ratio + within * rest)
    offsets.flags.writeable = False
    return offsets


def note_limit(limits: dict[str, int], symbol: Symbol | None, what: str) -> None:
    """Note the limit of `symbol` by its name in `limits`; None is no symbol.

    Raises `ProgramError`, beginning with `what`, for another limit of the same name, and for no symbol.
    """
    if symbol is None:
        return
    if not is_a(symbol, Symbol):
        raise ProgramError(f"{what}: at = {symbol!r}: must be a Symbol, as Symbol('position', 64, step=1), or None")
    if limits.setdefault(symbol.name, symbol.limit) != symbol.limit:
        is_now = f"limit {symbol.limit}, elsewhere in this program {limits[symbol.name]}"
        raise ProgramError(f"{what}: symbol {symbol.name!r} has {is_now}; a symbol has one limit")


@dataclass(eq=False)
class Patches:
    """`limits` of symbols by name, and `columns`, int64 (n, 5): one row per patched instruction, ascending.

    A row holds the position of the instruction, that of its symbol in `limits`, and step, block and within of
    `Symbol`. `symbols` are the same by instruction, `most` the largest offset of each row, int64 (n,). Raises
    `ProgramError` for anything else.
    """

    limits: dict[str, int] = field(default_factory=dict[str, int])
    columns: Array = field(default_factory=lambda: np.zeros((0, len(COLUMNS)), np.int64))

    def __post_init__(self) -> None:
        found = self.columns
        if not is_a(found, np.ndarray) or found.dtype != np.int64 or found.shape[1:] != (len(COLUMNS),):
            raise ProgramError(f"patches: columns must be int64 (n, {len(COLUMNS)}): {', '.join(COLUMNS)}")
        if len(found) and (found[0, 0] < 0 or (np.diff(found[:, 0]) <= 0).any()):
            raise ProgramError("patches: instructions must ascend from 0 on, each once")
        names, known = [*self.limits], dict[tuple[int, ...], Symbol]()
        self.symbols: dict[int, Symbol] = {}
        rows: list[list[int]] = found.tolist()
        for k, *row in rows:
            if not 0 <= row[0] < len(names):
                raise ProgramError(f"patches: symbol {row[0]} of instruction {k}: must be one of {len(names)} symbols")
            key = tuple(row)
            if key not in known:
                name = names[row[0]]
                known[key] = Symbol(name, self.limits[name], *row[1:])
            self.symbols[k] = known[key]
        if idle := set(names).difference(symbol.name for symbol in known.values()):
            raise ProgramError(f"patches: no instruction has symbol {min(idle)!r}; leave it out")
        self.most = np.array([symbol.most for symbol in self.symbols.values()], np.int64)

    @property
    def at(self) -> Array:
        """The positions of the patched instructions, ascending; int64 (n,)."""
        return self.columns[:, 0]

    def offsets(self, values: Mapping[str, int]) -> Array:
        """How many entries each address moves where the symbols have these `values`, absent ones 0; int64 (n,)."""
        _, number, step, block, within = self.columns.T
        value = np.array([values.get(name, 0) for name in self.limits], np.int64)[number]
        return step * (value // block) + within * (value % block)

    def moved(self, order: Array) -> Patches:
        """The patches where instruction k is the former `order[k]`; -1 stands for a new one, without a symbol."""
        return Patches.of([self.symbols.get(k) for k in order.tolist()])

    @staticmethod
    def of(symbols: Sequence[Symbol | None]) -> Patches:
        """The patches of instructions, of which number k has `symbols[k]`, or None."""
        limits = {symbol.name: symbol.limit for symbol in symbols if symbol is not None}
        number = {name: k for k, name in enumerate(limits)}
        rows = [(k, number[s.name], s.step, s.block, s.within) for k, s in enumerate(symbols) if s is not None]
        return Patches(limits, np.array(rows, np.int64).reshape(-1, len(COLUMNS)))
