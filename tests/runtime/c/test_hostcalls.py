"""Host steps in C: each step of tests/runtime/hostops/cases.py gives the bytes of NumPy, and touches no more."""

import ctypes
import os
import re
import subprocess

import numpy as np
import pytest

from tests.runtime.hostops.cases import EXAMPLES, example
from tests.runtime.hostops.steps import REFUSED, at, cases, without_c
from tilewright.hw.errors import ProgramError, UnsupportedError
from tilewright.runtime.c.hostcalls import FOLDER, FUNCTIONS, HEADER, SHARED, call, source
from tilewright.runtime.c.text import array
from tilewright.runtime.hostops import HOST_OPS, Operand
from tilewright.runtime.hostops.c_calls import Value, Writer, merged, real, spread, strides, type_of
from tilewright.runtime.steps import HostStep, Tensor

FLAGS = "-std=c99 -O1 -g -Wall -Wextra -Wpedantic -Werror -ffp-contract=off".split()
SANITIZE = ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"]
GUARD = 64  # bytes before and behind an array, which nothing may touch
TYPES = {"int": ctypes.c_int, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64}
TYPES |= {"float": ctypes.c_float, "void": None}
DECLARED = re.sub(r"/\*.*?\*/", "", source(HEADER), flags=re.S)
NAMES = {"INT32_MIN": -(1 << 31), "TW_INFINITY": float("inf")}
for listed in re.findall(r"enum \{(.*?)\}", DECLARED, flags=re.S):
    NAMES |= {name.strip(): k for k, name in enumerate(listed.split(","))}
CASES = cases()


@pytest.fixture(scope="module")
def folder(gcc, tmp_path_factory):
    """The sources, as they are emitted."""
    path = tmp_path_factory.mktemp("sources")
    for name in (HEADER, *SHARED, *FUNCTIONS):
        (path / name).write_text(source(name))
    return path


@pytest.fixture(scope="module")
def kernels(folder):
    """The functions in a shared library, with the types that their header declares."""
    path = folder / "kernels.so"
    files = sorted(map(str, folder.glob("*.c")))
    subprocess.run(["gcc", *FLAGS, *SANITIZE, "-shared", "-fPIC", "-o", str(path), *files], check=True, timeout=120)
    library = ctypes.CDLL(str(path))
    for result, name, parameters in re.findall(r"(int|void) (tw_\w+)\(([^)]*)\);", DECLARED):
        function = getattr(library, name)
        function.restype = TYPES[result]
        function.argtypes = [
            ctypes.c_void_p if "*" in each else TYPES[each.split()[-2]] for each in parameters.split(",")
        ]
    return library


class Memory:
    """Arrays between guards, by the names that statements have for them."""

    def __init__(self):
        self.names, self._held = dict(NAMES), []

    def put(self, name, nbytes, data=None):
        """Bytes at `name`, a view of which is returned."""
        whole = np.full(nbytes + 2 * GUARD, 0xA5, np.uint8)
        inside = whole[GUARD : GUARD + nbytes]
        if data is not None:
            inside[:] = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        self._held.append(whole)
        self.names[name] = inside.ctypes.data
        return inside

    def check(self):
        """No guard changed."""
        for whole in self._held:
            assert (whole[:GUARD] == 0xA5).all() and (whole[-GUARD:] == 0xA5).all()

    def value(self, text):
        """What a C expression of the statements is."""
        if re.fullmatch(r"-?0x[0-9a-f.]+p[+-]\d+f", text):
            return float.fromhex(text[:-1])
        return eval(text.replace("(void *)", ""), {}, self.names)


def step_of(op, arrays, attrs):
    """(the step, its tensors) of an operator on arrays."""
    shape, dtype, _ = HOST_OPS[op].result([Operand(x.shape, str(x.dtype)) for x in arrays], attrs)
    names = [f"x{k}" for k in range(len(arrays))]
    tensors = {name: Tensor(name, x.shape, str(x.dtype)) for name, x in zip(names, arrays)}
    tensors["y"] = Tensor("y", tuple(shape), dtype)
    constants = {k: v for k, v in attrs.items() if isinstance(v, np.ndarray)}
    plain = {k: v for k, v in attrs.items() if k not in constants}
    return HostStep("step", op, names, ["y"], plain, constants), tensors


