"""A symbol: a number, known when a run begins, from which the DRAM address of an instruction follows."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np

from ...hw.errors import ProgramError
from ..schema import NAME, Int, Kind, check_fields

MOST_LIMIT = 1 << 20  # values of a symbol: positions of a text, words of a vocabulary
MOST_STEP = 1 << 40  # beyond what a memory has; with it no offset leaves 63 bits
KINDS: dict[str, Kind] = {
    "name": NAME,
    "limit": Int(1, MOST_LIMIT),
    "step": Int(0, MOST_STEP),
    "block": Int(1, MOST_LIMIT),
    "within": Int(0, MOST_STEP),
}


@dataclass(frozen=True)
class Symbol:
    """How an address moves with the value v of the symbol `name`, which is in 0..limit-1.

    It is `step * (v // block) + within * (v % block)` entries of the instruction's memory behind the recorded offset:
    `Symbol("position", 64, step=1)` moves one entry per position, `Symbol("position", 64, block=16, within=1)` goes
    round 16 entries. Raises `ProgramError` for numbers out of range.
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

    def offsets(self) -> np.ndarray:
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
def _offsets(limit: int, block: int, step: int, within: int) -> np.ndarray:
    ratio, rest = np.divmod(np.arange(limit, dtype=np.int64), block)
    found = np.unique(step * ratio + within * rest)
    found.flags.writeable = False
    return found


def note_limit(limits: dict[str, int], symbol: Symbol | None, what: str) -> None:
    """Note the limit of `symbol` by its name in `limits`; None is no symbol.

    Raises `ProgramError`, beginning with `what`, where the name has another limit there, or it is something else.
    """
    if symbol is None:
        return
    if not isinstance(symbol, Symbol):
        raise ProgramError(f"{what}: at = {symbol!r}: must be a Symbol, as Symbol('position', 64, step=1), or None")
    if limits.setdefault(symbol.name, symbol.limit) != symbol.limit:
        found = f"limit {symbol.limit}, elsewhere in this program {limits[symbol.name]}"
        raise ProgramError(f"{what}: symbol {symbol.name!r} has {found}; a symbol has one limit")
