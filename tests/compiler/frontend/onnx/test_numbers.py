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


def real(m, value):
    return m.const(np.float32(value))


def x_of(m, *shape, name="x"):
    return m.quantise(m.input(name, list(shape)))


def position(kind, keepdims):
    return lambda m: m.output(m.node(kind, x_of(m, 1, 5, 4, 4), axis=1, keepdims=keepdims), "INT64")


def largest(quantised):
    def make(m):
        x = x_of(m, 1, 40)
        values, where = m.nodes_of("TopK", [x, m.const(np.array([6]))], ["values", "where"], "top")
        m.output(m.quantise(values) if quantised else values)
        m.output(where, "INT64")

    return make


def compared(kind):
    def make(m):
        x, y = x_of(m, 2, 30), x_of(m, 2, 30, name="y")
        truth = m.node(kind, x, y)
        m.output(truth, "BOOL")
        m.output(m.quantise(m.node("Where", truth, x, real(m, 0))))

    return make


def choice(m):
    x = x_of(m, 2, 5)
    m.output(m.node("Where", m.node("Greater", x, real(m, 0)), x, real(m, -1)))


def truth_values(m):
    x = x_of(m, 2, 30)
    above, below = m.node("Greater", x, real(m, -1)), m.node("Less", x, real(m, 1))
    m.output(m.node("Xor", m.node("Or", above, below), m.node("Not", m.node("And", above, below))), "BOOL")
    m.output(m.quantise(m.node("Mul", x, m.node("Cast", below, to=1))))
    m.output(m.node("Cast", x, to=9), "BOOL")


def words_and_mask(m):
    """As transformers begin: rows of a quantised table, and a mask of integers that becomes a sum."""
    words, mask = m.input("words", [1, 6], "INT64"), m.input("mask", [1, 6], "INT64")
    table = m.const(m.rng.integers(-127, 128, (20, 8)).astype(np.int8)), real(m, 0.05), m.const(np.int8(0))
    rows = m.quantise(m.node("Gather", m.node("DequantizeLinear", *table), words), 0.05, 0)
    m.output(m.quantise(m.node("Gather", real(m, m.rng.normal(size=(20, 8))), words)))
    kept = m.node("Unsqueeze", m.node("Cast", mask, to=1), m.const(np.array([2])))
    m.output(m.quantise(m.node("Mul", rows, kept)))


def arithmetic(m):
    x = m.input("x", [2, 3], "INT64")
    total = m.node("Mul", m.node("Add", x, m.const(np.array([3, 4, 5]))), x)
    joined = m.node("Concat", m.node("Transpose", total, perm=[1, 0]), m.node("Transpose", x, perm=[1, 0]), axis=1)
    m.output(joined, "INT64")
    m.output(m.quantise(m.node("Cast", joined, to=1)))
    for kind, other in (("Sub", 7), ("Div", 2), ("Max", 1), ("Min", 1)):
        m.output(m.node(kind, x, m.const(np.array(other))), "INT64")


def reductions_and_products(dtype):
    """onnxruntime clamps sums of int32, where others wrap."""

    def make(m):
        x = m.input("x", [2, 3, 4], dtype)
        one, many = (m.const(np.array(value, dtype.lower())) for value in (1, 1 << 30))
        large = m.node("Mul", m.node("Sub", x, one), many)
        for kind in ("ReduceMax", "ReduceMean", "ReduceMin"):
            m.output(m.node(kind, large, axes=[-1], keepdims=0), dtype)
            m.output(m.node(kind, x, axes=[0, 1]), dtype)
        m.output(m.node("ReduceSum", large, m.const(np.array([1]))), dtype)
        m.output(m.node("ReduceSum", large, keepdims=0), dtype)
        for kind in ("Abs", "Neg", "Sign"):
            m.output(m.node(kind, large), dtype)
        if dtype == "INT32":
            m.output(m.node("Relu", large), dtype)
            m.output(m.node("MatMul", large, m.node("Transpose", x, perm=[0, 2, 1])), dtype)

    return make


def mean_of_all(m):
    mean = m.node("ReduceMean", m.input("x", [2, 3]), keepdims=0)
    m.output(mean)
    m.output(m.node("Unsqueeze", m.node("Add", mean, mean), m.const(np.array([0, 1]))))


def bytes_of_images(m):
    x = m.node("Cast", m.input("x", [1, 4, 4, 3], "UINT8"), to=1)
    m.output(m.quantise(m.node("Mul", m.node("Transpose", x, perm=[0, 3, 1, 2]), real(m, 1 / 255))))


