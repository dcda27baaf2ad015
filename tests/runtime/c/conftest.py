"""The C kernels in a shared library, and the statements of a host step executed in it."""

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

from tilewright.runtime.c.hostcalls import FOLDER, HEADER, call
from tilewright.runtime.hostops import HOST_OPS, Operand
from tilewright.runtime.steps import HostStep, Tensor

FLAGS = "-std=c99 -O1 -g -Wall -Wextra -Wpedantic -Werror -ffp-contract=off -ffunction-sections".split()
SANITIZE = ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"]
GUARD = 64  # bytes before and behind an array, which nothing may touch
_TYPES = {"int": ctypes.c_int, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64}
_TYPES |= {"float": ctypes.c_float, "void": None}


def constants():
    """The names that the header gives to numbers."""
    text = re.sub(r"/\*.*?\*/", "", (FOLDER / HEADER).read_text(), flags=re.S)
    found = {"INT32_MIN": -(1 << 31), "TW_INFINITY": float("inf")}
    for names in re.findall(r"enum \{(.*?)\}", text, flags=re.S):
        found |= {name.strip(): k for k, name in enumerate(names.split(","))}
    return found


@pytest.fixture(scope="session")
def gcc():
    """Skips tests where there is no compiler."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is missing: no C is compiled")


@pytest.fixture(scope="session")
def kernels(gcc, tmp_path_factory):
    """The kernels, with the types of what is declared in their header."""
    path = tmp_path_factory.mktemp("kernels") / "kernels.so"
    files = sorted(map(str, FOLDER.glob("*.c")))
    subprocess.run(["gcc", *FLAGS, *SANITIZE, "-shared", "-fPIC", "-o", str(path), *files], check=True, timeout=120)
    library = ctypes.CDLL(str(path))
    text = re.sub(r"/\*.*?\*/", "", (FOLDER / HEADER).read_text(), flags=re.S)
    for result, name, parameters in re.findall(r"(int|void) (tw_\w+)\(([^)]*)\);", text):
        function = getattr(library, name)
        function.restype = _TYPES[result]
        function.argtypes = [
            ctypes.c_void_p if "*" in each else _TYPES[each.split()[-2]] for each in parameters.split(",")
        ]
    return library


class Memory:
    """Arrays between guards, by the names that statements have for them."""

    def __init__(self):
        self.names, self._held = constants(), []

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


def value(text, names):
    """What a C expression of the statements is."""
    if re.fullmatch(r"-?0x[0-9a-f.]+p[+-]\d+f", text):
        return float.fromhex(text[:-1])
    return eval(text.replace("(void *)", ""), {}, names)


def step_of(op, arrays, attrs):
    """(the step, its tensors) of an operator on arrays."""
    shape, dtype, _ = HOST_OPS[op].result([Operand(x.shape, str(x.dtype)) for x in arrays], attrs)
    names = [f"x{k}" for k in range(len(arrays))]
    tensors = {name: Tensor(name, x.shape, str(x.dtype)) for name, x in zip(names, arrays)}
    tensors["y"] = Tensor("y", tuple(shape), dtype)
    constants = {k: v for k, v in attrs.items() if isinstance(v, np.ndarray)}
    plain = {k: v for k, v in attrs.items() if k not in constants}
    return HostStep("step", op, names, ["y"], plain, constants), tensors


@pytest.fixture
def in_c(kernels):
    """A function that computes a host operator in C; None where it finds that an input is not allowed."""

    def compute(op, *arrays, **attrs):
        step, tensors = step_of(op, arrays, attrs)
        found = call(step, tensors, {name: name for name in tensors})
        memory = Memory()
        inputs = [memory.put(f"x{k}", x.nbytes, x) for k, x in enumerate(arrays)]
        output = memory.put("y", tensors["y"].nbytes)
        memory.put("scratch", found.scratch)
        for name, data in found.data.items():
            memory.put(name, data.nbytes, data)
        for statement in found.statements:
            function = getattr(kernels, statement.function)
            fine = function(*(value(text, memory.names) for text in statement.arguments))
            if statement.checked and not fine:
                return None
        memory.check()
        assert all(
            np.array_equal(mine, x.view(np.uint8).reshape(-1))
            for mine, x in zip(inputs, map(np.ascontiguousarray, arrays))
        )
        return output.view(np.uint8 if tensors["y"].dtype == "bool" else tensors["y"].dtype).reshape(tensors["y"].shape)

    return compute


@pytest.fixture
def same(in_c):
    """A function that checks that an operator gives in C what it gives in Python."""

    def check(op, *arrays, **attrs):
        (expected,) = HOST_OPS[op](list(arrays), attrs)
        found = in_c(op, *arrays, **attrs)
        assert found is not None
        np.testing.assert_array_equal(found, expected.view(np.uint8) if expected.dtype == bool else expected)

    return check
