"""The installed TVM does what the compiler rests on, and other versions are refused."""

import subprocess
import sys

import pytest

from tilewright.compiler.tvm_compat import Schedule, T, TensorIntrin, check_versions, ir, te, tvm_ffi
from tilewright.hw.errors import UnsupportedError


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