def in_c(kernels, op, arrays, attrs):
    """What the step gives in C; None where it finds that an input is not allowed."""
    step, tensors = step_of(op, arrays, attrs)
    found, memory, y = call(step, tensors, {name: name for name in tensors}), Memory(), tensors["y"]
    inputs = [memory.put(f"x{k}", x.nbytes, x) for k, x in enumerate(arrays)]
    output = memory.put("y", y.nbytes)
    memory.put("scratch", found.scratch)
    for name, data in found.data.items():
        memory.put(name, data.nbytes, data)
    for statement in found.statements:
        fine = getattr(kernels, statement.function)(*map(memory.value, statement.arguments))
        if statement.checked and not fine:
            return None
    memory.check()
    for mine, x in zip(inputs, arrays):
        assert np.array_equal(mine, np.ascontiguousarray(x).view(np.uint8).reshape(-1)), "an input changed"
    return output.view(np.uint8 if y.dtype == "bool" else y.dtype).reshape(y.shape)


def test_every_operator_with_a_call_has_cases():
    assert set(CASES) == {name for name, op in HOST_OPS.items() if op.c}


@pytest.mark.parametrize("name", CASES)
def test_c_gives_what_numpy_gives(kernels, name):
    for arrays, attrs in CASES[name]:
        (expected,) = HOST_OPS[name](list(arrays), attrs)
        found = in_c(kernels, name, arrays, attrs)
        assert found is not None, attrs
        as_bytes = expected.view(np.uint8) if expected.dtype == bool else expected
        np.testing.assert_array_equal(found, as_bytes, str(attrs))


IN_C = [row for row in REFUSED if HOST_OPS[row[0]].c]


@pytest.mark.parametrize("op, arrays, attrs, text", IN_C, ids=[f"{row[0]}-{k}" for k, row in enumerate(IN_C)])
def test_values_that_are_not_allowed_are_found(kernels, op, arrays, attrs, text):
    assert in_c(kernels, op, arrays, attrs) is None


REALS, MATRIX = np.ones((1, 4), np.float32), np.ones((4, 4), np.float32)
LAYER = {"weight": np.ones((1, 1, 1, 1), np.float32), "bias": np.ones(1, np.float32), "strides": [1, 1]}
LAYER |= {"pads": [0] * 4, "dilations": [1, 1], "groups": 1}
ORDER = "adds products in the order of a library, for which there is no C kernel; run it with Python"
ALL = {"axes": [0, 1], "shape": []}
LOG = EXAMPLES["log_softmax"][2] | {"axis": 0}
WITHOUT = [
    ("log_softmax", [np.ones(4, np.int8)], LOG, "'log_softmax' has no C kernel; run the program with Python"),
    ("float_softmax", [REALS], {"axis": 1, "logarithm": True}, "'float_softmax' has no C kernel for logarithms"),
    ("float_matmul", [MATRIX, MATRIX], {}, f"'float_matmul' {ORDER}"),
    ("float_conv2d", [REALS.reshape(1, 1, 2, 2)], LAYER, f"'float_conv2d' {ORDER}"),
    ("float_conv_transpose2d", [REALS.reshape(1, 1, 2, 2)], LAYER, f"'float_conv_transpose2d' {ORDER}"),
    ("number_binary", [REALS, REALS], {"function": "pow"}, "function 'pow' of float32 in host operator 'number_bin"),
    ("number_function", [at(1)], {"function": "sqrt"}, "function 'sqrt' of int32 in host operator 'number_function'"),
    ("float_function", [REALS], {"function": "Tanh"}, "function 'Tanh' of float32 in host operator 'float_function'"),
    ("float_reduce", [REALS], {"function": "ReduceSum", **ALL}, "function 'ReduceSum' of float32"),
    ("number_reduce", [REALS > 0], {"function": "sum", **ALL}, "function 'sum' of bool"),
    ("softmax", [np.ones(8192, np.int8)], {"axis": 0, "multiplier": 1 << 30, "exponent": 20}, "softmax of 8192 values"),
]


