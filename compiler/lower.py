"""From lowered TIR to a recorded program: scratchpad addresses, matching, and a walk over the outer loops."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..hw.config import Config
from ..hw.errors import CapacityError, ScheduleError
from ..hw.isa import Mem, depth
from ..runtime.program import Program
from . import match_alu, match_dma, match_gemm
from .affine import Env, closure, constant, shorten
from .intrin import INSTRUCTION, SCOPES, entry_elements
from .passes import lower_tir, plain_name
from .scope import Context, Place, Scope, parse
from .tvm_compat import PrimFunc, ir, structural_walk, tirx

_Run = Callable[[Program, Env], None]


def record(func: PrimFunc, cfg: Config, name: str) -> Program:
    """The program of the scheduled `func`. Raises `ScheduleError`, `CapacityError` or what the recorder raises."""
    lowered, tensors = lower_tir(func)
    return _Recorder(lowered, tensors, cfg).record(name)


def _elements(shape, name: str) -> int:
    sizes = [constant(n) for n in shape]
    if None in sizes:
        raise ScheduleError(f"{name!r}: shape {tuple(map(str, shape))} is not constant")
    return math.prod(n for n in sizes if n is not None)


class _Recorder:
    """Compiles each statement to a Python function once, then runs them."""

    def __init__(self, func: PrimFunc, tensors: list, cfg: Config):
        self.func, self.tensors, self.cfg, self.ctx = func, tensors, cfg, Context(cfg)
        self.used = dict.fromkeys(SCOPES.values(), 0)
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
        bits = {Mem.INP: cfg.inp_bits, Mem.WGT: cfg.wgt_bits, Mem.ACC: cfg.acc_bits}
        return bits.get(mem, cfg.out_bits)

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
            return self._match(parse(stmt.body, self.ctx)) if stmt.attr_key == INSTRUCTION else self._compile(stmt.body)
        if isinstance(stmt, tirx.AllocBuffer):
            self._allocate(stmt.buffer)
        elif isinstance(stmt, tirx.DeclBuffer):
            self.ctx.places[stmt.buffer] = self.ctx.place(stmt.data, stmt)
        elif isinstance(stmt, (tirx.BufferStore, tirx.Evaluate)):
            if not isinstance(stmt, tirx.Evaluate) or constant(stmt.value) is None:
                return self._match(parse(stmt, self.ctx))
        else:
            raise ScheduleError(f"{shorten(stmt)}: {type(stmt).__name__} is not supported")
        return lambda program, env: None

    def _loop(self, stmt) -> _Run:
        slot = self.ctx.slots.add(stmt.loop_var)
        first, extent = closure(stmt.min, self.ctx.slots), closure(stmt.extent, self.ctx.slots)
        body = self._compile(stmt.body)

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

    def _match(self, scope: Scope) -> _Run:
        if isinstance(scope.stmt, tirx.Evaluate):
            return match_gemm.match(scope, self.ctx).record
        target = self.ctx.place(scope.stmt.buffer, scope.stmt)
        loads: list = []
        structural_walk(scope.stmt.value, [(ir.TensorLoad, loads.append)])
        sources = [self.ctx.place(load.source, scope.stmt) for load in loads]
        on_chip = target.mem == Mem.ACC and all(source.mem is not None for source in sources)
        return (match_alu if on_chip else match_dma).match(scope, self.ctx).record

    def _allocate(self, var) -> None:
        name, scope = plain_name(var), var.scope()
        place = Place(name, str(var.ty.dtype), _elements(var.ty.shape, name), SCOPES.get(scope))
        self.ctx.places[var] = place
        if place.mem is None:
            if scope not in ("", "global"):
                raise ScheduleError(f"{name!r} is in scope {scope!r}; known are global, {', '.join(SCOPES)}")
            self.temps.append(place)
            return
        place.base = self.used[place.mem]
        self.used[place.mem] += -(-place.elements // entry_elements(self.cfg, place.mem))
        self._check_capacity(scope, place.mem)

    def _check_capacity(self, scope: str, mem: Mem) -> None:
        have, need, entry = depth(self.cfg, mem), self.used[mem], entry_elements(self.cfg, mem)
        if need <= have:
            return
        wanted = {plain_name(var): _elements(var.ty.shape, var.name) for var in self.tensors if var.scope() == scope}
        largest = max(wanted, key=lambda name: wanted[name])
        raise CapacityError(
            f"{scope} is too small: the tiles in it need {need} entries, the largest is {largest!r} with "
            f"{-(-wanted[largest] // entry)} (virtual threads included), {self.cfg.name} has {have}; "
            "choose smaller tiles"
        )
