"""Relax functions as graphs: those of ONNX files, layouts of images and weights, and what is refused."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.relax import TO_NCHW, TO_NHWC, RelaxImporter, fold_constants, sunk
from tilewright.compiler.graph import reference
from tilewright.compiler.tvm_compat import relax
from tilewright.hw.errors import UnsupportedError

OP = relax.op


def module(body, *parameters):
    """The function whose `body(emit, *parameters)` emits operators; parameters are (shape, dtype) pairs."""
    params = [relax.Var(f"x{k}", relax.TensorType(*each)) for k, each in enumerate(parameters)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, *params))
        builder.emit_func_output(result)
    return builder.get()


def graph_of(body, *parameters):
    function = relax.transform.CanonicalizeBindings()(module(body, *parameters))["main"]
    return RelaxImporter(function, ["y"]).graph("relax")


def numbers(scale=0.1, zero=0, dtype="int8"):
    return relax.const(np.float32(scale)), relax.const(np.array(zero, dtype))


def doubled(emit, x):
    real = emit(OP.dequantize(x, *numbers(0.1, 130, "uint8")))
    return emit(OP.quantize(emit(OP.add(real, real)), *numbers(0.1, 5, "uint8"), out_dtype="uint8"))


def clipped(emit, x):
    return emit(OP.quantize(emit(OP.dequantize(emit(OP.clip(x, 0, 6)), *numbers())), *numbers()))


@pytest.mark.parametrize(
    "body, x, wanted",
    [
        (doubled, np.array([130, 131, 200, 0], np.uint8), [5, 7, 145, 0]),
        (clipped, np.array([-9, 3, 6, 100], np.int8), [0, 3, 6, 6]),
    ],
)
def test_ends_in_uint8_and_clips_of_integers(body, x, wanted):
    graph = graph_of(body, ((1, 4), str(x.dtype)))
    (y,) = (reference.run(graph, {"x0": x[None]})[0][t.name] for t in graph.outputs)
    assert y.dtype == x.dtype and y.tolist() == [wanted]


@pytest.mark.parametrize(
    "body, message",
    [
        (lambda emit, x: emit(OP.add(x, x)), "input 'x0' is int8, but nothing dequantises it"),
        (
            lambda emit, x: emit(OP.dequantize(x, *numbers(), out_dtype="float16")),
            "makes float16 of integers; only float32 is supported",
        ),
        (
            lambda emit, x: emit(
                OP.dequantize(x, relax.const(np.ones(4, np.float32)), relax.const(np.array([0] * 4, np.int8)))
            ),
            "relax.dequantize has 4 values of scale; activations have one",
        ),
    ],
)
def test_what_is_no_activation_is_refused(body, message):
    with pytest.raises(UnsupportedError, match=message):
        graph_of(body, ((1, 4), "int8"))


def test_what_has_no_integer_form_or_leaves_int32_is_refused(m, qdq, relax_graph):
    m.output(m.node("Sigmoid", m.quantise(m.input("x", [1, 4]))))
    with pytest.raises(UnsupportedError, match="relax: output 'sigmoid_2.y' does not come from quantised operators"):
        relax_graph(m.save())
    with pytest.raises(UnsupportedError, match="matmul 'matmul0' scales accumulators by 5e.38"):
        relax_graph(qdq().dense(weight_scale=1e30, y_scale=1e-10))


def image(m, *shape):
    return m.quantise(m.input("x", list(shape or (1, 4, 6, 5))))


def layers(m):
    w, scale = m.weights(6, 4, 3, 3)
    y = m.node("Conv", image(m), w, m.bias(scale), pads=[1, 1, 1, 1], strides=[2, 1])
    y = m.quantise(m.node("Relu", y), 0.1)
    w, scale = m.weights(6, 3, 2, 2, axis=1)
    m.output(m.quantise(m.node("ConvTranspose", y, w, m.bias(scale, 0.1), strides=[2, 2]), 0.2))


def dense(m):
    w, scale = m.weights(8, 5, axis=1)
    m.output(m.quantise(m.node("Add", m.node("MatMul", image(m, 2, 3, 8), w), m.bias(scale)), 0.1))


def operators(m):
    x = image(m)
    y = m.quantise(m.node("Sigmoid", x), 1 / 256, -128)
    y = m.quantise(m.node("Clip", m.node("Add", x, y), m.const(np.float32(-1)), m.const(np.float32(2))), 0.03)
    y = m.quantise(m.node("Concat", y, x, axis=1), 0.05)
    y = m.quantise(m.node("AveragePool", y, kernel_shape=[2, 2]), 0.04)
    y = m.quantise(m.node("Mul", y, m.quantise(m.node("Sub", y, y), 0.04)), 0.02)
    m.output(m.quantise(m.node("Softmax", m.node("Flatten", y), axis=1), 1 / 256, -128))


def movements(m):
    y = m.node("Transpose", m.node("MaxPool", image(m), kernel_shape=[2, 2]), perm=[0, 2, 3, 1])
    m.output(m.quantise(m.node("Slice", y, *(m.const(np.array([k], np.int64)) for k in (1, 4, 1)))))


@pytest.mark.parametrize(
    "make, names", [(layers, ["conv2d0", "conv2d_transpose0"]), (dense, ["matmul0"]), (operators, []), (movements, [])]
)
def test_functions_of_onnx_files_are_the_files(m, same_as_onnx, make, names):
    make(m)
    assert [op.name for op in same_as_onnx(m).layers] == names


def convolution(data_layout="NCHW", kernel_layout="OIHW", out_layout="NCHW", added=None):
    """The graph of a convolution by 8 x 4 x 1 x 1 weights of `kernel_layout`, and what is `added` to it."""

    def body(emit, x):
        sizes = dict(zip("OIHW", (8, 4, 1, 1)))
        weight = relax.const(np.ones([sizes[letter] for letter in kernel_layout], np.int8))
        layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout, "out_layout": out_layout}
        y = emit(OP.nn.conv2d(emit(OP.dequantize(x, *numbers())), emit(OP.dequantize(weight, *numbers())), **layouts))
        if added is not None:
            y = emit(OP.add(y, relax.const(np.ones(added, np.float32))))
        return emit(OP.quantize(y, *numbers()))

    return graph_of(body, ((1, 6, 6, 4) if data_layout == "NHWC" else (1, 4, 6, 6), "int8"))


@pytest.mark.parametrize(
    "layouts",
    [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("NCHW", "HWOI", "NCHW"), ("NHWC", "OHWI", "NHWC")],
)
def test_every_layout_has_the_same_weights(layouts):
    (layer,) = convolution(*layouts).layers
    assert layer.weight.shape == (8, 4, 1, 1) and layer.output.shape == (1, 8, 6, 6)


@pytest.mark.parametrize("added", [(8, 1, 1), (1, 8, 1, 1), (1, 1, 1), ()])
def test_a_bias_is_one_number_per_channel_or_in_all(added):
    (layer,) = convolution(added=added).layers
    assert layer.bias.tolist() == [100] * 8


@pytest.mark.parametrize(
    "facts, message",
    [
        *(
            ({"added": shape}, "is added to constants of shape .*, which are not one number per channel")
            for shape in ((6,), (1, 1, 6, 6), (1, 8, 6, 6))
        ),
        ({"out_layout": "NHWC"}, "turns images of layout NCHW to NHWC, which is not supported"),
    ],
)
def test_other_sums_and_layouts_are_refused(facts, message):
    with pytest.raises(UnsupportedError, match=message):
        convolution(**facts)


WEIGHT = np.arange(18, dtype=np.int8)


def dequantised(emit, shape, axis):
    return emit(OP.dequantize(relax.const(WEIGHT.reshape(shape)), relax.const(np.ones(shape[axis], np.float32)),
                              relax.const(np.int8(0)), axis=axis))  # fmt: skip


@pytest.mark.parametrize(
    "body, weight, axis",
    [
        (
            lambda emit: emit(OP.dequantize(emit(OP.permute_dims(relax.const(WEIGHT.reshape(6, 3)))),
                              relax.const(np.ones(6, np.float32)), relax.const(np.int8(0)), axis=1)),
            WEIGHT.reshape(6, 3).T, 1,
        ),
        (lambda emit: emit(OP.reshape(dequantised(emit, (1, 9, 2), 2), (9, 2, 1))), WEIGHT.reshape(9, 2, 1), 1),
        (lambda emit: emit(OP.reshape(dequantised(emit, (9, 2), 1), (18,))), None, None),  # mixes the scales' axis
    ],
)  # fmt: skip
def test_constants_that_are_moved_before_they_are_used(body, weight, axis):
    bindings = module(body)["main"].body.blocks[0].bindings
    found = fold_constants(bindings)[bindings[-2].var]  # the last one is the output's name
    if weight is None:
        assert found.op.name == "relax.reshape"
        return
    assert found.op.name == "relax.dequantize" and found.attrs.axis == axis
    assert np.array_equal(found.args[0].value.numpy(), weight) and tuple(map(int, found.ty.shape)) == weight.shape


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
    *_, both, _turn = sunk([*ops, g.Concat("both", (a, b), g.Tensor("y", (1, 2, 3, 8), scale=0.1), 3)])
    assert isinstance(both, g.Concat) and both.axis == 1 and both.output.shape == (1, 8, 2, 3)


def test_constants_are_turned_and_other_images_are_not():
    ops, (a,) = images("a")
    values = np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4)
    constant = g.Tensor("k", values.shape, scale=0.1, data=values)
    *_, total, _turn = sunk([*ops, g.Add("sum", (a, constant), g.Tensor("y", a.shape, scale=0.2))])
    turned = total.inputs[1].data
    assert turned is not None and np.array_equal(turned, values.transpose(TO_NCHW))
    plain = g.Add("sum", (a, g.Tensor("other", a.shape, scale=0.1)), g.Tensor("y", a.shape, scale=0.2))
    assert sunk([*ops, plain])[-1] is plain
