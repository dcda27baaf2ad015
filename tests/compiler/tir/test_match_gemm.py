"""compiler/tir/match_gemm.py: the GEMM instructions of tensorized loops."""

import pytest

from tilewright.compiler.intrin import ACC
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.tile import Tile
from tilewright.compiler.tvm_compat import Schedule, T
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError

from .conftest import block_product

VTA = PRESETS["vta"]


def test_a_tile_is_a_reset_and_a_product(instructions):
    sch = dense(VTA, 4, 3 * 16, 2 * 16, tile=Tile(n=4, co=2, ci=3))
    gemm = [fields for name, fields in instructions(sch) if name == "GEMM"]
    assert [f["reset"] for f in gemm] == [1, 0]
    runs = [f["iter_out"] * f["iter_in"] * (f["uop_end"] - f["uop_bgn"]) for f in gemm]
    assert runs == [4 * 2, 4 * 2 * 3]


def test_steps_count_entries(instructions):
    sch = dense(VTA, 4, 16, 16, tile=Tile(n=4))
    *_, gemm = (fields for name, fields in instructions(sch) if name == "GEMM")
    loop = "in" if gemm["iter_in"] > 1 else "out"
    assert [gemm[f"{key}_{loop}"] for key in ("dst", "src", "wgt")] == [1, 1, 0]


def test_tiles_begin_where_storage_put_them(instructions):
    sch = dense(VTA, 8, 16, 16, tile=Tile(n=2, thread="n", vthreads=2))
    products = [fields for name, fields in instructions(sch) if name == "GEMM" and not fields["reset"]]
    assert len(products) == 4
    stores = [fields["sram_base"] for name, fields in instructions(sch) if name == "STORE.OUT"]
    assert len(set(stores)) == 2


@T.prim_func
def stranger(px: T.handle, py: T.handle):
    x = T.match_buffer(px, (8, 1, 16), "int32")
    y = T.match_buffer(py, (8, 1, 16), "int8")
    acc = T.alloc_buffer((8, 1, 16), "int32", scope="local.acc")
    for i, b, c in T.grid(8, 1, 16):
        acc[i, b, c] = x[i, b, c]
    T.evaluate(T.call_extern("int32", "somebody.elses"))
    for i, b, c in T.grid(8, 1, 16):
        y[i, b, c] = T.cast(acc[i, b, c], "int8")


def test_other_calls_are_refused(instructions):
    with pytest.raises(ScheduleError, match="somebody.elses.*is not an instruction of the accelerator"):
        instructions(stranger)


def test_a_product_without_the_intrinsic_says_how_to_get_it(instructions):
    sch = Schedule(block_product(VTA, 4, 1, 1))
    block = sch.get_sblock("acc")
    sch.set_scope(block, 0, ACC)
    for k, scope in enumerate(("local.inp", "local.wgt")):
        sch.cache_read(block, k, scope)
    with pytest.raises(ScheduleError, match=r"acc.*not in local.acc; a multiply-accumulate becomes GEMM by"):
        instructions(sch)
