"""What a file leaves between quantised operators, or does not quantise: float32 operators, against onnxruntime."""

import numpy as np
import pytest

from tilewright.compiler import graph as g

UNARY = {
    "Abs": {},
    "Ceil": {},
    "Elu": {"alpha": 0.7},
    "Erf": {},
    "Exp": {},
    "Floor": {},
    "HardSigmoid": {"alpha": 0.3},
    "HardSwish": {},
    "LeakyRelu": {"alpha": 0.1},
    "Neg": {},
    "Relu": {},
    "Round": {},
    "Selu": {},
    "Sigmoid": {},
    "Sign": {},
    "Sin": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 0.5},
}


def kinds(graph):
    return [type(op) for op in graph.ops if isinstance(op, g.FloatOperator)]


@pytest.mark.parametrize("function", UNARY)
def test_functions_of_one_value(m, compared, function):
    m.output(m.node(function, m.input("x", [2, 5, 7]), name="f", **UNARY[function]))
    assert kinds(compared(m, 1e-4)) == [g.FloatFunction]


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(m, compared, approximate):
    m.output(m.node("Gelu", m.input("x", [2, 50]), approximate=approximate))
    compared(m, 1e-5, opset=20)


@pytest.mark.parametrize("function", ["Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Pow"])
def test_functions_of_two(m, compared, function):
    x = m.node("Exp", m.input("x", [2, 3, 4])) if function == "Pow" else m.input("x", [2, 3, 4])
    m.output(m.node(function, x, m.const(m.rng.uniform(0.5, 1.5, (3, 1)).astype(np.float32)), name="f"))
    assert kinds(compared(m, 1e-4, spread=1))[-1] is g.FloatBinary


@pytest.mark.parametrize("function", ["L1", "L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"])
@pytest.mark.parametrize("axes, keep", [([1], 0), ([0, -1], 1)])
def test_reductions(m, compared, function, axes, keep):
    given = [m.const(np.array(axes, np.int64))] if function == "Sum" else []
    attrs = {} if given else {"axes": axes}
    m.output(m.node(f"Reduce{function}", m.input("x", [2, 3, 4]), *given, keepdims=keep, **attrs))
    assert kinds(compared(m, 1e-2)) == [g.FloatReduce]


@pytest.mark.parametrize("function", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [1, -1])
def test_softmax(m, compared, function, axis):
    m.output(m.node(function, m.quantise(m.input("x", [2, 3, 4])), axis=axis))
    assert kinds(compared(m, 1e-4)) == [g.FloatSoftmax]


