"""Steps of an executable, and host steps as one call."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.target.steps import Steps, merge, wanted_from
from tilewright.hw.config import PRESETS
from tilewright.runtime.hostops import HOST_OPS
from tilewright.runtime.hostops.row import Operand
from tilewright.runtime.steps import HostStep, Tensor

X, Y, Z = (g.Tensor(name, (1, 4)) for name in "xyz")
OPS = (g.Requantize("first", (X,), Y), g.Requantize("second", (Y,), Z))


def test_tensors_of_the_graph_and_new_ones():
    constant = g.Tensor("c", (1, 4), data=np.zeros((1, 4), np.int8))
    graph = g.Graph("g", (X,), (Z,), (*OPS[:1], g.Add("second", (Y, constant), Z)))
    steps = Steps(graph, PRESETS["tiny"])
    kinds = {"x": "input", "y": "temp", "z": "output", "c": "constant"}
    assert {name: t.kind for name, t in steps.tensors.items()} == kinds
    assert steps.host("y", "reshape", {"shape": [4]}, ["x"], (4,)) == "y'"


def test_kernels_count_the_work_once():
    x, y = g.Tensor("x", (1, 4)), g.Tensor("y", (1, 3))
    dense = g.QDense("fc", (x,), y, np.ones((3, 4), np.int8), np.ones(3, np.float32), np.zeros(3, np.int32))
    steps = Steps(g.Graph("g", (x,), (y,), (dense,)), PRESETS["tiny"])
    steps.kernels(dense)
    assert [(s.name, s.macs) for s in steps.executable().steps] == [("fc.acc", 0), ("fc", 12)]


@pytest.mark.parametrize(
    "outputs, ops, wanted", [((Z,), OPS, ["z"]), ((Z,), OPS[:1], ["y"]), ((Y, Z), OPS, ["y", "z"])]
)
def test_tensors_that_others_read(outputs, ops, wanted):
    assert [t.name for t in wanted_from(g.Graph("g", (X,), outputs, OPS), ops)] == wanted


IMAGE, PLANES = g.Tensor("image", (1, 4, 5, 3)), g.Tensor("planes", (1, 3, 4, 5))
GREY, GREY_PLANES = g.Tensor("grey", (1, 4, 5, 1)), g.Tensor("grey planes", (1, 1, 4, 5))


@pytest.mark.parametrize(
    "op, source",
    [
        (g.Transpose("t", (IMAGE,), PLANES, (0, 3, 1, 2), True), ("image", {"layout": "NHWC"})),
        (g.Reshape("t", (GREY,), GREY_PLANES), ("grey", {"layout": "NHWC"})),
        (g.Reshape("t", (IMAGE,), PLANES), ("planes", {})),  # it moves no element
    ],
)
def test_readers_of_an_image_in_another_order(op, source):
    steps = Steps(g.Graph("g", op.inputs, (op.output,), (op,)), PRESETS["tiny"])
    assert steps.source(op.output) == (op.output.name, {})
    steps.kernels(op)
    assert steps.source(op.output) == source


def test_steps_that_nobody_reads_are_dropped():
    graph = g.Graph("g", (X,), (Z,), OPS)
    steps = Steps(graph, PRESETS["tiny"])
    steps.kernels(OPS[0])
    steps.host("late", "rescale", {}, ["y"], (1, 4))
    steps.kernels(g.Requantize("second", (X,), Z))
    found = steps.executable()
    assert [step.name for step in found.steps] == ["second"] and list(found.tensors) == ["x", "z"]


def test_a_softmax_reads_blocks():
    softmax = g.Softmax("softmax", (Y,), g.Tensor("z", (1, 4), scale=1 / 256, zero_point=-128), 1)
    steps = Steps(g.Graph("g", (X,), (softmax.output,), (OPS[0], softmax)), PRESETS["tiny"])
    packed = steps.host("pack", "pack", {"batch": 1, "block": 4}, ["x"], (1, 1, 1, 4))
    steps.steps.append(HostStep("y.unpack", "unpack", [packed], ["y"], {"n": 1, "c": 4, "shape": [1, 4]}))
    steps.kernels(softmax)
    steps.tensors[packed].kind = "output"  # else the two are one call
    pairs = [(step.name, step.op) for step in steps.executable().steps if isinstance(step, HostStep)]
    assert pairs == [("pack", "pack"), ("softmax", "unpack_softmax")]


RNG = np.random.default_rng(9)
TABLE = RNG.integers(-128, 128, 256).astype(np.int8)
QUANTIZE = ("quantize", {"scale": 0.5, "zero_point": 3})
RESCALE = ("rescale", {"x_zero_point": 1, "zero_point": -4, "multiplier": 1 << 30, "exponent": 0})
LOOKUP, RECODE = ("lookup", {"table": TABLE}), ("recode", {})
NCHW, NHWC = ("transpose", {"axes": [0, 3, 1, 2]}), ("transpose", {"axes": [0, 2, 3, 1]})
PACK = ("pack", {"batch": 1, "block": 4})
ROWS = ("take", {"indices": [[], [2, 1], [0, 0, 3, 3], []]})
UNPACK = ("unpack", {"n": 1, "c": 6, "shape": [1, 6, 4, 5]})


def steps_of(x, operators):
    """(steps, tensors) of operators one after the other on `x`: t0, t1 and so on."""
    tensors = {"t0": Tensor("t0", x.shape, str(x.dtype), "input")}
    steps, found = [], Operand(x.shape, str(x.dtype))
    for k, (name, attrs) in enumerate(operators):
        found = HOST_OPS[name].result([found], attrs)
        tensors[f"t{k + 1}"] = Tensor(f"t{k + 1}", found.shape, found.dtype)
        plain = {key: value for key, value in attrs.items() if not isinstance(value, np.ndarray)}
        constants = {key: value for key, value in attrs.items() if isinstance(value, np.ndarray)}
        steps.append(HostStep(f"s{k}", name, [f"t{k}"], [f"t{k + 1}"], plain, constants, macs=k))
    return steps, tensors


def run(steps, x):
    """The result of host steps, one after the other."""
    values = {"t0": x}
    for step in steps:
        (values[step.outputs[0]],) = HOST_OPS[step.op]([values[step.inputs[0]]], step.attrs | step.constants)
    return values[steps[-1].outputs[0]]


def stages_of(step):
    return [name for name, _ in step.attrs["stages"]] if step.op == "chain" else [step.op]


FLOATS = RNG.normal(0, 20, (1, 4, 5, 6)).astype(np.float32)
BYTES = RNG.integers(0, 256, (1, 4, 5, 6)).astype(np.uint8)
BLOCKS = RNG.integers(-128, 128, (1, 2, 4, 5, 1, 4)).astype(np.int8)
BYTE_PLANES = RNG.integers(-128, 128, (2, 1, 2, 1, 4)).astype(np.int8)
WORDS, SCALED = ("unpack_planes", {"n": 1, "c": 6, "shape": [1, 6]}), ("dequantize", {"scale": 0.1, "zero_point": 0})


@pytest.mark.parametrize(
    "x, operators, stages",
    [
        (FLOATS, [NCHW, QUANTIZE, PACK], ["quantize", "pack"]),
        (FLOATS, [QUANTIZE, NCHW, RESCALE, PACK], ["quantize", "rescale", "pack"]),
        (BYTES, [RECODE, NCHW, PACK], ["recode", "pack"]),
        (BYTES, [RECODE, NCHW, ROWS, PACK], ["recode", "take", "pack"]),
        (BYTES, [NCHW, RECODE], ["transpose", "recode"]),
        (BYTES[..., :1], [("reshape", {"shape": [1, 1, 4, 5]}), RECODE, PACK], ["recode", "pack"]),
        (BYTES[:, :1], [("reshape", {"shape": [1, 6, 1, 5]}), RECODE, PACK], ["reshape", "recode", "pack"]),
        (BLOCKS, [UNPACK, LOOKUP, RESCALE, LOOKUP, NHWC], ["unpack", "lookup"]),
        (BYTE_PLANES, [WORDS, ("reshape", {"shape": [6, 1]}), SCALED], ["unpack_planes", "reshape", "dequantize"]),
        (BLOCKS, [UNPACK, NHWC, ("reshape", {"shape": [20, 6]})], ["unpack"]),
        (BLOCKS, [UNPACK, ("reshape", {"shape": [1, 120]}), LOOKUP, RECODE], ["unpack", "lookup", "recode"]),
        (BLOCKS, [UNPACK, ("transpose", {"axes": [0, 2, 1, 3]}), LOOKUP], ["unpack", "transpose", "lookup"]),
        (BLOCKS, [UNPACK, ("dequantize", {"scale": 0.1, "zero_point": 7}), NHWC], ["unpack", "dequantize"]),
    ],
)
def test_one_call_gives_what_its_steps_give(x, operators, stages):
    steps, tensors = steps_of(x, operators)
    expected = run(steps, x)
    (step,), parts = merge(steps, tensors)
    assert isinstance(step, HostStep)
    assert stages_of(step) == stages and step.macs == sum(s.macs for s in steps)
    assert parts == {step.name: tuple(steps)}
    result = run([step], x)
    assert result.dtype == expected.dtype and np.array_equal(result, expected)
    operand = Operand(x.shape, str(x.dtype))
    assert HOST_OPS[step.op].result([operand], step.attrs | step.constants)[:2] == (expected.shape, str(expected.dtype))


def test_a_call_is_named_after_what_it_computes():
    (step,), _ = merge(*steps_of(BYTES, [NCHW, RECODE, PACK]))
    assert isinstance(step, HostStep)
    assert (step.name, step.inputs, step.outputs) == ("s1", ["t0"], ["t3"])
    (step,), _ = merge(*steps_of(BLOCKS, [UNPACK, NHWC]))
    assert isinstance(step, HostStep)
    assert (step.name, step.op) == ("s1", "unpack")


def test_what_others_read_stays():
    steps, tensors = steps_of(BYTES, [RECODE, NCHW, PACK])
    tensors["t9"] = Tensor("t9", (120,), "int8", "output")
    merged, parts = merge([*steps, HostStep("other", "reshape", ["t2"], ["t9"], {"shape": [120]})], tensors)
    assert [s.name for s in merged] == ["s0", "s2", "other"] and [*parts] == ["s0"]
    tensors["t2"].kind = "output"
    assert [s.name for s in merge(steps, tensors)[0]] == ["s0", "s2"]
    state = np.zeros(tensors["t1"].shape, np.int8)
    tensors["state"] = Tensor("state", state.shape, "int8", "state", state, "t1")  # whose next value t1 is
    assert [s.name for s in merge(steps, tensors)[0]] == ["s0", "s1", "s2"]


def test_a_call_has_a_limit():
    steps, tensors = steps_of(BYTES, [RECODE] * 18)
    merged, _ = merge(steps, tensors)
    assert [len(stages_of(step)) for step in merged] == [16, 2]
