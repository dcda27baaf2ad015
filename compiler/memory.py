"""Static memory plans: addresses in one arena for buffers whose lifetimes are known, and their picture.

Steps are numbered from 0; a buffer is alive from the step that writes it to the last one that reads it, both included.
The plan is greedy by size; if it exceeds the lower bound, the maximum of bytes alive at once, OR-tools' CP-SAT
searches for a better one. Both are deterministic.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..hw.errors import CapacityError, InputError, UnsupportedError
from ..runtime.files import atomic_write
from . import graph as g

_DETERMINISTIC_TIME = 20.0  # CP-SAT's own, machine-independent measure; about as many seconds
_SEED = 1


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `nbytes`, alive from step `first` to step `last`, at a multiple of `align`.

    `in_place_of` names buffers that may be alive to the step in which this one begins, and whose bytes it may reuse
    then: the step writes no byte before it has read it. A buffer that keeps state from run to run is alive at every
    step, from 0 to the plan's last.
    """

    name: str
    nbytes: int
    first: int
    last: int
    align: int = 1
    in_place_of: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.nbytes < 1 or self.align < 1 or not 0 <= self.first <= self.last:
            raise InputError(
                f"buffer {self.name!r}: {self.nbytes} bytes aligned to {self.align}, alive from step {self.first} to "
                f"{self.last}; sizes are at least 1, and the last step is not before the first"
            )

    def meets(self, other: Lifetime) -> bool:
        """True if both are alive in some step."""
        return self.first <= other.last and other.first <= self.last

    def replaces(self, other: Lifetime) -> bool:
        """True if this one may reuse the bytes of `other`, whose last step is this one's first."""
        return other.name in self.in_place_of and other.last == self.first and self.nbytes <= other.nbytes


@dataclass(frozen=True)
class Plan:
    """Addresses by buffer name. `nbytes` is the arena's size, `bound` the lower bound of any plan's.

    `greedy` is the size of the greedy plan, `method` is `greedy` or `exact`.
    """

    buffers: tuple[Lifetime, ...]
    addresses: dict[str, int] = field(repr=False)
    nbytes: int
    bound: int
    greedy: int
    method: str


def plan(buffers: Iterable[Lifetime], capacity: int | None = None) -> Plan:
    """Choose addresses such that buffers alive in the same step do not overlap, except for reuse `in_place_of`.

    Raises `CapacityError` that names the buffers alive at the worst step if the plan needs more than `capacity` bytes,
    `InputError` if two buffers have the same name or a buffer replaces one that the plan does not have.
    """
    buffers = tuple(buffers)
    names = {b.name for b in buffers}
    if len(names) < len(buffers):
        raise InputError("two buffers of a memory plan have the same name")
    for b in buffers:
        if strangers := set(b.in_place_of) - names:
            raise InputError(f"buffer {b.name!r} replaces {strangers.pop()!r}, which the plan does not have")
    bound, step = lower_bound(buffers)
    addresses = _greedy(buffers)
    size = greedy = _arena_size(buffers, addresses)
    method = "greedy"
    if greedy > bound and (capacity is None or bound <= capacity) and not _solver_would_crash():
        addresses, method = _exact(buffers, addresses, bound), "exact"
        size = _arena_size(buffers, addresses)
    if capacity is not None and size > capacity:
        alive = sorted((b for b in buffers if b.first <= step <= b.last), key=lambda b: -b.nbytes)
        listed = ", ".join(f"{b.name!r} ({b.nbytes:,})" for b in alive)
        raise CapacityError(
            f"the memory plan needs {size:,} bytes, the capacity is {capacity:,}; alive at step {step}, where at least "
            f"{bound:,} are needed: {listed}"
        )
    return Plan(buffers, addresses, size, bound, greedy, method)


def _solver_would_crash() -> bool:
    """CP-SAT ends in a segmentation fault in a process that has loaded TensorFlow (2.21) before it."""
    return "tensorflow" in sys.modules and "ortools" not in sys.modules


