"""runtime/c/text.py: names and values that C reads as they were."""

import ctypes
import subprocess

import numpy as np
import pytest

from tilewright.runtime.c.text import array, c_type, comment, identifier, wrapped


@pytest.mark.parametrize(
    "name, found", [("model/dense;MatMul", "model_dense_MatMul"), ("1x", "1x"), ("int", "int"), ("_", "x"), ("ü", "x")]
)
def test_names(name, found):
    assert identifier("input", name) == f"input_{found}"


def test_names_that_are_taken_get_a_number():
    assert identifier("output", "a-b", ["output_A_b", "output_a_b_2"]) == "output_a_b_3"


def test_types():
    assert [c_type(d) for d in ("int8", "uint32", "float32", "bool")] == ["int8_t", "uint32_t", "float", "uint8_t"]


def test_a_comment_does_not_end_early():
    assert comment("a */ b /* c ??/ d\né") == "/* a * / b / * c ? ?/ d__ */"


def test_lines_are_short():
    lines = wrapped(str(k) for k in range(200)).splitlines()
    assert len(lines) > 5 and all(len(line) <= 104 for line in lines) and lines[-1].endswith(" 199,")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "float32"])
def test_values(gcc, dtype, tmp_path):
    if dtype == "float32":
        data = np.array([0.1, -0.0, 1e-40, np.inf, -np.inf, 3.4e38], dtype)
    else:
        info = np.iinfo(dtype)
        data = np.array([info.min, info.max, 0, 1, info.min + 1], dtype)
    (tmp_path / "x.c").write_text(f"#include <stdint.h>\n{array('x', data, 'const')}\n")
    flags = "-std=c99 -Wall -Wextra -Wpedantic -Werror -shared -fPIC".split()
    subprocess.run(["gcc", *flags, "-o", tmp_path / "x.so", tmp_path / "x.c"], check=True)
    library = ctypes.CDLL(str(tmp_path / "x.so"))
    found = (ctypes.c_char * data.nbytes).in_dll(library, "x")
    assert bytes(found) == data.tobytes()
