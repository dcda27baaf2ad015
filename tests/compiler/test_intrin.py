"""Tensor intrinsics per configuration: their names, and where they do not fit."""

import pytest

from tilewright.compiler.intrin import gemm_intrin, register, reset_intrin, tensorize_gemm
from tilewright.compiler.tvm_compat import Schedule, TensorIntrin, ir, te, tirx
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError, UnsupportedError

TINY = PRESETS["tiny"]


def test_intrinsics_are_registered_once_per_shape():
    name = gemm_intrin(TINY.replace(name="other", batch=2, block_out=8, acc_bytes=4096, extensions=()))
    assert name == "tilewright.gemm.2x4x8"
    first = TensorIntrin.get(name)
    assert gemm_intrin(TINY.replace(name="same", batch=2, block_out=8, acc_bytes=4096, extensions=())) == name
    assert TensorIntrin.get(name).same_as(first)
    assert reset_intrin(TINY) == "tilewright.reset.1x4"


def test_schedules_from_a_file_find_their_intrinsics():
    register(PRESETS["tiny"].replace(name="even", batch=1, block_in=8, block_out=8))
    register(TINY.replace(name="odd", batch=1, block_in=8, block_out=4, extensions=()))
    for name in ("gemm.1x8x8", "depthwise.1x8", "reset.1x8", "gemm.1x8x4", "reset.1x4"):
        assert TensorIntrin.get(f"tilewright.{name}", allow_missing=True) is not None


@pytest.mark.parametrize("block_in, block_out", [(1, 1), (1, 4), (4, 1)])
def test_blocks_of_one_are_refused(block_in, block_out):
    cfg = TINY.replace(name="single", block_in=block_in, block_out=block_out, extensions=())
    with pytest.raises(
        UnsupportedError, match=f"block_in = {block_in}, block_out = {block_out}: schedules need 2 or more"
    ):
        gemm_intrin(cfg)


def test_other_back_ends_refuse_instructions():
    add, instruction = (tirx.call_extern("int32", name, 1) for name in ("add", "tilewright_gemm"))
    lower = ir.Op.get("tirx.call_extern").get_attr("default.FLowerIntrinsic")
    assert lower(add).same_as(add)
    with pytest.raises(UnsupportedError, match="tilewright_gemm is an instruction of the accelerator"):
        lower(instruction)


def test_a_block_of_another_shape_is_refused():
    a, b = te.placeholder((2, 8), "int8", "a"), te.placeholder((4, 8), "int8", "b")
    k = te.reduce_axis((0, 8), "k")
    product = te.compute(
        (2, 4), lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=[k]), name="product"
    )
    sch = Schedule(te.create_prim_func([a, b, product]))
    with pytest.raises(
        ScheduleError, match=r"'product': innermost loops have extents \(2, 4, 8\), .* needs \(1, 4, 4\)"
    ):
        tensorize_gemm(sch, sch.get_sblock("product"), TINY)
