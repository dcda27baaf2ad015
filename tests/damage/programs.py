"""Whole programs to damage: their launches read and write constants, states and each other's results."""

from pathlib import Path

import numpy as np

from tests.modules import module_of
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.executable import Executable, HostStep, LaunchStep, Tensor
from tilewright.runtime.hostops import HOST_OPS
from tilewright.runtime.program import Program

TINY = PRESETS["tiny"]


def two_launches():
    """A launch on constants, micro-ops and state, and one that reads on the device what the first wrote there."""
    first, second = Program(TINY, "first"), Program(TINY, "second")
    x, w = first.buffer("x", (2, 1, 4)), first.buffer("w", (2, 4, 4))
    y = first.buffer("y", (2, 1, 4), kind="output")
    first.load(Mem.INP, 0, x, 0, x_size=2)
    first.load(Mem.WGT, 0, w, 0, x_size=2)
    first.gemm([(2, 1, 1, 0)], reset=True)
    first.gemm([(2, 1, 1, 0), (2, 0, 0, 1)])
    first.alu(AluOp.MAX, [(2, 1, 1)], imm=0)
    first.store(0, y, 0, x_size=2)
    x, y = second.buffer("x", (2, 1, 4)), second.buffer("y", (2, 1, 4), kind="output")
    t = second.buffer("t", (2, 1, 4), kind="temp")
    second.load(Mem.INP, 0, x, 0, x_size=2)
    second.gemm([(2, 1, 1, 0)], reset=True)
    second.store(0, t, 0, x_size=2)
    second.load(Mem.INP, 2, t, 0, x_size=2)
    second.store(0, y, 0, x_size=2)
    kinds = {"in": "input", "mid": "temp", "out": "output"}
    tensors = {name: Tensor(name, (2, 1, 4), "int8", kind) for name, kind in kinds.items()}
    tensors["w"] = Tensor("w", (2, 4, 4), "int8", "constant", np.ones((2, 4, 4), np.int8))
    tensors["before"] = Tensor("before", (2, 1, 4), "int8", "state", np.ones((2, 1, 4), np.int8), "in")
    tensors["flat"] = Tensor("flat", (8,), "float32", "output")
    tensors["q"] = Tensor("q", (8,), "int8")
    steps = [
        LaunchStep("first", first.finish(), {"x": "before", "w": "w", "y": "mid"}),
        LaunchStep("second", second.finish(), {"x": "mid", "y": "out"}),
        HostStep("flatten", "reshape", ["out"], ["q"], {"shape": [8]}),
        HostStep("scale", "dequantize", ["q"], ["flat"], {"scale": 0.5, "zero_point": 3}),
    ]
    return Executable(TINY, "two", tensors, steps)


def every_operator():
    """A step of each host operator that takes any input, each with inputs of its own."""
    tensors, steps = {}, []
    known = vars(module_of(Path(__file__).parents[1] / "runtime" / "hostops" / "cases.py"))
    for name, (_, _, attrs) in known["EXAMPLES"].items():
        if name == "expect_numbers":  # ends a run with most inputs: that is what it is for
            continue
        inputs = known["operands"](name)
        found = HOST_OPS[name].result(inputs, attrs)
        names = [f"{name}.{k}" for k in range(len(inputs))]
        tensors |= {n: Tensor(n, x.shape, x.dtype, "input") for n, x in zip(names, inputs)}
        tensors[name] = Tensor(name, found.shape, found.dtype, "output")
        constants = {key: value for key, value in attrs.items() if isinstance(value, np.ndarray)}
        plain = {key: value for key, value in attrs.items() if key not in constants}
        steps.append(HostStep(f"{name} step", name, names, [name], plain, constants))
    return Executable(TINY, "every", tensors, steps)
