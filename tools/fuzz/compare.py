"""One program on definition, behavioural model, timing model and circuit: memory, errors, counts and cycles."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.hw.config import Config
from tilewright.hw.errors import ExecutionError
from tilewright.runtime.device import Stats
from tilewright.sim.dram import Dram, unshared
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.spec import SpecDevice
from tilewright.sim.timing.device import TimingDevice
from tools.faults.compare import Result, is_an_error_too

from .coverage import Coverage
from .programs import TOGETHER, Generated, generated, wild

WORST = 0.05  # error of predicted cycles, as a share of the circuit's: what docs/timing.md allows a program
_WATCHDOG = 20_000  # cycles
End = np.ndarray | tuple[str, int | None]  # memory, or class and instruction of the error


@dataclass(frozen=True)
class Difference:
    """Program `seed` of `config` ends differently: `kind` is what differs, `text` says how.

    `first` is the seed of the first program that ran on the same devices.
    """

    config: str
    seed: int
    first: int
    kind: str
    text: str


@dataclass
class Found:
    """What came of some programs of one configuration; `errors` are those of the timing model, shares of cycles."""

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
        """Add what came of other programs of the configuration."""
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
        self.circuit: Any = None
        if circuit:
            from tilewright.sim.rtl.device import RtlDevice

            self.circuit = RtlDevice(cfg, dram=dram, watchdog=_WATCHDOG)
        self.usable = True

    def difference(self, program: Generated, found: Found) -> tuple[str, str] | None:
        """(kind, text) of what differs, None where nothing does; counts in `found`. After an error all is `usable` no
        more.
        """
        before = deepcopy(self.model) if not program.legal and self.circuit else self.model
        expected, stats = ends(self.model, program)
        self.usable = not isinstance(expected, tuple)
        found.programs += 1
        found.instructions += program.count
        found.refused += not self.usable
        if program.legal and not self.usable:
            return "error", f"a legal program ends in {shown(expected)} on the model"
        if self.spec is not None:
            found.defined += program.count
            got, _ = ends(self.spec, program)
            if not same(got, expected):
                return "definition", f"definition: {told(got, expected)}"
        if self.circuit is not None:
            found.simulated += program.count
            got, counted = ends(self.circuit, program)
            if not same(got, expected) and not _is_an_error_too(before, program, expected, got):
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


def _is_an_error_too(before: ModelDevice, program: Generated, expected: End, got: End) -> bool:
    """Whether the circuit's end is another error of the program, which it met first."""
    image = program.image.copy()
    return is_an_error_too(before, image, program.address, program.count, _result(expected), _result(got))


def memory(cfg: Config, seed: int) -> Dram:
    """What is behind the bus of program `seed`: memory as the timing model knows it, or one that stalls at random."""
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


def ends(device: Any, program: Generated) -> tuple[End, Stats | None]:
    """How `program` ends on `device`, and what was counted."""
    image = program.image.copy()
    try:
        stats = device.run_image(image, program.address, program.count)
    except ExecutionError as exc:
        return (type(exc).__name__, exc.index), None
    return image, stats


def same(a: End, b: End) -> bool:
    """Whether both are the same error, or the same memory."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return isinstance(a, tuple) and isinstance(b, tuple) and a == b
    return np.array_equal(a, b)


def shown(end: End) -> str:
    """An end in a few words."""
    return f"{end[0]} at instruction {end[1]}" if isinstance(end, tuple) else "results"


def told(got: End, expected: End) -> str:
    """How `got` differs from the model's end."""
    if isinstance(got, tuple) or isinstance(expected, tuple):
        return f"{shown(got)}, the model {shown(expected)}"
    where = np.flatnonzero(got != expected)
    return f"{len(where)} bytes differ from the model's, the first at {where[0]:#x}"


def _result(end: End) -> Result:
    """An end as the comparison of faults has it."""
    return Result(*end, b"") if isinstance(end, tuple) else Result("", None, end.tobytes())
