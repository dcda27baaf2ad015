"""compiler/advice/lanes.py: reductions along lanes are refused with the layout that does, which works."""

import numpy as np
import pytest

from tilewright.compiler import build
from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_gemm
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.tvm_compat import Schedule, te, tirx
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError
from tilewright.runtime.loader import run

from ..tir.conftest import check_block_product

VTA = PRESETS["vta"]
ROWS, COLUMNS = 16, 64


def softmax(along_lanes: bool):
    """The first step of a softmax over the last axis: scores less their maximum.

    Along lanes x is (rows, columns / 16, 1, 16), across entries (rows / 16, columns, 1, 16).
    """
    blocks = COLUMNS // 16 if along_lanes else COLUMNS
    x = te.placeholder((ROWS if along_lanes else ROWS // 16, blocks, 1, 16), "int32", "x")
    k = te.reduce_axis((0, blocks), "k")
    if along_lanes:
        lane = te.reduce_axis((0, 16), "lane")
        most = te.compute((ROWS, 1), lambda i, b: te.max(x[i, k, b, lane], axis=[k, lane]), name="most")
        less = te.compute(x.shape, lambda i, c, b, j: x[i, c, b, j] - most[i, b], name="less")
    else:
        most = te.compute((x.shape[0], 1, 16), lambda i, b, j: te.max(x[i, k, b, j], axis=k), name="most")
        less = te.compute(x.shape, lambda i, c, b, j: x[i, c, b, j] - most[i, b, j], name="less")
    y = te.compute(x.shape, lambda *axes: less(*axes).astype("int8"), name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    block = sch.get_sblock("most")
    for name in ("most", "less"):
        sch.cache_read(sch.get_sblock(name), 0, ACC)
        sch.set_scope(sch.get_sblock(name), 0, ACC)
    if not along_lanes:
        i, b, j, k = sch.get_loops(block)
        sch.reorder(k, i, b, j)
        sch.decompose_reduction(block, k)
    return sch


def test_softmax_over_the_last_axis():
    with pytest.raises(
        ScheduleError, match="block 'most': reduces along the lanes .*transpose x so that axis 3 is across"
    ):
        build(softmax(along_lanes=True), VTA)
    x = np.random.default_rng(0).integers(-50, 50, (ROWS, COLUMNS), np.int32)
    across = np.ascontiguousarray(x.reshape(1, 16, COLUMNS).transpose(0, 2, 1))[:, :, None]
    out, _ = run(build(softmax(along_lanes=False), VTA), {"x": across})
    found = out["y"][:, :, 0].transpose(0, 2, 1).reshape(ROWS, COLUMNS)
    assert np.array_equal(found, (x - x.max(1, keepdims=True)).astype(np.int8))


def test_scores_of_attention_with_head_dimension_64():
    """Plain keys are refused with the packed shape; packed ones are a dense layer."""
    q, k = (te.placeholder((64, 64), "int8", name) for name in "qk")
    r = te.reduce_axis((0, 64), "r")
    acc = te.compute(
        (64, 64), lambda i, j: te.sum(q[i, r].astype("int32") * k[j, r].astype("int32"), axis=r), name="acc"
    )
    y = te.compute((64, 64), lambda *i: acc(*i).astype("int8"), name="y")
    sch = Schedule(te.create_prim_func([q, k, y]))
    block = sch.get_sblock("acc")
    sch.cache_read(block, 0, INP)
    sch.cache_read(block, 1, WGT)
    sch.set_scope(block, 0, ACC)
    i, j, r = sch.get_loops(block)
    (i, bi), (j, bj), (r, br) = (sch.split(loop, [None, n]) for loop, n in ((i, 1), (j, 16), (r, 16)))
    sch.reorder(r, i, j, bi, bj, br)
    sch.decompose_reduction(block, r)
    with pytest.raises(
        ScheduleError, match=r"k \(64, 64\) does not lie in .*\(4, 4, 16, 16\), with layout\.pack_weights"
    ):
        tensorize_gemm(sch, block, VTA)

    check_block_product(dense(VTA, 64, 64, 64), VTA, 64, 4, 4)


def test_argmax_as_the_message_says():
    """Along lanes, of pairs, it is refused (tests/test_mistakes.py); value * n + index across entries is a maximum."""
    n = 16
    x, index = te.placeholder((n, 1, 16), "int32", "x"), te.placeholder((n, 1, 16), "int32", "index")
    k = te.reduce_axis((0, n), "k")
    scaled = te.compute(x.shape, lambda *i: x(*i) * tirx.const(n, "int32"), name="scaled")
    keys = te.compute(x.shape, lambda *i: scaled(*i) + index(*i), name="keys")
    most = te.compute((1, 1, 16), lambda i, b, c: te.max(keys[k, b, c], axis=k), name="most")
    y = te.compute(most.shape, lambda *i: most(*i).astype("int8"), name="y")
    sch = Schedule(te.create_prim_func([x, index, y]))
    for name in ("scaled", "keys", "most"):
        sch.set_scope(sch.get_sblock(name), 0, ACC)
    sch.cache_read(sch.get_sblock("scaled"), 0, ACC)
    sch.cache_read(sch.get_sblock("keys"), 1, ACC)
    block = sch.get_sblock("most")
    i, b, c, k = sch.get_loops(block)
    sch.reorder(k, i, b, c)
    sch.decompose_reduction(block, k)
    values = np.random.default_rng(2).permuted(np.tile(np.arange(n), (16, 1)), axis=1)  # (16 rows, n)
    inputs = {
        "x": values.T[:, None].astype(np.int32),
        "index": np.broadcast_to(np.arange(n)[:, None, None], (n, 1, 16)),
    }
    out, _ = run(build(sch, VTA), inputs)
    assert np.array_equal(out["y"].view(np.uint8)[0, 0] % n, values.argmax(1))


def test_blocks_that_reduce_nothing_along_lanes_pass():
    x = te.placeholder((4, 1, 16), "int32", "x")
    once = te.reduce_axis((0, 1), "once")
    acc = te.compute((4, 1, 16), lambda i, b, c: te.max(x[i, b + once, c], axis=once), name="acc")
    y = te.compute(x.shape, lambda *i: acc(*i).astype("int8"), name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    block = sch.get_sblock("acc")
    sch.cache_read(block, 0, ACC)
    sch.set_scope(block, 0, ACC)
    sch.decompose_reduction(block, sch.get_loops(block)[0])
    assert build(sch, VTA).finish().insn.size
