"""The mutation study of the verifier: the verdict of `verify` on programs with one mistake, against runs of them.

Runs of one program differ in facts that it must not depend on: how queues interleave, where the buffers are, the
bytes around them, and the micro-ops that were loaded before. A mutant (sim/mutants.py) is right where every run ends
without an error and with the same memory and scratchpads. No run may change bytes of inputs, constants, or of no
buffer. Runs share neither order nor bounds with `verify`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations

import numpy as np

from ..hw.config import PRESETS, Config
from ..hw.errors import AccessError, ProgramError, RaceError, TilewrightError
from ..hw.isa import FLAGS, known_isa
from ..hw.units import Queue, queues
from ..runtime.launch import WRITABLE, Launch
from ..runtime.verify import verify
from .memory import PAGE
from .model.device import Choice, Model, at_random
from .mutants import KINDS, mutants
from .random_programs import NARROW, ODD, ROWS, Recorder, record_random
from .spec import SpecDevice, fields_of


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the name of its error class, or "", the contents of scratchpads and the bytes of buffers.

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
    """The behavioural model; `start` draws the contents of its scratchpads, `rng` those of its micro-op buffers."""

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
        """The contents of the scratchpads; micro-ops that were not loaded count as zero."""
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
        """The contents of the scratchpads; micro-ops that were not loaded are left out."""
        spec = self._spec
        uops = [
            [None if entry[0] is before else entry[0] for entry, before in zip(pad.values(), kept)]
            for pad, kept in zip((spec.uop, spec.tuop), self._kept)
        ]
        held = [list(pad.values()) for pad in (spec.inp, spec.wgt, spec.twgt, spec.acc, spec.par, spec.tables)]
        return repr((held, uops)).encode()


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


class _Path:
    """A choice that takes the instructions at the places `taken`, and then the first; `options` are as many as could
    be taken, one number for each step."""

    def __init__(self, taken: Sequence[int]):
        self._taken, self.options = taken, list[int]()

    def __call__(self, ready: list[int]) -> int:
        """The one of `ready` to execute."""
        at = len(self.options)
        self.options.append(len(ready))
        return ready[self._taken[at] if at < len(self._taken) else 0]


def every_order(bench: Bench, number: int, most: int) -> list[Outcome] | None:
    """The outcomes of run `number` in all orders that queues and tokens allow, None where they are more than `most`."""
    outcomes, taken = list[Outcome](), list[int]()
    while len(outcomes) < most:
        path = _Path(taken)
        outcomes.append(bench.run(number, path))
        taken += [0] * (len(path.options) - len(taken))
        while taken and taken[-1] + 1 == path.options[len(taken) - 1]:
            taken.pop()
        if not taken:
            return outcomes
        taken[-1] += 1
    return None


CONFIGS: tuple[Config, ...] = (PRESETS["tiny"], ODD, NARROW.replace(queue_depth=64), PRESETS["tiny_two"], ROWS)
PER_PROGRAM = 10  # mutants of one program
_RUNS, _MORE = 5, 20  # of a mutant; of one that was refused although nothing is wrong
_PREFERENCES = 8  # orders of queues that are preferred, of a mutant that nothing is wrong with so far
_DEFINED = 10  # of so many mutants one runs on the definition, too
_DEFINED_INSNS = 64  # where it has at most so many instructions
_SHORT, _ORDERS = 12, 2000  # instructions of a mutant that runs in every order, if these are not more
_NAMED = 20  # mutants that a study tells one by one
VERDICTS = ("caught", "missed", "accepted", "alarms", "harmless", "unproved")


@dataclass
class Study:
    """Mutants by class and verdict; `named` tells of those that should not be.

    `caught`: refused, and wrong. `accepted`: neither. `missed`: accepted, and wrong. `alarms`: refused, and not wrong
    in any run. `harmless`: refused for what is wrong, but what nothing sees in the end, such as a race that comes about
    both ways around, or a read outside of its buffer, of values that others replace. `unproved`: programs that cannot
    be verified, because data decide what they do. `classes` are those of what is caught where all runs end in errors
    of other classes than that of `verify`: (`verify`'s, one of theirs).

    `programs` are those that the mutants were made of, `refused` what `verify` says of these, which are right;
    `defined` mutants also ran on the definition, and `differ` of them ended otherwise there. `exhausted` ran in every
    order of their queues, `orders` in all.
    """

    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    classes: Counter[tuple[str, str]] = field(default_factory=Counter)
    named: list[str] = field(default_factory=list)
    programs: int = 0
    refused: list[str] = field(default_factory=list)
    defined: int = 0
    differ: int = 0
    exhausted: int = 0
    orders: int = 0

    def count(self, *verdicts: str, kind: str = "") -> int:
        """Mutants with one of these verdicts, of class `kind`, or of all."""
        return sum(n for (own, verdict), n in self.verdicts.items() if verdict in verdicts and kind in ("", own))

    @property
    def passed(self) -> bool:
        """Whether `verify` caught all that is wrong, and accepted all that is right."""
        return not (self.count("missed", "alarms") or self.refused or self.differ)

    def table(self) -> list[dict[str, object]]:
        """One row per class and a sum. `neither` counts refused mutants whose mistake changes no result."""
        rows = []
        for kind in (*(kind for kind in KINDS if self.count(*VERDICTS, kind=kind)), ""):
            columns = {"mutants": VERDICTS, "wrong": VERDICTS[:2], "caught": VERDICTS[:1], "correct": VERDICTS[2:4]}
            columns |= {"accepted": VERDICTS[2:3], "neither": VERDICTS[4:]}
            rows.append(
                {"class": kind or "all", **{name: self.count(*kinds, kind=kind) for name, kinds in columns.items()}}
            )
        return rows


def random_launches(seed: int, steps: int = 8) -> Iterator[tuple[str, Launch]]:
    """Endless random programs of several configurations, of fewer than `steps` steps, with a name each."""
    number = 0
    while True:
        rng = np.random.default_rng([seed, number])
        recorder = Recorder(CONFIGS[number % len(CONFIGS)], int(rng.integers(1 << 32)))
        record_random(recorder, int(rng.integers(1, steps)))
        yield f"{recorder.cfg.name} {seed}.{number}", recorder.program.finish()
        number += 1


def study(launches: Iterator[tuple[str, Launch]], count: int, seed: int) -> Study:
    """Judge `count` mutants of `launches` (name, program); one of these has `PER_PROGRAM`."""
    found, number = Study(), 0
    while number < count:
        name, launch = next(launches)
        found.programs += 1
        try:
            verify(launch)
        except TilewrightError as exc:
            found.refused.append(f"{name}: {exc}")
        rng = np.random.default_rng([seed, number])
        for mutant in islice(mutants(launch, rng), min(PER_PROGRAM, count - number)):
            verdict, why, orders = judge(mutant.launch, seed=number)
            found.exhausted, found.orders = found.exhausted + bool(orders), found.orders + orders
            found.verdicts[mutant.kind, verdict] += 1
            if why:
                found.classes[why] += 1
            differs = False
            if number % _DEFINED == 0 and len(mutant.launch.insn) <= _DEFINED_INSNS:
                differs = not _as_defined(mutant.launch, number)
                found.defined, found.differ = found.defined + 1, found.differ + differs
            if (verdict in ("missed", "alarms") or why or differs) and len(found.named) < _NAMED:
                what = "not as defined" if differs else verdict
                found.named.append(f"{what}: {name}, mutant {number}: {mutant.text} {why or ''}".rstrip())
            number += 1
    return found


def judge(launch: Launch, seed: int) -> tuple[str, tuple[str, str] | None, int]:
    """The verdict of `Study` on `launch`, for `Study.classes` two error classes that differ, and of a short program the
    number of orders that its queues may have, each of which it ran in; 0 where they are too many."""
    bench = Bench(launch, seed)
    refusal: TilewrightError | None = None
    try:
        verify(launch)
    except TilewrightError as exc:
        refusal = exc
    outcomes = [bench.run(k) for k in range(_RUNS)]
    if not wrong(outcomes):
        outcomes += _preferring(bench)
    every = every_order(bench, 0, _ORDERS) if len(launch.insn) <= _SHORT else None
    orders = len(every or ())
    outcomes += every or ()
    if refusal is None:
        return ("missed" if wrong(outcomes) else "accepted"), None, orders
    if not wrong(outcomes):
        return _unseen(bench, refusal, outcomes), None, orders
    own, errors = type(refusal).__name__, {outcome.error for outcome in outcomes}
    # whether an address fits its field depends on where the buffers are, and what races show is not one class
    agree = errors & {"", own, "EncodingError"} or type(refusal) in (ProgramError, RaceError)
    return "caught", None if agree else (own, min(errors)), orders


def wrong(outcomes: Sequence[Outcome]) -> bool:
    """Whether runs with these outcomes show a mistake."""
    return len(set(outcomes)) > 1 or bool(outcomes[0].error) or outcomes[0].outside


def _preferring(bench: Bench) -> list[Outcome]:
    """Runs in which some queues are as far ahead of the others as their tokens allow."""
    orders = list(permutations(queues(bench.launch.cfg)))
    step = -(-len(orders) // _PREFERENCES)
    return [bench.run(_RUNS + k, Preferring(bench.launch, order)) for k, order in enumerate(orders[::step])]


def _as_defined(launch: Launch, seed: int) -> bool:
    """Whether two runs end on the definition as on the model: with the same error, or the same memory."""
    bench = Bench(launch, seed)
    for number in range(2):
        model, definition = (bench.run(number, by=by) for by in (None, Defined))
        if (model.error, model.memory, model.outside) != (definition.error, definition.memory, definition.outside):
            return False
    return True


def _unseen(bench: Bench, refusal: TilewrightError, outcomes: list[Outcome]) -> str:
    """The verdict on a refusal for which `outcomes` show no reason."""
    further = 100  # numbers of runs that differ from those before
    if isinstance(refusal, RaceError) and refusal.pair is not None:
        ways = [Reversed(*refusal.pair), Reversed(*refusal.pair[::-1])]
        if wrong([*outcomes, *(bench.run(further + k, way) for k, way in enumerate(ways))]):
            return "caught"
        if all(way.held for way in ways):
            return "harmless"
    if isinstance(refusal, AccessError) and refusal.index is not None:
        alone = Bench(_alone(bench.launch, refusal.index), bench.seed)
        if wrong([alone.run(k, min) for k in range(_RUNS)]):
            return "harmless"
    if type(refusal) is ProgramError:
        return "unproved"
    return "caught" if wrong([*outcomes, *(bench.run(further + k) for k in range(2, _MORE))]) else "alarms"


def _alone(launch: Launch, k: int) -> Launch:
    """Instruction `k` and FINISH, without tokens."""
    insn = launch.insn[[k, -1]]
    for flag in FLAGS:
        insn[:, 0] &= ~np.uint64(1 << known_isa(launch.cfg).formats["FINISH"].fields[flag].lo)
    patches = launch.patches.moved(np.array([k, len(launch.insn) - 1]))
    return Launch(launch.cfg, launch.name, insn, launch.reloc[[k, -1]], launch.buffers, patches=patches)
