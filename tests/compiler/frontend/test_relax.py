"""Relax functions as graphs: those of ONNX files, layouts of images and weights, and what is refused."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.relax import TO_NCHW, TO_NHWC, import_relax, sunk
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
        return import_relax(function, ["y"], "relax")

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
            "relax.dequantize of 'gv' has 4 values of scale; activations have one",
        ),
    ],
)
def test_what_is_no_activation_is_refused(graph_of, body, message):
    with pytest.raises(UnsupportedError, match=message):
        graph_of(body, ((1, 4), "int8"))


def test_what_has_no_integer_form_is_computed_on_the_host(m, same_as_onnx):
    m.output(m.node("Sigmoid", m.quantise(m.input("x", [1, 4]))))
    assert isinstance(same_as_onnx(m).ops[-1], g.FloatFunction)


def test_operators_without_a_row_are_named(graph_of):
    with pytest.raises(UnsupportedError, match="relax: relax.sin of 'lv' is not supported"):
        graph_of(lambda emit, x: emit(OP.exp(emit(OP.sin(x)))), ((1, 4), "float32"))


def test_layers_beyond_int32_are_float32(qdq, relax_graph):
    assert not relax_graph(qdq().dense(weight_scale=1e30, y_scale=1e-10)).layers


NUMBERS = relax.const(np.float32(0.1)), relax.const(np.int8(0))


def image(m, *shape):
    return m.quantise(m.input("x", list(shape or (1, 4, 6, 5))))


def test_layers(m, same_as_onnx):
    w, scale = m.weights(6, 4, 3, 3)
    y = m.node("Conv", image(m), w, m.bias(scale), pads=[1, 1, 1, 1], strides=[2, 1])
    y = m.quantise(m.node("Relu", y), 0.1)
    w, scale = m.weights(6, 3, 2, 2, axis=1)
    m.output(m.quantise(m.node("ConvTranspose", y, w, m.bias(scale, 0.1), strides=[2, 2]), 0.2))
    assert [op.name for op in same_as_onnx(m).layers] == ["conv2d0", "conv2d_transpose0"]


def test_dense_layers(m, same_as_onnx):
    w, scale = m.weights(8, 5, axis=1)
    y = m.node("Add", m.node("MatMul", image(m, 2, 3, 8), w), m.bias(scale))
    m.output(m.quantise(y, 0.1))
    same_as_onnx(m)


def layer(emit, x, data_layout="NCHW", kernel_layout="OIHW", out_layout="NCHW", added=None):
    """A convolution of images `x` by 8 x 4 x 1 x 1 weights of `kernel_layout`, and what is `added` to it."""
    sizes = dict(zip("OIHW", (8, 4, 1, 1)))
    weight = np.ones([sizes[letter] for letter in kernel_layout], np.int8)
    w = emit(OP.dequantize(relax.const(weight), *NUMBERS))
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout, "out_layout": out_layout}
    y = emit(OP.nn.conv2d(emit(OP.dequantize(x, *NUMBERS)), w, **layouts))
    if added is not None:
        y = emit(OP.add(y, relax.const(np.ones(added, np.float32))))
    return emit(OP.quantize(y, *NUMBERS))


def graph(**options):
    shape = (1, 6, 6, 4) if options.get("data_layout") == "NHWC" else (1, 4, 6, 6)
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(layer(builder.emit, x, **options))
        builder.emit_func_output(y)
    function = relax.transform.CanonicalizeBindings()(builder.get())["main"]
    return import_relax(function, ["y"], "relax")


@pytest.mark.parametrize(
    "layouts",
    [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("NCHW", "HWOI", "NCHW"), ("NHWC", "OHWI", "NHWC")],
)
def test_every_layout_has_the_same_weights(layouts):
    names = ("data_layout", "kernel_layout", "out_layout")
    (made,) = graph(**dict(zip(names, layouts))).layers
    assert made.weight.shape == (8, 4, 1, 1) and made.output.shape == (1, 8, 6, 6)


@pytest.mark.parametrize("added", [(8, 1, 1), (1, 8, 1, 1), (1, 1, 1), ()])
def test_a_bias_is_one_number_per_channel_or_in_all(added):
    (made,) = graph(added=added).layers
    assert made.bias.tolist() == [100] * 8


@pytest.mark.parametrize("added", [(6,), (1, 1, 6, 6), (1, 8, 6, 6)])
def test_other_sums_are_no_biases(added):
    made = graph(added=added)
    assert not any(op.bias.any() for op in made.layers)
    x = np.random.default_rng(0).integers(-9, 9, (1, 4, 6, 6)).astype(np.int8)
    (y,) = reference.run(made, {"x": x})[0].values()
    exact = x.sum(1, keepdims=True) / 10 + 10  # a weight and a step are 0.1, the sum is of ones
    assert np.abs(y - exact).max() <= 0.51 and y.shape == (1, 8, 6, 6)


def test_a_change_of_layout_is_refused():
    with pytest.raises(UnsupportedError, match="turns images of layout NCHW to NHWC, which is not supported"):
        graph(out_layout="NHWC")


def test_operators(m, same_as_onnx):
    x = image(m)
    y = m.quantise(m.node("Sigmoid", x), 1 / 256, -128)
    y = m.quantise(m.node("Clip", m.node("Add", x, y), m.const(np.float32(-1)), m.const(np.float32(2))), 0.03)
    y = m.quantise(m.node("Concat", y, x, axis=1), 0.05)
    y = m.quantise(m.node("AveragePool", y, kernel_shape=[2, 2]), 0.0413)
    m.output(m.quantise(m.node("Softmax", m.node("Flatten", y), axis=1), 1 / 256, -128))
    same_as_onnx(m)


def test_movements(m, same_as_onnx):
    y = m.node("MaxPool", image(m), kernel_shape=[2, 2])
    y = m.node("Transpose", y, perm=[0, 2, 3, 1])
    bounds = (m.const(np.array([k], np.int64)) for k in (1, 4, 1))
    m.output(m.quantise(m.node("Slice", y, *bounds)))
    same_as_onnx(m)


def weights_of(graph_of, shape, axis, move):
    """The weights (O, I) and scales of a dense layer, whose weights `move` turns after they are dequantised."""
    values, count = np.arange(np.prod(shape), dtype=np.int8).reshape(shape), shape[axis]
    scales = relax.const(np.arange(1, count + 1).astype(np.float32)), relax.const(np.zeros(count, np.int8))

    def body(emit, x):
        moved = move(emit, emit(OP.dequantize(relax.const(values), *scales, axis=axis)))
        return emit(OP.quantize(emit(OP.matmul(emit(OP.dequantize(x, *NUMBERS)), moved)), *NUMBERS))

    return graph_of(body, ((1, 3), "int8")).layers, values


def test_transposed_weights_keep_the_scales_of_their_channels(graph_of):
    (made,), values = weights_of(graph_of, (2, 3), 0, lambda emit, w: emit(OP.permute_dims(w)))
    assert np.array_equal(made.weight, values) and made.weight_scale.tolist() == [1, 2]


def test_scales_stay_with_their_axis_where_weights_are_reshaped(graph_of):
    (made,), values = weights_of(graph_of, (1, 3, 2), 2, lambda emit, w: emit(OP.reshape(w, (3, 2))))
    assert np.array_equal(made.weight, values.reshape(3, 2).T) and made.weight_scale.tolist() == [1, 2]


def test_a_reshape_that_mixes_the_axis_of_the_scales_makes_no_layer(graph_of):
    assert not weights_of(graph_of, (2, 3), 0, lambda emit, w: emit(OP.reshape(w, (3, 2))))[0]


def test_biases_of_other_units_are_exact_above_the_mantissa_of_float32(graph_of):
    """An int32 bias in units of the accumulators stays as it is, however large, before and behind the layer."""
    large = np.array([[2**25 + 1, 5]], np.int32)
    weight = relax.const(np.ones((3, 2), np.int8))

    def body(emit, x):
        real = emit(OP.matmul(emit(OP.dequantize(x, *NUMBERS)), emit(OP.dequantize(weight, *NUMBERS))))
        bias = emit(OP.dequantize(relax.const(large), relax.const(np.float32(0.01)), relax.const(np.int32(0))))
        return emit(OP.quantize(emit(OP.add(real, bias)), *NUMBERS))

    (made,) = graph_of(body, ((1, 3), "int8")).layers
    assert made.bias.tolist() == large[0].tolist()


@pytest.mark.parametrize("zero, rounded", [(np.int32(0), True), (np.int8(0), False)])
def test_layers_of_tflite_files_round_the_product_of_their_scales(graph_of, zero, rounded):
    """TVM's importer of those files makes zero points int32."""
    parameters = relax.const(np.float32(0.1)), relax.const(zero)

    def body(emit, x):
        weight = emit(OP.dequantize(relax.const(np.ones((3, 2), np.int8)), *parameters))
        return emit(OP.quantize(emit(OP.matmul(emit(OP.dequantize(x, *NUMBERS)), weight)), *NUMBERS))

    (made,) = graph_of(body, ((1, 3), "int8")).layers
    assert made.float32_scale == rounded


