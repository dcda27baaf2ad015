"""compiler/advice.py: what differs from an intrinsic, and reductions along lanes.

tests/test_mistakes.py has the differences of a matrix product with a batch of 1; here are batches, depthwise products
and resets.
"""

from typing import Any

import numpy as np
import pytest

from tilewright.compiler import build
from tilewright.compiler.advice import scope_named
from tilewright.compiler.api import build_into
from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_depthwise, tensorize_gemm, tensorize_reset
from tilewright.compiler.tvm_compat import Schedule, te, tirx
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program

from .tir.conftest import check_block_product

TINY = PRESETS["tiny"]
BATCHED = TINY.replace(name="batched", batch=2, acc_bytes=4096, extensions=())
NARROW = BATCHED.replace(name="narrow", block_in=2)


def matmul(cfg, rows=2, inner=2, columns=2, order="bjk", plain=False, before=None):
    """A packed product; `order` is that of the loops of an entry, `plain` weights are (columns, inner)."""
    b, i, o = cfg.batch, cfg.block_in, cfg.block_out
    x = te.placeholder((rows, inner, b, i), "int8", "x")
    w = te.placeholder((columns * o, inner * i) if plain else (columns, inner, o, i), "int8", "w")
    k, ki = te.reduce_axis((0, inner), "k"), te.reduce_axis((0, i), "ki")

    def product(r, c, bi, bj):
        weight = w[c * o + bj, k * i + ki] if plain else w[c, k, bj, ki]
        return te.sum(x[r, k, bi, ki].astype("int32") * weight.astype("int32"), axis=[k, ki])

    acc = te.compute((rows, columns, b, o), product, name="acc")
    y = te.compute(acc.shape, lambda *axes: acc(*axes).astype("int8"), name="out")
    sch = Schedule(te.create_prim_func([x, w, y]))
    block = sch.get_sblock("acc")
    sch.cache_read(block, 0, INP)
    sch.cache_read(block, 1, WGT)
    sch.set_scope(block, 0, ACC)
    r, c, bi, bj, k, ki = sch.get_loops(block)
    inside = {"b": bi, "j": bj, "k": ki}
    sch.reorder(k, r, c, *(inside[name] for name in order))
    init = sch.decompose_reduction(block, k)
    if before:
        before(sch, block)
    return sch, block, init


@pytest.mark.parametrize("cfg", [TINY, BATCHED, NARROW], ids=lambda cfg: cfg.name)
def test_right_blocks_pass(cfg):
    sch, block, init = matmul(cfg)
    tensorize_reset(sch, init, cfg)
    tensorize_gemm(sch, block, cfg)
    check_block_product(sch, cfg, 2, 2, 2)


def refused(call, text):
    with pytest.raises(ScheduleError, match=text) as raised:
        call()
    assert len(str(raised.value)) < 300 and "\n" not in str(raised.value)


def test_orders_of_loops():
    for order in ("jbk", "bkj", "kbj"):
        cfg = BATCHED.replace(name="even", batch=4, acc_bytes=4096)  # all extents are 4
        sch, block, _ = matmul(cfg, order=order)
        refused(lambda sch=sch, block=block, cfg=cfg: tensorize_gemm(sch, block, cfg), "reorder.*batch, block_out, bl")


def test_plain_weights_name_the_packed_shape():
    sch, block, _ = matmul(BATCHED, plain=True)
    refused(
        lambda: tensorize_gemm(sch, block, BATCHED), r"w \(8, 8\) does not lie in .*\(2, 2, 4, 4\), with layout\.pack_"
    )


def test_a_short_sum_is_padded():
    x, w = te.placeholder((4, 2), "int8", "x"), te.placeholder((4, 2), "int8", "w")
    k = te.reduce_axis((0, 2), "k")
    acc = te.compute((4, 4), lambda i, j: te.sum(x[i, k].astype("int32") * w[j, k].astype("int32"), axis=k), name="acc")
    sch = Schedule(te.create_prim_func([x, w, acc]))
    refused(
        lambda: tensorize_gemm(sch, sch.get_sblock("acc"), BATCHED),
        r"a sum over 2 needs zeros up to 4, with which runtime",
    )


