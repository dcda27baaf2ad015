"""One program on definition, behavioural model, timing model and circuit; which values of fields were tried."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from tilewright.hw.config import Config
from tilewright.hw.isa import INSTRUCTIONS, OPERATIONS, Field, Instruction, Op, known_isa
from tilewright.hw.units import PUSH_NEXT, PUSH_PREV, absent_flags
from tilewright.runtime.device import Stats
from tilewright.sim.dram import Dram, unshared
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.spec import SpecDevice
from tilewright.sim.timing.device import TimingDevice
from tools.faults.compare import ImageDevice, Result, executed, is_an_error_too

from .programs import TOGETHER, Generated, generated, unused, wild

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
            name, nothing, form = isa.mnemonic(f), unused(f), isa.format_of(f)
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
        """Add the ranges and counts of another coverage."""
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
            name, form = isa.mnemonic({**row.fields, **chosen}), isa.format_of({**row.fields, **chosen})
            assert form is not None
            for key, declared in form.fields.items():
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
    """The least and the largest value of a field in an instruction that can be decoded and whose operands exist."""
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


WORST = 0.05  # error of predicted cycles, as a share of the circuit's: what docs/timing.md allows a program
_WATCHDOG = 20_000  # cycles


@dataclass(frozen=True)
class Difference:
    """Program `seed` of `config` ends differently on two devices: `kind` names the property, `text` the values.

    `first` is the seed of the first program that ran on the same devices.
    """

    config: str
    seed: int
    first: int
    kind: str
    text: str


@dataclass
class Found:
    """Counts and differences of some programs of one configuration; `error` and `worst` are shares of cycles."""

    programs: int = 0
    instructions: int = 0
    defined: int = 0  # instructions, also by definition
    simulated: int = 0  # instructions, also on the circuit
    cycles: int = 0  # of the circuit
    refused: int = 0  # programs that ended in an error, the same everywhere
    timed: int = 0  # programs whose cycles were compared
    error: float = 0.0  # sum over these
    worst: float = 0.0
    differences: list[Difference] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)

    def add(self, other: Found) -> None:
        """Add the counts of other programs of the configuration."""
        self.worst = max(self.worst, other.worst)
        self.coverage.add(other.coverage)
        for name, value in vars(other).items():
            if name not in ("worst", "coverage"):
                setattr(self, name, getattr(self, name) + value)


class Devices:
    """Devices of `cfg` in the same state, for one program after another.

    `circuit`: the simulated circuit is among them, behind the memory `dram`; `define`: the definition.
    """

    def __init__(self, cfg: Config, dram: Dram, *, circuit: bool = True, define: bool = True):
        self.cfg, self.timed = cfg, dram.seed is None
        self.model = TimingDevice(cfg, dram=dram) if self.timed else ModelDevice(cfg)
        self.spec = SpecDevice(cfg) if define else None
        self.circuit: ImageDevice | None = None
        if circuit:
            from tilewright.sim.rtl.device import RtlDevice

            self.circuit = RtlDevice(cfg, dram=dram, watchdog=_WATCHDOG)
        self.usable = True

    def difference(self, program: Generated, found: Found) -> tuple[str, str] | None:
        """(kind, text) of the first difference, None without one; counts in `found`.

        After an error the devices are no longer `usable`.
        """
        before = deepcopy(self.model) if not program.legal and self.circuit else self.model
        place = program.image, program.address, program.count
        expected, stats = executed(self.model, *place)
        self.usable = not expected.error
        found.programs += 1
        found.instructions += program.count
        found.refused += not self.usable
        if program.legal and not self.usable:
            return "error", f"a legal program ends in {shown(expected)} on the model"
        if self.spec is not None:
            found.defined += program.count
            got, _ = executed(self.spec, *place)
            if got != expected:
                return "definition", f"definition: {told(got, expected)}"
        if self.circuit is not None:
            found.simulated += program.count
            got, counted = executed(self.circuit, *place)
            if got != expected and not is_an_error_too(before, program.image.copy(), *place[1:], expected, got):
                return "circuit", f"circuit: {told(got, expected)}"
            if stats is not None and counted is not None:
                found.cycles += counted.cycles or 0
                return self._counts(program, stats, counted, found)
        return None

    def _counts(self, program: Generated, stats: Stats, counted: Stats, found: Found) -> tuple[str, str] | None:
        pairs = {name: (getattr(counted, name), getattr(stats, name)) for name in ("insns", "uops", "macs")}
        for name, (got, expected) in pairs.items():
            if got != expected:
                return "counts", f"circuit: {name} {got}, the model {expected}"
        if not self.timed or not program.legal:
            return None
        assert counted.cycles is not None and stats.cycles is not None
        error = abs(stats.cycles / counted.cycles - 1)
        found.timed, found.error, found.worst = found.timed + 1, found.error + error, max(found.worst, error)
        if error > WORST:
            return "cycles", f"timing model: {stats.cycles} cycles, the circuit {counted.cycles}: {error:.1%}"
        return None


def memory(cfg: Config, seed: int) -> Dram:
    """The memory of program `seed`: one that the timing model knows, or one that stalls at random."""
    first = seed - seed % TOGETHER
    return Dram.random(first) if wild(seed) or first // TOGETHER % 2 else unshared(cfg)


def compared(cfg: Config, first: int, count: int, *, circuit: bool, every: int = 1) -> Found:
    """Programs `first` to `first + count`, ten on the same devices; of every so many tens one by definition, too."""
    found, devices, start = Found(), None, first
    for seed in range(first, first + count):
        if seed % TOGETHER == 0 or devices is None or not devices.usable:
            define = bool(every) and seed // TOGETHER % every == 0
            devices, start = Devices(cfg, memory(cfg, seed), circuit=circuit, define=define), seed
        program = generated(cfg, seed)
        differs = devices.difference(program, found)
        if differs is not None:
            found.differences.append(Difference(cfg.name, seed, start, *differs))
            devices.usable = False
        elif devices.usable:
            found.coverage.program(cfg, program.words)
    return found


def shown(end: Result) -> str:
    """An end in a few words."""
    return f"{end.error} at instruction {end.index}" if end.error else "results"


def told(got: Result, expected: Result) -> str:
    """How `got` differs from the model's end."""
    if got.error or expected.error:
        return f"{shown(got)}, the model {shown(expected)}"
    where = np.flatnonzero(np.frombuffer(got.memory, np.uint8) != np.frombuffer(expected.memory, np.uint8))
    return f"{len(where)} bytes differ from the model's, the first at {where[0]:#x}"
