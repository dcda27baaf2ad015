"""The installed TVM does what the compiler rests on; tensor intrinsics per configuration are registered with it."""

import subprocess
import sys

import pytest

from tilewright.compiler.intrin import gemm_intrin, register, reset_intrin, tensorize_gemm
from tilewright.compiler.tvm_compat import Schedule, T, TensorIntrin, check_versions, ir, te, tirx, tvm_ffi
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError, UnsupportedError

TINY = PRESETS["tiny"]


def test_save_json_and_tensorize_do_not_crash():
    """Both do with apache-tvm-ffi 0.1.15, and take the process with them."""

    @T.prim_func(s_tir=True)
    def desc(pa: T.handle, pb: T.handle):
        a, b = T.match_buffer(pa, (4,), "int32", offset_factor=1), T.match_buffer(pb, (4,), "int32", offset_factor=1)
        with T.sblock("root"):
            T.reads(a[0:4])
            T.writes(b[0:4])
            for i in range(4):
                with T.sblock("copy"):
                    vi = T.axis.remap("S", [i])
                    b[vi] = a[vi] + 1

    x = te.placeholder((8, 4), "int32", "x")
    sch = Schedule(te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + 1, name="y")]))
    assert "tirx.PrimFunc" in ir.save_json(sch.mod["main"])
    TensorIntrin.register("test.smoke", desc, desc, override=True)
    sch.tensorize(sch.get_loops(sch.get_sblock("y"))[1], "test.smoke")


def test_intrinsics_of_others_are_left_out_only_for_a_while():
    program = """
import sys
from tilewright.compiler.tvm_compat import without_intrinsics_of_others
from tvm.s_tir import TensorIntrin
name = "tvm.s_tir.tensor_intrin"
with without_intrinsics_of_others():
    import tvm.s_tir.tensor_intrin
    assert not vars(sys.modules[name]).get("__path__")
assert name not in sys.modules
sys.modules[name] = sys
with without_intrinsics_of_others():
    assert sys.modules[name] is sys
assert sys.modules[name] is sys
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_other_versions_are_refused_with_the_remedy():
    check_versions("0.27.0.post1", "0.1.14.post0")
    for version in ("0.25.0", "0.27.0", "0.27.0.post2"):
        with pytest.raises(UnsupportedError, match=f"TVM {version} is installed, the compiler needs 0.27.0.post1;"):
            check_versions(version, "0.1.14")
    for version in ("0.1.15.post2", "0.1.141"):
        with pytest.raises(UnsupportedError, match=f"apache-tvm-ffi {version} is installed, not 0.1.14"):
            check_versions("0.27.0.post1", version)


def test_errors_keep_their_class_through_tvm():
    def refuse():
        raise UnsupportedError("never")

    with pytest.raises(UnsupportedError, match="never"):
        tvm_ffi.convert_func(refuse)()


def test_importing_the_package_imports_no_tvm():
    code = "import sys, tilewright.compiler as c; assert not {'tvm', 'tvm_ffi'} & set(sys.modules); c.build; import tvm"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


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


def test_a_copy_is_independent_and_of_the_same_class():
    x = te.placeholder((8, 4), "int32", "x")
    sch = Schedule(te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + 1, name="y")]))
    rows = sch.get_loops("y")[0]
    copied = sch.copy()
    assert type(copied) is Schedule
    copied.split(rows, [2, None])
    assert (len(copied.get_loops("y")), len(sch.get_loops("y"))) == (3, 2)


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
