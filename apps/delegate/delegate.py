"""`TilewrightDelegate`, by which a TFLite interpreter runs parts of its network on the accelerator, and its report.

Planning and compiling happen in Python, while the interpreter asks for the delegate's address, so that errors are
ordinary exceptions. Functions that the interpreter calls in C later only compare, copy and run.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...compiler.frontend.source import Source, read_source
from ...compiler.frontend.tflite.file import read
from ...hw.config import Config, load_config
from ...hw.errors import InputError
from ...runtime.device import Device, Stats
from . import abi as c
from .abi import Given, Native
from .kernel import Kernel, Opener, Program, Stored, load, opener, save
from .partition import Planner, check_claim, compiled, is_the_files, on_host, refusal
from .selftest import DEFAULT, prove


@dataclass(frozen=True)
class Partition:
    """Operators that run in one piece: their names in order, multiply-accumulates and launches of a run.

    `cycles` are the accelerator's, counted by the device in the last run where it has a clock, else by the timing
    model; `counted_by` says which. `host_seconds` are the host's steps, modelled for a Cortex-A9 at 650 MHz.
    `wall_seconds` passed on this machine in the last run; None before the first.
    """

    operators: tuple[str, ...]
    macs: int
    launches: int
    cycles: int
    counted_by: str
    host_seconds: float
    wall_seconds: float | None


@dataclass(frozen=True)
class Report:
    """The network's partitions, and the operators that stay with the interpreter: name and reason, in order.

    `left_seconds` is the time of the operators that stay, `alone_seconds` of the whole network without an accelerator,
    both modelled for the same Cortex-A9; None where the model lacks an operator.
    """

    network: str
    config: str
    device: str
    runtime: str
    partitions: tuple[Partition, ...]
    left: tuple[tuple[str, str], ...]
    left_seconds: float | None
    alone_seconds: float | None

    @property
    def operators(self) -> int:
        """Number of operators of the network, taken or not."""
        return len(self.left) + sum(len(part.operators) for part in self.partitions)

    @property
    def cycles(self) -> int:
        """Cycles of one run of all partitions."""
        return sum(part.cycles for part in self.partitions)

    @property
    def host_seconds(self) -> float:
        """Seconds that the host's steps of all partitions take by the model; the interpreter's own are not counted."""
        return sum(part.host_seconds for part in self.partitions)

    def __str__(self) -> str:
        taken = self.operators - len(self.left)
        lines = [
            f"{self.network}: {taken} of {self.operators} operators in {len(self.partitions)} "
            f"partition{'s' * (len(self.partitions) != 1)} on {self.device} ({self.config}, rounding as {self.runtime})"
        ]
        for number, part in enumerate(self.partitions, 1):
            names = " to ".join(dict.fromkeys((part.operators[0], part.operators[-1])))
            wall = "" if part.wall_seconds is None else f", {1e3 * part.wall_seconds:.1f} ms on this machine"
            lines.append(
                f"  {number}: {names} ({len(part.operators)}), {part.macs:,} MACs, {part.cycles:,} cycles "
                f"({part.counted_by}), host {1e6 * part.host_seconds:,.0f} us (modelled){wall}"
            )
        reasons: dict[str, list[str]] = {}
        for name, why in self.left:
            reasons.setdefault(why, []).append(name)
        lines += [f"  left: {', '.join(names)}: {why}" for why, names in reasons.items()]
        return "\n".join(lines)


RUNTIMES = ("litert", "tflm")


class TilewrightDelegate:
    """A delegate for `Interpreter(model, experimental_delegates=[TilewrightDelegate(model)])`.

    `model` is the interpreter's .tflite file, or its bytes. The accelerator has the configuration `config`; `on` is
    what executes its programs: a device as `tilewright run --on` names it, a server NAME:PORT, an open device, or a
    function that loads an executable. `claim` are the operators to take (`{"CONV_2D"}`), by default all that can be;
    partitions of fewer than `min_macs` multiply-accumulates stay with the interpreter. `runtime` says whose integers
    dense layers have: `litert`, whose reference kernels round them once, or `tflm`, TensorFlow Lite Micro, which rounds
    twice. With `every` what each operator taken computes is kept in `values`, by the file's tensor numbers.

    One delegate serves several interpreters of its file, in several threads; its programs run one after the other.
    Raises `FileError`, `ConfigError`, `InputError`, and `UnsupportedError` for an unknown device. Making the
    interpreter raises `UnsupportedError` where its binary interface is another than the delegate knows.

    What goes wrong in a run is raised by `invoke`. Where an interpreter raises an error of its own instead, as its
    constructor does, its text holds ours, and `error` is the exception.
    """

    def __init__(
        self,
        model: str | Path | bytes,
        config: Config | str = "pynq_z1",
        on: str | Device | Opener = "model",
        *,
        claim: Collection[str] | None = None,
        min_macs: int = 0,
        runtime: str = "litert",
        every: bool = False,
    ):
        if runtime not in RUNTIMES:
            raise InputError(f"runtime {runtime!r}: must be one of {', '.join(RUNTIMES)}")
        if type(min_macs) is not int or min_macs < 0:
            raise InputError(f"min_macs = {min_macs!r}: must be a whole number, 0 or more")
        source = _source(model)
        self.file, self._digest = read(source), hashlib.sha256(source.content).hexdigest()
        self.cfg, self.runtime = load_config(config), runtime
        self.device = on if isinstance(on, str) else type(on).__name__
        self._claim, self._min_macs, self._every = check_claim(claim), min_macs, every
        self._load, self._lock = opener(on), threading.RLock()
        self._programs: list[Program] | None = None
        self._refused: dict[int, str] = {}
        self._seconds: list[float | None] | None = None
        self._ran: dict[Program, tuple[Stats, float]] = {}  # the last run of each
        self.values: dict[int, np.ndarray] = {}
        self._native = Native(c.Abi(), self._claims, self._kernel)

    @classmethod
    def load(
        cls, model: str | Path | bytes, programs: str | Path, on: str | Device | Opener = "model"
    ) -> TilewrightDelegate:
        """A delegate whose programs `save` has written to the file `programs`; it needs no TVM.

        Raises `FileError`, and `InputError` where the programs are of another network.
        """
        made = cls(model, "pynq_z1", on)
        found = load(programs, made._digest)
        made.cfg, made.runtime, made._programs = found.config, found.runtime, list(found.programs)
        made._refused, made._seconds = dict(found.refused), list(found.seconds)
        return made

    def save(self, path: str | Path) -> None:
        """Write the programs to a file for `load`. Raises `FileError`."""
        facts = self.cfg, self.runtime, self._plan(), self._refused, self._modelled()
        save(path, Stored(self._digest, *facts))

    def _get_native_delegate_pointer(self) -> int:
        """The address that an interpreter's constructor asks for."""
        caller = sys._getframe(1)
        interpreter = caller.f_locals.get("self")
        if caller.f_code.co_name == "__init__" and hasattr(interpreter, "allocate_tensors"):
            prove(caller.f_globals["__name__"])
            self._raise_from(interpreter)
        else:
            prove(DEFAULT)
        self._plan()
        return self._native.pointer

    def _raise_from(self, interpreter: Any) -> None:
        """Let methods of `interpreter` raise our exceptions, with the interpreter's own as their causes."""
        for name in ("invoke", "allocate_tensors"):
            setattr(interpreter, name, self._raising(getattr(type(interpreter), name), weakref.ref(interpreter)))

    def _raising(self, method: Callable, owner: weakref.ref) -> Callable:
        @functools.wraps(method)
        def call() -> object:
            self._native.taken()
            try:
                return method(owner())
            except Exception as exc:
                found = self._native.taken()
                if found is None:
                    raise
                raise found from exc

        return call

    @property
    def error(self) -> BaseException | None:
        """The last exception that an interpreter met in the delegate; None where there was none."""
        return self._native.error

    def _plan(self) -> list[Program]:
        """The programs of all partitions, compiled once, by the first thread that asks."""
        with self._lock:
            if self._programs is None:
                reasons = {n: refusal(self.file, n, self._claim) for n in range(len(self.file.nodes))}
                self._refused = {n: why for n, why in reasons.items() if why}
                planner = Planner(self.file, self.cfg, self.runtime, self._min_macs, self._every, self._refused)
                self._programs = planner.programs()
            return self._programs

    def _claims(self, context: c.Context) -> list[int]:
        """The nodes of all programs. Raises `InputError` where the interpreter has another file."""
        plan = [n for n in context.plan() if context.node(n)[1].builtin_code != c.DELEGATE]
        taken = [n for program in self._plan() for n in program.given.nodes]
        return [n for n in taken if n in plan] if is_the_files(self.file, context, plan) else []

    def _kernel(self, context: c.Context, given: Given) -> Kernel:
        programs = self._plan()
        known = next((one for one in programs if one.covers(given)), None)
        if known is None:  # the interpreter has made other parts, as where another delegate came first
            known = compiled(self.file, given, self.cfg, self.runtime)
            programs.append(known)
        with self._lock:  # loading opens the device, and takes memory of it
            loaded = self._load(known.executable)
        return Kernel(known, given.outputs, loaded, self._lock, self._done)

    def _done(self, program: Program, stats: Stats, seconds: float, values: dict[int, np.ndarray]) -> None:
        self._ran[program] = stats, seconds
        if self._every:
            self.values |= values

    def report(self) -> Report:
        """Partitions with their cost, and the operators left to the interpreter with the reasons."""
        names = [node.name for node in self.file.nodes]
        parts = [self._partition(program) for program in self._plan()]
        left = tuple((names[n], why) for n, why in sorted(self._refused.items()))
        seconds = self._modelled()
        times = _sum(seconds[n] for n in self._refused), _sum(seconds)
        return Report(self.file.path.stem, self.cfg.name, self.device, self.runtime, tuple(parts), left, *times)

    def _modelled(self) -> list[float | None]:
        """Seconds of every operator on a host alone, where they are known."""
        if self._seconds is None:
            self._seconds = [on_host(self.file, n) for n in range(len(self.file.nodes))]
        return self._seconds

    def _partition(self, program: Program) -> Partition:
        stats, wall = self._ran.get(program, (None, None))
        cycles, counted_by = program.cycles, "simulated by the timing model"
        if stats is not None and stats.cycles is not None:
            cycles, counted_by = stats.cycles, f"counted on {self.device}"
        names = tuple(self.file.nodes[n].name for n in program.given.nodes)
        return Partition(names, program.macs, program.launches, cycles, counted_by, program.host_seconds, wall)


def _source(model: str | Path | bytes) -> Source:
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Source(Path("model.tflite"), bytes(model))
    if not isinstance(model, (str, Path)):
        raise InputError(f"model of type {type(model).__name__}: must be the name of a .tflite file, or its bytes")
    return read_source(model)


def _sum(seconds: Iterable[float | None]) -> float | None:
    """The sum, None where one of them is not known."""
    found = list(seconds)
    return None if None in found else sum(one for one in found if one is not None)
