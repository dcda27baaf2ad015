"""The first difference is found, and said, wherever it is."""

import numpy as np

from tilewright.compiler.graph import Dequantize, Graph, Requantize, Tensor, reference
from tilewright.compiler.graph.reference import Saturation, compare

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
