"""From lowered TIR to a recorded program: scratchpad addresses, matching, and execution of the outer loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ...hw.isa import Mem
from ...runtime.buffer import Buffer
from ...runtime.program import Program
from ..advice import scope_named
from ..intrin import COPIES, INSTRUCTION, SCOPES, SLOTS, THREAD
from ..tvm_compat import Node, PrimFunc, ir, s_tir, structural_walk, tirx
from . import match_alu, match_dma, match_gemm
from .affine import Env, closure, constant, shorten, statement_name
from .passes import lower_tir
from .placement import Location, Placement, Span, Storage
from .scope import Context, Scope, parse

_Run = Callable[[Program, Env], None]


def record_into(
    program: Program, func: PrimFunc, buffers: Mapping[str, Buffer], prefix: str, placement: Placement
) -> dict[str, Buffer]:
    """Record the scheduled `func` and return the buffers of its parameters.

    Those in `buffers` are used as they are; others, and temporaries in DRAM, are declared with names that begin with
    `prefix`. Raises `ScheduleError`, `CapacityError` or the errors of the recorder.
    """
    return _Recorder(lower_tir(func), program.cfg).record(program, buffers, prefix, placement, _slots(func))


def _slots(func: PrimFunc) -> dict[str, int]:
    """Slots by tensor, as annotated in the schedule."""
    wanted: dict[str, Node] = {}

    def read_slots(block) -> None:  # an error in here would lose its kind
        if slots := block.annotations.get(SLOTS, 0):
            wanted[_name(block.writes[0].source)] = slots

    structural_walk(func.body, [(s_tir.SBlock, read_slots)])
    slots_of = {}
    for name, slots in wanted.items():
        try:
            slots_of[name] = int(slots)
        except (TypeError, ValueError):
            raise ScheduleError(f"{name!r}: annotation {SLOTS} is {slots}; give a number of slots, as 2") from None
    return slots_of


def _name(var) -> str:
    return var.name.split("_local.")[0]  # TVM appends the scope


def _elements(shape, name: str) -> int:
    sizes = [constant(n) for n in shape]
    if None in sizes:
        raise ScheduleError(
            f"{name!r}: shape {tuple(map(str, shape))} is not constant; make a schedule for each size, of numbers"
        )
    return math.prod(n for n in sizes if n is not None)


class _Recorder:
    """Compiles each statement to a Python function once, then runs them."""

    def __init__(self, func: PrimFunc, cfg: Config):
        self.func, self.cfg, self.ctx = func, cfg, Context(cfg)
        self.alus: list[tuple[int, match_alu.AluMatch]] = []
        self.params: list[Location] = []
        self.temps: list[Location] = []
        self.shapes: dict[str, tuple[int, ...]] = {}

    def record(
        self, program: Program, buffers: Mapping[str, Buffer], prefix: str, placement: Placement, slots: dict[str, int]
    ) -> dict[str, Buffer]:
        """Record into `program` and return the buffers of the parameters."""
        for param in self.func.params:
            location = Location(param.name, str(param.ty.dtype), _elements(param.ty.shape, param.name))
            self.ctx.locations[param] = location
            self.params.append(location)
            self.shapes[location.name] = tuple(int(n) for n in param.ty.shape)
        run = self._compile(self.func.body)
        storage = Storage(self.ctx.locations.values(), self.cfg, placement, slots)
        for time, alu in self.alus:
            alu.compute_in_place(storage, time)
        storage.assign()
        for location in self.params + self.temps:
            self._declare(program, location, buffers, prefix)
        run(program, [0] * len(self.ctx.variables))
        storage.in_use()
        return {location.name: location.buffer for location in self.params if location.buffer is not None}

    def _declare(self, program: Program, location: Location, buffers: Mapping[str, Buffer], prefix: str) -> None:
        widths = {self._bits(mem) for mem in location.moved_to} or {8 if location.dtype == "int8" else 32}
        if len(widths) > 1:
            names = ", ".join(sorted(mem.name for mem in location.moved_to))
            raise ScheduleError(f"{location.name!r} is moved to {names}, whose elements have different widths in DRAM")
        kind = "temp" if location in self.temps else "output" if location.stored else "input"
        shape = self.shapes.get(location.name, (location.elements,))
        bits, given = widths.pop(), buffers.get(location.name) if location in self.params else None
        if given is None:
            if kind == "output" and location.moved_to - {Mem.OUT, Mem.OUTQ}:
                raise ScheduleError(
                    f"parameter {location.name!r} is loaded and stored: it would be an input and an output; "
                    "store to another parameter"
                )
            location.buffer = program.buffer(
                prefix + location.name, shape, bits, signed=location.dtype != "uint32", kind=kind
            )
            return
        if (given.bits, given.nbytes) != (bits, location.elements * bits // 8):
            raise ScheduleError(
                f"{location.name!r} is {location.elements} elements of {bits} bits; buffer {given.name!r} has "
                f"{given.nbytes} bytes in elements of {given.bits} bits"
            )
        location.buffer = given

    def _bits(self, mem: Mem) -> int:
        cfg = self.cfg
        bits = {Mem.INP: cfg.inp_bits, Mem.WGT: cfg.wgt_bits, Mem.ACC: cfg.acc_bits, Mem.ACC8: 8, Mem.PAR: 32}
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
            return self._match(stmt.body) if stmt.attr_key == INSTRUCTION else self._compile(stmt.body)
        if isinstance(stmt, tirx.AllocBuffer):
            self._allocate(stmt)
        elif isinstance(stmt, tirx.DeclBuffer):
            self.ctx.locations[stmt.buffer] = self.ctx.location(stmt.data, stmt)
        elif isinstance(stmt, (tirx.BufferStore, tirx.Evaluate)):
            if not isinstance(stmt, tirx.Evaluate) or constant(stmt.value) is None:
                return self._match(stmt)
        else:
            raise ScheduleError(f"{shorten(stmt)}: {type(stmt).__name__} is not supported")
        return lambda program, env: None

    def _loop(self, stmt) -> _Run:
        position = self.ctx.variables.add(stmt.loop_var)
        first, extent = closure(stmt.min, self.ctx.variables), closure(stmt.extent, self.ctx.variables)
        span = Span(self.ctx.time + 1)
        threads = THREAD in stmt.annotations  # around one instruction: each thread has its own copies
        self.ctx.loops.extend([] if threads else [span])
        body = self._compile(stmt.body)
        if not threads:
            self.ctx.loops.pop()
            span.end = self.ctx.time

        def loop(program: Program, env: Env) -> None:
            start = first(env)
            for value in range(start, start + extent(env)):
                env[position] = value
                body(program, env)

        return loop

    def _condition(self, stmt) -> _Run:
        test, then = closure(stmt.condition, self.ctx.variables), self._compile(stmt.then_case)
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
        name, record = f"{self.ctx.time}: {statement_name(scope.stmt)}", self._recorded(scope)

        def statement(program: Program, env: Env) -> None:
            with program.origin(name):
                record(program, env)

        return statement

    def _recorded(self, scope: Scope) -> _Run:
        if isinstance(scope.stmt, tirx.Evaluate):
            return match_gemm.match(scope, self.ctx).record
        record = self._matched(scope)
        accumulators = [p for p in self.ctx.locations.values() if p.mem == Mem.ACC and p.touched(self.ctx.time)]

        def after_resets(program: Program, env: Env) -> None:
            for location in accumulators:
                self.ctx.write_zeros(program, location)
            record(program, env)

        return after_resets if accumulators else record

    def _matched(self, scope: Scope) -> _Run:
        target = self.ctx.location(scope.stmt.buffer, scope.stmt)
        loads: list = []
        structural_walk(scope.stmt.value, [(ir.TensorLoad, loads.append)])
        sources = [self.ctx.location(load.source, scope.stmt) for load in loads]
        if target.mem != Mem.ACC or any(source.mem is None for source in sources):
            return match_dma.match(scope, self.ctx).record
        action = match_alu.match(scope, self.ctx)
        if isinstance(action, match_alu.AluMatch):
            self.alus.append((self.ctx.time, action))
        return action.record

    def _allocate(self, stmt) -> None:
        var = stmt.buffer
        name, scope = _name(var), var.scope()
        mem = SCOPES.get(scope)
        if mem is None and scope not in ("", "global"):
            what = scope_named(scope) or f"{scope!r}; must be one of global, {', '.join(SCOPES)}"
            raise ScheduleError(f"{name!r} is in scope {what}")
        location = Location(name, str(var.ty.dtype), _elements(var.ty.shape, name), mem, len(self.ctx.loops))
        location.copies = int(stmt.annotations.get(COPIES, 1))
        self.ctx.locations[var] = location
        if mem is None:
            self.temps.append(location)
