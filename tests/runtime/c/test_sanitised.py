"""One step of every operator in a C program: nothing outside an array is touched, and nothing is undefined."""

import importlib.util
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime.c.hostcalls import FOLDER, call
from tilewright.runtime.hostops import HOST_OPS
from tilewright.runtime.steps import HostStep, Tensor

RNG = np.random.default_rng(7)
C_TYPES = {"bool": "uint8_t", "float32": "float"}
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
MAIN = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tw_host.h"
{arrays}
static void *copied(const void *data, size_t bytes) {{
    void *found = malloc(bytes ? bytes : 1);
    if (data && found) memcpy(found, data, bytes);
    return found;
}}
{functions}
int main(void) {{
{calls}
    return 0;
}}
"""
FUNCTION = """static int {name}(void) {{
    {inputs}
    uint8_t *scratch = copied(0, {scratch});
    void *y = copied(0, {nbytes});
    int same;
    {statements}
    same = !memcmp(y, expected_{name}, {nbytes});
    {ends}
    free(scratch);
    free(y);
    return same;
}}
"""


FLOATS = dict.fromkeys(("float_matmul", "float_conv2d", "float_conv_transpose2d"), {"ordered": True})
FLOATS |= {"float_reduce": {"function": "ReduceMax"}, "float_softmax": {"logarithm": False}}


def good():
    """(operator, operands, attributes) of a step of each, from a module that is no part of a package."""
    spec = importlib.util.spec_from_file_location("good_steps", Path(__file__).parents[1] / "hostops" / "test_rows.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, (shapes, dtype, attrs) in module.GOOD.items():
        yield name, module.operands(shapes, dtype), attrs | FLOATS.get(name, {})


def array(name, values):
    """A constant array in C, by its bytes for numbers that are not integers."""
    values = np.ascontiguousarray(values)
    kind = C_TYPES.get(str(values.dtype), f"{values.dtype}_t")
    if kind == "float":
        numbers = [f"{float(v).hex()}f" for v in values.reshape(-1)]
    else:
        numbers = [f"{int(v)}{'LL' if kind == 'int64_t' else ''}" for v in values.reshape(-1)]
    return f"static const {kind} {name}[] = {{{', '.join(numbers)}}};"


def written(name, operands, attrs):
    """(arrays, function) of a step."""
    most = 1 if name == "expect_numbers" else 100  # it refuses all but 0
    arrays = [RNG.integers(0, 2 if x.dtype == "bool" else most, x.shape).astype(x.dtype) for x in operands]
    (expected,) = HOST_OPS[name](arrays, attrs)
    names = [f"x{k}" for k in range(len(arrays))]
    tensors = {one: Tensor(one, x.shape, str(x.dtype)) for one, x in zip(names, arrays)}
    tensors["y"] = Tensor("y", expected.shape, str(expected.dtype))
    constants = {k: v for k, v in attrs.items() if isinstance(v, np.ndarray)}
    plain = {k: v for k, v in attrs.items() if k not in constants}
    found = call(HostStep("one", name, names, ["y"], plain, constants), tensors, {one: one for one in tensors})
    data = dict(found.data)
    data |= {f"{one}_{name}": x for one, x in zip(names, arrays)} | {f"expected_{name}": expected}
    function = FUNCTION.format(
        name=name,
        inputs="\n    ".join(f"void *{one} = copied({one}_{name}, {x.nbytes});" for one, x in zip(names, arrays)),
        scratch=found.scratch,
        nbytes=expected.nbytes,
        statements="\n    ".join(map(str, found.statements)).replace("return TW_BAD_INPUT", "return 0"),
        ends="\n    ".join(f"free({one});" for one in names),
    )
    return {key: array(key, value) for key, value in data.items()}, function


def test_nothing_outside_an_array_and_nothing_undefined(gcc, tmp_path):
    arrays, functions, names = {}, [], []
    for name, operands, attrs in good():
        if HOST_OPS[name].c:
            found, function = written(name, operands, attrs)
            arrays |= found
            functions.append(function)
            names.append(name)
    assert len(names) == sum(op.c is not None for op in HOST_OPS.values())
    calls = "\n".join(f'    if (!{name}()) return puts("{name}"), 1;' for name in names)
    text = MAIN.format(arrays="\n".join(arrays.values()), functions="\n".join(functions), calls=calls)
    (tmp_path / "main.c").write_text(text)
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-ffp-contract=off", f"-I{FOLDER}"]
    sources = [tmp_path / "main.c", *sorted(FOLDER.glob("*.c"))]
    program = tmp_path / "kernels"
    built = subprocess.run(
        ["gcc", *flags, *SANITIZE, "-o", program, *sources], capture_output=True, text=True, timeout=300
    )
    if "cannot find" in built.stderr and "san" in built.stderr:
        pytest.skip("needs gcc's sanitizers")
    assert built.returncode == 0, built.stderr[:3000]
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[:3000]
