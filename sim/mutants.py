"""Mutation study of the verifier: programs with one mistake, judged by `verify` and by running them.

A mutant is right where every run ends without an error and with the same memory and scratchpads: runs differ in how
queues interleave, in where the buffers are, in the bytes around them, and in the micro-ops that were loaded before. No
run may change those bytes, nor inputs and constants. Runs share neither order nor bounds with `verify`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from ..hw.config import PRESETS, Config
from ..hw.errors import AccessError, ProgramError, RaceError, TilewrightError
from ..hw.isa import FLAGS, MICRO_OPS, Format, Op, instruction, known_isa
from ..hw.units import channels
from ..runtime.bounds import WRITABLE
from ..runtime.launch import Launch
from ..runtime.verify import verify
from .memory import PAGE
from .model.machine import Model
from .model.tokens import Choice, at_random
from .random_programs import NARROW, ODD, Recorder, record_random

CONFIGS = (PRESETS["tiny"], ODD, NARROW.replace(queue_depth=64), PRESETS["tiny_two"])
_PER_PROGRAM = 10  # mutants of one program
_RUNS, _MORE = 5, 20  # of a mutant; of one that was refused although nothing is wrong
_NAMED = 20  # mutants that a study tells one by one

# description, instructions, relocations, and in another order the former positions of instructions
_Parts = tuple[str, np.ndarray, np.ndarray] | tuple[str, np.ndarray, np.ndarray, np.ndarray]


# -- mutants


def mutants(launch: Launch, rng: np.random.Generator) -> Iterator[tuple[str, Launch]]:
    """Endless programs that differ from `launch` in one thing, each with a description of it."""
    while True:
        text, insn, reloc, *order = _KINDS[int(rng.integers(len(_KINDS)))](launch, rng)
        if not np.array_equal(insn, launch.insn) or not np.array_equal(reloc, launch.reloc):
            at = (order[0] if order else np.arange(len(insn))).copy()
            at[[k for k in range(len(insn)) if reloc[k] < 0 or _loads_uops(launch.cfg, insn[k])]] = -1
            yield text, Launch(launch.cfg, launch.name, insn, reloc, launch.buffers, patches=launch.patches.moved(at))


def _format(launch: Launch, k: int) -> Format:
    f = known_isa(launch.cfg).decode(launch.insn[k : k + 1])[0]
    found = known_isa(launch.cfg).format_of(f["op"], f.get("mem", 0))
    assert found is not None
    return found


def _with(launch: Launch, changes: Sequence[tuple[int, str, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Instructions and relocations with `changes` (instruction, field, value, negative ones in two's complement)."""
    insn = launch.insn.copy()
    for k, name, value in changes:
        f = _format(launch, k).fields[name]
        word, low = divmod(f.lo, 64)
        mask = (1 << f.bits) - 1
        insn[k, word] = int(insn[k, word]) & ~(mask << low) | (value & mask) << low
    reloc = launch.reloc.copy()
    reloc[[k for k in range(len(insn)) if not _has_address(insn[k])]] = -1
    return insn, reloc


def _loads_uops(cfg: Config, words: np.ndarray) -> bool:
    low = int(words[0])
    row = instruction(low & 7, low >> known_isa(cfg).formats["LOAD"].fields["mem"].lo & 7)
    return row is not None and row.loads in MICRO_OPS


def _has_address(words: np.ndarray) -> bool:
    return int(words[0]) & 7 in (Op.LOAD, Op.STORE, Op.LOADP)


def _flag(launch: Launch, rng: np.random.Generator) -> _Parts:
    """One token flag the other way."""
    fields = known_isa(launch.cfg).decode(launch.insn)
    options = [(k, flag) for k, f in enumerate(fields) for flag in FLAGS if f[flag]]
    k, flag = options[rng.integers(len(options))]
    if not rng.integers(3):
        k, flag = int(rng.integers(len(fields))), FLAGS[rng.integers(len(FLAGS))]
    value = 1 - fields[k][flag]
    return f"{flag} of {k} {'added' if value else 'dropped'}", *_with(launch, [(k, flag, value)])


def _pair(launch: Launch, rng: np.random.Generator) -> _Parts:
    """A push and a pop of one channel, both dropped or both added."""
    isa, every = known_isa(launch.cfg), channels(launch.cfg)
    fields, channel = isa.decode(launch.insn), every[rng.integers(len(every))]
    value = int(not rng.integers(3))
    sides = ((channel.source, channel.push), (channel.target, channel.pop))
    ends = [[k for k, f in enumerate(fields) if isa.queue(f) == q and f[flag] != value] for q, flag in sides]
    if not all(ends):
        return "nothing", launch.insn, launch.reloc
    at = int(rng.integers(len(ends[0])))  # the n-th push belongs to the n-th pop
    push, pop = ends[0][at], ends[1][int(rng.integers(len(ends[1]))) if value else min(at, len(ends[1]) - 1)]
    changes = [(push, channel.push, value), (pop, channel.pop, value)]
    return f"token {channel} from {push} to {pop} {'added' if value else 'dropped'}", *_with(launch, changes)


