"""`tune` and `replay`: meta_schedule runs and stores the trials of a schedule, our evolution proposes its decisions.

The decisions are the tile of a ready schedule (`space`), or the results of `sample_categorical` (a value) and
`sample_perfect_tile` (factors, outermost first) in a user's function. The function is called again for other
decisions, so its Python code may depend on them. A much faster search for ready schedules alone is in search.py.
"""

from __future__ import annotations

import json
import logging
import math
import random
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from ...hw.config import Config, load_config
from ...hw.errors import FileError, ScheduleError, TilewrightError
from ..intrin import register
from ..schedule.layer import layer_of
from ..sentences import one_sentence
from ..tile import Tile
from ..tvm_compat import IRModule, Node, PrimFunc, Schedule, structural_equal, tuning, without_intrinsics_of_others
from .sampling import ROUND, Choices, Evolution, Features, Space, tile_of
from .tasks import CLOCK, check_device, measurers

Decision = int | tuple[int, ...]
Decisions = tuple[Decision, ...]
_REFUSALS = (RuntimeError, ValueError)  # of TVM's schedule, for decisions that it cannot apply
Schedules = Callable[[Schedule], object]  # a function that schedules, as `tune` takes it


class DecidedSchedule(Schedule):
    """A schedule whose `sample_categorical` and `sample_perfect_tile` return `wanted`, in order.

    A decision that is missing in `wanted`, or impossible, is drawn with `rng`. `taken` are the decisions made,
    `choices` the alternatives of each.
    """

    __slots__ = ("choices", "rng", "taken", "wanted")  # objects of TVM have no others

    def decide(self, wanted: Sequence[Decision], rng: random.Random) -> None:
        """Begin with no decisions taken."""
        self.wanted, self.rng = list(wanted), rng
        self.taken: list[Decision] = []
        self.choices: list[list[Decision]] = []

    def sample_categorical(self, candidates: Sequence[int], probs: Sequence[float], decision: None = None) -> Node:
        """A value of `candidates`, as decided; drawn with `probs` otherwise."""
        values = [int(each) for each in candidates]
        value = self._next(values, lambda: self.rng.choices(values, [float(each) for each in probs])[0])
        return super().sample_categorical(list(candidates), list(probs), decision=values.index(value))

    def sample_perfect_tile(
        self, loop: Node, n: int, max_innermost_factor: int = 16, decision: None = None
    ) -> list[Node]:
        """`n` factors of the loop's extent, as decided; the innermost is at most `max_innermost_factor`."""
        extent = int(self.get(loop).extent)
        ways = [way for way in _factorings(extent, n) if way[-1] <= max_innermost_factor]
        way = self._next(ways, lambda: self.rng.choice(ways))
        return super().sample_perfect_tile(loop, n, max_innermost_factor, decision=list(way))

    def _next(self, choices: list, draw: Callable[[], Any]) -> Any:
        k = len(self.taken)
        wanted: Any = self.wanted[k] if k < len(self.wanted) else None
        value = wanted if wanted in choices else draw()
        self.taken.append(value)
        self.choices.append(choices)
        return value


