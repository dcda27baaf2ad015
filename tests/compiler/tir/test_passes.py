"""compiler/tir/passes.py: what becomes an instruction scope."""

import numpy as np
import pytest

from tilewright.compiler import build
from tilewright.compiler.intrin import ACC, INSTRUCTION
from tilewright.compiler.tir.passes import innermost, lower_tir, mark_scopes, name_threads
from tilewright.compiler.tvm_compat import IRModule, PrimFunc, Schedule, structural_equal, structural_walk, te, tirx
from tilewright.hw.errors import ScheduleError

P, Q = (tirx.Var(name, "int32") for name in "pq")
WORK = tirx.Evaluate(tirx.call_extern("int32", "work", P, Q))


def loop(var, body, extent=8):
    return tirx.For(var, 0, extent, tirx.ForKind.SERIAL, body)


def when(condition, body):
    return tirx.IfThenElse(condition, body, None)


def scopes(stmt):
    """The bodies that are marked as instruction scopes in `stmt`, outermost first."""
    found = []
    structural_walk(stmt, [(tirx.AttrStmt, lambda op: found.append(op.body) if op.attr_key == INSTRUCTION else None)])
    return found


def marked(stmt):
    func = PrimFunc([], stmt).with_attr("global_symbol", "main")
    return scopes(mark_scopes(IRModule({"main": func}))["main"].body)


def test_the_heart_of_a_nest():
    assert WORK.same_as(innermost(loop(P, when(P < 3, loop(Q, WORK)))))
    assert innermost(loop(P, tirx.SeqStmt([WORK, WORK]))) is None
    assert innermost(loop(P, tirx.IfThenElse(P < 3, WORK, WORK))) is None


def test_a_perfect_nest_is_one_scope():
    (scope,) = marked(loop(P, when(P < 3, loop(Q, WORK))))
    assert isinstance(scope, tirx.For) and scope.loop_var.same_as(P)


def test_a_sequence_has_a_scope_per_statement():
    found = marked(loop(P, tirx.SeqStmt([loop(Q, WORK), WORK])))
    assert [type(scope) for scope in found] == [tirx.For, tirx.Evaluate]


def test_a_bound_that_ties_two_loops_keeps_the_outer_one_outside():
    (scope,) = marked(loop(P, loop(Q, when(P * 8 + Q < 20, WORK))))
    assert isinstance(scope, tirx.For) and scope.loop_var.same_as(Q)


def test_a_mark_of_the_schedule_is_kept():
    mark = tirx.AttrStmt(tirx.IntImm("int32", 0), INSTRUCTION, tirx.IntImm("int32", 1), loop(Q, WORK))
    (scope,) = marked(loop(P, mark))
    assert scope.loop_var.same_as(Q)


@pytest.mark.parametrize("size, tile, entries", [(20, 5, 5), (20, 6, 6), (7, 7, 7)])
def test_tiles_are_allocated_as_small_as_they_are(size, tile, entries):
    """Also where a tail leaves a bound: the predicates are hidden from the pass that shrinks allocations."""
    a = te.placeholder((size, 1, 16), "int32", "a")
    stage = te.compute(a.shape, lambda *i: a(*i), name="stage")
    sch = Schedule(te.create_prim_func([a, te.compute(a.shape, lambda *i: stage(*i).astype("int8"), name="out")]))
    block = sch.get_sblock("stage")
    sch.set_scope(block, 0, ACC)
    outer, _ = sch.split(sch.get_loops(sch.get_sblock("out"))[0], [None, tile])
    sch.compute_at(block, outer)
    lowered = lower_tir(sch.mod["main"])
    sizes = []
    structural_walk(lowered.body, [(tirx.AllocBuffer, lambda op: sizes.append(int(op.buffer.shape[0])))])
    assert sizes == [entries * 16]
    assert len(scopes(lowered.body)) == 2


def threaded(*tags):
    """A sum over 4x4 tiles of one entry; the loops over tiles are bound to `tags`."""
    a = te.placeholder((4, 4, 1, 16), "int32", "a")
    stage = te.compute(a.shape, lambda *i: a(*i), name="stage")
    sch = Schedule(te.create_prim_func([a, te.compute(a.shape, lambda *i: stage(*i).astype("int8"), name="out")]))
    block, loops = sch.get_sblock("stage"), sch.get_loops(sch.get_sblock("out"))
    sch.set_scope(block, 0, ACC)
    sch.compute_at(block, loops[1])
    for loop, tag in zip(loops, tags):
        sch.bind(loop, tag)
    return sch.mod["main"]


def test_cthread_is_the_next_virtual_thread():
    for tags, names in ((("cthread",), ("vthread.x",)), (("cthread", "cthread"), ("vthread.x", "vthread.y"))):
        vta, ours = (build(threaded(*each), "vta").finish().insn for each in (tags, names))
        assert np.array_equal(vta, ours)
    assert structural_equal(name_threads(threaded("vthread.x", "cthread")), threaded("vthread.x", "vthread.y"))


@pytest.mark.parametrize("tag", ["threadIdx.x", "blockIdx.y"])
def test_there_are_no_other_threads(tag):
    with pytest.raises(ScheduleError, match=f"loop 'i1' is bound to '{tag}'; .*bind it to vthread.x, vthread.y, vth"):
        build(threaded("vthread.x", tag), "vta")
