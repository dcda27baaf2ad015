"""Which values of every field of every instruction have been produced.

The range of a field is divided: narrow ones into their values, others into runs in which a value has as many bits. A
run counts as produced where one value of it was; as used, where the instruction depended on that value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from tilewright.hw.config import Config
from tilewright.hw.isa import INSTRUCTIONS, OPERATIONS, Field, Instruction, Op, known_isa
from tilewright.hw.units import PUSH_NEXT, PUSH_PREV, absent_flags

from .vary import unused

_NARROW = 4  # bits of a field of which every value counts
_FIXED = ("op", "mem", "alu_op")  # which instruction it is


@dataclass
class Range:
    """Values of one field: the least and the largest, and which runs were produced and which used."""

    low: int
    high: int
    produced: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Share:
    """How much of a field of `instruction` was produced, and used: runs, of all that are legal."""

    instruction: str
    field: str
    low: int
    high: int
    produced: int
    used: int
    runs: int


class Coverage:
    """Values of fields, by configuration, instruction and field."""

    def __init__(self) -> None:
        self.ranges: dict[tuple[Config, str, str], Range] = {}
        self.counts: dict[tuple[Config, str], int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coverage) and vars(self) == vars(other)

    def program(self, cfg: Config, words: np.ndarray) -> None:
        """Count the instructions `words`, uint64 (n, 2), which a device of `cfg` has executed."""
        isa = known_isa(cfg)
        for f in isa.decode(words):
            name, nothing, form = isa.mnemonic(f), unused(f), isa.format_of(f["op"], f.get("mem", 0))
            assert form is not None
            self.counts[cfg, name] = self.counts.get((cfg, name), 0) + 1
            for key, declared in form.fields.items():
                if key not in _FIXED:
                    value = f[key]
                    known = self.ranges.get((cfg, name, key))
                    if known is None:
                        known = self.ranges[cfg, name, key] = Range(value, value)
                    known.low, known.high, run = min(known.low, value), max(known.high, value), run_of(declared, value)
                    known.produced.add(run)
                    if key not in nothing:
                        known.used.add(run)

    def add(self, other: Coverage) -> None:
        """Add what others have produced."""
        for at, found in other.ranges.items():
            own = self.ranges.setdefault(at, Range(found.low, found.high))
            own.low, own.high = min(own.low, found.low), max(own.high, found.high)
            own.produced |= found.produced
            own.used |= found.used
        for key, count in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count

    def shares(self, configs: Iterable[Config]) -> list[Share]:
        """A row for every field of every instruction that one of `configs` has, over all of them."""
        found: dict[tuple[str, str], list[Share]] = {}
        for cfg in configs:
            for name, key, runs in legal_runs(cfg):
                seen = self.ranges.get((cfg, name, key)) or Range(0, 0)
                one = Share(name, key, seen.low, seen.high, len(seen.produced & runs), len(seen.used & runs), len(runs))
                found.setdefault((name, key), []).append(one)
        return [_sum(rows) for rows in found.values()]

    def instructions(self) -> dict[str, int]:
        """How often each instruction was executed."""
        found: dict[str, int] = {}
        for (_, name), count in self.counts.items():
            found[name] = found.get(name, 0) + count
        return found


def _sum(rows: list[Share]) -> Share:
    produced, used, runs = (sum(getattr(row, name) for row in rows) for name in ("produced", "used", "runs"))
    low, high = min(row.low for row in rows), max(row.high for row in rows)
    return Share(rows[0].instruction, rows[0].field, low, high, produced, used, runs)


def run_of(declared: Field, value: int) -> int:
    """The run of a field's range that has `value`."""
    if declared.bits <= _NARROW:
        return value
    return value.bit_length() if value >= 0 else -(-value - 1).bit_length() - 1


@lru_cache(64)
def legal_runs(cfg: Config) -> list[tuple[str, str, frozenset[int]]]:
    """(instruction, field, its legal runs) of all that `cfg` has, by the names of a disassembly."""
    isa, found = known_isa(cfg), []
    for row in INSTRUCTIONS:
        if row.missing(cfg):
            continue
        operations = [dict[str, int]()] if row.op != Op.ALU else [{"alu_op": op} for op in OPERATIONS]
        for chosen in operations:
            if chosen and not cfg.extensions.issuperset(OPERATIONS[chosen["alu_op"]].extensions):
                continue
            name = isa.mnemonic({**row.fields, **chosen})
            for key, declared in isa.formats[row.format].fields.items():
                if key not in _FIXED:
                    low, high = _limits(cfg, row, chosen.get("alu_op"), declared)
                    edges = {
                        low,
                        high,
                        *(v for k in range(declared.bits + 1) for v in (1 << k, -(1 << k), (1 << k) - 1)),
                    }
                    inside = (
                        range(low, high + 1) if declared.bits <= _NARROW else (v for v in edges if low <= v <= high)
                    )
                    found.append((name, key, frozenset(run_of(declared, v) for v in inside)))
    return found


def _limits(cfg: Config, row: Instruction, operation: int | None, declared: Field) -> tuple[int, int]:
    """The legal values of a field: those of an instruction that can be decoded and finds what it names."""
    low, high = declared.limits
    if declared.name in absent_flags(cfg, row.queue) or (
        row.op == Op.FINISH and declared.name in (PUSH_PREV, PUSH_NEXT)
    ):
        return 0, 0  # of FINISH a token would be left
    if row.empty and declared.name == "x_size":
        return 0, 0
    if declared.name == "uop_end":
        return 0, cfg.uop_depth
    if operation is not None and OPERATIONS[operation].imm and declared.name in ("imm", "use_imm"):
        most = OPERATIONS[operation].immediates(cfg)
        return (1, 1) if declared.name == "use_imm" else (0, most - 1) if most else (low, high)
    return low, high
