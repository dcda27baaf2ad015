"""What loads programs, and a kernel on an interpreter's tensors; tests/delegate has it inside an interpreter."""

import threading

import numpy as np
import pytest

from tilewright.apps.delegate import abi as c
from tilewright.apps.delegate import kernel as module
from tilewright.apps.delegate.abi import Given
from tilewright.apps.delegate.kernel import Kernel, opener
from tilewright.apps.delegate.partition import Program
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError, UnsupportedError
from tilewright.runtime.device import Stats, open_device
from tilewright.runtime.executable import Executable, HostStep, Tensor

TINY = PRESETS["tiny"]


def executable():
    """y = x, one step on the host."""
    tensors = {"x": Tensor("x", (1, 2), "int8", "input"), "y": Tensor("y", (2, 1), "int8", "output")}
    return Executable(TINY, "copy", tensors, [HostStep("copy", "reshape", ["x"], ["y"], {"shape": [2, 1]})])


def test_every_place_loads(monkeypatch):
    device = open_device("model", TINY)
    assert opener(device)(executable()).device is device
    load = opener("model")
    assert load(executable()).device is load(executable()).device, "a delegate opens its device once"
    monkeypatch.setattr(module, "open_remote", lambda address, program: address)
    assert opener("pynq:50177")(executable()) == "pynq:50177"

    def mine(program):
        return program

    assert opener(mine) is mine
    with pytest.raises(UnsupportedError, match="unknown device 'gpu'"):
        opener("gpu")


class Tensors(c.Context):
    """The context of an interpreter, with two tensors."""

    def __init__(self, shape=(1, 2)):
        self.abi = abi = c.Abi()
        self.values = [np.array([[5, -6]], np.int8), np.zeros((2, 1), np.int8)]
        self.dims = [c.int_array(list(shape)), c.int_array([2, 1])]
        self.tensors = [
            abi.new("tensor", type=9, data=v.ctypes.data, bytes=v.nbytes, dims=c.ctypes.addressof(d))
            for v, d in zip(self.values, self.dims)
        ]

    def tensor(self, number):
        return self.tensors[number]


def kernel(done=lambda *facts: None, outputs=(1,)):
    program = Program(Given((0,), (0,), (1,)), executable(), ((0, "x"),), ((1, "y"),), 0, 0, 0.0)
    return Kernel(program, outputs, opener("model")(program.executable), threading.RLock(), done)


def test_a_run_reads_and_writes_the_interpreters_memory():
    heard, context = [], Tensors()
    made = kernel(lambda *facts: heard.append(facts))
    made.check(context)
    made.run(context)
    assert context.values[1].tolist() == [[5], [-6]]
    ((program, stats, seconds, values),) = heard
    assert program is made.program and isinstance(stats, Stats) and seconds > 0 and values[1].tolist() == [[5], [-6]]
    made.close()


def test_only_what_the_interpreter_asks_for_is_written():
    context = Tensors()
    kernel(outputs=()).run(context)
    assert not context.values[1].any()


def test_other_shapes_are_refused():
    with pytest.raises(
        InputError, match=r"tensor 'x' has shape \(2, 1\) in the interpreter, programs are for \(1, 2\)"
    ):
        kernel().run(Tensors((2, 1)))
