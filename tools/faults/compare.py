"""Programs that may be wrong, on the behavioural model and on the circuit: which error each reports first, and why."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from tilewright.hw.config import UOP_BYTES, Config
from tilewright.hw.errors import ExecutionError, ProgramError
from tilewright.hw.isa import FLAGS, INSN_BYTES, Isa, Op, nop_of
from tilewright.runtime.access import dram_access
from tilewright.runtime.device import Stats
from tilewright.runtime.verify import verify_instructions
from tilewright.sim.memory import PAGE, program_bytes
from tilewright.sim.model.device import Model, ModelDevice
from tilewright.sim.random_programs import random_case
from tilewright.sim.replay import read_case

_MOST_BYTES = 1 << 20  # of a recorded case


@dataclass(frozen=True)
class Case:
    """A program in memory `image`, and the memory `expected` after it, uint8 (n,) each."""

    name: str
    cfg: Config
    image: np.ndarray
    address: int
    count: int
    expected: np.ndarray


def random_program(cfg: Config, seed: int) -> Case:
    """Random program `seed` of `cfg`, or the next one that does not depend on the scratchpads' old contents."""
    while True:
        image, address, count = random_case(cfg, seed)
        found = _case(f"{cfg.name} {seed}", cfg, _cut(cfg, image, address, count), address, count)
        if found is not None:
            return found
        seed += 1 << 32


def recorded_cases(folder: Path) -> list[Case]:
    """The recorded cases in the files of `folder` (docs/files.md) but for the largest."""
    found = []
    for path in sorted(folder.glob("*.npz")):
        case = read_case(path)
        if len(case.dram_in) <= _MOST_BYTES:
            found.append(_case(case.name, case.cfg, case.dram_in, case.insn_addr, case.insn_count))
    return [case for case in found if case is not None]


def stored(cfg: Config, image: np.ndarray, address: int, count: int) -> np.ndarray:
    """Whether some STORE of the program writes a byte of `image`, bool (n,)."""
    found = np.zeros(len(image), bool)
    for f in decoded(cfg, image, address, count):
        access = dram_access(cfg, f)
        if access is not None and access.write:
            for start, end in access.spans().tolist():
                found[start:end] = True
    return found


def decoded(cfg: Config, image: np.ndarray, address: int, count: int) -> list[dict[str, int]]:
    """The fields of the instructions."""
    return Isa(cfg).decode(np.frombuffer(program_bytes(image, address, count), np.uint64).reshape(-1, 2))