def test_a_block_as_the_importer_of_torch_makes_it(graph_of):
    """Weights and biases with scales per channel, biases reshaped before sums, and dimensions counted from the end."""
    rng = np.random.default_rng(3)

    def body(emit, x):
        def quantised(real, scale, zero):
            integers = emit(OP.quantize(real, *numbers(scale, zero), axis=1))
            return emit(OP.dequantize(integers, *numbers(scale, zero), axis=0))

        def constant(dtype, most, scale, *shape):
            values = relax.const(rng.integers(-most, most + 1, shape).astype(dtype))
            return emit(OP.dequantize(values, *numbers(np.full(shape[0], scale), np.zeros(shape[0]), dtype), axis=0))

        def convolution(x, groups, padding):
            y = emit(OP.nn.conv2d(x, constant("int8", 127, 0.01, 4, 4 // groups, 3, 3), padding=padding, groups=groups))
            return emit(OP.add(y, emit(OP.reshape(constant("int32", 900, 0.0005, 4), (1, 4, 1, 1)))))

        first = quantised(x, 0.05, 3)
        y = quantised(emit(OP.clip(convolution(first, 4, 1), 0, 6)), 0.05, -128)
        y = quantised(emit(OP.nn.relu(emit(OP.add(quantised(convolution(y, 1, 1), 0.11, 7), first)))), 0.1, -128)
        y = quantised(emit(OP.mean(y, [-1, -2], keepdims=True)), 0.05, -128)
        y = emit(OP.reshape(quantised(emit(OP.concat([y, y], axis=1)), 0.05, -128), (1, 8)))
        y = emit(OP.matmul(y, emit(OP.permute_dims(constant("int8", 127, 0.01, 5, 8)))))
        y = quantised(emit(OP.add(y, constant("int32", 900, 0.0005, 5))), 0.05, 0)
        return quantised(emit(OP.nn.softmax(y, axis=-1)), 1 / 256, -128)

    found = graph_of(body, ((1, 4, 6, 6), "float32"))
    kinds = [g.Quantize, g.QConv2d, g.QConv2d, g.Add, g.AveragePool, g.Concat, g.Reshape, g.QDense, g.Softmax]
    assert [type(op) for op in found.ops] == [*kinds, g.Dequantize]
    first = found.layers[0]
    assert isinstance(first, g.QConv2d) and first.depthwise and (first.low, first.high) == (-128, -8)
    rng = np.random.default_rng(3)
    rng.integers(-127, 128, (4, 1, 3, 3))
    assert first.bias.tolist() == rng.integers(-900, 901, 4).tolist()  # whose unit is that of the accumulators


def images(*names):
    """Images NCHW that become NHWC: the operators that turn them, and the tensors NHWC."""
    ops = []
    for name in names:
        x, y = (g.Tensor(f"{name}.{k}", shape, scale=0.1) for k, shape in (("c", (1, 4, 2, 3)), ("n", (1, 2, 3, 4))))
        ops.append(g.Transpose(f"{name}.turn", (x,), y, TO_NHWC, True))
    return ops, [op.output for op in ops]


def test_a_sum_is_computed_before_its_images_are_turned():
    ops, (a, b) = images("a", "b")
    *_, total, turn = sunk([*ops, g.Add("sum", (a, b), g.Tensor("y", a.shape, scale=0.2))])
    assert [t.name for t in total.inputs] == ["a.c", "b.c"] and total.output.shape == (1, 4, 2, 3)
    assert isinstance(turn, g.Transpose) and (turn.x, turn.output.name, turn.axes) == (total.output, "y", TO_NHWC)


def test_the_axis_of_a_concatenation_follows():
    ops, (a, b) = images("a", "b")
    *_, both, _turn = sunk([*ops, g.Concat("both", (a, b), g.Tensor("y", (1, 2, 3, 8), scale=0.1), 3)])
    assert isinstance(both, g.Concat) and both.axis == 1 and both.output.shape == (1, 8, 2, 3)


def test_constants_are_turned_and_other_images_are_not():
    ops, (a,) = images("a")
    values = np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4)
    constant = g.Tensor("k", values.shape, scale=0.1, data=values)
    *_, total, _turn = sunk([*ops, g.Add("sum", (a, constant), g.Tensor("y", a.shape, scale=0.2))])
    turned = total.inputs[1].data
    assert turned is not None and np.array_equal(turned, values.transpose(TO_NCHW))
    other = g.Tensor("other", a.shape, scale=0.1)
    plain = g.Add("sum", (a, other), g.Tensor("y", a.shape, scale=0.2))
    assert sunk([*ops, plain])[-1] is plain
