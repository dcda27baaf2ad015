"""Lowers tensorized multiply-accumulates and resets of accumulators to GEMM instructions.

With the extension `overwrite` a reset is deferred: the first step of the following reduction replaces the accumulators
instead of adding to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ...hw.isa import Mem
from ...runtime.program import Program
from ...runtime.uop import MAX_TRIPS, grid, merge_loops
from ..intrin import DEPTHWISE, GEMM, RESET
from .affine import Env, called, constant, shorten
from .passes import pointed_to
from .scope import Context, Operand, Scope

_MEMS = (Mem.ACC, Mem.INP, Mem.WGT)
_MOST_UOPS = 8  # kernels of up to the micro-op buffer / 8 are unrolled

Nest = list[tuple[int, int, int, int]]  # loops (extent, dst, src, wgt step), outermost first


@dataclass(frozen=True)
class Gemm:
    """`operands` are accumulator, input and weight; a reset has only the first.

    The weights of a `depthwise` product are rows of `block_out` elements.
    """

    ctx: Context
    scope: Scope
    operands: tuple[Operand, ...]
    depthwise: bool = False

    def record(self, program: Program, env: Env) -> None:
        """Record the instructions for the outer loops' values `env`."""
        box = self.scope.box(env)
        if box is None:
            return
        columns, bases = [], []
        for operand, mem in zip(self.operands, _MEMS):
            rows = self.depthwise and mem == Mem.WGT
            size = program.cfg.block_out if rows else self.ctx.entry(mem)
            start = operand.at(box, env)
            if start % size or any(c % size for c in operand.index.coefs):
                raise ScheduleError(f"{shorten(self.scope.stmt)}: must address whole entries of {mem.name}")
            columns.append([c // size for c in operand.index.coefs])
            location = operand.location
            bases.append(
                location.bases[0] * program.cfg.block_in + start // size if rows else location.entry(start // size)
            )
        missing = 3 - len(columns)
        columns += [[0] * len(box)] * missing
        nest = [(end - first, d, s, w) for (first, end), d, s, w in zip(box, *columns)]
        base, location = (*bases, *[0] * missing), self.operands[0].location
        results = sorted((n, d) for n, d, *_ in nest if n > 1 and d)
        if not missing:
            (first, at, taps), *others = _by_taps(program.cfg, nest, base) if self.depthwise else [(nest, base, 1)]
            if self.ctx.zeros.get((location, base[0])) == results:
                del self.ctx.zeros[location, base[0]]
                _replacing(program, first, at, taps, self.depthwise)
            else:
                self.ctx.write_zeros(program, location)
                program.gemm(first, *at, depthwise=self.depthwise, taps=taps)
            for each, at, taps in others:
                program.gemm(each, *at, depthwise=self.depthwise, taps=taps)
        elif "overwrite" in program.cfg.extensions:
            self.ctx.zeros[location, base[0]] = results
        else:
            program.gemm(nest, base[0], reset=True)


def _by_taps(cfg: Config, nest: Nest, base: tuple[int, ...]) -> list[tuple[Nest, tuple[int, ...], int]]:
    """The products of `nest` and `base` as (nest, base, taps of a micro-op): with several where the configuration and
    the loops have them.

    One loop must go along neighbouring inputs and rows of weights, and whole groups of rows must lie between others.
    """
    most = cfg.row_taps
    along = [k for k, (n, *steps) in enumerate(nest) if n > 1 and steps == [0, 1, 1]]
    others = [loop for k, loop in enumerate(nest) if along != [k]]
    if most == 1 or len(along) != 1 or base[2] % most or any(n > 1 and w % most for n, _, _, w in others):
        return [(nest, base, 1)]
    whole, rest = divmod(nest[along[0]][0], most)
    groups = [(n, d, s, w // most) for n, d, s, w in others]
    dst, src, first = base[0], base[1], base[2] // most
    found = [([*groups, (whole, 0, most, 1)], (dst, src, first), most)] if whole else []
    if rest == 1:
        found.append((others, (dst, src + whole * most, base[2] + whole * most), 1))
    elif rest:
        found.append((groups, (dst, src + whole * most, first + whole), rest))
    return found


def _replacing(program: Program, nest: Nest, base: tuple[int, ...], taps: int, depthwise: bool) -> None:
    """Record `nest` such that its sums replace the accumulators."""
    outer = [(n, d, s, w) for n, d, s, w in merge_loops([loop for loop in nest if loop[1]], MAX_TRIPS)]
    inner = [loop for loop in nest if loop[0] > 1 and not loop[1]]
    longest = sorted(sorted(range(len(outer)), key=lambda k: -outer[k][0])[:2])
    rest = [loop for k, loop in enumerate(outer) if k not in longest]
    first, steps = grid(rest, base), grid(inner, (0, 0, 0))
    if len(first) * len(steps) <= program.cfg.uop_depth // _MOST_UOPS:
        loops = [outer[k] for k in longest]
        program.gemm_uops(first, loops, overwrite=True, depthwise=depthwise, taps=taps)
        if len(steps) > 1:
            program.gemm_uops((first[:, None] + steps[None, 1:]).reshape(-1, 3), loops, depthwise=depthwise, taps=taps)
        return
    program.gemm(outer, *base, overwrite=True, depthwise=depthwise, taps=taps)
    for k, (n, _, s, w) in enumerate(inner):  # all of the nest but its first step, in boxes
        program.gemm(
            [*outer, (n - 1, 0, s, w), *inner[k + 1 :]],
            base[0],
            base[1] + s,
            base[2] + w,
            depthwise=depthwise,
            taps=taps,
        )


def reset(program: Program, loops: list[tuple[int, int]], dst: int) -> None:
    """Record the reset of the accumulators at `loops` [(extent, step)]."""
    program.gemm([(n, d, 0, 0) for n, d in loops], dst, reset=True)


def match(scope: Scope, ctx: Context) -> Gemm:
    """Match the intrinsic call of `scope`. Raises `ScheduleError` for any other call."""
    name, pointers = called(scope.stmt.value) or (None, [])
    if name not in (GEMM, DEPTHWISE, RESET):
        raise ScheduleError(f"{shorten(scope.stmt)}: is not an instruction of the accelerator")
    operands = []
    for pointer, mem in zip(pointers, _MEMS):
        operand = ctx.operand(pointed_to(pointer), [pointer.args[2]], scope)
        if operand.location.mem != mem:
            raise ScheduleError(f"{shorten(scope.stmt)}: {operand.location.name!r} is not in {mem.name}")
        size = ctx.cfg.block_out if name == DEPTHWISE and mem == Mem.WGT else ctx.entry(mem)
        if constant(pointer.args[3]) != size:
            raise ScheduleError(
                f"{name}: tensorized for entries of {pointer.args[3]} elements in {mem.name}, {ctx.cfg.name} has "
                f"{size}: give the schedule and build the same configuration"
            )
        operands.append(operand)
    if name == DEPTHWISE:
        operands[2].location.rows = True
    return Gemm(ctx, scope, tuple(operands), name == DEPTHWISE)
