"""Lowers element-wise statements on accumulators to ALU instructions, one per operation.

The ALU works in place: `acc[d] = op(acc[d], b)`. One operand of an expression becomes the accumulator that the
operations change in order; every other operand is an immediate or an accumulator that is only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...hw.errors import ScheduleError
from ...hw.isa import AluOp, Mem
from ...runtime.program import Program
from ...runtime.uop import grid
from ..advice import instead_of
from ..intrin import PAR_WORDS, RESCALE
from ..tvm_compat import ir, structural_equal, tirx
from .affine import Env, called, constant, shorten
from .match_gemm import reset
from .placement import Storage
from .scope import Context, Operand, Scope, channel_parameters, to_entries

_IMM = range(-(1 << 15), 1 << 15)
_SHIFT_RIGHT, _SHIFT_LEFT = 15, 16  # largest amounts that all implementations of the instruction set support
_COMMUTATIVE = {tirx.Add: AluOp.ADD, tirx.Max: AluOp.MAX, tirx.Min: AluOp.MIN, tirx.Mul: AluOp.MUL}


class Step(NamedTuple):
    """One operation; `other` is an immediate or an operand that is read: accumulators, or the parameters of RESCALE."""

    op: AluOp
    other: int | Operand


class Chain(NamedTuple):
    """Operations on the accumulator `first`."""

    first: Operand
    steps: tuple[Step, ...]


def _immediates(op: AluOp, value: int, scope: Scope) -> tuple[Step, ...]:
    """Steps that apply `op` with a literal. SHR takes negative amounts to shift left."""
    if op == AluOp.SHR:
        steps = []
        while value:
            part = max(-_SHIFT_LEFT, min(_SHIFT_RIGHT, value))
            steps.append(Step(op, part))
            value -= part
        return tuple(steps)
    if value not in _IMM:
        raise ScheduleError(
            f"{shorten(scope.stmt)}: the constant {value} does not fit an immediate of 16 bits; load it as a tensor"
        )
    return (Step(op, value),)


class _ChainSearch:
    """Enumerates the ways to compute an expression in place."""

    def __init__(self, scope: Scope, ctx: Context):
        self.scope, self.ctx = scope, ctx

    def operand(self, expr) -> Operand | None:
        """The accumulators that `expr` reads directly, or None if it is a computation."""
        if isinstance(expr, tirx.Cast) and str(expr.ty.dtype) == "int32":
            expr = expr.value
        if not isinstance(expr, ir.TensorLoad):
            return None
        operand = self.ctx.operand(expr.source, expr.indices, self.scope)
        if operand.location.mem != Mem.ACC:
            raise ScheduleError(
                f"{shorten(self.scope.stmt)}: the ALU reads accumulators only, and {operand.location.name!r} is not in "
                "local.acc; a multiply-accumulate becomes GEMM by intrin.tensorize_gemm"
            )
        return operand

    def of(self, expr) -> Iterator[Chain]:
        """Every chain that computes `expr`."""
        leaf = self.operand(expr)
        if leaf is not None:
            yield Chain(leaf, ())
        elif isinstance(expr, (tirx.RShift, tirx.LShift)):
            yield from self._shift(expr)
        elif isinstance(expr, tirx.Sub):
            yield from self._subtract(expr.a, expr.b)
        elif called(expr) is not None:
            yield from self._rescale(expr)
        elif type(expr) in _COMMUTATIVE:
            for a, b in ((expr.a, expr.b), (expr.b, expr.a)):
                yield from self._extend(a, self._second(_COMMUTATIVE[type(expr)], b))
        else:
            remedy = instead_of(expr) or "compute it of max, min, add, sub, mul and shifts, or on the host"
            raise ScheduleError(
                f"{shorten(self.scope.stmt, 80)}: {shorten(expr, 60)} is not an ALU operation; {remedy}"
            )

    def _second(self, op: AluOp, expr) -> tuple[Step, ...] | None:
        value = constant(expr)
        if value is not None:
            return _immediates(op, value, self.scope)
        other = self.operand(expr)
        return None if other is None else (Step(op, other),)

    def _extend(self, expr, steps: tuple[Step, ...] | None) -> Iterator[Chain]:
        if steps is not None and constant(expr) is None:
            for first, before in self.of(expr):
                yield Chain(first, before + steps)

    def _shift(self, expr) -> Iterator[Chain]:
        amount = constant(expr.b)
        if amount is not None:
            left = isinstance(expr, tirx.LShift)
            yield from self._extend(expr.a, _immediates(AluOp.SHR, -amount if left else amount, self.scope))
        elif isinstance(expr, tirx.RShift):
            yield from self._extend(expr.a, self._second(AluOp.SHR, expr.b))
        else:
            raise ScheduleError(
                f"{shorten(self.scope.stmt)}: the amount of a left shift must be constant; shift right by -n"
            )

    def _rescale(self, expr) -> Iterator[Chain]:
        name, args = called(expr) or ("", [])
        if name != RESCALE or len(args) != 1 + PAR_WORDS or not all(isinstance(arg, ir.TensorLoad) for arg in args[1:]):
            raise ScheduleError(f"{shorten(self.scope.stmt)}: {name} is not an ALU operation")
        par, *_ = (self.ctx.operand(arg.source, arg.indices, self.scope) for arg in args[1:])
        if par.location.mem != Mem.PAR:
            raise ScheduleError(f"{shorten(self.scope.stmt)}: the parameters of {name} must be in local.par")
        yield from self._extend(args[0], (Step(AluOp.RESCALE, par),))

    def _subtract(self, a, b) -> Iterator[Chain]:
        negate = Step(AluOp.MUL, -1)
        value = constant(b)
        if value is not None:
            yield from self._extend(a, _immediates(AluOp.ADD, -value, self.scope))
            return
        plus_a = self._second(AluOp.ADD, a)
        if plus_a is not None:
            yield from self._extend(b, (negate, *plus_a))
        plus_b = self._second(AluOp.ADD, b)
        if plus_b is not None:  # a - b = -(b - a), which does not change b
            yield from self._extend(a, (negate, *plus_b, negate))


def _read(steps: Sequence[Step]) -> list[Operand]:
    """The accumulators that `steps` read."""
    return [s.other for s in steps if isinstance(s.other, Operand) and s.op != AluOp.RESCALE]


def _indices(loops: list[tuple[int, ...]], column: int, base: int) -> np.ndarray:
    return grid([(loop[0], loop[column]) for loop in loops], (base,))[:, 0]


@dataclass(frozen=True)
class AluMatch:
    """Computes `target` by one of the equivalent `chains`."""

    ctx: Context
    scope: Scope
    target: Operand
    chains: tuple[Chain, ...]

    def compute_in_place(self, storage: Storage, time: int) -> None:
        """Let the target share the entries of an operand that is not needed afterwards, if there is one."""
        others = [[operand.location for operand in _read(steps)] for _, steps in self.chains]
        for (first, _), read in zip(self.chains, others):
            same = first.location is self.target.location
            alike = structural_equal(first.expr, self.target.expr) and first.location not in read
            if same or (alike and storage.join(first.location, self.target.location, time)):
                storage.read_by_alu(read)
                return
        storage.read_by_alu([self.chains[0].first.location, *others[0]])

    def record(self, program: Program, env: Env) -> None:
        """Record the instructions for the outer loops' values `env`."""
        box = self.scope.box(env)
        if box is None:
            return
        mine = self._position(self.target, box, env)
        in_place = [chain for chain in self.chains if self._position(chain.first, box, env) == mine]
        first, steps = (in_place or self.chains)[0]
        if not in_place:
            steps = (Step(AluOp.ADD, first), *steps)
        others = _read(steps)
        loops, bases = self._entries(box, [self.target, *others], env)
        if not in_place or len(steps) > 1:
            self._check_passes(loops, bases, len(_read(steps[:1])) if in_place else 0)
        results = [(loop[0], loop[1]) for loop in loops]
        if not in_place:
            reset(program, results, bases[0])
        column = 1
        for op, other in steps:
            if op == AluOp.RESCALE:
                assert isinstance(other, Operand)
                self._record_rescale(program, other, box, env)
            elif isinstance(other, Operand):
                column += 1
                dims = [(loop[0], loop[1], loop[column]) for loop in loops]
                program.alu(op, dims, bases[0], bases[column - 1])
            else:
                program.alu(op, [(n, d, 0) for n, d in results], bases[0], imm=other)

    def _record_rescale(self, program: Program, par: Operand, box: list[list[int]], env: Env) -> None:
        first, steps = channel_parameters(par, self.target, self.ctx, box, env, self.scope.stmt)
        size = self.ctx.entry(Mem.ACC)
        dims = [
            (end - low, c, c if c % size else p * size) for (low, end), c, p in zip(box, self.target.index.coefs, steps)
        ]
        offsets = [self.target.at(box, env), first * size]
        loops, (dst, entry) = to_entries(dims, offsets, size, self.scope.stmt)
        groups = grid([(n, d, p) for n, d, p in loops if p], (dst, entry))  # one entry of parameters each
        for start, imm in groups.tolist():
            same = [(n, d, 0) for n, d, p in loops if not p]
            program.alu(AluOp.RESCALE, same, self.target.location.entry(start), imm=par.location.entry(imm))

    def _position(self, operand: Operand, box: list[list[int]], env: Env) -> tuple:
        steps = [c for c, (first, end) in zip(operand.index.coefs, box) if end - first > 1]
        return operand.location.bases, operand.at(box, env), steps

    def _entries(self, box, operands: list[Operand], env: Env) -> tuple[list[tuple[int, ...]], list[int]]:
        dims = [(end - first, *(o.index.coefs[k] for o in operands)) for k, (first, end) in enumerate(box)]
        offsets = [operand.at(box, env) for operand in operands]
        loops, starts = to_entries(dims, offsets, self.ctx.entry(Mem.ACC), self.scope.stmt)
        return loops, [operand.location.entry(start) for operand, start in zip(operands, starts)]

    def _check_passes(self, loops: list[tuple[int, ...]], bases: list[int], exempt: int) -> None:
        """Check that no result is read or changed twice: each operation runs on the whole nest before the next.

        The first `exempt` operands are read before any result is written, so they may be results.
        """
        results = _indices(loops, 1, bases[0])
        twice = len(np.unique(results)) != len(results)
        read = [_indices(loops, k + 1, base) for k, base in enumerate(bases)][1 + exempt :]
        if twice or any(np.isin(entries, results).any() for entries in read):
            raise ScheduleError(
                f"{shorten(self.scope.stmt)}: needs several ALU operations, each on the whole tile before the "
                "next, but reads or changes a result more than once; write one stage per operation"
            )


