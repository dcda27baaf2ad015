"""The interpreter against Python's integers, and against onnxruntime on the digits; the first difference of a run."""

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
# input (n, c, h, w), weights (o, kh, kw), strides, pads, dilations
SHAPES = [
    ((1, 1, 4, 4), (2, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ((2, 3, 5, 4), (2, 2, 3), (2, 1), (0, 2, 1, 1), (1, 1)),
    ((1, 2, 7, 6), (3, 3, 2), (1, 2), (2, 0, 0, 1), (2, 3)),
    ((1, 4, 3, 3), (1, 1, 1), (3, 3), (0, 0, 0, 0), (1, 1)),
]


def make(shape, kernel, strides, pads, dilations, seed=0):
    rng = np.random.default_rng(seed)
    (n, c, h, w), (o, kh, kw) = shape, kernel
    size = [
        (s + pads[k] + pads[k + 2] - (kernel[1 + k] - 1) * dilations[k] - 1) // strides[k] + 1
        for k, s in ((0, h), (1, w))
    ]
    x, y = g.Tensor("x", shape, scale=0.1, zero_point=-37), g.Tensor("y", (n, o, *size), scale=3.0, zero_point=11)
    weight = rng.integers(-128, 128, (o, c, kh, kw)).astype(np.int8)
    scales = rng.uniform(0.01, 0.2, o).astype(np.float32)
    bias = rng.integers(-5000, 5000, o).astype(np.int32)
    op = g.QConv2d("conv", (x,), y, weight, scales, bias, -100, 90, strides, pads, dilations)
    return op, rng.integers(-128, 128, shape).astype(np.int8)


def pixel(op, x, n, o, i, j):
    """One accumulator of a convolution, in Python's integers, wrapped to 32 bits."""
    acc = int(op.bias[o])
    for c, ki, kj in product(*map(range, op.weight.shape[1:])):
        row = i * op.strides[0] - op.pads[0] + ki * op.dilations[0]
        column = j * op.strides[1] - op.pads[1] + kj * op.dilations[1]
        if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
            acc += (int(x[n, c, row, column]) - op.x.zero_point) * int(op.weight[o, c, ki, kj])
    return (acc + 2**31) % 2**32 - 2**31


def rounded(acc, multiplier, exponent, contract):
    """acc * multiplier * 2**(exponent - 31) for a negative exponent, in Python's integers."""
    if contract == "single":
        return (acc * multiplier + (1 << (30 - exponent))) >> (31 - exponent)
    high = (acc * multiplier + (1 << 30)) >> 31
    half = 1 << (-exponent - 1) if exponent else 0
    return (abs(high) + half >> -exponent) * (1 if high >= 0 else -1)


@pytest.mark.parametrize("contract", ["double", "single"])
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_convolution(case, contract):
    op, x = make(*case)
    outputs, accumulators = reference.run(g.Graph("g", (op.x,), (op.output,), (op,)), {"x": x}, contract)
    acc, y = accumulators["conv"], outputs["y"]
    assert (acc.dtype, y.dtype, acc.shape) == (np.int32, np.int8, op.output.shape)
    multipliers, exponents = op.multipliers
    assert exponents.max() <= 0
    for index in np.ndindex(*acc.shape):
        o = index[1]
        assert acc[index] == pixel(op, x, *index)
        real = rounded(int(acc[index]), int(multipliers[o]), int(exponents[o]), contract)
        assert y[index] == min(max(11 + real, -100), 90)


def test_accumulators_wrap_at_32_bits():
    x, y = g.Tensor("x", (1, 1)), g.Tensor("y", (1, 1))
    op = g.QDense("d", (x,), y, np.full((1, 1), 127, np.int8), np.ones(1, np.float32), np.full(1, 2**31 - 1, np.int32))
    _, accumulators = reference.run(g.Graph("g", (x,), (y,), (op,)), {"x": np.full((1, 1), 100, np.int8)})
    assert accumulators["d"][0, 0] == 2**31 - 1 + 12700 - 2**32


def test_pooling():
    rng = np.random.default_rng(1)
    q = rng.integers(-128, 128, (2, 3, 5, 4)).astype(np.int8)
    x = g.Tensor("x", q.shape, scale=0.5, zero_point=20)
    largest = g.MaxPool("m", (x,), g.Tensor("m", (2, 3, 3, 2), scale=0.5, zero_point=20), (3, 2), (2, 2), (1, 0, 1, 0))
    mean = g.AveragePool("a", (x,), g.Tensor("a", (2, 3, 2, 3), scale=0.25, zero_point=-3), (2, 2), (2, 1))
    outputs, _ = reference.run(g.Graph("g", (x,), (largest.output, mean.output), (largest, mean)), {"x": q})
    for n, c, i, j in np.ndindex(2, 3, 3, 2):
        rows = slice(max(0, 2 * i - 1), 2 * i + 2)
        assert outputs["m"][n, c, i, j] == q[n, c, rows, 2 * j : 2 * j + 2].max()
    for n, c, i, j in np.ndindex(2, 3, 2, 3):
        exact = (q[n, c, 2 * i : 2 * i + 2, j : j + 2].mean(dtype=float) - 20) * 0.5 / 0.25 - 3
        assert abs(outputs["a"][n, c, i, j] - np.clip(exact, -128, 127)) <= 0.5


def test_quantisation_rounds_to_even_and_saturates():
    x = np.array([[0.25, 0.75, 1.25, -0.25, 1e9, -np.inf]], np.float32)
    t = g.Tensor("q", x.shape, scale=0.5, zero_point=1)
    ops = (
        g.Quantize("q", (g.Tensor("x", x.shape, "float32"),), t),
        g.Dequantize("d", (t,), g.Tensor("d", x.shape, "float32")),
    )
    outputs, _ = reference.run(g.Graph("g", ops[0].inputs, (t, ops[1].output), ops), {"x": x})
    assert list(outputs["q"][0]) == [1, 3, 3, 1, 127, -128]
    assert list(outputs["d"][0]) == [0, 1, 1, 0, 63, -64.5]


def test_digits_equal_onnxruntime(onnxruntime_outputs, record_property):
    """Labels are equal on every held-out image; logits differ by one step at most, by the contracts' roundings."""
    graph = import_onnx(DIGITS / "digits.onnx")
    with np.load(DIGITS / "inputs.npz") as data:
        images, labels = data["inputs"], data["labels"]
    assert images.shape == (360, 1, 1, 8, 8)
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


def test_wrong_inputs():
    op, x = make(*SHAPES[0])
    graph = g.Graph("g", (op.x,), (op.output,), (op,))
    with pytest.raises(InputError, match="input 'x' is missing; the given inputs are none"):
        reference.run(graph, {})
    with pytest.raises(InputError, match="the network has no input 'image'; it has x"):
        reference.run(graph, {"x": x, "image": x})
    with pytest.raises(InputError, match=r"input 'x' has shape \(1, 1, 4, 5\); expected \(N, 1, 4, 4\)"):
        reference.run(graph, {"x": np.zeros((1, 1, 4, 5), np.int8)})
    with pytest.raises(ValueError, match="contract 'triple'"):
        reference.run(graph, {"x": x}, "triple")
    op, x = make(*SHAPES[1])
    with pytest.raises(InputError, match=r"input 'x' has shape \(1, 3, 5, 4\); expected \(2 \* N, 3, 5, 4\)"):
        reference.run(g.Graph("g", (op.x,), (op.output,), (op,)), {"x": x[:1]})


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
