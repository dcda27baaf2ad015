"""The decisions of own schedules: taken again, mutated, read from a trace; what `sample_*` returns in a schedule.

A decision of `sample_categorical` is the value chosen, one of `sample_perfect_tile` the factors, outermost first. The
function that schedules is called anew for other decisions, so that its Python code may depend on them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...hw.errors import ScheduleError, TilewrightError
from ..tvm_compat import PrimFunc, Schedule
from .evolution import ROUND, Choices, Evolution, Features
from .measure import CLOCK

Decision = int | tuple[int, ...]
Decisions = tuple[Decision, ...]
_REFUSALS = (RuntimeError, ValueError)  # of TVM's schedule, for decisions that it cannot apply
Schedules = Callable[[Schedule], Any]  # a function that schedules, as `tune` takes it


class DecidedSchedule(Schedule):
    """A schedule whose `sample_categorical` and `sample_perfect_tile` return `wanted`, in order.

    What is missing in `wanted`, or not possible there, is drawn with `rng`. `taken` are the decisions made, `choices`
    the alternatives of each.
    """

    __slots__ = ("choices", "rng", "taken", "wanted")  # objects of TVM have no others

    def decide(self, wanted: Sequence[Decision], rng: random.Random) -> None:
        """Begin with no decisions taken."""
        self.wanted, self.rng = list(wanted), rng
        self.taken: list[Decision] = []
        self.choices: list[list[Decision]] = []

    def sample_categorical(self, candidates: Sequence[Any], probs: Sequence[Any], decision: Any = None) -> Any:
        """A value of `candidates`, as decided; drawn with `probs` otherwise."""
        values = [int(each) for each in candidates]
        value = self._next(values, lambda: self.rng.choices(values, [float(each) for each in probs])[0])
        return super().sample_categorical(list(candidates), list(probs), decision=values.index(value))

    def sample_perfect_tile(self, loop: Any, n: int, max_innermost_factor: int = 16, decision: Any = None) -> list[Any]:
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
    """All ways to write `extent` as a product of `n` factors, in order."""
    if n == 1:
        return [(extent,)]
    divisors = [k for k in range(1, extent + 1) if extent % k == 0]
    return [(k, *rest) for k in divisors for rest in _factorings(extent // k, n - 1)]


def decided(func: PrimFunc, schedules: Schedules, wanted: Sequence[Any] = (), seed: int = 0) -> DecidedSchedule:
    """The schedule of `func` that `schedules` makes with the decisions `wanted`; missing ones are drawn.

    Raises `ScheduleError` for what TVM cannot do with these decisions.
    """
    sch = DecidedSchedule(func)
    sch.decide([tuple(each) if isinstance(each, (list, tuple)) else each for each in wanted], random.Random(seed))
    try:
        schedules(sch)
    except TilewrightError:
        raise
    except _REFUSALS as exc:
        reason = (str(exc).strip() or type(exc).__name__).splitlines()[-1]
        raise ScheduleError(f"decisions {tuple(sch.taken)} give no schedule: {reason[:160]}") from None
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

    return Choices(draw, mutate, _features)


def _features(decisions: Decisions) -> Features:
    """Logarithms of the values, and their squares: products of sizes are sums of these."""
    found: dict[str, float] = {}
    for k, decision in enumerate(decisions):
        for i, value in enumerate(decision if isinstance(decision, tuple) else (decision,)):
            size = math.log2(max(abs(value), 1))
            found |= {f"{k}.{i}": size, f"{k}.{i}^2": size * size}
    return found


def decisions_of(trace: Any) -> Decisions:
    """The decisions in a trace of meta_schedule."""
    found: list[Decision] = []
    for inst in trace.insts:
        if inst.kind.name == "SampleCategorical":
            found.append(int(inst.attrs[0][int(trace.decisions[inst])]))
        elif inst.kind.name == "SamplePerfectTile":
            found.append(tuple(int(each) for each in trace.decisions[inst]))
    return tuple(found)


def own_evolution(
    tvm: Any,
    func: PrimFunc,
    schedules: Schedules,
    seed: int,
    earlier: Mapping[Decisions, float | None],
    errors: list[str],
) -> dict[str, Any]:
    """Arguments of meta_schedule's `tune_tir` that evolve the decisions of `schedules`, the function of a user.

    `tvm` is `tvm_compat.tuning()`, `earlier` the cycles of earlier trials. Mutations of traces would not do: what the
    function does may depend on its decisions. Reasons for decisions without a schedule go to `errors`.
    """
    ms, evolution = tvm.meta_schedule, Evolution(own_space(func, schedules), seed=seed)
    for decisions, cycles in earlier.items():
        evolution.tell(decisions, cycles)

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
                evolution.tell(decisions_of(candidate.sch.trace), cycles)

        def clone(self):
            return Strategy()

        def _candidate(self, wanted):
            try:
                sch = decided(func, schedules, wanted)
            except TilewrightError as exc:
                errors.append(str(exc))
                evolution.tell(wanted, None)
                return None
            return ms.search_strategy.MeasureCandidate(sch, ms.arg_info.ArgInfo.from_prim_func(func))

    space = ms.space_generator.ScheduleFn(lambda sch: sch, sch_rules=[], postprocs=[], mutator_probs={})
    return {"space": space, "strategy": Strategy(), "cost_model": "random"}
