"""Assigns the operators of a graph to the modules of a target by predicted times, and orders the parts.

Chains that a pattern matches are one unit where that is no slower than their operators alone. Units start on their
fastest module, and on each module in turn; single moves then improve the total time, transfers included. Limit: this
local search does not always find the optimum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise, product

from ...hw.errors import UnsupportedError
from .. import graph as g
from .module import ExecModule, Target

_ROUNDS = 8
_NOTHING: Mapping[str, Mapping[str, str]] = {}


@dataclass(frozen=True)
class Choice:
    """Operators that run together, the module that runs them, and the alternatives.

    `seconds` are predicted times by module, including the transfers of the assignment; `refusals` are reasons by
    module.
    """

    ops: tuple[g.Operator, ...]
    module: ExecModule
    seconds: dict[str, float]
    refusals: dict[str, str] = field(default_factory=dict)

    @property
    def runner_up(self) -> str | None:
        """The second fastest module; None if no other can run the operators."""
        others = sorted((s, name) for name, s in self.seconds.items() if name != self.module.name)
        return others[0][1] if others else None


@dataclass(eq=False)
class _Unit:
    """Operators to assign as one, `able` modules with their seconds, and the neighbours in the graph's order.

    `overlaps` are the seconds saved where the same module, by name, also runs `before`.
    """

    ops: tuple[g.Operator, ...]
    able: dict[str, float]
    refusals: dict[str, str]
    module: ExecModule
    before: _Unit | None = field(default=None, repr=False)
    after: _Unit | None = field(default=None, repr=False)
    overlaps: dict[str, float] = field(default_factory=dict)

    def overlap(self, module: ExecModule) -> float:
        """Seconds saved on `module` by an overlap with `before`; 0 if that runs on another module."""
        if self.before is None or self.before.module is not module:
            return 0.0
        if module.name not in self.overlaps:
            first = next(op for op in self.ops if op.viewed is None)
            self.overlaps[module.name] = module.overlap_seconds(self.before.ops[-1], first)
        return self.overlaps[module.name]


class Assignment:
    """The choices for the operators of `graph`, in its order.

    `refused` are reasons, by module and operator, not to run an operator although a pattern matches. Raises
    `UnsupportedError` that lists every operator that no module can run.
    """

    def __init__(self, graph: g.Graph, target: Target, refused: Mapping[str, Mapping[str, str]] = _NOTHING):
        self.graph, self.target, self.refused = graph, target, refused
        self._modules = {m.name: m for m in target.modules}
        self._readers: dict[str, list[g.Operator]] = {}
        for op in graph.ops:
            for t in {t.name: t for t in op.inputs}.values():
                self._readers.setdefault(t.name, []).append(op)
        self._wanted = {t.name for t in graph.wanted}
        self._longest = max((len(p.operators) for m in target.modules for p in m.patterns), default=1)
        self._kept = {s.tensor.name for s in graph.states}  # they stay in the layout of the module that reads them
        self._units = self._matched()
        self._of = {op.name: unit for unit in self._units for op in unit.ops}
        self._producer = {op.output.name: self._of[op.name] for op in graph.ops}
        self._outputs = {t.name for t in graph.outputs}
        self._optimise()
        self.choices = [
            Choice(unit.ops, unit.module, {name: self._seconds(unit, name) for name in unit.able}, unit.refusals)
            for unit in self._units
        ]

    def parts(self) -> list[tuple[ExecModule, list[g.Operator]]]:
        """(module, consecutive operators), in an executable order with few changes of module.

        The module that can run most begins, unless the order has fewer parts where another does.
        """
        place = {id(unit): k for k, unit in enumerate(self._units)}
        after: list[set[int]] = [set() for _ in self._units]  # the units that read the results of each unit
        for k, unit in enumerate(self._units):
            for op in unit.ops:
                after[k] |= {place[id(self._of[r.name])] for r in self._readers.get(op.output.name, ())} - {k}
        return min((self._ordered(first, after) for first in (None, *self._modules)), key=len)

    def _ordered(self, first: str | None, after: Sequence[set[int]]) -> list[tuple[ExecModule, list[g.Operator]]]:
        """The parts; module `first` runs the first of them, if it is given and has a unit that waits for no other."""
        missing = Counter(k for readers in after for k in readers)  # numbers of units that each unit waits for
        free: dict[str, set[int]] = {name: set() for name in self._modules}  # units that wait for no other
        for k, unit in enumerate(self._units):
            if not missing[k]:
                free[unit.module.name].add(k)
        parts: list[tuple[ExecModule, list[g.Operator]]] = []
        while any(free.values()):
            options = {name: self._runnable(name, free[name], after, missing) for name in self._modules}
            name = max(options, key=lambda name: len(options[name]))
            if not parts and first and options[first]:
                name = first
            free[name] = set()
            for k in options[name]:
                for reader in after[k]:
                    missing[reader] -= 1
                    if not missing[reader] and (other := self._units[reader].module.name) != name:
                        free[other].add(reader)
            parts.append((self._modules[name], [op for k in options[name] for op in self._units[k].ops]))
        return parts

    def _runnable(self, name: str, free: set[int], after: Sequence[set[int]], missing: Mapping[int, int]) -> list[int]:
        """The units that module `name` can run before another module must: in the graph's order, except for units that
        wait for a unit behind them there."""
        waiting, runnable, left = [(0, k) for k in sorted(free)], [], dict[int, int]()
        while waiting:
            turn, k = heappop(waiting)
            runnable.append(k)
            for reader in after[k]:
                if self._units[reader].module.name == name:
                    left[reader] = left.get(reader, missing[reader]) - 1
                    if not left[reader]:
                        heappush(waiting, (turn + (reader < k), reader))
        return runnable

    def _matched(self) -> list[_Unit]:
        units, taken, problems = [], set(), []
        for op in self.graph.ops:
            if op.name in taken:
                continue
            unit = self._longest_unit(op, problems, taken)
            if unit is not None:
                units.append(unit)
                taken |= {o.name for o in unit.ops}
        for earlier, later in pairwise(unit for unit in units if unit.ops[-1].viewed is None):
            earlier.after, later.before = later, earlier
        if problems:
            raise UnsupportedError(f"{self.graph.name}: target {self.target.name!r} cannot run {'; '.join(problems)}")
        return units

    def _longest_unit(self, op: g.Operator, problems: list[str], taken: set[str]) -> _Unit | None:
        """The longest chain from `op` on that no module runs slower than its operators one by one, else `op` alone."""
        alone, refusals = self._capable_modules((op,))
        if not alone:
            why = ", ".join(f"{name}: {reason}" for name, reason in refusals.items())
            remedy = "; name a kernel of it, --target FILE.py:KERNEL or target=" * isinstance(op, g.Custom)
            problems.append(f"{type(op).__name__} {op.name!r} ({why}){remedy}")
            return None
        best = _Unit((op,), alone, refusals, self._modules[min(alone, key=alone.__getitem__)])
        chain = [op]
        while len(chain) < self._longest:
            readers, output = self._readers.get(chain[-1].output.name, []), chain[-1].output.name
            if len(readers) != 1 or output in self._wanted or readers[0].name in taken:
                break
            chain.append(readers[0])
            able, _ = self._capable_modules(tuple(chain))
            parts = [self._capable_modules((o,))[0] for o in chain] if able else []
            if able and all(parts) and min(able.values()) <= sum(min(part.values()) for part in parts):
                best = _Unit(tuple(chain), able, {}, self._modules[min(able, key=able.__getitem__)])
        return best

    def _capable_modules(self, ops: tuple[g.Operator, ...]) -> tuple[dict[str, float], dict[str, str]]:
        """(seconds of the modules that can run `ops` as one, reasons of the others)."""
        able, refusals = {}, {}
        for module in self.target.modules:
            late = self.refused.get(module.name, {})
            reasons = [late[op.name] for op in ops if op.name in late]
            for pattern in () if reasons else module.patterns:
                fits = len(pattern.operators) == len(ops) and all(map(isinstance, ops, pattern.operators))
                if fits and not (why := pattern.refusal(*ops)):
                    able[module.name] = module.seconds(ops)
                    break
                reasons.extend([why] if fits else [])
            else:
                refusals[module.name] = "; ".join(reasons) or "no pattern matches"
        for name in [*able] if len(able) > 1 else ():
            if all(isinstance(op, self._modules[name].kept) for op in ops):
                refusals |= {other: f"{name} keeps such operators" for other in able if other != name}
                return {name: able[name]}, refusals
        return able, refusals

    def _optimise(self) -> None:
        """Choose the best of several assignments that no move of a single operator makes faster.

        They start with every operator on the module where it is fastest by itself, or with as many as possible on one
        module: a chain that does not pay for its transfers must move as a whole.
        """
        starts = [{id(u): min(u.able, key=u.able.__getitem__) for u in self._units}]
        starts += [{id(u): name if name in u.able else starts[0][id(u)] for u in self._units} for name in self._modules]
        found = []
        for start, shared in product(starts, (False, True)):
            for unit in self._units:
                unit.module = self._modules[start[id(unit)]]
            self._improve(shared)
            found.append((self._total(), [unit.module for unit in self._units]))
        for unit, module in zip(self._units, min(found, key=lambda pair: pair[0])[1]):
            unit.module = module

    def _improve(self, shared: bool) -> None:
        """Move single units to the module where they are fastest, given their neighbours' modules, until none moves.

        With `shared` an operand that another unit of the module reads, too, is transferred for free.
        """
        for _ in range(_ROUNDS):
            moved = False
            for unit in self._units:
                before, costs = unit.module, dict[str, float]()
                for name in unit.able:
                    unit.module = self._modules[name]
                    costs[name] = self._seconds(unit, name) - shared * self._saved(unit, name)
                    costs[name] -= unit.after.overlap(unit.after.module) if unit.after else 0.0
                unit.module = self._modules[min(costs, key=costs.__getitem__)]
                moved = moved or unit.module is not before
            if not moved:
                return

    def _saved(self, unit: _Unit, name: str) -> float:
        """Seconds of those transfers of the unit's operands that another unit on the module needs anyway."""
        seconds, module = 0.0, self._modules[name]
        for t in {t.name: t for op in unit.ops for t in op.inputs if t.data is None}.values():
            others = {id(self._of[op.name]): self._of[op.name] for op in self._readers[t.name]}
            if any(u is not unit and u.module is module for u in others.values()):
                seconds += self._transfer_seconds(t, self._producer.get(t.name), module)
        return seconds

    def _total(self) -> float:
        """Seconds of all operators and transfers; each transfer counts once."""
        with_both_ends = sum(self._seconds(unit, unit.module.name) for unit in self._units)
        edges = sum(
            self._transfer_seconds(t, self._producer[t.name], unit.module)
            for unit in self._units
            for t in {t.name: t for op in unit.ops for t in op.inputs}.values()
            if t.name in self._producer and self._producer[t.name] is not unit
        )
        return with_both_ends - edges

    def _seconds(self, unit: _Unit, name: str) -> float:
        """Seconds of a unit on a module, less the overlap, and of all transfers to and from other modules."""
        module = self._modules[name]
        total = unit.able[name] - unit.overlap(module)
        inside = {op.output.name for op in unit.ops}
        for t in {t.name: t for op in unit.ops for t in op.inputs}.values():
            if t.name not in inside and t.data is None:
                total += self._transfer_seconds(t, self._producer.get(t.name), module)
        for op in unit.ops:
            readers = [self._of[r.name] for r in self._readers.get(op.output.name, []) if r not in unit.ops]
            others = {u.module.name: u for u in readers}
            total += sum(self._transfer_seconds(op.output, u, module) for u in others.values())
            if op.output.name in self._outputs:  # next values of states stay where they are
                total += module.output_seconds(op.output)
        return total

    def _transfer_seconds(self, t: g.Tensor, other: _Unit | None, module: ExecModule) -> float:
        if other is None:
            return 0.0 if t.name in self._kept else module.transfer_seconds(t)
        if other.module is module:
            return 0.0
        seconds, readers = module.transfer_seconds(t) + other.module.transfer_seconds(t), self._readers[t.name]
        if len(readers) > 1 or t.name in self._wanted:
            return seconds
        ends = self._producer[t.name].ops[-1], readers[0]
        modules = (other.module, module) if ends[0] in other.ops else (module, other.module)
        return max(0.0, seconds - sum(end_module.joined_seconds(op) for end_module, op in zip(modules, ends)))