def test_what_is_no_product():
    sch, block, init = matmul(TINY)
    refused(lambda: tensorize_reset(sch, block, TINY), "pass the block that decompose_reduction returns")
    refused(lambda: tensorize_gemm(sch, init, TINY), "must add a product")
    sch, block, _ = matmul(TINY, before=lambda sch, block: sch.blockize(sch.get_loops(block)[-3]))
    outer = sch.get_sblock("acc_update_o")
    refused(lambda: tensorize_gemm(sch, outer, TINY), "is not one statement")


def test_what_is_no_block():
    sch, block, _ = matmul(TINY)
    refused(lambda: tensorize_gemm(sch, sch.get_loops(block)[0], TINY), r"takes a block, as sch\.get_sblock\(name\)")
    refused(lambda: tensorize_gemm(sch, "nothing", TINY), "sch.get_sblock: Cannot find a block with the name: nothing")
    tensorize_gemm(sch, "acc_update", TINY)
    refused(lambda: tensorize_gemm(sch, block, TINY), "no longer exists")


def windows(cfg, scope=WGT, dtype="int8", swapped=False, axis=-1):
    """Three rows of a depthwise product, channel by channel."""
    block = cfg.block_out
    x, w = te.placeholder((6, cfg.batch, block), "int8", "x"), te.placeholder((1, block, block), dtype, "w")
    k = te.reduce_axis((0, 3), "k")

    def product(i, b, j):
        row = w[0, k, j] if axis == -1 else w[0, j, k]
        a, c = x[i + k, b, j].astype("int32"), row.astype("int32")
        return te.sum(c * a if swapped else a * c, axis=k)

    acc = te.compute((4, cfg.batch, block), product, name="acc")
    y = te.compute(acc.shape, lambda *axes: acc(*axes).astype("int8"), name="y")
    sch = Schedule(te.create_prim_func([x, w, y]))
    name = sch.get_sblock("acc")
    for k, into in enumerate((INP, scope) if not swapped else (WGT, INP)):
        if into:
            sch.cache_read(name, k, into)
    sch.set_scope(name, 0, ACC)
    i, b, j, k = sch.get_loops(name)
    sch.reorder(k, i, b, j)
    sch.decompose_reduction(name, k)
    return sch, name


def test_depthwise_products():
    cfg = TINY.replace(name="rows", extensions=TINY.extensions | {"depthwise"})
    sch, block = windows(cfg)
    tensorize_depthwise(sch, block, cfg)
    assert build(sch, cfg).finish().insn.size
    mistakes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"scope": None}, r"operand w is in DRAM.*sch\.cache_read\(acc, 1, WGT\)"),
        ({"dtype": "int16"}, "w is int16"),
        ({"swapped": True}, r"operands are swapped: write x \* w"),
        ({"axis": 0}, r"w \(1, 4, 4\) does not lie .* \(n, 4, 4\), whose row .*pack_depthwise_weights"),
    )
    for options, text in mistakes:
        sch, block = windows(cfg, **options)
        refused(lambda sch=sch, block=block: tensorize_depthwise(sch, block, cfg), text)


def test_scopes_of_vta():
    assert scope_named("local.wgt_buffer") == "'local.wgt_buffer' is VTA's name; write 'local.wgt'"
    assert not scope_named("local.wgt") and not scope_named("global")


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
    with pytest.raises(ScheduleError, match="reduces along the lanes"):
        build_into(Program(VTA, "p"), softmax(along_lanes=True))
    x = np.random.default_rng(0).integers(-50, 50, (ROWS, COLUMNS), np.int32)
    across = np.ascontiguousarray(x.reshape(1, 16, COLUMNS).transpose(0, 2, 1))[:, :, None]
    out, _ = run(build(softmax(along_lanes=False), VTA), {"x": across})
    found = out["y"][:, :, 0].transpose(0, 2, 1).reshape(ROWS, COLUMNS)
    assert np.array_equal(found, (x - x.max(1, keepdims=True)).astype(np.int8))


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
