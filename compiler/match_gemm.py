"""Tensorized multiply-accumulates and resets of accumulators become GEMM instructions."""

from __future__ import annotations

from dataclasses import dataclass

from ..hw.errors import ScheduleError
from ..hw.isa import Mem
from ..runtime.program import Program
from .affine import Env, fold, shorten
from .intrin import GEMM, RESET
from .scope import Context, Operand, Scope
from .tvm_compat import ir
from .vthread import pointed_to

_MEMS = (Mem.ACC, Mem.INP, Mem.WGT)


@dataclass(frozen=True)
class Gemm:
    """`operands` are accumulator, input and weight; a reset has only the first."""

    ctx: Context
    scope: Scope
    operands: tuple[Operand, ...]

    def record(self, program: Program, env: Env) -> None:
        """Record the instruction for the outer loops' values `env`."""
        box = self.scope.box(env)
        if box is None:
            return
        columns, bases = [], []
        for operand, mem in zip(self.operands, _MEMS):
            size = self.ctx.entry(mem)
            start = operand.at(box, env)
            if start % size or any(c % size for c in operand.index.coefs):
                raise ScheduleError(f"{shorten(self.scope.stmt)}: does not address whole entries of {mem.name}")
            columns.append([c // size for c in operand.index.coefs])
            bases.append(operand.place.base + start // size)
        missing = 3 - len(columns)
        columns += [[0] * len(box)] * missing
        loops = fold([(end - first, *steps) for (first, end), *steps in zip(box, *columns)])
        dst, src, wgt = bases + [0] * missing
        program.gemm([(n, d, s, w) for n, d, s, w in loops], dst, src, wgt, reset=bool(missing))


def reset(program: Program, loops: list[tuple[int, int]], dst: int) -> None:
    """Record that the accumulators over `loops` [(extent, step)] become zero."""
    program.gemm([(n, d, 0, 0) for n, d in fold(loops)], dst, reset=True)


def match(scope: Scope, ctx: Context) -> Gemm:
    """The instruction that the intrinsic call of `scope` is. Raises `ScheduleError` for any other call."""
    call = scope.stmt.value
    name = call.args[0].value if isinstance(call, ir.Call) and call.op.name.endswith("call_extern") else None
    if name not in (GEMM, RESET):
        raise ScheduleError(f"{shorten(scope.stmt)}: is not an instruction of the accelerator")
    operands = []
    for pointer, mem in zip(call.args[1:], _MEMS):
        operand = ctx.operand(pointed_to(pointer), [pointer.args[2]], scope)
        if operand.place.mem != mem:
            raise ScheduleError(f"{shorten(scope.stmt)}: {operand.place.name!r} is not in {mem.name}")
        operands.append(operand)
    return Gemm(ctx, scope, tuple(operands))