@pytest.mark.parametrize("op, arrays, attrs, text", WITHOUT, ids=[row[0] for row in WITHOUT])
def test_what_has_no_call_is_refused(op, arrays, attrs, text):
    step, tensors = step_of(op, arrays, attrs)
    with pytest.raises(UnsupportedError, match=f"^step 'step': .*{text}"):
        call(step, tensors, {name: name for name in tensors})


@pytest.mark.parametrize("step", [pytest.param(step, id=f"{step[0]}-{k}") for k, step in enumerate(without_c())])
def test_what_numpy_alone_computes_is_refused(step):
    host, tensors = step_of(*step)
    with pytest.raises(UnsupportedError, match="has no C kernel|for which there is no C kernel"):
        call(host, tensors, {name: name for name in tensors})


MAIN = """#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "tw_host.h"
static void *copied(const void *data, size_t bytes) {
    void *found = malloc(bytes ? bytes : 1);
    if (data && found) memcpy(found, data, bytes);
    return found;
}
"""


def c_function(name):
    """(constant arrays, function) of a step in C, whose arrays are as large as they must be and no larger."""
    arrays, attrs = example(name), EXAMPLES[name][2]
    (expected,) = HOST_OPS[name](arrays, attrs)
    step, tensors = step_of(name, arrays, attrs)
    found = call(step, tensors, {one: one for one in tensors})
    data = found.data | {f"{one}_{name}": x for one, x in zip(step.inputs, arrays)} | {f"expected_{name}": expected}
    lines = [f"void *{one} = copied({one}_{name}, {x.nbytes});" for one, x in zip(step.inputs, arrays)]
    lines += [
        f"uint8_t *scratch = copied(0, {found.scratch});",
        f"void *y = copied(0, {expected.nbytes});",
        "int same;",
    ]
    lines += [str(statement).replace("return TW_BAD_INPUT", "return 0") for statement in found.statements]
    lines += [f"same = !memcmp(y, expected_{name}, {expected.nbytes});"]
    lines += [f"free({one});" for one in (*step.inputs, "scratch", "y")]
    body = "\n    ".join([*lines, "return same;"])
    return {key: array(key, value) for key, value in data.items()}, f"static int {name}(void) {{\n    {body}\n}}"


