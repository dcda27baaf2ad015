"""compiler/frontend/relax.py: functions as graphs, and what it refuses."""

import numpy as np
import pytest

from tilewright.compiler.frontend.relax import RelaxImporter
from tilewright.compiler.graph import reference
from tilewright.compiler.tvm_compat import relax
from tilewright.hw.errors import UnsupportedError

OP = relax.op


@pytest.fixture
def graph_of():
    """The graph of a function: `body(emit, *parameters)` emits operators; parameters are (shape, dtype) pairs."""

    def make(body, *parameters):
        params = [relax.Var(f"x{k}", relax.TensorType(*each)) for k, each in enumerate(parameters)]
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            with builder.dataflow():
                result = builder.emit_output(body(builder.emit, *params))
            builder.emit_func_output(result)
        function = relax.transform.CanonicalizeBindings()(builder.get())["main"]
        return RelaxImporter(function, ["y"]).graph("relax")

    return make


def numbers(scale, zero, dtype="int8"):
    return relax.const(np.float32(scale)), relax.const(np.array(zero, dtype))


def test_uint8_ends_are_moved_by_128(graph_of):
    def body(emit, x):
        real = emit(OP.dequantize(x, *numbers(0.1, 130, "uint8")))
        return emit(OP.quantize(emit(OP.add(real, real)), *numbers(0.2, 5, "uint8"), out_dtype="uint8"))

    graph = graph_of(body, ((1, 4), "uint8"))
    x = np.array([[130, 131, 200, 0]], np.uint8)
    (y,) = (reference.run(graph, {"x0": x})[0][t.name] for t in graph.outputs)
    assert y.dtype == np.uint8 and y.tolist() == [[5, 6, 75, 0]]


def test_clips_of_integers_clamp_them(graph_of):
    def body(emit, x):
        moved = emit(OP.clip(x, 0, 6))
        return emit(OP.quantize(emit(OP.dequantize(moved, *numbers(0.1, 0))), *numbers(0.1, 0)))

    graph = graph_of(body, ((1, 4), "int8"))
    y = reference.run(graph, {"x0": np.array([[-9, 3, 6, 100]], np.int8)})[0]
    assert next(iter(y[t.name] for t in graph.outputs)).tolist() == [[0, 3, 6, 6]]


@pytest.mark.parametrize(
    "body, message",
    [
        (lambda emit, x: emit(OP.add(x, x)), "input 'x0' is int8, but nothing dequantises it"),
        (
            lambda emit, x: emit(OP.dequantize(x, *numbers(0.1, 0), out_dtype="float16")),
            "makes float16 of integers; only float32 is supported",
        ),
        (
            lambda emit, x: emit(
                OP.dequantize(x, relax.const(np.ones(4, np.float32)), relax.const(np.zeros(4, "int8")))
            ),
            "relax.dequantize has 4 values of scale; activations have one",
        ),
    ],
)
def test_what_is_no_activation_is_refused(graph_of, body, message):
    with pytest.raises(UnsupportedError, match=message):
        graph_of(body, ((1, 4), "int8"))


def test_what_has_no_integer_form_is_refused(m, relax_graph):
    m.output(m.node("Sigmoid", m.quantise(m.input("x", [1, 4]))))
    with pytest.raises(UnsupportedError, match="relax: output 'sigmoid_2.y' does not come from quantised operators"):
        relax_graph(m.save())


def test_integers_beyond_int32_are_refused(qdq, relax_graph):
    with pytest.raises(UnsupportedError, match="matmul 'matmul0' scales accumulators by 5e.38"):
        relax_graph(qdq().dense(weight_scale=1e30, y_scale=1e-10))