def rows_of_a_table(dtype):
    """They are dequantised behind their choice, as embeddings are in files in QOperator format."""

    def make(m):
        table = m.const(m.rng.integers(0, 127, (30, 8)).astype(dtype))
        rows = m.node("Gather", table, m.input("tokens", [1, 9], "INT64"))
        m.output(m.node("DequantizeLinear", rows, real(m, 0.02), m.const(dtype(7))))

    return make


def positions_from_the_end(m):
    where = m.node("Sub", m.const(np.array([-1])), m.input("where", [1, 6], "INT64"))
    table = m.const(m.rng.integers(-127, 128, (20, 8)).astype(np.int8)), real(m, -0.05), m.const(np.int8(0))
    m.output(m.node("Gather", m.node("DequantizeLinear", *table), where))
    m.output(m.node("Gather", x_of(m, 3, 10), where, axis=-1))


def one_hot(m):
    where = m.node("Sub", m.input("where", [2, 3], "INT64"), m.const(np.array([2])))
    m.output(m.node("OneHot", where, m.const(np.array([4])), real(m, [-1, 3])))
    m.output(m.node("OneHot", where, m.const(np.array(3)), m.const(np.array([0, 1])), axis=0), "INT64")


CASES = {
    "positions from the end": positions_from_the_end,
    "one hot": one_hot,
    **{f"{kind} {keep}": position(kind, keep) for kind in ("ArgMax", "ArgMin") for keep in (0, 1)},
    **{f"top {quantised}": largest(quantised) for quantised in (True, False)},
    **{kind: compared(kind) for kind in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")},
    **{function.__name__: function for function in (choice, truth_values, words_and_mask, arithmetic, bytes_of_images)},
    **{f"reductions {dtype}": reductions_and_products(dtype) for dtype in ("INT32", "INT64")},
    "mean of all": mean_of_all,
    **{f"rows {dtype.__name__}": rows_of_a_table(dtype) for dtype in (np.int8, np.uint8)},
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_onnxruntimes(m, onnxruntime_outputs, name):
    """Those of the graph and of the program, for random inputs."""
    CASES[name](m)
    path, cfg = m.save(), PRESETS["pynq_z1"]
    graph = import_onnx(path)
    with Loaded(compile_graph(graph, cfg), open_device("model", cfg)) as loaded:
        for _ in range(3):
            values = {t.name: m.rng.normal(0, 2, t.shape) for t in graph.inputs}
            inputs = {t.name: values[t.name].astype(t.dtype) for t in graph.inputs if t.dtype == "float32"}
            inputs |= {t.name: np.abs(values[t.name]).astype(t.dtype) for t in graph.inputs if t.dtype != "float32"}
            mine, _ = reference.run(graph, inputs)
            for tensor, expected in onnxruntime_outputs(path, inputs).items():
                assert mine[tensor].dtype == expected.dtype
                np.testing.assert_array_equal(mine[tensor], expected)
            found = compare(graph, inputs, loaded.run(inputs))
            assert found.difference is None, str(found.difference)


def top(**attrs):
    return lambda m: m.nodes_of("TopK", [x_of(m, 4, 4), m.const(np.array([2]))], ["v", "i"], "top", **attrs)[0]


REFUSED = {
    "not along the last axis": ("FLOAT", top(axis=0)),
    "takes the smallest": ("FLOAT", top(largest=0)),
    "takes the last of several positions": (
        "INT64",
        lambda m: m.node("ArgMax", x_of(m, 4, 4), axis=1, select_last_index=1),
    ),
    "Mod 'mod_0' is not supported": (
        "INT64",
        lambda m: m.node("Mod", m.input("x", [2], "INT64"), m.const(np.array([2]))),
    ),
    "MatMul 'matmul_0' multiplies integers; only matrices of int32": (
        "INT64",
        lambda m: m.node("MatMul", m.input("x", [2, 2], "INT64"), m.const(np.ones((2, 2), np.int64))),
    ),
    "has an output of type float16; only float32, int32": (
        "FLOAT16",
        lambda m: m.node("Cast", m.input("x", [2, 3], "INT64"), to=10),
    ),
    "Gather 'bad' has a constant of type int8": (
        "INT8",
        lambda m: m.node("Gather", m.const(np.ones((3, 4), np.int8)), m.input("i", [2], "INT64"), name="bad"),
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_read_of_integers(m, refusal, text):
    dtype, make = REFUSED[text]
    m.output(make(m), dtype)
    assert text in refusal(m.save())
