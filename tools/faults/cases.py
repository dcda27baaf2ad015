"""Programs to try faults on: their results do not depend on what the scratchpads held before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.hw.config import Config
from tilewright.hw.isa import Isa
from tilewright.runtime.access import dram_access
from tilewright.sim.memory import PAGE, program_bytes
from tilewright.sim.model.device import Model
from tilewright.sim.random_programs import random_case
from tilewright.sim.replay import read_case

_MOST_BYTES = 1 << 20  # of a recorded case


@dataclass(frozen=True)
class Case:
    """A program in memory, and memory after it; `seed` draws what the scratchpads held in a second run."""

    name: str
    cfg: Config
    image: np.ndarray
    address: int
    count: int
    expected: np.ndarray


def random_program(cfg: Config, seed: int) -> Case:
    """Random program `seed` of `cfg`, or the next one that does not depend on what was there before it."""
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
