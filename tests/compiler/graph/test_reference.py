"""The interpreter: a convolution in Python's integers, the digits as onnxruntime has them, the first difference."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import Dequantize, Graph, Requantize, Tensor, reference
from tilewright.compiler.graph.reference import Saturation, compare
from tilewright.hw.errors import InputError

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
RNG = np.random.default_rng(7)
SHAPE, PADS, STRIDES, DILATIONS = (2, 3, 5, 4), (0, 2, 1, 1), (2, 1), (1, 2)


def convolution():
    x, y = g.Tensor("x", SHAPE, scale=0.1, zero_point=-37), g.Tensor("y", (2, 2, 3, 3), scale=3.0, zero_point=11)
    weight, bias = RNG.integers(-128, 128, (2, 3, 2, 3)).astype(np.int8), np.array([2**31 - 9, -4000], np.int32)
    facts = {"strides": STRIDES, "pads": PADS, "dilations": DILATIONS, "low": -100, "high": 90}
    op = g.QConv2d("conv", (x,), y, weight, np.array([0.02, 0.17], np.float32), bias, **facts)
    return op, g.Graph("g", (x,), (y,), (op,))


def rounded(acc, multiplier, exponent, contract):
    """acc * multiplier * 2**(exponent - 31) for a negative exponent, in Python's integers."""
    if contract == "single":
        return (acc * multiplier + (1 << (30 - exponent))) >> (31 - exponent)
    high = (acc * multiplier + (1 << 30)) >> 31
    half = 1 << (-exponent - 1) if exponent else 0
    return (abs(high) + half >> -exponent) * (1 if high >= 0 else -1)


@pytest.mark.parametrize("contract", ["double", "single"])
def test_a_run_gives_outputs_and_accumulators_that_wrap_in_the_contract(contract):
    op, graph = convolution()
    x = RNG.integers(-128, 128, (4, *SHAPE[1:])).astype(np.int8)  # two batches
    outputs, accumulators = reference.run(graph, {"x": x}, contract)
    acc, y = accumulators["conv"], outputs["y"]
    assert (acc.dtype, y.dtype, acc.shape) == (np.int32, np.int8, (4, *op.output.shape[1:]))
    multipliers, exponents = op.multipliers
    assert exponents.max() <= 0
    for n, o, i, j in np.ndindex(*acc.shape):
        total = int(op.bias[o])
        for c, k, m in product(*map(range, op.weight.shape[1:])):
            row, column = i * 2 - PADS[0] + k, j - PADS[1] + 2 * m
            if 0 <= row < 5 and 0 <= column < 4:
                total += (int(x[n, c, row, column]) + 37) * int(op.weight[o, c, k, m])
        assert acc[n, o, i, j] == (total + 2**31) % 2**32 - 2**31
        real = rounded(int(acc[n, o, i, j]), int(multipliers[o]), int(exponents[o]), contract)
        assert y[n, o, i, j] == min(max(11 + real, -100), 90)


def test_digits_equal_onnxruntime(onnxruntime_outputs, record_property):
    """Labels are equal on every image; logits differ by one step at most, by the contracts' roundings."""
    graph = import_onnx(DIGITS / "digits.onnx")
    with np.load(DIGITS / "inputs.npz") as data:
        images, labels = data["inputs"][::6], data["labels"][::6]
    expected = np.concatenate([onnxruntime_outputs(DIGITS / "digits.onnx", {"image": x})["logits"] for x in images])
    for contract, share in (("double", 0.1), ("single", 0.002)):
        outputs, accumulators = reference.run(graph, {"image": images[:, 0]}, contract)
        assert list(accumulators) == ["conv1", "conv2", "conv3", "gemm"]
        logits = outputs["logits"]
        assert np.array_equal(logits.argmax(1), expected.argmax(1))
        assert (logits.argmax(1) == labels).mean() >= 0.97
        steps = np.abs(logits - expected) / graph.layers[-1].output.scale
        record_property(f"logits that differ ({contract})", int((steps > 0.5).sum()))
        assert steps.max() < 1.01 and (steps > 0.5).mean() <= share


IMAGES = np.zeros(SHAPE, np.int8)


@pytest.mark.parametrize(
    "inputs, text",
    [
        ({}, "input 'x' is missing; the given inputs are none"),
        ({"x": IMAGES, "image": IMAGES}, "the network has no input 'image'; it has x"),
        ({"x": IMAGES[:, :, :, 1:]}, r"input 'x' has shape \(2, 3, 5, 3\); expected \(2 \* N, 3, 5, 4\)"),
        ({"x": IMAGES[:1]}, r"input 'x' has shape \(1, 3, 5, 4\); expected \(2 \* N, 3, 5, 4\)"),
    ],
)
def test_wrong_inputs(inputs, text):
    with pytest.raises(InputError, match=text):
        reference.run(convolution()[1], inputs)


X, A, B, C = Tensor("x", (2, 3)), Tensor("a", (2, 3), scale=2.0), Tensor("b", (2, 3)), Tensor("c", (2, 3), "float32")
GRAPH = Graph("g", (X,), (C,), (Requantize("one", (X,), A), Requantize("two", (A,), B), Dequantize("three", (B,), C)))
INPUTS = {"x": np.array([[1, 2, 3], [-40, 50, 60]], np.int8)}


def test_equal_values():
    found = compare(GRAPH, INPUTS, reference.trace(GRAPH, INPUTS))
    assert (found.operators, found.elements, found.difference) == (3, 18, None)


def test_the_first_operator_and_element_that_differ():
    got = {name: value.copy() for name, value in reference.trace(GRAPH, INPUTS).items()}
    got["b"][1, 0:2] += 1
    got["c"][0, 0] = 9
    found = compare(GRAPH, INPUTS, got)
    assert found.operators == 2
    text = "Requantize 'two': 2 of 6 elements differ, the first at [1, 0]: -39, expected -40"
    assert str(found.difference) == text


def test_zeros_of_different_signs_differ():
    got = dict(reference.trace(GRAPH, {"x": np.zeros((2, 3), np.int8)}))
    got["c"] = -got["c"]
    difference = compare(GRAPH, {"x": np.zeros((2, 3), np.int8)}, got).difference
    assert difference and difference.operator == "three" and difference.count == 6


def test_operators_whose_outputs_are_not_there_are_left_out():
    values = reference.trace(GRAPH, INPUTS)
    assert compare(GRAPH, INPUTS, {"c": values["c"]}).operators == 1


def test_values_at_the_ends_of_int8_are_counted():
    """a holds x / 2 of zero point 0, b of -128: its least value is a zero."""
    x, y = Tensor("x", (6,), scale=1.0), Tensor("y", (6,), scale=0.5)
    z = Tensor("z", (6,), scale=1.0, zero_point=-128)
    graph = Graph("g", (x,), (z,), (Requantize("one", (x,), y), Requantize("two", (y,), z)))
    inputs = {"x": np.array([-128, -65, -64, 0, 64, 3], np.int8)}
    found = compare(graph, inputs, reference.trace(graph, inputs)).saturation
    assert found == (Saturation("one", 6, 3, 1), Saturation("two", 6, 0, 0)) and found[0].share == 4 / 6
