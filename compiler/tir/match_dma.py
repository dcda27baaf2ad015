"""Lowers copies between DRAM and a scratchpad to LOAD and STORE instructions.

An instruction moves a 2-D rectangle; a copy of more dimensions becomes several. Padding and tails are predicates in
TIR. Which elements they affect is computed while the program is recorded, when the outer loops have values. Limits:
only constants pad, only accumulators are stored, and padding must not cut through an entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from ...hw.errors import ScheduleError
from ...hw.isa import Mem
from ...runtime.program import Program
from ..advice import instead_of
from ..intrin import PAR_WORDS, REQUANTISE
from ..limits import limits
from ..tvm_compat import ir, tirx
from .affine import Env, Guard, called, clip, constant, guards, selection, shorten
from .scope import Context, Operand, Scope, channel_parameters, to_entries


class _Dim(NamedTuple):
    """A loop of `n` positions with steps in entries, `sram`, `dram` and `par`; DRAM has the positions [first, end)."""

    n: int
    sram: int
    dram: int
    first: int
    end: int
    par: int = 0

    @property
    def padded(self) -> bool:
        return (self.first, self.end) != (0, self.n)


_UNIT = _Dim(1, 1, 1, 0, 1)


class _Rectangle(NamedTuple):
    """A rectangle of rows `y` and columns `x` in consecutive entries of a tensor, from entry `sram` on.

    `dram` is the entry of its corner in DRAM, None for padding only; `par` is the entry of the first row's parameters.
    """

    sram: int
    dram: int | None
    y: _Dim
    x: _Dim
    par: int = 0


@dataclass(frozen=True)
class Copy:
    """A copy between `dram` and `sram`; elements outside the bounds `inside` become `fill`.

    Without `dram` all elements do. A store with `par` requantises by these parameters.
    """

    ctx: Context
    scope: Scope
    mem: Mem
    sram: Operand
    dram: Operand | None
    inside: tuple[Guard, ...] = ()
    fill: int = 0
    par: Operand | None = None

    def record(self, program: Program, env: Env) -> None:
        """Record the instructions for the outer loops' values `env`."""
        box = self.scope.box(env)
        if box is None:
            return
        tiles = tuple(self._tiles(box, env))
        if self.mem in (Mem.OUT, Mem.OUTQ):
            for tile in tiles:
                self._store(program, tile)
            self.ctx.forget(self.dram.location if self.dram else None)
        elif not self._is_on_chip(tiles):
            for tile in tiles:
                self._load(program, tile)

    def _is_on_chip(self, tiles: tuple[_Rectangle, ...]) -> bool:
        """True if the tensor's tile is on chip; if not, assign it a slot to be loaded into."""
        location = self.sram.location
        if location.slots is None:
            return False
        thread = tiles[0].sram // location.size
        shape = tuple(tile._replace(sram=tile.sram - thread * location.size) for tile in tiles)
        location.bases[thread], present = location.slots.take(thread, shape)
        return present

    def _tiles(self, box: list[list[int]], env: Env) -> Iterator[_Rectangle]:
        valid = [list(bounds) for bounds in box]
        exists = self.dram is not None and clip(valid, self.inside, env)
        operands = (self.sram, self.dram or self.sram)
        size = self.ctx.entry(self.sram.location.mem or Mem.ACC)
        plain, padded = [], []
        par, par_steps = self._parameters(box, env, size)
        for (first, end), (low, high), s, d, p in zip(box, valid, *(o.index.coefs for o in operands), par_steps):
            if exists and (low, high) != (first, end):
                if s % size or d % size:
                    raise ScheduleError(f"{shorten(self.scope.stmt)}: padding cuts through an entry of {size} elements")
                padded.append(_Dim(end - first, s // size, d // size, low - first, high - first))
            else:
                plain.append((end - first, s, d, p))
        offsets = [*(operand.at(box, env) for operand in operands), par]
        whole, (sram, dram, par) = to_entries(plain, offsets, size, self.scope.stmt)
        dims = padded + [_Dim(n, s, d, 0, n, p) for n, s, d, p in whole]
        yield from _rectangles(dims, sram, dram if exists else None, par)

    def _parameters(self, box: list[list[int]], env: Env, size: int) -> tuple[int, list[int]]:
        """First PAR entry and steps, in elements as if an entry had `size`; in an entry with the steps of `sram`."""
        first, steps = 0, [0] * len(box)
        if self.par is not None:
            first, steps = channel_parameters(self.par, self.sram, self.ctx, box, env, self.scope.stmt)
        return first * size, [s if s % size else p * size for s, p in zip(self.sram.index.coefs, steps)]

    def _load_limits(self, program: Program) -> dict[str, int]:
        return limits(program.cfg, "LOADP" if self.fill else "LOAD")

    def _load(self, program: Program, tile: _Rectangle) -> None:
        sram, dram, y, x, _ = tile
        sram = self.sram.location.entry(sram)
        largest = self._load_limits(program)
        if dram is None:
            self._fill(program, sram, y.n * x.n)
        elif max(x.first, x.n - x.end) > largest["x_pad_0"]:
            for row in range(y.n):
                at = sram + row * x.n
                inside = y.first <= row < y.end
                self._fill(program, at, x.first if inside else x.n)
                if inside:
                    length = x.end - x.first
                    self._rows(program, at + x.first, dram + row * y.dram + x.first, 1, length, 0, (0, 0, 0, 0))
                    self._fill(program, at + x.end, x.n - x.end)
        else:
            top, bottom, most = y.first, y.n - y.end, largest["y_pad_0"]
            if top > most:
                self._fill(program, sram, top * x.n)
                sram, top = sram + top * x.n, 0
            if bottom > most:
                self._fill(program, sram + (top + y.end - y.first) * x.n, bottom * x.n)
                bottom = 0
            pads = (top, bottom, x.first, x.n - x.end)
            corner = dram + y.first * y.dram + x.first
            self._rows(program, sram, corner, y.end - y.first, x.end - x.first, y.dram, pads)

    def _rows(self, program: Program, sram: int, dram: int, rows: int, length: int, stride: int, pads: tuple) -> None:
        largest = self._load_limits(program)
        most = largest["y_size"] if stride <= largest["x_stride"] else 1
        for k in range(0, rows, most):
            n = min(most, rows - k)
            part = (pads[0] if k == 0 else 0, pads[1] if k + n == rows else 0, *pads[2:])
            shape = {"y_size": n, "x_size": length, "x_stride": stride, "pads": part, "pad_value": self.fill}
            self._emit(program, sram, dram + k * stride, shape)
            sram += (part[0] + n + part[1]) * (length + pads[2] + pads[3])

    def _fill(self, program: Program, sram: int, n: int) -> None:
        most = self._load_limits(program)["x_size"]
        for k in range(0, n, most):  # a tile without rows and one row of padding
            shape = {"y_size": 0, "x_size": min(most, n - k), "pads": (1, 0, 0, 0), "pad_value": self.fill}
            self._emit(program, sram + k, 0, shape)

    def _emit(self, program: Program, sram: int, dram: int, shape: dict) -> None:
        # An instruction of padding only reads no byte: any buffer will do.
        buffer = self.dram.location.buffer if self.dram else next(iter(program.buffers.values()))
        assert buffer is not None
        program.load(self.mem, sram, buffer, dram, **shape)

    def _store(self, program: Program, tile: _Rectangle) -> None:
        sram, dram, y, x, par = tile
        largest, buffer = limits(program.cfg, "STORE"), self.dram and self.dram.location.buffer
        assert dram is not None and buffer is not None
        sram, most = self.sram.location.entry(sram), largest["y_size"] if y.dram <= largest["x_stride"] else 1
        if self.par and y.par > limits(program.cfg, "STOREQ")["par_step"]:
            most = 1
        for k in range(0, y.n, most):
            n = min(most, y.n - k)
            entry = self.par.location.entry(par + k * y.par) if self.par else None
            program.store(
                sram + k * x.n,
                buffer,
                dram + k * y.dram,
                y_size=n,
                x_size=x.n,
                x_stride=y.dram,
                par=entry,
                par_step=y.par if self.par and n > 1 else 0,
            )


def _rectangles(dims: list[_Dim], sram: int, dram: int | None, par: int) -> Iterator[_Rectangle]:
    """Split `dims` into rectangles of the two innermost dimensions, as far as they are dense on chip."""
    rest = _merged(sorted((d for d in dims if d.n > 1), key=lambda d: -d.sram), dram is None)
    x = _UNIT
    if rest and rest[-1].sram == 1 and (rest[-1].dram == 1 or dram is None) and not rest[-1].par:
        x = rest.pop()
    y = rest.pop() if rest and rest[-1].sram == x.n and rest[-1].dram >= 0 else _Dim(1, 0, 0, 0, 1)
    for position in product(*(range(d.n) for d in rest)):
        inside = dram is not None and all(d.first <= p < d.end for p, d in zip(position, rest))
        corner = dram + sum(p * d.dram for p, d in zip(position, rest)) if inside and dram is not None else None
        offset, entry = (sum(p * step for p, step in zip(position, steps)) for steps in _steps(rest))
        yield _Rectangle(sram + offset, corner, y, x, par + entry)


def _steps(dims: list[_Dim]) -> tuple[list[int], list[int]]:
    return [d.sram for d in dims], [d.par for d in dims]


def _continues(outer: _Dim, inner: _Dim) -> bool:
    dense = outer.dram == inner.n * inner.dram and outer.par == inner.n * inner.par
    return dense and not (outer.padded or inner.padded)


def _merged(dims: list[_Dim], padding_only: bool) -> list[_Dim]:
    out: list[_Dim] = []
    for d in reversed(dims):
        inner = out[-1] if out else None
        if inner and d.sram == inner.n * inner.sram and (padding_only or _continues(d, inner)):
            n = d.n * inner.n
            out[-1] = _Dim(n, inner.sram, inner.dram, 0, n, inner.par)
        else:
            out.append(d)
    return out[::-1]


def match(scope: Scope, ctx: Context) -> Copy:
    """Match the store statement of `scope` as a copy. Raises `ScheduleError` if it is not one."""
    stmt = scope.stmt
    value, inside, fill = stmt.value, (), 0
    cast = isinstance(value, tirx.Cast)
    value = value.value if cast else value
    call = called(value)
    if call is not None:
        return _requantised(scope, ctx, *call)
    choice = selection(value)
    if choice is not None:
        condition, value, other = choice
        fill = constant(other)
        inside = tuple(guards(condition, scope.loops, ctx.variables, stmt))
        if fill is None:
            raise ScheduleError(f"{shorten(stmt)}: the padding {shorten(other)} is not a constant")
    value = value.value if isinstance(value, tirx.Cast) else value
    number = constant(value)
    if number is not None:
        return _fill_copy(scope, ctx, number)
    if not isinstance(value, ir.TensorLoad):
        remedy = "compute on accumulators (set_scope ACC, cache_read ACC), and fold a zero point into the bias"
        raise ScheduleError(
            f"{shorten(stmt)}: only plain copies move data between DRAM and a scratchpad: {instead_of(value) or remedy}"
        )
    target = ctx.operand(stmt.buffer, stmt.indices, scope)
    source = ctx.operand(value.source, value.indices, scope)
    if source.location.mem is not None and target.location.mem is None:
        return _store(scope, ctx, target, source, choice is not None)
    if source.location.mem is None and target.location.mem is not None:
        target.location.writers.append(len(ctx.loops))
        target.location.loaded_from.append(source.location)
        mem = _loaded_as(stmt, source.location.dtype, target.location.mem, target.location.dtype)
        source.location.moved_to.add(mem)
        return Copy(ctx, scope, mem, target, source, inside, fill)
    raise ScheduleError(
        f"{shorten(stmt)}: a copy needs a scratchpad on one side and DRAM on the other: drop it, or set_scope one side"
    )


def _fill_copy(scope: Scope, ctx: Context, value: int) -> Copy:
    target = ctx.operand(scope.stmt.buffer, scope.stmt.indices, scope)
    if target.location.mem is None:
        raise ScheduleError(
            f"{shorten(scope.stmt)}: a constant cannot be stored to DRAM; set_scope(block, 0, ACC) first"
        )
    target.location.writers.append(len(ctx.loops))
    return Copy(ctx, scope, target.location.mem, target, None, (), value)


def _store(scope: Scope, ctx: Context, target: Operand, source: Operand, padded: bool) -> Copy:
    if source.location.mem != Mem.ACC:
        raise ScheduleError(f"{shorten(scope.stmt)}: only accumulators can be stored: move it through local.acc")
    if target.location.dtype != "int8":
        raise ScheduleError(
            f"{shorten(scope.stmt)}: STORE writes the low bits of accumulators as int8, not {target.location.dtype}; "
            "cast to int8, or store byte planes"
        )
    if padded:
        raise ScheduleError(f"{shorten(scope.stmt)}: a store cannot pad")
    target.location.stored = True
    target.location.moved_to.add(Mem.OUT)
    return Copy(ctx, scope, Mem.OUT, source, target)


def _requantised(scope: Scope, ctx: Context, name: str, args: list) -> Copy:
    if name != REQUANTISE or len(args) != 1 + PAR_WORDS or not all(isinstance(arg, ir.TensorLoad) for arg in args):
        raise ScheduleError(f"{shorten(scope.stmt)}: a store cannot compute {name}")
    source, par, *_ = (ctx.operand(arg.source, arg.indices, scope) for arg in args)
    target = ctx.operand(scope.stmt.buffer, scope.stmt.indices, scope)
    if (source.location.mem, par.location.mem, target.location.mem) != (
        Mem.ACC,
        Mem.PAR,
        None,
    ) or target.location.dtype != "int8":
        raise ScheduleError(
            f"{shorten(scope.stmt)}: a requantising store takes accumulators in local.acc, parameters in local.par, "
            "and an int8 tensor in DRAM"
        )
    target.location.stored = True
    target.location.moved_to.add(Mem.OUTQ)
    return Copy(ctx, scope, Mem.OUTQ, source, target, par=par)


def _loaded_as(stmt, dtype: str, mem: Mem, target_dtype: str) -> Mem:
    if mem in (Mem.INP, Mem.WGT) and (dtype, target_dtype) == ("int8", "int8"):
        return mem
    if mem == Mem.PAR and dtype == target_dtype == "uint32":
        return mem
    if mem == Mem.ACC and target_dtype == "int32" and dtype in ("int8", "int32"):
        return Mem.ACC8 if dtype == "int8" else Mem.ACC
    raise ScheduleError(
        f"{shorten(stmt)}: {dtype} cannot be loaded into {mem.name} as {target_dtype}; INP and WGT take int8, ACC int8 "
        "or int32 as int32, PAR uint32; quantise floats on the host"
    )
