"""TVM passes from a scheduled PrimFunc to loops around instruction scopes.

An instruction scope is a perfect loop nest around one statement, which decides the instruction.
"""

from __future__ import annotations

from functools import lru_cache

from ...hw.errors import ScheduleError
from ..advice.sentences import in_one_sentence
from ..intrin import INSTRUCTION
from ..tvm_compat import IRModule, PrimFunc, Sequential, ir, s_tir, structural_mutate, structural_walk, sym, tirx
from .vthread import interleave_vthreads

_S, _X = s_tir.transform, tirx.transform
_WHERE = "tilewright_where"


def innermost(stmt):
    """The one statement at the heart of a perfect nest of loops and conditions, or None."""
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
    found = []
    structural_walk(stmt, [(tirx.AttrStmt, lambda op: found.append(op) if op.attr_key == INSTRUCTION else None)])
    return bool(found)


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