def lower_bound(buffers: Sequence[Lifetime]) -> tuple[int, int]:
    """(the largest sum of bytes alive in one step, that step); bytes that are reused in place count once.

    Sizes are rounded up to a common factor of all alignments.
    """
    unit = math.gcd(*(b.align for b in buffers)) if buffers else 1
    best = (0, 0)
    for step in sorted({b.first for b in buffers}):
        alive = [b for b in buffers if b.first <= step <= b.last]
        total = sum(_rounded(b.nbytes, unit) for b in alive)
        late = [b for b in alive if b.first == step]
        total -= sum(_rounded(b.nbytes, unit) for b in late if any(b.replaces(o) for o in alive))
        best = max(best, (total, step), key=lambda pair: pair[0])
    return best


def _rounded(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _arena_size(buffers: Sequence[Lifetime], addresses: dict[str, int]) -> int:
    unit = math.gcd(*(b.align for b in buffers)) if buffers else 1
    return max((addresses[b.name] + _rounded(b.nbytes, unit) for b in buffers), default=0)


def _greedy(buffers: Sequence[Lifetime]) -> dict[str, int]:
    """Addresses by greedy choice: the largest buffer first, each at the lowest address free during its lifetime."""
    addresses: dict[str, int] = {}
    placed: list[Lifetime] = []
    for b in sorted(buffers, key=lambda b: (-b.nbytes, b.first, b.name)):
        others = [o for o in placed if b.meets(o)]
        ends = [_rounded(addresses[o.name] + o.nbytes, b.align) for o in others]
        partners = [addresses[o.name] for o in others if b.replaces(o) or o.replaces(b)]
        candidates = sorted({0, *ends, *(a for a in partners if a % b.align == 0)})
        addresses[b.name] = next(a for a in candidates if all(_disjoint(b, a, o, addresses[o.name]) for o in others))
        placed.append(b)
    return addresses


def _disjoint(b: Lifetime, address: int, o: Lifetime, other: int) -> bool:
    """True if two buffers with overlapping lifetimes may have these addresses."""
    if address == other and (b.replaces(o) or o.replaces(b)):
        return True
    return address + b.nbytes <= other or other + o.nbytes <= address


def _exact(buffers: Sequence[Lifetime], start: dict[str, int], bound: int) -> dict[str, int]:
    """Addresses of the smallest plan that CP-SAT finds, no larger than the plan `start`."""
    try:
        from ortools.sat.python import cp_model
    except ImportError as exc:
        raise UnsupportedError(f"exact memory plans need ortools ({exc}); pip install 'tilewright[compiler]'") from None

    unit = math.gcd(*(b.align for b in buffers))
    size = {b.name: _rounded(b.nbytes, unit) // unit for b in buffers}
    limit, least = _arena_size(buffers, start) // unit, bound // unit
    model = cp_model.CpModel()
    top = model.new_int_var(least, limit, "top")
    at, times, spaces = {}, [], []
    late = [b for b in buffers if any(b.replaces(o) for o in buffers)]
    early = [o for o in buffers if any(b.replaces(o) for b in late)]
    for b in buffers:
        step = b.align // unit
        factor = model.new_int_var(0, max(0, (limit - size[b.name]) // step), b.name)
        model.add_hint(factor, start[b.name] // b.align)
        at[b.name] = factor * step
        # half steps: a replaceable buffer ends in the middle of the step in which its successor begins
        first, end = 2 * b.first + (b in late), 2 * b.last + 2 - (b in early)
        times.append(model.new_fixed_size_interval_var(first, end - first, ""))
        spaces.append(model.new_interval_var(at[b.name], size[b.name], at[b.name] + size[b.name], ""))
        model.add(at[b.name] + size[b.name] <= top)
    model.add_no_overlap_2d(times, spaces)
    for b in late:
        for o in early:
            if o is not b and o.last == b.first:
                _share_or_part(model, b.replaces(o), (at[b.name], size[b.name]), (at[o.name], size[o.name]))
    model.minimize(top)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _SEED
    solver.parameters.max_deterministic_time = _DETERMINISTIC_TIME
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return start
    return {b.name: int(solver.value(at[b.name])) * unit for b in buffers}


def _share_or_part(model, may_share: bool, new: tuple, old: tuple) -> None:
    """Constrain two (address, size) that meet in the middle of a step to begin at one address or not to overlap."""
    choices = [model.new_bool_var("") for _ in range(2 + may_share)]
    model.add(new[0] + new[1] <= old[0]).only_enforce_if(choices[0])
    model.add(old[0] + old[1] <= new[0]).only_enforce_if(choices[1])
    if may_share:
        model.add(new[0] == old[0]).only_enforce_if(choices[2])
    model.add_bool_or(choices)


def graph_buffers(graph: g.Graph, *, in_place: bool = False) -> list[Lifetime]:
    """The activations of a graph as plain arrays; steps are operators.

    A buffer has the name of its operator, an input its own. Reshapes, and the relayouts between a file's tensor and its
    NCHW form, are names of one buffer and not steps. Inputs are alive from the start to their last use, outputs from
    their operator to the end. A state is alive at every step, its next values as an output is: they are copied when the
    run ends. With `in_place` an element-wise operator may write where it reads.
    """
    ops = [op for op in graph.ops if not op.renames]
    end = max(0, len(ops) - 1)
    producer = {op.output.name: step for step, op in enumerate(ops)}
    states = [s.tensor for s in graph.states]
    sources = (*graph.inputs, *states)
    owner = {t.name: t.name for t in sources}
    for op in graph.ops:
        owner[op.output.name] = owner[op.x.name] if op.renames else op.output.name
    last = {name: producer.get(name, 0) for name in owner.values()}
    for step, op in enumerate(ops):
        last |= {owner[t.name]: step for t in op.inputs if t.data is None}
    last |= {owner[t.name]: end for t in (*states, *graph.wanted) if t.data is None}
    names = {t.name: t.name for t in sources}
    for op in ops:
        names[op.output.name] = op.name + "'" * (op.name in {t.name for t in sources})
    buffers = [Lifetime(t.name, t.nbytes, 0, last[t.name]) for t in sources]
    for step, op in enumerate(ops):
        elementwise = in_place and op.elementwise and {t.dtype for t in op.tensors} == {"int8"}
        replaced = [names[owner[t.name]] for t in op.inputs if t.data is None] if elementwise else []
        y = op.output
        in_place_of = tuple(dict.fromkeys(replaced))
        buffers.append(Lifetime(names[y.name], y.nbytes, step, last[y.name], in_place_of=in_place_of))
    return buffers


FORMATS = ("png", "svg")
# a name's extent across its letters, and per letter, as shares of the axes' width and height
_THICKNESS, _PER_LETTER = (0.012, 0.02), (0.0055, 0.009)


def draw(plan: Plan, path: str | Path, title: str = "") -> None:
    """Write the picture atomically, PNG or SVG by the ending of `path`.

    Raises `UnsupportedError` for other endings and where matplotlib is missing, `FileError` if the file cannot be
    written.
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UnsupportedError(f"{path}: a picture must end in {' or '.join(FORMATS)}; give another name")
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ImportError as exc:
        raise UnsupportedError(f"pictures need matplotlib ({exc}); pip install 'tilewright[plots]'") from None

    steps = 1 + max((b.last for b in plan.buffers), default=0)
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.add_subplot()
    palette = matplotlib.colormaps["tab20"]
    for number, b in enumerate(plan.buffers):
        address, length = plan.addresses[b.name], b.last + 1 - b.first
        colour = {"facecolor": palette(number % palette.N), "edgecolor": "black"}
        axes.add_patch(Rectangle((b.first, address), length, b.nbytes, lw=0.5, **colour))
        label = _rotation(b.name, length / steps, b.nbytes / max(plan.nbytes, 1))
        if label is not None:
            where = b.first + length / 2, address + b.nbytes / 2
            axes.text(*where, b.name, ha="center", va="center", size=6, rotation=label)
    axes.axhline(plan.bound, color="red", lw=1, ls="--", label=f"lower bound: {plan.bound:,} bytes")
    axes.set(xlim=(0, steps), ylim=(0, 1.05 * max(plan.nbytes, 1)), xlabel="step", ylabel="address, bytes")
    axes.set_title(title or f"{plan.nbytes:,} bytes, {plan.method}")
    axes.legend(loc="upper right")
    with atomic_write(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "tilewright"}):
        figure.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else None)


def _rotation(name: str, width: float, height: float) -> int | None:
    """Rotation in degrees with which a name fits a rectangle, given as shares of the axes; None if none does."""
    if width >= _PER_LETTER[0] * len(name) and height >= _THICKNESS[1]:
        return 0
    if height >= _PER_LETTER[1] * len(name) and width >= _THICKNESS[0]:
        return 90
    return None