def _cut(cfg: Config, image: np.ndarray, address: int, count: int) -> np.ndarray:
    """Without the end of memory that the program does not touch, but for a page."""
    ends = [a.end for a in (dram_access(cfg, f) for f in decoded(cfg, image, address, count)) if a is not None]
    used = max(int(np.flatnonzero(image)[-1]) + 1, *ends)
    return image[: min(len(image), -(-used // PAGE) * PAGE + PAGE)].copy()


def _case(name: str, cfg: Config, image: np.ndarray, address: int, count: int) -> Case | None:
    """None where the result depends on the scratchpads' contents."""
    after = []
    for seed in range(2):
        model = Model(cfg, image.copy())
        if seed:
            _fill(model, np.random.default_rng(seed))
        model.run(address, count)
        after.append(model.dram)
    return Case(name, cfg, image, address, count, after[0]) if np.array_equal(*after) else None


def _fill(model: Model, rng: np.random.Generator) -> None:
    """Anything in the scratchpads of vectors; narrow elements hold these values, too."""
    state = model.state
    for array in (state.inp, state.wgt, state.acc):
        array[...] = rng.integers(-2, 2, array.shape)
    state.twgt[...] = rng.integers(-1, 2, state.twgt.shape)


_ORDERS = 20  # random ones, of a program that has several results
SAME, UNEXPLAINED = "the same", "UNEXPLAINED"
# reasons for which model and circuit may differ; docs/trust.md explains them
FIRST = "several errors: the circuit reports the one that it meets first"
AFTER_FINISH = "instructions after FINISH: the circuit executes them"
FULL_CHANNEL = "more tokens than a channel holds: the circuit lets the giver wait"
FULL_QUEUE = "a deadlock by full command queues, which the model does not have"
RACE = "a race: the order of the queues decides the result"


class ImageDevice(Protocol):
    """Executes the instructions at an address of a memory, in it."""

    cfg: Config

    def run_image(self, image: np.ndarray, insn_address: int, insn_count: int, /) -> Stats:
        """Raises `ExecutionError` where they are wrong."""
        ...


@dataclass(frozen=True)
class Result:
    """Class and instruction of the error, or memory, uint8 (n,), of a run without one."""

    error: str
    index: int | None
    memory: bytes
    text: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """The class of the error, in words where there is none."""
        return self.error or "no error"


def executed(device: ImageDevice, image: np.ndarray, address: int, count: int) -> tuple[Result, Stats | None]:
    """(result of the instructions on `device`, in a copy of `image`; statistics of a run without error)."""
    after = image.copy()
    try:
        stats = device.run_image(after, address, count)
    except ExecutionError as exc:
        return Result(type(exc).__name__, exc.index, b"", str(exc)), None
    return Result("", None, after.tobytes()), stats


def result_of(device: ImageDevice, image: np.ndarray, address: int, count: int) -> Result:
    """Run the instructions on `device` in a copy of `image`."""
    return executed(device, image, address, count)[0]


def replace_by_nop(isa: Isa, image: np.ndarray, address: int, k: int) -> None:
    """Replace instruction `k` in `image` by one that does nothing but exchange its tokens."""
    words = image[address + INSN_BYTES * k : address + INSN_BYTES * (k + 1)].view("<u8").reshape(1, 2)
    (f,) = isa.decode(words)
    nop = nop_of(isa.queue(f))
    words[:] = isa.formats[nop.format].encode(1, **nop.fields, **{flag: f[flag] for flag in FLAGS})


def is_an_error_too(
    model: ModelDevice, image: np.ndarray, address: int, count: int, first: Result, found: Result
) -> bool:
    """Whether `found`, of the circuit, is the error of `model` once wrong instructions before it are NOPs.

    `model` is in its state before `first`; `image` is changed.

    The circuit reports what it meets first: the error of a load comes with its data, and an instruction behind it that
    does not wait for the load may be wrong, too.
    """
    while first.error and found.error and (first.index or 0) < (found.index or 0):
        replace_by_nop(Isa(model.cfg), image, address, first.index or 0)
        first = result_of(deepcopy(model), image, address, count)
    return first == found


def difference(cfg: Config, image: np.ndarray, address: int, count: int, found: Result) -> tuple[str, str]:
    """(difference of `found`, of a circuit that was just powered on, from the model; its reason).

    Both are `SAME` where there is no difference.
    """
    model = result_of(ModelDevice(cfg), image, address, count)
    if model == found:
        return SAME, SAME
    other = "" if model.error != found.error else ", another instruction" if model.error else ", other memory"
    program = _Program(cfg, image, address, count)
    return f"{model.name} / {found.name}{other}", program.reason(model, found)


class _Program:
    """A program whose ends on model and circuit differ."""

    def __init__(self, cfg: Config, image: np.ndarray, address: int, count: int):
        self.cfg, self.image, self.address, self.count = cfg, image, address, count
        self.words = np.frombuffer(program_bytes(image, address, count), np.uint64).reshape(-1, 2)
        self.isa = Isa(cfg)
        self.insns = self.isa.decode(self.words)

    def reason(self, model: Result, found: Result) -> str:
        """Why the circuit reports `found` where the model reports `model`."""
        if found.error and model.error and self._has(model, found):
            return FIRST
        if "executes after FINISH" in model.text:
            return AFTER_FINISH
        verdict = self._verdict(self.words)
        if "the channel holds" in model.text or verdict == "TokenError":
            return FULL_CHANNEL
        if verdict == "DeadlockError":
            return FULL_QUEUE
        if verdict == "RaceError" or self._decided_by_order(model, found):
            return RACE
        return UNEXPLAINED

    def _has(self, model: Result, found: Result) -> bool:
        """Whether the error of `found` is one of the program, too."""
        k = found.index or 0
        if found.error == "DeadlockError":  # what comes before the other error deadlocks
            return bool(model.index) and self._verdict(self._cut(model.index)) == "DeadlockError"
        f = self.insns[k] if k < self.count else None
        if found.error == "ExecutionError":
            return f is None or bool(self.isa.undecodable(f)) or (f["op"] == Op.FINISH) != (k == self.count - 1)
        if found.error != "AccessError":
            return False
        image, end = self.image.copy(), self._cut(k + 1)
        flags = sum(1 << self.isa.formats["FINISH"].fields[flag].lo for flag in FLAGS)
        end[:, 0] &= ~np.uint64(flags)
        image[self.address : self.address + end.nbytes] = end.view(np.uint8).reshape(-1)
        first = result_of(ModelDevice(self.cfg), image, self.address, len(end))
        return is_an_error_too(ModelDevice(self.cfg), image, self.address, len(end), first, found)

    def _cut(self, k: int) -> np.ndarray:
        """The first `k` instructions, and FINISH."""
        return np.concatenate([self.words[:k], self.isa.formats["FINISH"].encode(1, op=Op.FINISH)])

    def _verdict(self, words: np.ndarray) -> str:
        """The class of the error that `verify` raises for `words`."""
        try:
            verify_instructions(self.cfg, words, self._read_uops)
        except ProgramError as exc:
            return type(exc).__name__
        return ""

    def _read_uops(self, start: int, n: int) -> np.ndarray:
        end = start + n * UOP_BYTES
        if end > len(self.image):
            raise ProgramError("the micro-ops are beyond memory")
        return self.image[start:end].view("<u4")

    def _decided_by_order(self, model: Result, found: Result) -> bool:
        """Whether random orders of the queues give other results than `model`: the error of `found`, or where it has
        none, memory. Those that overlap in the circuit may give yet another memory.
        """
        for seed in range(_ORDERS):
            device = ModelDevice(self.cfg, rng=np.random.default_rng(seed))
            end = result_of(device, self.image, self.address, self.count)
            if end != model and (end.error, end.index) == (found.error, found.index):
                return True
        return False
