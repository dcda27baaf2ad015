"""ALU, the fast form of sim/spec.py's: a whole instruction as a few array operations.

`acc[d] = op(acc[d], b)` with b an immediate or `acc[s]`, one micro-op issue after the other. Three cases keep the
sequential meaning:

* an immediate: r uses of an accumulator are one operation, with an operand that combines r immediates;
* accumulators that are read but never written: repeated destinations are reductions;
* results that are read again: the sequence is cut into levels, each of which depends on earlier ones only.

RESCALE, LOOKUP and REDUCE have parameters, a table or nothing instead of an operand: r uses of an accumulator are r
operations on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from ...hw.isa import OPERATIONS, REDUCTIONS, AluOp, Mem
from ...hw.rounding import rescale
from .loops import DST, SRC, WGT, Axis, Nest, distinct, grid, trips, uses
from .state import Action, State, loop_action

_ROWS = 1 << 15  # micro-op issues in the index tables of one piece


def alu_action(state: State, f: dict[str, int]) -> Action:
    """The action of the decoded ALU instruction `f`."""
    op = AluOp(f["alu_op"])
    if op in _ALONE:
        return loop_action(state, f, lambda nest: _alone(state, nest.without(SRC, WGT), op, f["imm"]))
    if f["use_imm"]:
        return loop_action(state, f, lambda nest: _immediate(state, nest.without(SRC, WGT), op, f["imm"]))
    return loop_action(state, f, lambda nest: _tensor(state, nest.without(WGT), op))


def shift_right(values: np.ndarray, amounts: np.ndarray | np.int32 | int) -> np.ndarray:
    """SHR: `values` int32 shifted by `amounts`, to the left where they are negative."""
    right = np.clip(amounts, 0, 31).astype(np.int32)
    left = np.clip(np.negative(np.clip(amounts, -32, 0)), 0, 32).astype(np.int32)
    return np.where(left > 0, np.left_shift(values, left), np.right_shift(values, right))


_FUNCTIONS: dict[AluOp, Callable[[np.ndarray, np.ndarray | np.int32], np.ndarray]] = {
    AluOp.MIN: np.minimum,
    AluOp.MAX: np.maximum,
    AluOp.ADD: np.add,
    AluOp.SHR: shift_right,
    AluOp.MUL: np.multiply,
}
_ASSOCIATIVE: dict[AluOp, np.ufunc] = {
    op: f for op, f in _FUNCTIONS.items() if OPERATIONS[op].order_free and isinstance(f, np.ufunc)
}


def _view(state: State, base: int, axes: Sequence[Axis], column: int) -> np.ndarray:
    """A view of the accumulators that regular `axes` name, a dimension per axis and one for the lanes."""
    lanes = state.acc.shape[1]
    shape = (*(axis.n for axis in axes), lanes)
    strides = (*(4 * lanes * axis.step[column] for axis in axes), 4)
    return np.ndarray(shape, np.int32, state.acc.data, 4 * lanes * base, strides)


def _into(op: AluOp, target: np.ndarray, operand: np.ndarray) -> None:
    """Target = op(target, operand)."""
    if op in _ASSOCIATIVE:
        _ASSOCIATIVE[op](target, operand, out=target)
    else:
        target[...] = _FUNCTIONS[op](target, operand)


# -- immediates


def _immediate(state: State, nest: Nest, op: AluOp, imm: int) -> Iterator[Action]:
    low, high = nest.limits(DST)
    state.check(Mem.ACC, low, high)
    yield partial(state.sums.settle, low, high)
    if op not in _REPEATED:
        operand = np.int32(imm)
        yield _passes(state, nest, low, lambda before: _FUNCTIONS[op](before, operand))
        return
    if distinct(nest.axes, DST):
        view = _view(state, nest.base[DST], nest.axes, DST)
        operand = _REPEATED[op](imm, np.ones(1, np.int64))[0]
        if op == AluOp.SHR:
            ufunc, operand = np.right_shift if operand >= 0 else np.left_shift, abs(operand)
        else:
            ufunc = _ASSOCIATIVE[op]
        if op in (AluOp.MIN, AluOp.MAX):  # numpy is five times slower with one number than with an array of it
            key = ("constant", imm, view.shape)
            operand = state.plans.get(key, lambda: np.full(view.shape, imm, np.int32), lambda a: a.nbytes)
        yield lambda: ufunc(view, operand, out=view)
        return
    counts = uses(nest.axes, DST)
    index = np.flatnonzero(counts)
    operands = _REPEATED[op](imm, counts[index])[:, None]
    index += low

    def execute() -> None:
        state.acc[index] = _FUNCTIONS[op](state.acc[index], operands)

    yield execute


def _power(imm: int, counts: np.ndarray) -> np.ndarray:
    """`imm ** counts`, wrapped to int32."""
    values, where = np.unique(counts, return_inverse=True)
    powers = np.array([pow(imm, n, 1 << 32) for n in values.tolist()], np.uint32)
    return powers.view(np.int32)[where]


def _same(imm: int, counts: np.ndarray) -> np.ndarray:
    return np.full(len(counts), imm, np.int32)


# (imm, counts) -> the operand that does at once what `imm` does `counts` times, int32 like `counts`
_REPEATED: dict[AluOp, Callable[[int, np.ndarray], np.ndarray]] = {
    AluOp.MIN: _same,
    AluOp.MAX: _same,
    AluOp.ADD: lambda imm, counts: (counts * imm).astype(np.int32),
    AluOp.SHR: lambda imm, counts: np.clip(counts * imm, -32, 31).astype(np.int32),
    AluOp.MUL: _power,
}


def _alone(state: State, nest: Nest, op: AluOp, imm: int) -> Iterator[Action]:
    low, high = nest.limits(DST)
    state.check(Mem.ACC, low, high)
    yield partial(state.sums.settle, low, high)
    if op == AluOp.RESCALE:
        state.check(Mem.PAR, imm, imm)
    yield _passes(state, nest, low, lambda before: _ALONE[op](state, imm, before))


def _rescale(state: State, entry: int, before: np.ndarray) -> np.ndarray:
    p = (np.tile(state.par[name][entry], state.cfg.batch) for name in ("multiplier", "exponent", "mode"))
    return rescale(before, *p).astype(np.int32)


def _lookup(state: State, table: int, before: np.ndarray) -> np.ndarray:
    return state.tables[table][np.clip(before, -128, 127) + 128]


def _reduce_lanes(state: State, choice: int, before: np.ndarray) -> np.ndarray:
    reduced = _REDUCTIONS[choice].reduce(before.reshape(-1, state.cfg.block_out), axis=1, dtype=np.int32)
    return np.repeat(reduced, state.cfg.block_out).reshape(before.shape)


_UFUNCS = {"sum": np.add, "max": np.maximum}
_REDUCTIONS = tuple(_UFUNCS[name] for name in REDUCTIONS)
# operations that read nothing but accumulators and their immediate: (state, immediate, accumulators) -> accumulators
_ALONE: dict[AluOp, Callable[[State, int, np.ndarray], np.ndarray]] = {
    AluOp.RESCALE: _rescale,
    AluOp.LOOKUP: _lookup,
    AluOp.REDUCE: _reduce_lanes,
}


def _passes(state: State, nest: Nest, low: int, once: Callable[[np.ndarray], np.ndarray]) -> Action:
    """Replace accumulators by `once` of them, each as often as `nest` names it; `low` is the first that it names."""
    every = uses(nest.axes, DST)
    index = np.flatnonzero(every)
    counts = every[index]
    index += low

    def execute() -> None:
        at, left = index, counts
        while len(at):
            before = state.acc[at]
            after = once(before)
            state.acc[at] = after
            left = left - 1
            again = (left > 0) & (after != before).any(axis=1)  # what stays the same once stays the same
            at, left = at[again], left[again]

    return execute


# -- tensors


def _tensor(state: State, nest: Nest, op: AluOp) -> Iterator[Action]:
    written, read = nest.limits(DST), nest.limits(SRC)
    state.check(Mem.ACC, *written)
    state.check(Mem.ACC, *read)
    yield partial(state.sums.settle, *written)
    yield partial(state.sums.settle, *read)
    if written[1] < read[0] or read[1] < written[0]:
        outer = [axis for axis in nest.axes if axis.varies(DST)]
        inner = [axis for axis in nest.axes if not axis.varies(DST)]
        regular = distinct(outer, DST) and not any(axis.table for axis in inner)
        if regular and not inner:
            yield _elementwise(state, nest, op)
            return
        if regular and op in _ASSOCIATIVE:
            yield _reduce(state, nest, op, outer, inner)
            return
    for piece in nest.pieces(lambda axes: trips(axes) <= _ROWS, ordered=True):
        yield _in_order(state, piece, op)


def _elementwise(state: State, nest: Nest, op: AluOp) -> Action:
    target = _view(state, nest.base[DST], nest.axes, DST)
    operand = _view(state, nest.base[SRC], nest.axes, SRC)
    return lambda: _into(op, target, operand)


def _reduce(state: State, nest: Nest, op: AluOp, outer: list[Axis], inner: list[Axis]) -> Action:
    target = _view(state, nest.base[DST], outer, DST)
    operands = _view(state, nest.base[SRC], [*outer, *inner], SRC)
    reduced = tuple(range(len(outer), len(outer) + len(inner)))
    ufunc = _ASSOCIATIVE[op]
    return lambda: ufunc(target, ufunc.reduce(operands, axis=reduced, dtype=np.int32), out=target)


def _in_order(state: State, piece: Nest, op: AluOp) -> Action:
    plan = state.plans.get(
        ("alu", piece.axes, piece.base[DST] - piece.base[SRC], op in _ASSOCIATIVE),
        lambda: _Levels(piece, op in _ASSOCIATIVE),
        lambda p: p.nbytes,
    )
    return lambda: plan.run(state.acc, piece.base[DST], op)


class _Levels:
    """A sequence of operations cut into levels that can each be executed at once.

    Where no result is read again and `reducible`, there is one level: the operands are sorted by destination and each
    run of them is reduced. Otherwise the destinations of a level are distinct, and all its operands are read before any
    result is written. Indices are relative to the first destination.
    """

    def __init__(self, piece: Nest, reducible: bool):
        dst = grid(piece.axes, DST).reshape(-1)
        src = grid(piece.axes, SRC).reshape(-1) + (piece.base[SRC] - piece.base[DST])
        self.starts: np.ndarray | None = None
        if reducible and not np.isin(src, dst).any():
            order = np.argsort(dst, kind="stable")
            self.starts = np.flatnonzero(np.diff(dst[order], prepend=dst[order[0]] - 1))
            self.levels = [(dst[order][self.starts], src[order])]
        else:
            level = _level_of(dst, src)
            order = np.argsort(level, kind="stable")
            cuts = np.cumsum(np.bincount(level))[:-1]
            self.levels = list(zip(np.split(dst[order], cuts), np.split(src[order], cuts)))
        self.nbytes = 16 * len(dst) + 256 * len(self.levels) + 1024

    def run(self, acc: np.ndarray, base: int, op: AluOp) -> None:
        """Execute the operations around accumulator `base`."""
        for dst, src in self.levels:
            operand = acc[src + base]
            if self.starts is not None:
                operand = _ASSOCIATIVE[op].reduceat(operand, self.starts, axis=0, dtype=np.int32)
            acc[dst + base] = _FUNCTIONS[op](acc[dst + base], operand)


def _level_of(dst: np.ndarray, src: np.ndarray) -> np.ndarray:
    """The level of each operation: after those that write its operands, not before those that read its destination."""
    low = min(int(dst.min()), int(src.min()))
    size = max(int(dst.max()), int(src.max())) - low + 1
    written, read, out = [-1] * size, [0] * size, []
    for d, s in zip((dst - low).tolist(), (src - low).tolist()):
        level = max(written[d] + 1, written[s] + 1, read[d])
        written[d] = level
        read[s] = max(read[s], level)
        out.append(level)
    return np.array(out, np.intp)
