"""Host steps as calls of C functions: what the calls name is there, and what has no kernel is refused."""

import re

import numpy as np
import pytest

from tilewright.hw.errors import ProgramError, UnsupportedError
from tilewright.runtime.c.hostcalls import FUNCTIONS, HEADER, SHARED, call, source
from tilewright.runtime.hostops import HOST_OPS
from tilewright.runtime.steps import HostStep, Tensor


def translated(op, shapes, dtypes, **attrs):
    """The call of an operator whose last tensor is its output."""
    tensors = {f"t{k}": Tensor(f"t{k}", shape, dtype) for k, (shape, dtype) in enumerate(zip(shapes, dtypes))}
    *inputs, output = tensors
    return call(HostStep("one", op, inputs, [output], attrs), tensors, {name: name for name in tensors})


def test_every_translation_is_of_an_operator():
    pass


def test_every_function_that_is_declared_is_in_one_file():
    declared = re.findall(r"^\w+ \*?(tw_\w+)\(", source(HEADER), flags=re.M)
    shared = re.findall(r"^\w+ (tw_\w+)\(", "\n".join(map(source, SHARED)), flags=re.M)
    assert sorted(declared) == sorted([*shared, *(name for names in FUNCTIONS.values() for name in names)])


def test_a_step_is_statements_data_scratch_and_sources():
    found = translated("unpack_softmax", [(1, 1, 1, 16), (1, 10)], ["int8", "int16"], **SOFTMAX, bits=16)
    assert [s.function for s in found.statements] == ["tw_move", "tw_softmax"]
    assert found.scratch == 16 and found.sources == ("tw_fixed.c", "tw_moves.c", "tw_rows.c", "tw_walk.c")
    first, second = map(str, found.statements)
    (walk,) = (name for name in found.data if name.startswith("walk_"))
    (table,) = (name for name in found.data if name.startswith("exponentials_"))
    assert first == f"tw_move(t0, 0, (void *)(scratch + 0), 0, 10, {walk});"
    assert second == f"tw_softmax((void *)(scratch + 0), t1, 1, 10, 1, {table}, 16);"
    assert found.data[walk].tolist() == [0] and found.data[table].dtype == np.int32


SOFTMAX = {"n": 1, "c": 10, "shape": [1, 10], "axis": 1, "multiplier": 1 << 30, "exponent": 20}


def test_a_checked_statement_leaves_the_function():
    found = translated("quantize", [(4,), (4,)], ["float32", "int8"], scale=0.1, zero_point=-3)
    (statement,) = found.statements
    assert str(statement) == "if (!tw_quantize(t0, t1, 4, 0x1.99999a0000000p-4f, -3, 0)) return TW_BAD_INPUT;"


def test_a_cache_is_written_in_place_where_it_has_one_place():
    shapes = {"cache": (1, 3, 5, 1), "row": (1, 3), "at": (1,), "after": (1, 3, 5, 1)}
    tensors = {name: Tensor(name, shape, "int32" if name == "at" else "int8") for name, shape in shapes.items()}
    step = HostStep("one", "write_rows", ["cache", "row", "at"], ["after"])
    apart = call(step, tensors, {name: name for name in shapes})
    assert [s.function for s in apart.statements] == ["tw_move", "tw_write_rows"]
    (inside,) = call(step, tensors, {name: name for name in shapes} | {"after": "cache"}).statements
    assert str(inside) == "tw_write_rows(row, at, cache, 3, 5);"


def test_operators_without_a_kernel_are_refused():
    message = "step 'one': host operator 'log_softmax' has no C kernel; run the program with Python"
    with pytest.raises(UnsupportedError, match=message):
        translated("log_softmax", [(4,), (4,)], ["int8", "int8"])


def test_only_sources_are_read():
    with pytest.raises(ProgramError, match="source '../secret': must be tw_host.h or one of tw_arithmetic.c"):
        source("../secret")
