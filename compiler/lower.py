"""From lowered TIR to a recorded program: scratchpad addresses, matching, and a walk over the outer loops."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..hw.config import Config
from ..hw.errors import ScheduleError
from ..hw.isa import Mem
from ..runtime.program import Program
from . import match_alu, match_dma, match_gemm
from .affine import Env, closure, constant, shorten
from .intrin import INSTRUCTION, SCOPES
from .passes import lower_tir
from .scope import Context, parse
from .storage import Place, Span, Storage
from .tvm_compat import PrimFunc, ir, structural_walk, tirx

_Run = Callable[[Program, Env], None]


def record(func: PrimFunc, cfg: Config, name: str) -> Program:
    """The program of the scheduled `func`. Raises `ScheduleError`, `CapacityError` or what the recorder raises."""
    return _Recorder(lower_tir(func), cfg).record(name)


def _elements(shape, name: str) -> int:
    sizes = [constant(n) for n in shape]
    if None in sizes:
        raise ScheduleError(f"{name!r}: shape {tuple(map(str, shape))} is not constant")
    return math.prod(n for n in sizes if n is not None)


class _Recorder:
    """Compiles each statement to a Python function once, then runs them."""

    def __init__(self, func: PrimFunc, cfg: Config):
        self.func, self.cfg, self.ctx = func, cfg, Context(cfg)
        self.alus: list[tuple[int, match_alu.Alu]] = []
        self.params: list[Place] = []
        self.temps: list[Place] = []
        self.shapes: dict[str, tuple[int, ...]] = {}

    def record(self, name: str) -> Program:
        """The recorded program."""
        for param in self.func.params:
            place = Place(param.name, str(param.ty.dtype), _elements(param.ty.shape, param.name))
            self.ctx.places[param] = place
            self.params.append(place)
            self.shapes[place.name] = tuple(int(n) for n in param.ty.shape)
        run = self._compile(self.func.body)
        storage = Storage(self.ctx.places.values(), self.cfg)
        for time, alu in self.alus:
            alu.compute_in_place(storage, time)
        storage.assign()
        program = Program(self.cfg, name)
        for place in self.params + self.temps:
            self._declare(program, place)
        run(program, [0] * len(self.ctx.slots))
        return program

    def _declare(self, program: Program, place: Place) -> None:
        widths = {self._bits(mem) for mem in place.moved_to} or {32 if place.dtype == "int32" else 8}
        if len(widths) > 1:
            names = ", ".join(sorted(mem.name for mem in place.moved_to))
            raise ScheduleError(f"{place.name!r} is moved to {names}, whose elements have different widths in DRAM")
        kind = "temp" if place in self.temps else "output" if place.stored else "input"
        shape = self.shapes.get(place.name, (place.elements,))
        place.buffer = program.buffer(place.name, shape, widths.pop(), kind=kind)

    def _bits(self, mem: Mem) -> int:
        cfg = self.cfg
        bits = {Mem.INP: cfg.inp_bits, Mem.WGT: cfg.wgt_bits, Mem.ACC: cfg.acc_bits, Mem.ACC8: 8, Mem.OUT: cfg.out_bits}
        return bits[mem]

    def _compile(self, stmt) -> _Run:
        if isinstance(stmt, tirx.SeqStmt):
            parts = [self._compile(part) for part in stmt.seq]

            def sequence(program: Program, env: Env) -> None:
                for part in parts:
                    part(program, env)

            return sequence
        if isinstance(stmt, tirx.For):
            return self._loop(stmt)
        if isinstance(stmt, tirx.IfThenElse):
            return self._condition(stmt)
        if isinstance(stmt, tirx.AttrStmt):
            return self._match(stmt.body) if stmt.attr_key == INSTRUCTION else self._compile(stmt.body)
        if isinstance(stmt, tirx.AllocBuffer):
            self._allocate(stmt.buffer)
        elif isinstance(stmt, tirx.DeclBuffer):
            self.ctx.places[stmt.buffer] = self.ctx.place(stmt.data, stmt)
        elif isinstance(stmt, (tirx.BufferStore, tirx.Evaluate)):
            if not isinstance(stmt, tirx.Evaluate) or constant(stmt.value) is None:
                return self._match(stmt)
        else:
            raise ScheduleError(f"{shorten(stmt)}: {type(stmt).__name__} is not supported")
        return lambda program, env: None

    def _loop(self, stmt) -> _Run:
        slot = self.ctx.slots.add(stmt.loop_var)
        first, extent = closure(stmt.min, self.ctx.slots), closure(stmt.extent, self.ctx.slots)
        span = Span(self.ctx.time + 1)
        self.ctx.loops.append(span)
        body = self._compile(stmt.body)
        self.ctx.loops.pop()
        span.end = self.ctx.time

        def loop(program: Program, env: Env) -> None:
            start = first(env)
            for value in range(start, start + extent(env)):
                env[slot] = value
                body(program, env)

        return loop

    def _condition(self, stmt) -> _Run:
        test, then = closure(stmt.condition, self.ctx.slots), self._compile(stmt.then_case)
        other = None if stmt.else_case is None else self._compile(stmt.else_case)

        def condition(program: Program, env: Env) -> None:
            if test(env):
                then(program, env)
            elif other is not None:
                other(program, env)

        return condition

    def _match(self, nest) -> _Run:
        self.ctx.time += 1
        scope = parse(nest, self.ctx)
        if isinstance(scope.stmt, tirx.Evaluate):
            return match_gemm.match(scope, self.ctx).record
        target = self.ctx.place(scope.stmt.buffer, scope.stmt)
        loads: list = []
        structural_walk(scope.stmt.value, [(ir.TensorLoad, loads.append)])
        sources = [self.ctx.place(load.source, scope.stmt) for load in loads]
        if target.mem != Mem.ACC or any(source.mem is None for source in sources):
            return match_dma.match(scope, self.ctx).record
        action = match_alu.match(scope, self.ctx)
        if isinstance(action, match_alu.Alu):
            self.alus.append((self.ctx.time, action))
        return action.record

    def _allocate(self, var) -> None:
        name, scope = var.name.split("_local.")[0], var.scope()  # TVM appends the scope
        mem = SCOPES.get(scope)
        if mem is None and scope not in ("", "global"):
            raise ScheduleError(f"{name!r} is in scope {scope!r}; known are global, {', '.join(SCOPES)}")
        place = Place(name, str(var.ty.dtype), _elements(var.ty.shape, name), mem, len(self.ctx.loops))
        self.ctx.places[var] = place
        if mem is None:
            self.temps.append(place)
