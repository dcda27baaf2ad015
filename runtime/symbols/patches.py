"""The instructions of a launch whose addresses depend on symbols, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...hw.errors import ProgramError
from .symbol import Symbol

COLUMNS = ("instruction", "symbol", "step", "block", "within")


@dataclass(eq=False)
class Patches:
    """`limits` of symbols by name, and `columns`, int64 (n, 5): one row per patched instruction, ascending.

    A row holds the position of the instruction, that of its symbol in `limits`, and step, block and within of
    `Symbol`. `symbols` are the same by instruction, `most` the largest offset of each row, int64 (n,). Raises
    `ProgramError` for anything else.
    """

    limits: dict[str, int] = field(default_factory=dict)
    columns: np.ndarray = field(default_factory=lambda: np.zeros((0, len(COLUMNS)), np.int64))

    def __post_init__(self) -> None:
        found = self.columns
        if not isinstance(found, np.ndarray) or found.dtype != np.int64 or found.shape[1:] != (len(COLUMNS),):
            raise ProgramError(f"patches: columns must be int64 (n, {len(COLUMNS)}): {', '.join(COLUMNS)}")
        if len(found) and (found[0, 0] < 0 or (np.diff(found[:, 0]) <= 0).any()):
            raise ProgramError("patches: instructions must ascend from 0 on, each once")
        names, known = [*self.limits], dict[tuple[int, ...], Symbol]()
        self.symbols: dict[int, Symbol] = {}
        for k, *row in found.tolist():
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
    def at(self) -> np.ndarray:
        """The positions of the patched instructions, ascending; int64 (n,)."""
        return self.columns[:, 0]

    def offsets(self, values: Mapping[str, int]) -> np.ndarray:
        """How many entries each address moves where the symbols have these `values`, absent ones 0; int64 (n,)."""
        _, number, step, block, within = self.columns.T
        value = np.array([values.get(name, 0) for name in self.limits], np.int64)[number]
        return step * (value // block) + within * (value % block)

    def moved(self, order: np.ndarray) -> Patches:
        """The patches where instruction k is the former `order[k]`; -1 stands for a new one, without a symbol."""
        return Patches.of([self.symbols.get(k) for k in order.tolist()])

    @staticmethod
    def of(symbols: Sequence[Symbol | None]) -> Patches:
        """The patches of instructions with these `symbols`, one each."""
        limits = {symbol.name: symbol.limit for symbol in symbols if symbol is not None}
        number = {name: k for k, name in enumerate(limits)}
        rows = [(k, number[s.name], s.step, s.block, s.within) for k, s in enumerate(symbols) if s is not None]
        return Patches(limits, np.array(rows, np.int64).reshape(-1, len(COLUMNS)))
