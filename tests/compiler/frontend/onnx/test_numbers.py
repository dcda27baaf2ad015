"""Integers and truth values in ONNX files: as onnxruntime computes them of the same quantised values."""

import numpy as np
import pytest

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.reference import compare
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded


@pytest.fixture
def equal(onnxruntime_outputs):
    """Asserts that a model's outputs are onnxruntime's, of the graph and of the program, for random inputs."""

    def run(m):
        path, cfg = m.save(), PRESETS["pynq_z1"]
        graph = import_onnx(path)
        with Loaded(compile_graph(graph, cfg), open_device("model", cfg)) as loaded:
            for _ in range(3):
                real = {t.name: m.rng.normal(0, 2, t.shape) for t in graph.inputs}
                given = {t.name: np.abs(real[t.name] if t.dtype != "float32" else 0) for t in graph.inputs}
                given |= {t.name: real[t.name] for t in graph.inputs if t.dtype == "float32"}
                inputs = {t.name: given[t.name].astype(t.dtype) for t in graph.inputs}
                mine, _ = reference.run(graph, inputs)
                for name, expected in onnxruntime_outputs(path, inputs).items():
                    assert mine[name].dtype == expected.dtype
                    np.testing.assert_array_equal(mine[name], expected)
                found = compare(graph, inputs, loaded.run(inputs))
                assert found.difference is None, str(found.difference)

    return run


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_positions_of_the_largest(m, equal, kind, keepdims):
    x = m.quantise(m.input("x", [1, 5, 4, 4]))
    m.output(m.node(kind, x, axis=1, keepdims=keepdims), "INT64")
    equal(m)


@pytest.mark.parametrize("quantised", [True, False])
def test_the_largest_values(m, equal, quantised):
    x = m.quantise(m.input("x", [1, 40]))
    values, where = m.nodes_of("TopK", [x, m.const(np.array([6]))], ["values", "where"], "top")
    m.output(m.quantise(values) if quantised else values)
    m.output(where, "INT64")
    equal(m)


@pytest.mark.parametrize("attrs, why", [({"axis": 0}, "not along the last axis"), ({"largest": 0}, "the smallest")])
def test_other_choices_of_values(m, refusal, attrs, why):
    x = m.quantise(m.input("x", [4, 4]))
    m.output(m.nodes_of("TopK", [x, m.const(np.array([2]))], ["values", "where"], "top", **attrs)[0])
    assert why in refusal(m.save())


def test_the_last_of_several_positions(m, refusal):
    x = m.quantise(m.input("x", [4, 4]))
    m.output(m.node("ArgMax", x, axis=1, select_last_index=1), "INT64")
    assert "takes the last of several positions" in refusal(m.save())


@pytest.mark.parametrize("kind", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
def test_comparisons_and_choices(m, equal, kind):
    x, y = m.quantise(m.input("x", [2, 30])), m.quantise(m.input("y", [2, 30]))
    found = m.node(kind, x, y)
    m.output(found, "BOOL")
    m.output(m.quantise(m.node("Where", found, x, m.const(np.float32(0)))))
    equal(m)


def test_truth_values(m, equal):
    x = m.quantise(m.input("x", [2, 30]))
    one, two = m.node("Greater", x, m.const(np.float32(-1))), m.node("Less", x, m.const(np.float32(1)))
    m.output(m.node("Xor", m.node("Or", one, two), m.node("Not", m.node("And", one, two))), "BOOL")
    m.output(m.quantise(m.node("Mul", x, m.node("Cast", two, to=1))))
    m.output(m.node("Cast", x, to=9), "BOOL")
    equal(m)


def test_words_by_number_and_their_mask(m, equal):
    """As transformers begin: rows of a quantised table, and a mask of integers that becomes a sum."""
    words, mask = m.input("words", [1, 6], "INT64"), m.input("mask", [1, 6], "INT64")
    table = [
        m.const(m.rng.integers(-127, 128, (20, 8)).astype(np.int8)),
        m.const(np.float32(0.05)),
        m.const(np.int8(0)),
    ]
    rows = m.quantise(m.node("Gather", m.node("DequantizeLinear", *table), words), 0.05, 0)
    plain = m.node("Gather", m.const(m.rng.normal(size=(20, 8)).astype(np.float32)), words)
    m.output(m.quantise(plain))
    kept = m.node("Unsqueeze", m.node("Cast", mask, to=1), m.const(np.array([2])))
    m.output(m.quantise(m.node("Mul", rows, kept)))
    equal(m)


def test_sums_and_rows_of_integers(m, equal):
    x = m.input("x", [2, 3], "INT64")
    total = m.node("Mul", m.node("Add", x, m.const(np.array([3, 4, 5]))), x)
    both = m.node("Concat", m.node("Transpose", total, perm=[1, 0]), m.node("Transpose", x, perm=[1, 0]), axis=1)
    m.output(both, "INT64")
    m.output(m.quantise(m.node("Cast", both, to=1)))
    equal(m)


def test_images_of_bytes(m, equal):
    x = m.node("Cast", m.input("x", [1, 4, 4, 3], "UINT8"), to=1)
    x = m.node("Mul", m.node("Transpose", x, perm=[0, 3, 1, 2]), m.const(np.float32(1 / 255)))
    m.output(m.quantise(x))
    equal(m)


def test_what_is_not_read_of_integers(m, refusal):
    x = m.input("x", [2, 3], "INT64")
    m.output(m.node("Mod", x, m.const(np.array([2]))), "INT64")
    m.output(m.node("Cast", x, to=10), "FLOAT16")
    text = refusal(m.save())
    assert "Mod 'mod_0' is not supported" in text and "has an output of type float16; only float32, int32" in text


def test_a_choice_is_an_output(m, equal):
    x = m.quantise(m.input("x", [2, 5]))
    m.output(m.node("Where", m.node("Greater", x, m.const(np.float32(0))), x, m.const(np.float32(-1))))
    equal(m)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_rows_of_a_table_are_dequantised_behind_their_choice(m, equal, dtype):
    """As embeddings are in files in QOperator format."""
    table = m.const(m.rng.integers(0, 127, (30, 8)).astype(dtype))
    rows = m.node("Gather", table, m.input("tokens", [1, 9], "INT64"))
    parameters = m.const(np.float32(0.02)), m.const(dtype(7))
    m.output(m.node("DequantizeLinear", rows, *parameters))
    equal(m)


def test_bytes_that_nothing_dequantises(m, refusal):
    m.output(m.node("Gather", m.const(np.ones((3, 4), np.int8)), m.input("i", [2], "INT64"), name="bad"), "INT8")
    assert "Gather 'bad' has a constant of type int8" in refusal(m.save())
