"""One instruction scope of lowered TIR, parsed: loops, bounds, the statement, and its operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ...hw.isa import Mem
from ...runtime.program import Program
from ..intrin import INSTRUCTION, PAR_WORDS, entry_elements
from ..tvm_compat import Node, ir, tirx
from .affine import Env, Guard, LinearForm, Loop, LoopVariables, clip, closure, guards, linear_form, shorten
from .passes import innermost
from .placement import Location, Span


@dataclass(frozen=True)
class Operand:
    """An element of a tensor: `index`, in TIR `expr`, counts elements from the start of `location`."""

    location: Location
    index: LinearForm
    expr: Node | None = None

    def at(self, box: Sequence[Sequence[int]], env: Env) -> int:
        """The index of the first element that the loops `box` reach."""
        return self.index.base(env) + sum(c * first for c, (first, _) in zip(self.index.coefs, box))


class Context:
    """State that the matchers of one function share: the configuration, loop variables and locations."""

    def __init__(self, cfg: Config):
        self.cfg, self.variables = cfg, LoopVariables()
        self.locations: dict = {}  # buffer variable -> Location; views of one allocation share it
        self.time, self.loops = 0, list[Span]()  # the current instruction scope, and the loops around it
        # Deferred resets: tensor and first entry -> loops [(extent, step)] of the accumulators.
        self.zeros: dict[tuple[Location, int], list[tuple[int, int]]] = {}

    def location(self, var, stmt) -> Location:
        """The location of buffer `var`."""
        var = var.args[0] if isinstance(var, ir.Call) else var
        if var not in self.locations:
            raise ScheduleError(f"{shorten(stmt)}: {var.name!r} is neither a parameter nor allocated before")
        return self.locations[var]

    def operand(self, var, indices, scope: Scope) -> Operand:
        """The operand `var[indices]` of `scope`'s statement."""
        if len(indices) != 1:
            raise ScheduleError(f"{shorten(scope.stmt)}: {var} was not flattened")
        location = self.location(var, scope.stmt)
        location.accesses.append((self.time, tuple(self.loops)))
        return Operand(location, linear_form(indices[0], scope.loops, self.variables, scope.stmt), indices[0])

    def forget(self, written: Location | None) -> None:
        """Invalidate the tiles on chip of the tensor `written` in DRAM."""
        for location in self.locations.values():
            if location.slots is not None and written in location.loaded_from:
                location.slots.forget()

    def write_zeros(self, program: Program, location: Location) -> None:
        """Record the deferred resets of `location`."""
        for key in [key for key in self.zeros if key[0] is location]:
            program.gemm([(n, d, 0, 0) for n, d in self.zeros.pop(key)], key[1], reset=True)

    def entry(self, mem: Mem) -> int:
        """Elements of one entry of scratchpad `mem`."""
        return entry_elements(self.cfg, mem)


@dataclass
class Scope:
    """A perfect nest: `stmt` runs for every point of `loops` at which all `bounds` hold."""

    loops: list[Loop]
    bounds: list[Guard]
    stmt: Node  # BufferStore or Evaluate

    def box(self, env: Env) -> list[list[int]] | None:
        """[[first, end), ...] of the loops, or None if the scope is empty."""
        box = []
        for loop in self.loops:
            first = loop.first(env)
            box.append([first, first + loop.extent(env)])
        return box if clip(box, self.bounds, env) else None


def parse(nest, ctx: Context) -> Scope:
    """Parse the marked `nest`. Raises `ScheduleError` if it is not perfect."""
    stmt = innermost(nest)
    if stmt is None:
        raise ScheduleError(f"{shorten(nest)}: an instruction is a perfect loop nest around one statement")
    loops: list[Loop] = []
    conditions = []
    while not isinstance(nest, (tirx.BufferStore, tirx.Evaluate)):
        if isinstance(nest, tirx.For):
            loops.append(Loop(nest.loop_var, closure(nest.min, ctx.variables), closure(nest.extent, ctx.variables)))
        elif isinstance(nest, tirx.IfThenElse):
            conditions.append(nest.condition)
        assert not isinstance(nest, tirx.AttrStmt) or nest.attr_key == INSTRUCTION
        nest = nest.then_case if isinstance(nest, tirx.IfThenElse) else nest.body
    bounds = [bound for condition in conditions for bound in guards(condition, loops, ctx.variables, stmt)]
    return Scope(loops, bounds, stmt)


def channel_parameters(
    par: Operand, channels: Operand, ctx: Context, box: Sequence[Sequence[int]], env: Env, stmt
) -> tuple[int, list[int]]:
    """(first PAR entry of `par`, its step per loop of `box`) for the accumulators `channels`.

    Loops inside an accumulator entry have step 0. Raises `ScheduleError` if `par` belongs to another channel.
    """
    size, block = ctx.entry(Mem.ACC), ctx.entry(Mem.PAR)
    steps = []
    for s, p in zip(channels.index.coefs, par.index.coefs):
        if (s % size and p not in (0, PAR_WORDS * s)) or (s % size == 0 and p % block):
            raise ScheduleError(f"{shorten(stmt)}: the parameters must be those of the accumulator's channel")
        steps.append(0 if s % size else p // block)
    return par.at(box, env) // block, steps


def to_entries(
    dims: Sequence[tuple[int, ...]], offsets: Sequence[int], size: int, stmt
) -> tuple[list[tuple[int, ...]], list[int]]:
    """`dims` [(extent, step, ...)] and `offsets`, from elements to entries of `size` elements.

    Loops inside an entry must cover all of it, in the same way in every operand. Raises `ScheduleError` otherwise.
    """
    whole, lanes = [], []
    for extent, *steps in dims:
        if extent == 1:
            continue
        if all(step % size == 0 for step in steps):
            whole.append((extent, *(step // size for step in steps)))
        elif len(set(steps)) == 1:
            lanes.append((steps[0], extent))
        else:
            raise ScheduleError(f"{shorten(stmt)}: the operands step differently within an entry of {size} elements")
    reached = 1
    for step, extent in sorted(lanes):
        if step != reached or (reached * extent > size and reached * extent % size):
            break
        if reached * extent > size:  # the loop continues with whole entries
            whole.append((reached * extent // size, *(1 for _ in offsets)))
        reached = min(reached * extent, size)
    else:
        if reached == size and not any(offset % size for offset in offsets):
            return whole, [offset // size for offset in offsets]
    raise ScheduleError(
        f"{shorten(stmt)}: must cover whole entries of {size} elements: reorder the loops over lanes innermost, for a "
        "reduction after decompose_reduction"
    )