@pytest.mark.circuit
def test_nothing_outside_an_array_and_nothing_undefined(folder):
    found = {name: c_function(name) for name in CASES}
    arrays = {key: text for data, _ in found.values() for key, text in data.items()}
    calls = "".join(f'    if (!{name}()) return puts("{name}"), 1;\n' for name in found)
    parts = [MAIN, *arrays.values(), *(text for _, text in found.values())]
    (folder / "main.c").write_text("\n".join([*parts, f"int main(void) {{\n{calls}    return 0;\n}}\n"]))
    flags = [*FLAGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", folder / "steps"]
    built = subprocess.run(["gcc", *flags, *sorted(folder.glob("*.c"))], capture_output=True, text=True, timeout=300)
    (folder / "main.c").unlink()
    if "cannot find" in built.stderr and "san" in built.stderr:
        pytest.skip("needs gcc's sanitizers")
    assert built.returncode == 0, built.stderr[:3000]
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([folder / "steps"], capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[:3000]


def translated(op, shapes, dtypes, **attrs):
    """The call of an operator whose last tensor is its output."""
    tensors = {f"t{k}": Tensor(f"t{k}", shape, dtype) for k, (shape, dtype) in enumerate(zip(shapes, dtypes))}
    *inputs, output = tensors
    return call(HostStep("one", op, inputs, [output], attrs), tensors, {name: name for name in tensors})


def test_a_step_is_statements_data_scratch_and_sources():
    softmax = {"n": 1, "c": 10, "shape": [1, 10], "axis": 1, "multiplier": 1 << 30, "exponent": 20}
    found = translated("unpack_softmax", [(1, 1, 1, 16), (1, 10)], ["int8", "int16"], **softmax, bits=16)
    assert [s.function for s in found.statements] == ["tw_move", "tw_softmax"]
    assert found.scratch == 16 and found.sources == ("tw_fixed.c", "tw_moves.c", "tw_rows.c", "tw_walk.c")
    first, second = map(str, found.statements)
    (walk,) = (name for name in found.data if name.startswith("walk_"))
    tables = [next(name for name in found.data if name.startswith(kind)) for kind in ("numerators_", "summands_")]
    assert first == f"tw_move(t0, 0, (void *)(scratch + 0), 0, 10, {walk});"
    assert second == f"tw_softmax((void *)(scratch + 0), t1, 1, 10, 1, {', '.join(tables)}, 16, 16, -32768);"
    assert found.data[walk].tolist() == [0] and {found.data[name].dtype for name in tables} == {np.dtype(np.int32)}


def test_a_checked_statement_leaves_the_function():
    (statement,) = translated("quantize", [(4,), (4,)], ["float32", "int8"], scale=0.1, zero_point=-3).statements
    assert (
        str(statement) == "if (!tw_quantize(t0, t1, TW_INT8, 4, 0x1.99999a0000000p-4f, -3, 0, 0)) return TW_BAD_INPUT;"
    )


def test_a_cache_is_written_in_place_where_it_has_one_place():
    shapes = {"cache": (1, 3, 5, 1), "row": (1, 3), "at": (1,), "after": (1, 3, 5, 1)}
    tensors = {name: Tensor(name, shape, "int32" if name == "at" else "int8") for name, shape in shapes.items()}
    step = HostStep("one", "write_rows", ["cache", "row", "at"], ["after"])
    apart = call(step, tensors, {name: name for name in shapes})
    assert [s.function for s in apart.statements] == ["tw_move", "tw_write_rows"]
    (inside,) = call(step, tensors, {name: name for name in shapes} | {"after": "cache"}).statements
    assert str(inside) == "tw_write_rows(row, at, cache, 3, 5);"


def test_the_header_declares_every_function_with_what_stands_above_it():
    declared = re.findall(r"^\w+ \*?(tw_\w+)\(", DECLARED, flags=re.M)
    assert len(set(declared)) == len(declared) and {*declared} > {name for file in FUNCTIONS.values() for name in file}
    assert "/* uint8 as int8, and back */\nvoid tw_recode(const void *x, void *y, int32_t size);" in source(HEADER)
    assert {path.name for path in FOLDER.glob("*.c")} == {*FUNCTIONS, *SHARED}


def test_only_sources_are_read():
    with pytest.raises(ProgramError, match="source '../secret': must be tw_host.h or one of tw_arithmetic.c"):
        source("../secret")


def test_numbers_are_exact_and_infinite_beyond_float32():
    assert real(0.1) == "0x1.99999a0000000p-4f" and float.fromhex(real(1e-45)[:-1]) == np.float32(1e-45)
    assert (real(3.5e38), real(-3.5e38)) == ("TW_INFINITY", "-TW_INFINITY")


def test_dimensions_that_are_run_through_alike_become_one():
    steps = strides((2, 3, 4), 2)
    assert steps == [24, 8, 2] and merged((2, 3, 4), (steps, steps)) == [(24, 2, 2)]
    assert merged((2, 1, 4), ([24, 8, 2], [8, 99, 2])) == [(4, 2, 2), (2, 24, 8)]
    assert spread((3, 1), (2, 3, 4)) == [0, 1, 0]


def test_what_a_writer_refuses():
    with pytest.raises(UnsupportedError, match="an array is uint32; C kernels compute with int8, uint8, bool, int16"):
        type_of(Value("x", (1,), "uint32"))
    with pytest.raises(UnsupportedError, match="walk: 5 to 2147483648 are not in int32, as the C kernel needs"):
        Writer().array("walk", [5, 1 << 31])
    with pytest.raises(UnsupportedError, match="its arrays are walked in 9 dimensions, at most 8"):
        Writer().plan([(2, 1, 1)] * 9)


def test_equal_arrays_have_one_name_and_scratch_is_aligned_and_used_again():
    writer = Writer()
    first, second = writer.array("walk", [1, 2]), writer.array("walk", np.array([[1], [2]]))
    assert first == second != writer.array("walk", [1, 2], "int64") and len(writer.data) == 2
    assert writer.scratch(3) == "(void *)(scratch + 0)" and writer.scratch(9) == "(void *)(scratch + 8)"
    writer.top = 8
    assert writer.scratch(1) == "(void *)(scratch + 8)" and writer.most == 24
