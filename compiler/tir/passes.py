"""TVM passes from a scheduled PrimFunc to loops around instruction scopes.

An instruction scope is a perfect loop nest around one statement, which decides the instruction.

Virtual threads are loops whose iterations are interleaved, each with its own tensors on chip. An instruction scope that
depends on the thread is repeated for every thread in the same position, so that one thread's loads come before the
other's computation. A scope that does not depend on the thread, also not through a tensor, is not repeated: threads
load shared tensors once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from ...hw.errors import ScheduleError
from ..intrin import COPIES, INSTRUCTION, THREAD
from ..sentences import in_one_sentence
from ..tvm_compat import IRModule, PrimFunc, Sequential, ir, s_tir, structural_mutate, structural_walk, sym, tirx
from .affine import constant, shorten

_THREAD = "virtual_thread"


def pointed_to(access_ptr):
    """The buffer variable of a `tvm_access_ptr` call, which some passes wrap in a data call."""
    data = access_ptr.args[1]
    return data.args[0] if isinstance(data, ir.Call) else data


def _is_pointer(call) -> bool:
    return isinstance(call.op, ir.Op) and call.op.name == "tirx.tvm_access_ptr"


@dataclass
class _Uses:
    """The variables that an instruction scope uses, and the tensors that it writes."""

    names: set = field(default_factory=set)
    written: set = field(default_factory=set)


def _uses(stmts) -> _Uses:
    uses = _Uses()

    def on_store(op):
        uses.written.add(op.buffer)
        uses.names.add(op.buffer)

    def on_call(op):
        if _is_pointer(op) and int(op.args[4]) & 2:
            uses.written.add(pointed_to(op))

    for stmt in stmts:
        structural_walk(stmt, [(tirx.BufferStore, on_store), (ir.Call, on_call), (ir.Var, uses.names.add)])
    return uses


def interleave_vthreads(func):
    """`func` with every scope that depends on a virtual thread repeated for each thread, on separate tensors.

    Raises `ScheduleError` if a statement outside instruction scopes depends on a thread.
    """

    def on_attr(op, m):
        if op.attr_key != _THREAD:
            return m.default_mutate(op)
        return _Thread(op.node.var, int(op.value), m.mutate(op.body)).interleaved()

    return func.with_body(structural_mutate(func.body, [(tirx.AttrStmt, on_attr)]))


class _Thread:
    """The body of one thread loop with variable `var` and `extent` iterations."""

    def __init__(self, var, extent: int, body):
        self.var, self.extent, self.body = var, extent, body
        scopes = [_uses([scope, *conditions]) for scope, conditions in self._scopes(body, ())]
        self.bound = self._dependences(scopes)
        written = {name for use, bound in zip(scopes, self.bound) if bound for name in use.written}
        self.copies: dict = {}  # tensor -> (all threads' copies, elements of one)
        structural_walk(body, [(tirx.AllocBuffer, lambda op: self._copy(op.buffer) if op.buffer in written else None)])

    def interleaved(self):
        """The body without the thread loop."""
        return self._rewrite(self.body, (), iter(self.bound))

    def _depends(self, expr) -> bool:
        return self.var in _uses([expr]).names

    def _scopes(self, stmt, conditions: tuple) -> Iterator[tuple[object, tuple]]:
        """(instruction scope, conditions on the thread around it) in program order."""
        if isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                yield from self._scopes(part, conditions)
        elif isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == INSTRUCTION:
            yield stmt, conditions
        elif isinstance(stmt, (tirx.AttrStmt, tirx.For)):
            yield from self._scopes(stmt.body, conditions)
        elif isinstance(stmt, tirx.IfThenElse):
            here = (stmt.condition,) if self._depends(stmt.condition) else ()
            yield from self._scopes(stmt.then_case, conditions + here)
            if stmt.else_case is not None:
                yield from self._scopes(stmt.else_case, conditions + here)

    def _dependences(self, scopes: list[_Uses]) -> list[bool]:
        """Dependence of every scope on the thread, directly or through a tensor: a fixed point."""
        bound = [self.var in use.names for use in scopes]
        tainted: set = set()
        while True:
            more = {name for use, yes in zip(scopes, bound) if yes for name in use.written}
            if more <= tainted:
                return bound
            tainted |= more
            bound = [yes or bool(use.names & tainted) for use, yes in zip(scopes, bound)]

    def _copy(self, var) -> None:
        size = constant(var.ty.shape[0])
        assert size is not None
        many = tirx.decl_buffer((size * self.extent,), var.ty.dtype, var.name, scope=var.scope())
        self.copies[var] = (many, size)

    def _rewrite(self, stmt, conditions: tuple, bound: Iterator[bool]):
        if isinstance(stmt, tirx.SeqStmt):
            return tirx.SeqStmt([self._rewrite(part, conditions, bound) for part in stmt.seq])
        if isinstance(stmt, tirx.AttrStmt):
            if stmt.attr_key == INSTRUCTION:
                return self._repeated(stmt, conditions) if next(bound) else stmt
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, self._rewrite(stmt.body, conditions, bound))
        if isinstance(stmt, tirx.For):
            if self._depends(stmt.min) or self._depends(stmt.extent):
                raise ScheduleError(
                    f"loop {stmt.loop_var.name!r}: its bounds depend on virtual thread {self.var.name!r}"
                )
            body = self._rewrite(stmt.body, conditions, bound)
            return tirx.For(stmt.loop_var, stmt.min, stmt.extent, stmt.kind, body, None, stmt.annotations)
        if isinstance(stmt, tirx.IfThenElse):
            return self._condition(stmt, conditions, bound)
        if isinstance(stmt, tirx.AllocBuffer) and stmt.buffer in self.copies:
            copies = int(stmt.annotations.get(COPIES, 1)) * self.extent
            return tirx.AllocBuffer(self.copies[stmt.buffer][0], {**stmt.annotations, COPIES: copies})
        if self._depends(stmt):
            raise ScheduleError(f"{shorten(stmt)}: depends on virtual thread {self.var.name!r} outside an instruction")
        return stmt

    def _condition(self, stmt, conditions: tuple, bound: Iterator[bool]):
        test = stmt.condition
        inside = self._depends(test)
        then = self._rewrite(stmt.then_case, (*conditions, test) if inside else conditions, bound)
        other = None
        if stmt.else_case is not None:
            other = self._rewrite(stmt.else_case, (*conditions, tirx.Not(test)) if inside else conditions, bound)
        if not inside:
            return tirx.IfThenElse(test, then, other)
        return then if other is None else tirx.SeqStmt([then, other])

    def _repeated(self, scope, conditions: tuple):
        body = scope.body
        for condition in reversed(conditions):
            body = tirx.IfThenElse(condition, body, None)
        thread = tirx.Var(self.var.name, "int32")  # a new variable: TVM requires that each is bound once
        scope = tirx.AttrStmt(scope.node, scope.attr_key, scope.value, self._private(body, thread))
        trips = tirx.IntImm("int32", 0), tirx.IntImm("int32", self.extent)
        return tirx.For(thread, *trips, tirx.ForKind.SERIAL, scope, None, {THREAD: 1})

    def _private(self, body, thread):
        """`body` for one thread: its variable, and its copies of the tensors."""

        def moved(buffer, index):
            return index + thread * self.copies[buffer][1]

        def on_var(op, _m):
            return thread if op.same_as(self.var) else self.copies[op][0] if op in self.copies else op

        def on_store(op, m):
            new = m.default_mutate(op)
            if op.buffer not in self.copies:
                return new
            return tirx.BufferStore(self.copies[op.buffer][0], new.value, [moved(op.buffer, new.indices[0])])

        def on_load(op, m):
            new = m.default_mutate(op)
            if op.source not in self.copies:
                return new
            return tirx.BufferLoad(self.copies[op.source][0], [moved(op.source, new.indices[0])])

        def on_call(op, m):
            new = m.default_mutate(op)
            if not _is_pointer(op) or pointed_to(op) not in self.copies:
                return new
            args = list(new.args)
            args[2] = moved(pointed_to(op), args[2])
            return ir.Call(new.op, args, new.attrs, new.ty_args, new.span, new.ty)

        callbacks = [(tirx.BufferStore, on_store), (ir.TensorLoad, on_load), (ir.Call, on_call), (ir.Var, on_var)]
        return structural_mutate(body, callbacks)


_S, _X = s_tir.transform, tirx.transform
_WHERE = "tilewright_where"


def innermost(stmt):
    """The single statement at the heart of a perfect nest of loops and conditions, or None."""
    while True:
        if isinstance(stmt, tirx.For) or (isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == INSTRUCTION):
            stmt = stmt.body
        elif isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
            stmt = stmt.then_case
        else:
            return stmt if isinstance(stmt, (tirx.BufferStore, tirx.Evaluate)) else None


_NEST = (tirx.For, tirx.IfThenElse, tirx.BufferStore, tirx.Evaluate)


@_X.prim_func_pass(opt_level=0, name="tilewright.MarkScopes")
def mark_scopes(func, _mod, _ctx):
    """Mark the largest perfect nests as instruction scopes, unless the schedule marked a scope inside them.

    A loop that shares a bound with an inner one, as loops over tiles and inside tiles do in tails, stays outside.
    """

    def on_attr(op, m):
        return op if op.attr_key == INSTRUCTION else m.default_mutate(op)

    def on_nest(op, m):
        if innermost(op) is None or _holds_mark(op) or _ties_loops(op):
            return m.default_mutate(op)
        return tirx.AttrStmt(tirx.IntImm("int32", 0), INSTRUCTION, tirx.IntImm("int32", 1), op)

    return func.with_body(structural_mutate(func.body, [(tirx.AttrStmt, on_attr), (_NEST, on_nest)]))


def _holds_mark(stmt) -> bool:
    marks = []
    structural_walk(stmt, [(tirx.AttrStmt, lambda op: marks.append(op) if op.attr_key == INSTRUCTION else None)])
    return bool(marks)


def _ties_loops(nest) -> bool:
    """True if a comparison in `nest` depends on two of its loops, so that its domain is not a box."""
    loops: set = set()
    tied = []

    def on_comparison(op):
        used: set = set()
        structural_walk(op, [(ir.Var, lambda v: used.add(v) if v in loops else None)])
        tied.append(len(used) > 1)

    structural_walk(nest, [(tirx.For, lambda op: loops.add(op.loop_var))])
    structural_walk(nest, [((tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ), on_comparison)])
    return any(tied)


@_X.prim_func_pass(opt_level=0, name="tilewright.BoundBlocks")
def bound_blocks(func, _mod, _ctx):
    """Add the bounds of their iterators to the predicates of blocks that hold a block.

    TVM's blockize, and with it tensorize, drops a predicate of one loop, as of tiles that are fewer than the threads.
    """
    analyzer = sym.Analyzer()

    def on_loop(op, m):
        analyzer.bind(op.loop_var, ir.Range(op.min, op.min + op.extent))
        return m.default_mutate(op)

    def on_realize(op, m):
        new = m.default_mutate(op)
        inside: list = []
        structural_walk(new.block.body, [(s_tir.SBlockRealize, inside.append)])
        predicate = new.predicate
        for axis, value in zip(new.block.iter_vars if inside else (), new.iter_values):
            bound = value < axis.dom.min + axis.dom.extent
            with analyzer.constraint_scope(predicate):
                implied = analyzer.can_prove(bound)
            predicate = predicate if implied else tirx.And(predicate, bound)
        return new if predicate.same_as(new.predicate) else s_tir.SBlockRealize(new.iter_values, predicate, new.block)

    return func.with_body(structural_mutate(func.body, [(tirx.For, on_loop), (s_tir.SBlockRealize, on_realize)]))


@_X.prim_func_pass(opt_level=0, name="tilewright.HidePredicates")
def hide_predicates(func, _mod, _ctx):
    """Convert the predicates of blocks to attributes, which CompactBufferAllocation ignores.

    It would allocate more than a tile if it cannot analyse the bound of a tail.
    """

    def on_realize(op, m):
        new = m.default_mutate(op)
        if isinstance(new.predicate, tirx.IntImm):
            return new
        old = new.block
        body = tirx.AttrStmt(tirx.IntImm("int32", 0), _WHERE, new.predicate, old.body)
        block = s_tir.SBlock(
            old.iter_vars,
            old.reads,
            old.writes,
            old.name_hint,
            body,
            old.init,
            old.alloc_buffers,
            old.match_buffers,
            old.annotations,
        )
        return s_tir.SBlockRealize(new.iter_values, True, block)

    return func.with_body(structural_mutate(func.body, [(s_tir.SBlockRealize, on_realize)]))


@_X.prim_func_pass(opt_level=0, name="tilewright.ShowPredicates")
def show_predicates(func, _mod, _ctx):
    """Convert the attributes of `hide_predicates` to conditions."""

    def on_attr(op, m):
        new = m.default_mutate(op)
        return tirx.IfThenElse(new.value, new.body, None) if new.attr_key == _WHERE else new

    return func.with_body(structural_mutate(func.body, [(tirx.AttrStmt, on_attr)]))


_CTHREAD, _VTHREADS = "cthread", ("vthread.x", "vthread.y", "vthread.z")


def name_threads(func: PrimFunc) -> PrimFunc:
    """`func` with VTA's `cthread` as virtual threads, the outermost loop as `vthread.x`.

    Raises `ScheduleError` for a loop that is bound to another kind of thread: there are no others.
    """
    around: list[str] = []  # tags of the loops around

    def on_loop(op, m):
        if op.thread_binding is None:
            return m.default_mutate(op)
        tag = str(op.thread_binding.thread_tag)
        if tag == _CTHREAD:
            tag = next((free for free in _VTHREADS if free not in around), tag)
        if not tag.startswith("vthread"):
            raise ScheduleError(
                f"loop {op.loop_var.name!r} is bound to {tag!r}; the accelerator has virtual threads only, of 1 to 4 "
                f"trips each: bind it to {', '.join(_VTHREADS)}, or do not bind it"
            )
        around.append(tag)
        new = m.default_mutate(op)
        around.pop()
        old = new.thread_binding
        axis = tirx.IterVar(old.dom, old.var, old.iter_type, tag)
        return tirx.For(new.loop_var, new.min, new.extent, new.kind, new.body, axis, new.annotations)

    return func.with_body(structural_mutate(func.body, [(tirx.For, on_loop)]))


def pass_list() -> list:
    """The passes in order: from blocks to loops around instruction scopes."""
    return [
        _S.CanonicalizeLoop(),
        bound_blocks,
        _S.LowerInitBlock(),
        _S.PlanAndUpdateBufferAllocationLocation(),
        _S.ConvertBlocksToOpaque(),
        _S.LiftThreadBinding(),
        hide_predicates,
        _S.CompactBufferAllocation(),
        show_predicates,
        _S.UnifyThreadBinding(),
        _S.LowerMatchBuffer(),
        _S.StmtSimplify(),
        _S.AnnotateIrregularLoop(),
        _S.InjectSoftwarePipeline(),
        _S.LowerOpaqueBlock(),
        _X.FlattenBuffer(),
        _X.NarrowDataType(32),
        _X.StmtSimplify(),
        _X.RemoveNoOp(),
        mark_scopes,
    ]


@lru_cache(maxsize=256)  # layers of one shape are alike
def lower_tir(func: PrimFunc) -> PrimFunc:
    """`func` as loops around instruction scopes, with virtual threads interleaved."""
    func = name_threads(func.with_attr("global_symbol", "main"))
    with in_one_sentence("TVM cannot lower the schedule"):
        mod = Sequential(pass_list())(IRModule({"main": func}))
    mod = IRModule({"main": interleave_vthreads(mod["main"])})
    with in_one_sentence("TVM cannot lower the schedule"):
        return Sequential([_X.StmtSimplify(), _X.RemoveNoOp()])(mod)["main"]