def _factorings(extent: int, n: int) -> list[tuple[int, ...]]:
    """Every way to write `extent` as a product of `n` factors, in order."""
    if n == 1:
        return [(extent,)]
    divisors = [k for k in range(1, extent + 1) if extent % k == 0]
    return [(k, *rest) for k in divisors for rest in _factorings(extent // k, n - 1)]


def decided(
    func: PrimFunc, schedules: Schedules, wanted: Sequence[Decision | list[int]] = (), seed: int = 0
) -> DecidedSchedule:
    """The schedule of `func` that `schedules` makes with the decisions `wanted`; missing ones are drawn.

    Raises `ScheduleError` for what TVM cannot do with these decisions.
    """
    sch = DecidedSchedule(func)
    sch.decide([tuple(each) if isinstance(each, (list, tuple)) else each for each in wanted], random.Random(seed))
    try:
        schedules(sch)
    except (TilewrightError, *_REFUSALS) as exc:
        if isinstance(exc, TilewrightError) and not isinstance(exc, ScheduleError):
            raise
        raise ScheduleError(f"decisions {tuple(sch.taken)} give no schedule: {one_sentence(exc)}") from None
    return sch


def own_space(func: PrimFunc, schedules: Schedules) -> Choices[Decisions]:
    """The decisions of `schedules` for evolution. Errors of schedules count as decisions taken up to there."""

    alternatives: dict[Decisions, list[list[Decision]]] = {}

    def taken(wanted: Sequence[Decision], seed: int) -> Decisions:
        sch = DecidedSchedule(func)
        sch.decide(wanted, random.Random(seed))
        with suppress(TilewrightError, *_REFUSALS):  # the trial will say why
            schedules(sch)
        alternatives[tuple(sch.taken)] = sch.choices
        return tuple(sch.taken)

    def draw(rng: random.Random) -> Decisions:
        return taken((), rng.getrandbits(32))

    def mutate(decisions: Decisions, rng: random.Random) -> Decisions | None:
        seed = rng.getrandbits(32)
        if decisions not in alternatives:
            decisions = taken(decisions, seed)
        choices = alternatives[decisions]
        several = [k for k, each in enumerate(choices) if len(each) > 1]
        if not several:
            return None
        k = rng.choice(several)
        other = rng.choice([each for each in choices[k] if each != decisions[k]])
        return taken((*decisions[:k], other, *decisions[k + 1 :]), seed)

    return Choices(draw, mutate, _decision_features)


def _decision_features(decisions: Decisions) -> Features:
    """Logarithms of the values, and their squares: products of sizes are sums of these."""
    features: dict[str, float] = {}
    for k, decision in enumerate(decisions):
        for i, value in enumerate(decision if isinstance(decision, tuple) else (decision,)):
            size = math.log2(max(abs(value), 1))
            features |= {f"{k}.{i}": size, f"{k}.{i}^2": size * size}
    return features


def decisions_of(trace: Node) -> Decisions:
    """The decisions in a trace of meta_schedule."""
    found: list[Decision] = []
    for inst in trace.insts:
        if inst.kind.name == "SampleCategorical":
            found.append(int(inst.attrs[0][int(trace.decisions[inst])]))
        elif inst.kind.name == "SamplePerfectTile":
            found.append(tuple(int(each) for each in trace.decisions[inst]))
    return tuple(found)


def _evolving(
    tvm: SimpleNamespace,
    func: PrimFunc,
    evolution: Evolution[Any],
    scheduled: Callable[[Any], Schedule],
    errors: list[str],
) -> dict[str, object]:
    """Arguments of meta_schedule's `tune_tir` with which `evolution` proposes the decisions, `scheduled` applies them.

    meta_schedule's own mutations of traces would not do, because the schedule of a user's function may depend on its
    decisions. Reasons for decisions without a schedule go to `errors`.
    """
    ms = tvm.meta_schedule

    @tvm.derived_object
    class Strategy(ms.search_strategy.PySearchStrategy):
        def _initialize_with_tune_context(self, context):
            pass

        def pre_tuning(self, max_trials, num_trials_per_iter, design_spaces, database=None, cost_model=None):
            self.left, self.at_once = max_trials, num_trials_per_iter

        def post_tuning(self):
            pass

        def generate_measure_candidates(self):
            candidates = []
            while self.left and not candidates:
                asked = evolution.ask(min(self.left, self.at_once, ROUND))
                if not asked:
                    return None
                self.left -= len(asked)
                candidates = [each for each in map(self._candidate, asked) if each is not None]
            return candidates or None

        def notify_runner_results(self, measure_candidates, results):
            for candidate, result in zip(measure_candidates, results):
                timed = result.run_secs and not result.error_msg
                cycles = float(result.run_secs[0]) * CLOCK if timed else None
                evolution.tell(_decided_in(candidate.sch.trace), cycles)

        def clone(self):
            return Strategy()

        def _candidate(self, wanted):
            try:
                sch = scheduled(wanted)
            except TilewrightError as exc:
                errors.append(str(exc))
                evolution.tell(wanted, None)
                return None
            return ms.search_strategy.MeasureCandidate(sch, ms.arg_info.ArgInfo.from_prim_func(func))

    space = ms.space_generator.ScheduleFn(lambda sch: sch, sch_rules=[], postprocs=[], mutator_probs={})
    return {"space": space, "strategy": Strategy(), "cost_model": "random"}


def _decided_in(trace: Node) -> Tile | Decisions:
    return tile_of(trace) or decisions_of(trace)


_FAILED = 1e9  # seconds; meta_schedule records more for a trial without a program
_MEASURED = "tilewright_measured"  # attribute of a function in a database: the configuration and the device
_TRIALS_AT_ONCE = 16


class Tried(NamedTuple):
    """One trial: the tile of a ready schedule, or the results of `sample_*` in order; `cycles` None: no program."""

    decisions: Tile | Decisions
    cycles: int | None


@dataclass(frozen=True)
class Tuned:
    """Result of `tune`: the fastest `schedule`, its `cycles`, and every trial, the fastest first."""

    schedule: Schedule
    cycles: int
    trials: list[Tried]


def space(ready: Callable[..., Schedule], *args, vthreads: int = 2, **kwargs) -> Space:
    """The search space of a ready schedule, for `tune`: `space(conv2d, config, 1, 56, 56, 64, 64, 3, 3)`.

    Its decisions are tile sizes, slots, loop order and virtual threads, 1 to `vthreads`. `ready` is `conv2d`,
    `depthwise`, `dense`, `pool` or `elementwise`; the other arguments are its own. Raises the errors of `ready`.
    """
    return Space(layer_of(ready, *args, **kwargs), vthreads)


def tune(
    func: PrimFunc,
    space: Callable[[Schedule], None] | Space,
    config: Config | str,
    *,
    trials: int = 32,
    seed: int = 0,
    on: str = "timing",
    work_dir: str | Path | None = None,
) -> Tuned:
    """Try `trials` schedules of `func` and keep the fastest.

    `space(sch)` schedules `func`, as for `build`, and takes its decisions from `sch`: `sample_perfect_tile`,
    `sample_categorical`. Decisions without a program, because it does not fit or no instruction covers a statement,
    are failed trials. Decisions evolve: most trials are mutations of the fastest that a cost model finds good, the
    others random. The cost model is the estimate of the schedules for the space of a ready schedule and its `func`,
    else one that is fitted to the trials. Cycles are those of `on`: timing, rtl, board, another device that counts
    them, or a server, NAME:PORT.

    `work_dir` gets the database of meta_schedule, JSON; by default a folder that is removed afterwards. Earlier
    measurements there for the same function, configuration and device count as trials.

    Raises `ScheduleError` for another device, for the space of another configuration or function, or if no trial
    has a program, with the last error; `FileError` if `work_dir` cannot be used.
    """
    cfg = load_config(config)
    _check(func, space, cfg, trials, seed)
    mod, tvm, errors = _workload(func, cfg, on), tuning(), list[str]()
    builder, runner = measurers(tvm, cfg, on, errors)
    _keep_quiet()
    with tempfile.TemporaryDirectory() as temporary, without_intrinsics_of_others(), _interruptible():
        folder = Path(work_dir or temporary)
        database = _database(tvm, folder)
        if isinstance(space, Space):
            evolution: Evolution[Any] = Evolution(space.choices(), space.promising(), seed)
            scheduled: Callable[[Any], Schedule] = space.scheduled
        else:
            evolution, scheduled = Evolution(own_space(func, space), seed=seed), partial(decided, func, space)
        for earlier, _ in _tried(database, mod):
            if isinstance(earlier.decisions, Tile) == isinstance(space, Space):
                evolution.tell(earlier.decisions, earlier.cycles)
        tvm.meta_schedule.tune_tir(
            mod,
            target=tvm.Target({"kind": "llvm", "num-cores": 1}),  # meta_schedule requires one
            work_dir=str(folder),
            database=database,
            max_trials_global=trials,
            num_trials_per_iter=min(trials, _TRIALS_AT_ONCE),
            seed=seed,
            num_tuning_cores=1,
            builder=builder,
            runner=runner,
            **_evolving(tvm, func, evolution, scheduled, errors),
        )
        tuned = _best(database, mod, func)
    if tuned is None:
        raise ScheduleError(f"tune: none of {trials} trials has a program; the last error: {errors[-1]}")
    return tuned


def _check(func: PrimFunc, space: Callable[[Schedule], None] | Space, cfg: Config, trials: int, seed: int) -> None:
    if trials < 1:
        raise ScheduleError(f"tune: trials = {trials}: must be at least 1")
    if not 0 <= seed < 1 << 32:
        raise ScheduleError(f"tune: seed = {seed}: must be 0 to {(1 << 32) - 1}")
    if not isinstance(space, Space):
        return
    if cfg != space.layer.cfg:
        raise ScheduleError(f"tune: the space is that of configuration {space.layer.cfg.name}; make one for {cfg.name}")
    if not structural_equal(func, space.func):
        raise ScheduleError("tune: the space is that of another function: give its own, space.func")


def replay(func: PrimFunc, config: Config | str, work_dir: str | Path, *, on: str = "timing") -> Tuned:
    """The fastest schedule of `func` that `tune` has left in `work_dir`, without a trial.

    Raises `ScheduleError` if there is none for this function, configuration and device, `FileError` if the
    database is damaged.
    """
    cfg = load_config(config)
    mod, tvm = _workload(func, cfg, on), tuning()
    if not (Path(work_dir) / "database_tuning_record.json").exists():
        raise ScheduleError(f"replay: {work_dir} holds no database; tune with work_dir = {str(work_dir)!r} first")
    register(cfg)
    tuned = _best(_database(tvm, Path(work_dir)), mod, func)
    if tuned is None:
        raise ScheduleError(f"replay: {work_dir} has no program of this function for {cfg.name} on {on}: tune it first")
    return tuned


def merge(work_dir: str | Path, *others: str | Path) -> int:
    """Add the trials in the databases `others`, as of other machines, to that in `work_dir`; how many were new.

    Raises `FileError` for a folder without a database, or with a damaged one.
    """
    tvm, added = tuning(), 0
    for folder in map(Path, others):
        if not (folder / "database_tuning_record.json").exists():
            raise FileError(f"{folder}: holds no database; give a work_dir of tune")
    database = _database(tvm, Path(work_dir))
    known = {str(record.workload.as_json()) + str(record.as_json()) for record in database.get_all_tuning_records()}
    for folder in others:
        for record in _database(tvm, Path(folder)).get_all_tuning_records():
            text = str(record.workload.as_json()) + str(record.as_json())
            if text not in known:
                known.add(text)
                workload = database.commit_workload(record.workload.mod)
                kept = record.trace, workload, record.run_secs, record.target, record.args_info
                database.commit_tuning_record(tvm.meta_schedule.database.TuningRecord(*kept))
                added += 1
    return added


def _workload(func: PrimFunc, cfg: Config, on: str) -> IRModule:
    """`func` as a key of a database, with configuration and device."""
    check_device(on)
    fields = {name: value for name, value in cfg.to_dict().items() if name != "name"}
    measured = json.dumps([fields, on], sort_keys=True)
    return IRModule({"main": func.with_attr("global_symbol", "main").with_attr(_MEASURED, measured)})


def _database(tvm: SimpleNamespace, folder: Path) -> Node:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tvm.meta_schedule.database.JSONDatabase(work_dir=str(folder), module_equality="structural")
    except OSError as exc:
        raise FileError(f"{folder}: cannot be used as work_dir ({exc.strerror or exc})") from None
    except RuntimeError as exc:  # TVM's errors of files
        reason = str(exc).strip().splitlines()[-1]
        raise FileError(f"{folder}: its database cannot be used ({reason}); give another work_dir") from None


def _tried(database: Node, mod: IRModule) -> list[tuple[Tried, Node]]:
    """(trial, its trace) of every record, the fastest first and those without a program last."""
    if not database.has_workload(mod):
        return []
    tried = []
    for record in database.get_all_tuning_records():
        if structural_equal(record.workload.mod, mod):
            seconds = float(record.run_secs[0]) if record.run_secs else _FAILED
            cycles = round(seconds * CLOCK) if seconds < _FAILED else None
            tried.append((Tried(_decided_in(record.trace), cycles), record.trace))
    return sorted(tried, key=lambda each: math.inf if each[0].cycles is None else each[0].cycles)


def _best(database: Node, mod: IRModule, func: PrimFunc) -> Tuned | None:
    tried = _tried(database, mod)
    if not tried or tried[0][0].cycles is None:
        return None
    sch = Schedule(func)
    tried[0][1].apply_to_schedule(sch, remove_postproc=False)
    return Tuned(sch, tried[0][0].cycles, [each for each, _ in tried])


@contextmanager
def _interruptible() -> Iterator[None]:
    """Restore the KeyboardInterrupt of a callback, which TVM converts to a RuntimeError without a text."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupted = threading.Event()

    def interrupt(*_: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except RuntimeError:
        if interrupted.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _keep_quiet() -> None:
    """Keep the log of meta_schedule in the files of its folder, off the console."""
    log = logging.getLogger("tvm.s_tir.meta_schedule")
    log.handlers = [handler for handler in log.handlers if handler.get_name()]  # it fails on those without a name
    log.setLevel(logging.ERROR)  # meta_schedule uses this level for the console
