"""Runs of one program that differ in what a program must not depend on.

That is: how queues interleave, where the buffers are, the bytes around them, and the micro-ops that were loaded before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...hw.config import Config
from ...hw.errors import TilewrightError
from ...hw.isa import known_isa
from ...hw.units import Queue
from ...runtime.launch import WRITABLE, Launch
from ..memory import PAGE
from ..model.machine import Model
from ..model.tokens import Choice, at_random
from ..spec import SpecDevice, fields_of


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: the name of its error class, or "" and the contents of scratchpads and the bytes of buffers.

    `outside`: bytes have changed that the program may not write: of inputs, of constants, or of no buffer.
    """

    error: str
    contents: bytes = b""
    memory: bytes = b""
    outside: bool = False


class Bench:
    """Runs `launch` from one state, which `seed` makes: inputs and the contents of the scratchpads."""

    def __init__(self, launch: Launch, seed: int):
        self.launch, self.seed = launch, seed

    def run(
        self, number: int, choose: Choice | None = None, *, by: type[Fast] | type[Defined] | None = None
    ) -> Outcome:
        """Run `number`: it places the buffers, and makes the bytes around them and the micro-ops of programs before.

        `choose` is as for `schedule`; by default run 0 is in the order of the program, others in random ones. `by` is
        what executes, the behavioural model by default.
        """
        launch, start = self.launch, np.random.default_rng(self.seed)
        rng = np.random.default_rng([self.seed, number])
        choose = choose or (at_random(rng) if number else min)
        bases, end = [0] * len(launch.buffers), PAGE
        for k in rng.permutation(len(bases)).tolist():
            end += int(rng.integers(1, 2000))
            bases[k] = -(-end // launch.buffers[k].align) * launch.buffers[k].align
            end = bases[k] + launch.buffers[k].nbytes
        code = -(-end // 64) * 64 + 1024
        image = rng.integers(0, 256, code + launch.insn_bytes + PAGE, np.uint8)
        writable = np.zeros(len(image), bool)
        for buffer, base in zip(launch.buffers, bases):
            random = start.integers(0, 256, buffer.nbytes, np.uint8)
            given = random if buffer.data is None else buffer.data
            image[base : base + buffer.nbytes] = given if buffer.kind in ("input", "constant", "state") else 0
            writable[base : base + buffer.nbytes] = buffer.kind in WRITABLE
        values = {name: int(start.integers(limit)) for name, limit in launch.patches.limits.items()}
        machine = (by or Fast)(launch.cfg, image, choose, start, rng)
        try:
            words = launch.relocate(bases, values)
            image[code : code + launch.insn_bytes] = words.view(np.uint8).reshape(-1)
            before = image[~writable]
            machine.run(code, len(launch.insn))
        except TilewrightError as exc:
            return Outcome(type(exc).__name__)
        memory = b"".join(image[base : base + buffer.nbytes].tobytes() for buffer, base in zip(launch.buffers, bases))
        return Outcome("", machine.contents(), memory, not np.array_equal(image[~writable], before))


class Fast:
    """The behavioural model, whose scratchpads hold what `start` makes, and its micro-ops what `rng` makes."""

    def __init__(
        self, cfg: Config, image: np.ndarray, choose: Choice, start: np.random.Generator, rng: np.random.Generator
    ):
        self._model = Model(cfg, image, choose=choose)
        state = self._model.state
        for array in (state.inp, state.wgt, state.acc):  # narrow elements hold these values, too
            array[...] = start.integers(-2, 2, array.shape)
        state.twgt[...] = start.integers(-1, 2, state.twgt.shape)
        self._kept = {mem: rng.integers(0, 1 << 32, each.words.shape, np.uint32) for mem, each in state.kernels.items()}
        for mem, words in self._kept.items():  # of any program before
            state.kernels[mem].words[...] = words

    def run(self, address: int, count: int) -> None:
        """Execute `count` instructions at byte `address`."""
        self._model.run(address, count)

    def contents(self) -> bytes:
        """What the scratchpads hold; micro-ops that were not loaded count as zero."""
        state = self._model.state
        now = {mem: each.words for mem, each in state.kernels.items()}
        loaded = [np.where(now[mem] == words, 0, now[mem]) for mem, words in self._kept.items()]
        held = [state.inp, state.wgt, state.twgt, state.acc, *loaded, *state.par.values(), state.tables]
        return b"".join(array.tobytes() for array in held)


class Defined:
    """The definition in the same state, element by element."""

    def __init__(
        self, cfg: Config, image: np.ndarray, choose: Choice, start: np.random.Generator, rng: np.random.Generator
    ):
        like = Fast(cfg, image, choose, start, rng)._model.state
        self._spec, self._image = SpecDevice(cfg, capacity=PAGE, choose=choose), image
        pads = ((self._spec.inp, like.inp), (self._spec.wgt, like.wgt), (self._spec.twgt, like.twgt))
        of_inputs = [(*both, cfg.block_in) for both in pads]
        for pad, array, block in (*of_inputs, (self._spec.acc, like.acc, cfg.block_out)):
            for k, rows in enumerate(array.reshape(len(pad), -1, block) if len(pad) else ()):
                pad[k][:] = rows.tolist()
        for pad, words in ((self._spec.uop, like.uop), (self._spec.tuop, like.tuop)):
            for k, word in enumerate(words.tolist()):
                pad[k][:] = [fields_of(word, self._spec.isa.uop)]
        self._kept = [[entry[0] for entry in pad.values()] for pad in (self._spec.uop, self._spec.tuop)]

    def run(self, address: int, count: int) -> None:
        """Execute `count` instructions at byte `address`."""
        self._spec.run_image(self._image, address, count)

    def contents(self) -> bytes:
        """What the scratchpads hold; micro-ops that were not loaded are left out."""
        spec = self._spec
        uops = [
            [None if entry[0] is before else entry[0] for entry, before in zip(pad.values(), kept)]
            for pad, kept in zip((spec.uop, spec.tuop), self._kept)
        ]
        held = [list(pad.values()) for pad in (spec.inp, spec.wgt, spec.twgt, spec.acc, spec.par, spec.tables)]
        return repr((held, uops)).encode()


Machine = type[Fast] | type[Defined]


class Preferring:
    """A choice under which the instructions of the queues that come first in `queues` go first, in every case."""

    def __init__(self, launch: Launch, queues: Sequence[Queue]):
        isa = known_isa(launch.cfg)
        fields = isa.decode(launch.insn)
        self._rank = [queues.index(isa.queue(f)) if isa.undecodable(f) is None else 0 for f in fields]

    def __call__(self, ready: list[int]) -> int:
        """The one of `ready` to execute."""
        return min(ready, key=self._rank.__getitem__)


class Reversed:
    """A choice under which instruction `first` executes before `then`, where any order allows that."""

    def __init__(self, first: int, then: int):
        self._first, self._then, self.done, self.held = first, then, False, True

    def __call__(self, ready: list[int]) -> int:
        """The one of `ready` to execute."""
        k = min([k for k in ready if self.done or k != self._then] or ready)
        self.held &= self.done or k != self._then
        self.done |= k == self._first
        return k
