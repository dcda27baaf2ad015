"""What becomes an instruction scope, and virtual threads: what depends on one is repeated, what does not is shared."""

import math
import random

import numpy as np
import pytest

from tilewright.compiler import build
from tilewright.compiler.intrin import ACC, INP, INSTRUCTION, WGT, tensorize_gemm
from tilewright.compiler.tir.passes import lower_tir, mark_scopes, name_threads
from tilewright.compiler.tvm_compat import IRModule, PrimFunc, Schedule, T, structural_equal, structural_walk, te, tirx
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError
from tilewright.runtime.loader import run

from .conftest import block_product, check_block_product

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


MARK = tirx.AttrStmt(tirx.IntImm("int32", 0), INSTRUCTION, tirx.IntImm("int32", 1), loop(Q, WORK))


@pytest.mark.parametrize(
    "stmt, expected",
    [
        (loop(P, when(P < 3, loop(Q, WORK))), ["p"]),  # a perfect nest
        (loop(P, tirx.SeqStmt([loop(Q, WORK), WORK])), ["q", "work"]),
        (loop(P, tirx.IfThenElse(P < 3, WORK, WORK)), ["work", "work"]),
        (loop(P, loop(Q, when(P * 8 + Q < 20, WORK))), ["q"]),  # a bound that ties two loops: the outer one is outside
        (loop(P, MARK), ["q"]),  # the mark of a schedule is kept
    ],
)
def test_instruction_scopes(stmt, expected):
    """Loops with which the scopes begin, or the statement itself."""
    assert [scope.loop_var.name if isinstance(scope, tirx.For) else "work" for scope in marked(stmt)] == expected


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


VTA = PRESETS["vta"]
RNG = np.random.default_rng(0)


def test_conditions_on_the_thread_reach_every_instruction():
    @T.prim_func(s_tir=True)
    def func(pa: T.handle, pout: T.handle):
        a = T.match_buffer(pa, (64,), "int32")
        out = T.match_buffer(pout, (64,), "int8")
        with T.launch_thread("vthread.x", 2) as v:
            acc = T.alloc_buffer((32,), "int32", scope="local.acc")
            if v < 1:
                for i in range(32):
                    acc[i] = a[i]
                for i in range(32):
                    acc[i] = acc[i] + 1
            else:
                for i in range(32):
                    acc[i] = a[i + 32]
            for i in range(32):
                out[v * 32 + i] = T.cast(acc[i], "int8")

    a = RNG.integers(-99, 99, 64).astype(np.int32)
    out, stats = run(build(func, VTA), {"a": a})
    assert np.array_equal(out["out"], (a + (np.arange(64) < 32)).astype(np.int8))
    assert stats.insns["ALU.ADD"] == 1 and stats.insns["LOAD.ACC"] == 2


def test_bounds_that_depend_on_the_thread_are_refused():
    @T.prim_func(s_tir=True)
    def func(pa: T.handle, pout: T.handle):
        a = T.match_buffer(pa, (64,), "int32")
        out = T.match_buffer(pout, (64,), "int8")
        with T.launch_thread("vthread.x", 2) as v:
            acc = T.alloc_buffer((16,), "int32", scope="local.acc")
            for k in range(v + 1):
                for i in range(16):
                    acc[i] = a[k * 16 + i]
                for i in range(16):
                    out[v * 32 + k * 16 + i] = T.cast(acc[i], "int8")

    with pytest.raises(ScheduleError, match="loop 'k': its bounds depend on virtual thread"):
        build(func, VTA)


def tiled_product(blocks, tiles, threads, levels, decompose):
    """A schedule of a product of blocks. `blocks` and `tiles` count rows, columns and steps of the reduction.

    `threads` are virtual threads over tiles of rows and of columns. `levels` say where x and w are loaded: 0 before all
    loops, 1 with a tile, 2 with a step of the reduction.
    """
    sch = Schedule(block_product(VTA, *blocks))
    block = sch.get_sblock("acc")
    sch.set_scope(block, 0, ACC)
    loads = sch.cache_read(block, 0, INP), sch.cache_read(block, 1, WGT)
    i, j, *entry = sch.get_loops(sch.get_sblock("out"))
    (i, i_inner), (j, j_inner) = (sch.split(loop, [None, tile]) for loop, tile in zip((i, j), tiles))
    sch.reorder(i, j, i_inner, j_inner, *entry)
    (i, i_thread), (j, j_thread) = (sch.split(loop, [None, count]) for loop, count in zip((i, j), threads))
    sch.reorder(i_thread, j_thread, i, j)
    for loop, axis in ((i_thread, "x"), (j_thread, "y")):
        sch.bind(loop, f"vthread.{axis}")
    sch.compute_at(block, j, preserve_unit_loops=True)
    *tile, step, lane = sch.get_loops(block)[-6:]
    step, inside = sch.split(step, [None, tiles[2]])
    sch.reorder(step, inside, *tile, lane)
    for load, level in zip(loads, levels):
        if level:
            sch.compute_at(load, (j, step)[level - 1], preserve_unit_loops=True)
    if decompose:
        sch.decompose_reduction(block, step)
    tensorize_gemm(sch, block, VTA)
    return sch


@pytest.mark.parametrize("seed, cases", [(0, 12), pytest.param(1, 200, marks=pytest.mark.slow)])
def test_tiles_and_threads_of_any_number_do_the_work_once(seed, cases):
    """Also fewer tiles than threads, and tiles larger than the loop: their bound is of one loop."""
    rng = random.Random(seed)
    for _ in range(cases):
        blocks, tiles = ([rng.randint(1, 4) for _ in range(3)] for _ in range(2))
        case = blocks, tiles, rng.choices([1, 2, 3, 4], k=2), rng.choices(range(3), k=2), rng.random() < 0.7
        print(case)  # of a failure
        stats = check_block_product(tiled_product(*case), VTA, *blocks)
        assert stats.macs == math.prod(blocks) * 16 * 16