@dataclass(frozen=True)
class Fill:
    """Sets `target` to the constant `value`."""

    ctx: Context
    scope: Scope
    target: Operand
    value: int

    def record(self, program: Program, env: Env) -> None:
        """Record the instructions for the outer loops' values `env`."""
        box = self.scope.box(env)
        if box is None:
            return
        dims = [(end - first, c) for (first, end), c in zip(box, self.target.index.coefs)]
        whole, (start,) = to_entries(dims, [self.target.at(box, env)], self.ctx.entry(Mem.ACC), self.scope.stmt)
        loops, dst = [(n, d) for n, d in whole], self.target.location.entry(start)
        reset(program, loops, dst)
        low = ((self.value + (1 << 15)) & 0xFFFF) - (1 << 15)
        high = ((self.value - low) >> 16 & 0xFFFF ^ 0x8000) - 0x8000
        steps = [(AluOp.ADD, high), (AluOp.SHR, -15), (AluOp.SHR, -1)] if high else []
        for op, imm in [*steps, (AluOp.ADD, low)]:
            if imm:
                program.alu(op, [(n, d, 0) for n, d in loops], dst, imm=imm)


def match(scope: Scope, ctx: Context) -> AluMatch | Fill:
    """Match the store to accumulators of `scope`. Raises `ScheduleError` if no instructions compute it."""
    target = ctx.operand(scope.stmt.buffer, scope.stmt.indices, scope)
    value = constant(scope.stmt.value)
    if value is not None:
        return Fill(ctx, scope, target, value)
    chains = tuple(_ChainSearch(scope, ctx).of(scope.stmt.value))
    if not chains:
        raise ScheduleError(
            f"{shorten(scope.stmt)}: both operands of an operation are computed; compute one in its own stage"
        )
    return AluMatch(ctx, scope, target, chains)