CONVOLUTIONS = {
    "plain": ((6, 4, 3, 3), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    "depthwise": ((4, 1, 3, 3), {"group": 4}),
    "grouped": ((6, 2, 3, 2), {"group": 2, "dilations": [1, 2]}),
    "same": ((6, 4, 3, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_that_are_not_quantised(m, compared, name):
    shape, attrs = CONVOLUTIONS[name]
    weights = [m.const(m.rng.normal(0, 0.3, n).astype(np.float32)) for n in (shape, shape[:1])]
    m.output(m.node("Conv", m.input("x", [2, 4, 7, 6]), *weights, **attrs))
    assert kinds(compared(m, 1e-4)) == [g.FloatConv2d]


@pytest.mark.parametrize("attrs", [{}, {"strides": [2, 3], "pads": [1, 0, 2, 1], "output_padding": [1, 2]},
                                   {"group": 2, "dilations": [2, 1]}, {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
                                   {"strides": [2, 2], "auto_pad": "SAME_LOWER"}])  # fmt: skip
def test_transposed_convolutions_that_are_not_quantised(m, compared, attrs):
    w = m.const(m.rng.normal(0, 0.3, (4, 3, 3, 4)).astype(np.float32))
    m.output(m.node("ConvTranspose", m.input("x", [1, 4, 5, 4]), w, **attrs))
    assert kinds(compared(m, 1e-4)) == [g.FloatConvTranspose2d]


def test_a_row_of_samples_is_an_image(m, compared):
    w = m.const(m.rng.normal(0, 0.3, (4, 2, 3)).astype(np.float32))
    y = m.node("Conv", m.input("x", [1, 2, 20]), w, strides=[2], pads=[1, 1])
    y = m.node("AveragePool", m.node("MaxPool", y, kernel_shape=[2]), kernel_shape=[3], strides=[2])
    m.output(m.node("ConvTranspose", y, m.const(np.ones((4, 2, 2), np.float32)), strides=[2]))
    compared(m, 1e-4)


@pytest.mark.parametrize("attrs", [{}, {"pads": [1, 0, 1, 1]}, {"pads": [1, 0, 1, 1], "count_include_pad": 1},
                                   {"ceil_mode": 1, "strides": [2, 2]}])  # fmt: skip
@pytest.mark.parametrize("kind", ["AveragePool", "MaxPool"])
def test_pools(m, compared, kind, attrs):
    attrs = {key: value for key, value in attrs.items() if kind == "AveragePool" or key != "count_include_pad"}
    m.output(m.node(kind, m.input("x", [1, 3, 7, 6]), kernel_shape=[3, 2], **attrs))
    assert kinds(compared(m, 1e-5)) == [g.FloatAveragePool if kind == "AveragePool" else g.FloatMaxPool]


@pytest.mark.parametrize("attrs", [{}, {"transB": 1}, {"transA": 1, "alpha": 0.5, "beta": 2.0}, {"alpha": 3.0}])
def test_gemm(m, compared, attrs):
    x = m.input("x", [4, 4])
    c = [] if attrs == {"alpha": 3.0} else [m.const(np.arange(4, dtype=np.float32))]
    m.output(m.node("Gemm", x, m.const(m.rng.normal(0, 1, (4, 4)).astype(np.float32)), *c, **attrs))
    compared(m, 1e-4)


def test_products_of_two_activations_that_are_not_quantised(m, compared):
    m.output(m.node("MatMul", m.input("a", [2, 3, 4, 5]), m.input("b", [3, 5, 6]), name="scores"))
    assert kinds(compared(m, 1e-5)) == [g.FloatMatMul]


def test_one_float_of_an_int8_tensor_serves_all_its_readers(m, compared):
    x = m.quantise(m.input("x", [1, 8]))
    m.output(m.node("ReduceMax", x, axes=[1]))
    m.output(m.node("ReduceMin", x, axes=[1]))
    graph = compared(m, 1e-5)
    assert sum(isinstance(op, g.Dequantize) for op in graph.ops) == 1


def test_a_constant_may_be_an_output(m, compared):
    m.output(m.node("Add", m.input("x", [1, 3]), m.const(np.arange(3, dtype=np.float32))))
    m.output(m.node("Identity", m.const(np.arange(3, dtype=np.float32)), name="same"))
    compared(m)


def long_memory(m, **attrs):
    """An LSTM of 4 hidden values on (6, 1, 8)."""
    ways = 2 if attrs.get("direction") == "bidirectional" else 1
    x = m.quantise(m.input("x", [6, 1, 8]))
    shapes = (ways, 16, 8), (ways, 16, 4), (ways, 32)
    parts = [m.const(m.rng.normal(0, 0.5, shape).astype(np.float32)) for shape in shapes]
    return m.nodes_of("LSTM", [x, *parts], ["y"], "bad", hidden_size=4, **attrs)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_long_memories(m, compared, direction):
    (y,) = long_memory(m, direction=direction)
    m.output(m.node("Transpose", y, perm=[0, 2, 1, 3]))
    compared(m, 1e-5)


def test_long_memories_with_attributes_that_are_not_read(m, refusal):
    m.output(long_memory(m, clip=3.0)[0])
    assert "LSTM 'bad' has lengths or attributes that are not supported" in refusal(m.save())


def test_long_memories_of_computed_weights(m, refusal):
    x, w, r = (m.input(name, shape) for name, shape in (("x", [6, 1, 8]), ("w", [1, 16, 8]), ("r", [1, 16, 4])))
    m.output(m.node("LSTM", x, w, r, name="bad", hidden_size=4))
    assert "LSTM 'bad' has weights or biases that are not constant" in refusal(m.save())