def _swap(launch: Launch, rng: np.random.Generator) -> _Parts:
    """Two instructions in each other's place, often neighbours."""
    n = len(launch.insn)
    a = int(rng.integers(n - 1))
    b = a + 1 if rng.integers(2) else int(rng.integers(n))
    order = np.arange(n)
    order[[a, b]] = order[[b, a]]
    return f"{a} and {b} swapped", launch.insn[order], launch.reloc[order], order


def _field(launch: Launch, rng: np.random.Generator) -> _Parts:
    """One field with any value in its range, often a near one or an edge."""
    k = int(rng.integers(len(launch.insn)))
    fields = _format(launch, k).fields
    name = list(fields)[rng.integers(len(fields))]
    low, high = fields[name].limits
    old = known_isa(launch.cfg).decode(launch.insn[k : k + 1])[0][name]
    near = [old - 1, old + 1, 2 * old, old // 2, old + 4, low, high, 0, 1]
    value = int(rng.integers(low, high + 1)) if rng.integers(2) else near[rng.integers(len(near))]
    value = min(max(value, low), high)
    return f"{name} of {k} from {old} to {value}", *_with(launch, [(k, name, value)])


def _relocation(launch: Launch, rng: np.random.Generator) -> _Parts:
    """An instruction that counts from another buffer, or from none."""
    k = int(rng.choice([k for k, words in enumerate(launch.insn) if _has_address(words)]))
    reloc = launch.reloc.copy()
    reloc[k] = rng.integers(-1, len(launch.buffers))
    return f"buffer of {k} from {launch.reloc[k]} to {reloc[k]}", launch.insn, reloc


def _cut(launch: Launch, rng: np.random.Generator) -> _Parts:
    """Without some instructions: one, a run of them, or all from one on."""
    n = len(launch.insn)
    first = int(rng.integers(n))
    stop = [first + 1, int(rng.integers(first, n)) + 1, n][rng.integers(3)]
    keep = np.r_[0:first, stop:n]
    return f"{first}..{stop - 1} cut", launch.insn[keep], launch.reloc[keep], keep


_KINDS: tuple[Callable[[Launch, np.random.Generator], _Parts], ...] = (
    _flag,
    _pair,
    _pair,
    _swap,
    _field,
    _field,
    _field,
    _relocation,
    _cut,
)


# -- runs


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: the name of its error class, or "" and the bytes of buffers and scratchpads.

    `outside`: bytes have changed that the program may not write: of inputs, of constants, or of no buffer.
    """

    error: str
    contents: bytes = b""
    outside: bool = False


class Bench:
    """Runs `launch` from one state, which `seed` makes: inputs and the contents of the scratchpads."""

    def __init__(self, launch: Launch, seed: int):
        self.launch, self.seed = launch, seed

    def run(self, rng: np.random.Generator, choose: Choice) -> Outcome:
        """One run: `rng` places the buffers, and makes the bytes around them and the micro-ops of programs before.

        `choose` is as for `schedule`.
        """
        launch, start = self.launch, np.random.default_rng(self.seed)
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
        model = Model(launch.cfg, image, choose=choose)
        state = model.state
        for array in (state.inp, state.wgt, state.acc):  # narrow elements hold these values, too
            array[...] = start.integers(-2, 2, array.shape)
        values = {name: int(start.integers(limit)) for name, limit in launch.patches.limits.items()}
        state.twgt[...] = start.integers(-1, 2, state.twgt.shape)
        kept = {mem: rng.integers(0, 1 << 32, each.words.shape, np.uint32) for mem, each in state.kernels.items()}
        for mem, words in kept.items():  # of any program before
            state.kernels[mem].words[...] = words
        try:
            words = launch.relocate(bases, values)
            image[code : code + launch.insn_bytes] = words.view(np.uint8).reshape(-1)
            before = image[~writable]
            model.run(code, len(launch.insn))
        except TilewrightError as exc:
            return Outcome(type(exc).__name__)
        now = {mem: each.words for mem, each in state.kernels.items()}
        loaded = [np.where(now[mem] == words, 0, now[mem]) for mem, words in kept.items()]
        held = [state.inp, state.wgt, state.twgt, state.acc, *loaded, *state.par.values()]
        held += [image[base : base + buffer.nbytes] for buffer, base in zip(launch.buffers, bases)]
        contents = b"".join(array.tobytes() for array in held)
        return Outcome("", contents, not np.array_equal(image[~writable], before))


class _Reversed:
    """A choice under which instruction `first` executes before `then`, where any order allows that."""

    def __init__(self, first: int, then: int):
        self._first, self._then, self.done, self.held = first, then, False, True

    def __call__(self, ready: list[int]) -> int:
        k = min([k for k in ready if self.done or k != self._then] or ready)
        self.held &= self.done or k != self._then
        self.done |= k == self._first
        return k


# -- the study


@dataclass
class Study:
    """Mutants by what `verify` says and what runs show; `named` tells of those that should not be.

    `caught`: refused, and wrong. `accepted`: neither. `missed`: accepted, and wrong. `alarms`: refused, and not wrong
    in any run. `harmless`: refused for what is wrong, but what nothing sees in the end, such as a race that comes about
    both ways around, or a read outside of its buffer, of values that others replace. `unproved`: programs that cannot
    be verified, because data decide what they do. `classes` are those of what is caught where all runs end in errors
    of other classes than that of `verify`: (`verify`'s, one of theirs).
    """

    caught: int = 0
    accepted: int = 0
    missed: int = 0
    alarms: int = 0
    harmless: int = 0
    unproved: int = 0
    classes: Counter[tuple[str, str]] = field(default_factory=Counter)
    named: list[str] = field(default_factory=list)


def study(count: int, seed: int) -> Study:
    """Judge `count` mutants of random programs, which `seed` makes."""
    found, number = Study(), 0
    while number < count:
        rng = np.random.default_rng([seed, number])
        cfg: Config = CONFIGS[number // _PER_PROGRAM % len(CONFIGS)]
        recorder = Recorder(cfg, int(rng.integers(1 << 32)))
        record_random(recorder, int(rng.integers(1, 8)))
        launch = recorder.program.finish()
        for text, mutant in islice(mutants(launch, rng), min(_PER_PROGRAM, count - number)):
            kind, why = judge(mutant, seed=number)
            setattr(found, kind, getattr(found, kind) + 1)
            if why:
                found.classes[why] += 1
            if (kind in ("missed", "alarms") or why) and len(found.named) < _NAMED:
                found.named.append(f"{kind}: {cfg.name}, seed {seed}, mutant {number}: {text} {why or ''}".rstrip())
            number += 1
    return found


def judge(launch: Launch, seed: int) -> tuple[str, tuple[str, str] | None]:
    """The count of `Study` that `launch` belongs to, and for `Study.classes` two error classes that differ."""
    bench, rng = Bench(launch, seed), np.random.default_rng(seed)
    refusal: TilewrightError | None = None
    try:
        verify(launch)
    except TilewrightError as exc:
        refusal = exc
    outcomes = [bench.run(rng, min), *(bench.run(rng, at_random(rng)) for _ in range(_RUNS - 1))]
    if refusal is None:
        return ("missed" if _wrong(outcomes) else "accepted"), None
    if not _wrong(outcomes):
        return _unseen(bench, refusal, outcomes, rng), None
    own, errors = type(refusal).__name__, {outcome.error for outcome in outcomes}
    # whether an address fits its field depends on where the buffers are, and what races show is not one class
    agree = errors & {"", own, "EncodingError"} or type(refusal) in (ProgramError, RaceError)
    return "caught", None if agree else (own, min(errors))


def _wrong(outcomes: Sequence[Outcome]) -> bool:
    return len(set(outcomes)) > 1 or bool(outcomes[0].error) or outcomes[0].outside


def _unseen(bench: Bench, refusal: TilewrightError, outcomes: list[Outcome], rng: np.random.Generator) -> str:
    """What a refusal is for which `outcomes` show no reason."""
    if isinstance(refusal, RaceError) and refusal.pair is not None:
        ways = [_Reversed(*refusal.pair), _Reversed(*refusal.pair[::-1])]
        if _wrong([*outcomes, *(bench.run(rng, way) for way in ways)]):
            return "caught"
        if all(way.held for way in ways):
            return "harmless"
    if isinstance(refusal, AccessError) and refusal.index is not None:
        alone = Bench(_alone(bench.launch, refusal.index), bench.seed)
        if _wrong([alone.run(rng, min) for _ in range(_RUNS)]):
            return "harmless"
    if type(refusal) is ProgramError:
        return "unproved"
    return "caught" if _wrong([*outcomes, *(bench.run(rng, at_random(rng)) for _ in range(_MORE))]) else "alarms"


def _alone(launch: Launch, k: int) -> Launch:
    """Instruction `k` and FINISH, without tokens."""
    insn = launch.insn[[k, -1]]
    for flag in FLAGS:
        insn[:, 0] &= ~np.uint64(1 << known_isa(launch.cfg).formats["FINISH"].fields[flag].lo)
    patches = launch.patches.moved(np.array([k, len(launch.insn) - 1]))
    return Launch(launch.cfg, launch.name, insn, launch.reloc[[k, -1]], launch.buffers, patches=patches)
