"""Small versions of well-known networks in float32, and onnxruntime's quantiser."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime import quantization
from onnxruntime.quantization import shape_inference

from tests.compiler.conftest import QdqModel
from tests.compiler.frontend.onnx.dialect import Dialect
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference


class Net(QdqModel):
    """A float network in the making: methods append nodes and return the name of the resulting tensor."""

    def __init__(self, shape, opset=17, batch=None, seed=0):
        super().__init__(None, seed)
        self.shape, self.opset, self.first = shape, opset, [batch or shape[0], *shape[1:]]
        self.channels = {"x": shape[1] if len(shape) > 1 else 1}

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def parts(self, x, axis, *sizes):
        """The results of a Split, whose sizes were an attribute once."""
        names, given = [f"part_{len(self.nodes)}_{k}" for k in range(len(sizes))], self.opset >= 13
        inputs, attrs = ([x, self.ints(*sizes)], {}) if given else ([x], {"split": sizes})
        return self.nodes_of("Split", inputs, names, names[0], axis=axis, **attrs)

    def weights(self, *shape):
        fan = max(1, int(np.prod(shape[1:])))
        return self.const(self.rng.normal(0, 1.2 / np.sqrt(fan), shape).astype(np.float32))

    def conv(self, x, out, kernel=3, stride=1, groups=1, into=None, bias=True, dims=2):
        c = into or self.channels[x]
        w = [self.weights(out, c // groups, *[kernel] * dims)]
        w += [self.const(self.rng.normal(0, 0.3, out).astype(np.float32))] if bias else []
        pads = [kernel // 2] * 2 * dims
        y = self.node("Conv", x, *w, kernel_shape=[kernel] * dims, strides=[stride] * dims, pads=pads, group=groups)
        self.channels[y] = out
        return y

    def keep(self, x, kind, *more, **attrs):
        """A node that keeps the number of channels."""
        y = self.node(kind, x, *more, **attrs)
        self.channels[y] = self.channels.get(x, 0)
        return y

    def norm(self, x):
        c = self.channels[x]
        parts = self.rng.uniform(0.5, 1.5, c), self.rng.normal(0, 0.3, c), self.rng.normal(0, 0.3, c)
        return self.keep(
            x,
            "BatchNormalization",
            *(self.const(p.astype(np.float32)) for p in (*parts, self.rng.uniform(0.5, 1.5, c))),
        )

    def relu6(self, x):
        return self.keep(x, "Clip", self.const(np.float32(0)), self.const(np.float32(6)))

    def pool(self, x, kind="MaxPool", kernel=2, stride=2, pads=0, **attrs):
        return self.keep(x, kind, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pads] * 4, **attrs)

    def silu(self, x):
        return self.keep(x, "Mul", self.node("Sigmoid", x))

    def gemm(self, x, into, out):
        return self.node("Gemm", x, self.weights(out, into), self.weights(out), transB=1)

    def mean(self, x, axes, keep=0):
        given = [self.ints(*axes)] if self.opset >= 18 else []
        return self.keep(x, "ReduceMean", *given, keepdims=keep, **({} if given else {"axes": axes}))

    def head(self, x, classes=10):
        y = self.node("Flatten", self.node("GlobalAveragePool", x))
        return self.gemm(y, self.channels[x], classes)

    def doubled(self, x):
        """`x` resized to twice its size, pixel by pixel repeated."""
        scales = self.const(np.array([1, 1, 2, 2], np.float32))
        modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.keep(x, "Resize", self.roi(), scales, **modes)

    def roi(self):
        """What a Resize needs for its second input before opset 13."""
        return "" if self.opset >= 13 else self.const(np.zeros(0, np.float32))

    def save(self, path, *outputs):
        info = onnx.helper.make_tensor_value_info
        ends = [info("x", onnx.TensorProto.FLOAT, self.first)], [info(y, onnx.TensorProto.FLOAT, None) for y in outputs]
        constants = [onnx.numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = onnx.helper.make_graph(self.nodes, "float", *ends, constants)
        opsets = [onnx.helper.make_opsetid("", self.opset)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model, data_prop=True), path)


def resnet(opset):
    m = Net((1, 3, 16, 16), opset)
    x = m.pool(m.keep(m.norm(m.conv("x", 16, 7, 2, bias=False)), "Relu"), kernel=3, stride=2, pads=1)
    for out, stride in ((16, 1), (32, 2)):
        y = m.keep(m.norm(m.conv(x, out, 3, stride, bias=False)), "Relu")
        y = m.norm(m.conv(y, out, bias=False))
        side = x if out == m.channels[x] else m.norm(m.conv(x, out, 1, stride, bias=False))
        x = m.keep(m.keep(y, "Add", side), "Relu")
    return m, m.head(x)


def bottlenecks(m, x, blocks, activation):
    """Inverted residual blocks: (growth, output channels, number, stride of the first)."""
    for growth, out, number, first in blocks:
        for stride in (first, *[1] * (number - 1)):
            wide = growth * m.channels[x]
            y = activation(m.conv(x, wide, 1)) if growth > 1 else x
            y = m.conv(activation(m.conv(y, wide, 3, stride, wide)), out, 1)
            x = m.keep(y, "Add", x) if out == m.channels[x] and stride == 1 else y
    return x


def mobilenet_v2(opset, size=16, first=8, blocks=((6, 8, 1, 1), (6, 16, 1, 2)), last=32, classes=10):
    m = Net((1, 3, size, size), opset, "N")
    x = bottlenecks(m, m.relu6(m.conv("x", first, 3, 2)), blocks, m.relu6)
    x = m.mean(m.relu6(m.conv(x, last, 1)), [2, 3])
    return m, m.gemm(x, last, classes)


def mobilefacenet(opset, size=28, first=16, blocks=((2, 16, 2, 1), (4, 24, 1, 2)), last=48, features=32):
    """PRelu instead of ReLU, and a depthwise convolution of the whole image before the features."""
    m = Net((1, 3, size, size), opset)

    def activation(x):
        return m.keep(x, "PRelu", m.const(m.rng.uniform(0.1, 0.3, (m.channels[x], 1, 1)).astype(np.float32)))

    x = activation(m.conv(activation(m.conv("x", first, 3, 2)), first, 3, 1, first))
    x = activation(m.conv(bottlenecks(m, x, blocks, activation), last, 1))
    side = size // 2 // 2 ** sum(stride == 2 for *_, stride in blocks)
    whole = m.keep(x, "Conv", m.weights(last, 1, side, side), kernel_shape=[side, side], group=last)
    return m, m.node("Flatten", m.conv(whole, features, 1))


def squeeze_excite(m, x, gate="HardSigmoid"):
    c = m.channels[x]
    y = m.keep(x, "GlobalAveragePool")
    y = m.conv(m.keep(m.conv(y, c // 4, 1), "Relu"), c, 1)
    return m.keep(x, "Mul", m.node(gate, y, **({"alpha": 1 / 6} if gate == "HardSigmoid" else {})))


def hard_swish(m, x):
    """As exporters wrote it before opset 14."""
    if m.opset >= 14:
        return m.keep(x, "HardSwish")
    y = m.relu6(m.keep(x, "Add", m.const(np.float32(3))))
    return m.keep(m.keep(x, "Mul", y), "Div", m.const(np.float32(6)))


def mobilenet_v3(opset):
    m = Net((1, 3, 16, 16), opset)
    x = hard_swish(m, m.norm(m.conv("x", 16, 3, 2, bias=False)))
    y = hard_swish(m, m.norm(m.conv(x, 32, 1, bias=False)))
    y = squeeze_excite(m, hard_swish(m, m.norm(m.conv(y, 32, 5, 1, 32, bias=False))))
    x = m.keep(m.norm(m.conv(y, 16, 1, bias=False)), "Add", x)
    y = m.node("Flatten", m.node("GlobalAveragePool", hard_swish(m, m.conv(x, 32, 1))))
    y = hard_swish(m, m.gemm(y, 32, 24))
    return m, m.gemm(y, 24, 10)


def shuffle(m, x, groups):
    """Channel shuffle by shapes that are computed, as exporters of dynamic batches write it."""
    c, shape = m.channels[x], m.node("Shape", x)
    n, h, w = (m.node("Gather", shape, m.const(np.int64(k))) for k in (0, 2, 3))
    n, h, w = (
        m.node("Unsqueeze", t, *([m.ints(0)] if m.opset >= 13 else []), **({} if m.opset >= 13 else {"axes": [0]}))
        for t in (n, h, w)
    )
    wide = m.node("Concat", n, m.ints(groups), m.ints(c // groups), h, w, axis=0)
    y = m.node("Transpose", m.node("Reshape", x, wide), perm=[0, 2, 1, 3, 4])
    y = m.node("Reshape", y, m.node("Concat", n, m.ints(-1), h, w, axis=0))
    m.channels[y] = c
    return y


def shufflenet(opset):
    m = Net((1, 3, 16, 16), opset, "batch")
    x = m.keep(m.conv("x", 16, 3, 2), "Relu")
    for _ in range(2):
        a, b = m.parts(x, 1, 8, 8)
        m.channels |= {a: 8, b: 8}
        b = m.keep(m.conv(m.conv(m.keep(m.conv(b, 8, 1), "Relu"), 8, 3, 1, 8), 8, 1), "Relu")
        y = m.node("Concat", a, b, axis=1)
        m.channels[y] = 16
        x = shuffle(m, y, 2)
    return m, m.gemm(m.mean(x, [2, 3]), 16, 10)


def unet(opset):
    m = Net((1, 3, 16, 16), opset)
    a = m.keep(m.norm(m.conv("x", 8, bias=False)), "Relu")
    b = m.keep(m.conv(m.pool(a), 16), "Relu")
    c = m.keep(m.conv(m.pool(b), 16), "Relu")
    up = m.doubled(c)
    y = m.node("Concat", up, b, axis=1)
    m.channels[y] = 32
    y = m.keep(m.conv(y, 16), "Relu")
    y = m.node("ConvTranspose", y, m.weights(16, 8, 2, 2), m.weights(8), kernel_shape=[2, 2], strides=[2, 2])
    y = m.node("Concat", y, a, axis=1)
    m.channels[y] = 16
    return m, m.node("Sigmoid", m.conv(y, 1, 1))


def yolo(opset):
    m = Net((1, 3, 32, 32), opset)
    a = m.silu(m.norm(m.conv("x", 8, 3, 2, bias=False)))
    b = m.silu(m.norm(m.conv(a, 16, 3, 2, bias=False)))
    c = m.silu(m.conv(m.pool(b, kernel=5, stride=1, pads=2), 16, 3, 2))
    up = m.doubled(c)
    p = m.node("Concat", up, b, axis=1)
    m.channels[p] = 32
    found = []
    for x, size in ((m.silu(m.conv(p, 16)), 8), (c, 4)):
        y = m.node("Reshape", m.conv(x, 14, 1), m.ints(1, 2, 7, size, size))
        y = m.node("Sigmoid", m.node("Transpose", y, perm=[0, 1, 3, 4, 2]))
        parts = m.parts(y, 4, 2, 2, 3)
        two = m.const(np.float32(2))
        grid = m.const(
            np.stack(np.meshgrid(*[np.arange(size)] * 2), -1).astype(np.float32).reshape(1, 1, size, size, 2)
        )
        xy = m.node("Add", m.node("Mul", parts[0], two), grid)
        wh = m.node("Pow", m.node("Mul", parts[1], two), two)
        found.append(m.node("Reshape", m.node("Concat", xy, wh, parts[2], axis=4), m.ints(1, -1, 7)))
    return m, m.node("Concat", *found, axis=1)


def transformer(opset):
    m, width, length = Net((1, 8, 16), opset), 16, 8

    def normalised(x):
        d = m.node("Sub", x, m.mean(x, [-1], 1))
        v = m.mean(m.node("Pow", d, m.const(np.float32(2))), [-1], 1)
        y = m.node("Div", d, m.node("Sqrt", m.node("Add", v, m.const(np.float32(1e-5)))))
        return m.node("Add", m.node("Mul", y, m.weights(width)), m.weights(width))

    def dense(x, into, out):
        return m.node("Add", m.weights(out), m.node("MatMul", x, m.weights(into, out)))

    def heads(x, perm):
        return m.node("Transpose", m.node("Reshape", x, m.ints(1, length, 2, width // 2)), perm=perm)

    y = normalised("x")
    q, v = (heads(dense(y, width, width), [0, 2, 1, 3]) for _ in range(2))
    k = heads(dense(y, width, width), [0, 2, 3, 1])
    scores = m.node("Div", m.node("MatMul", q, k), m.const(np.float32(np.sqrt(width // 2))))
    y = m.node("MatMul", m.node("Softmax", scores, axis=-1), v)
    y = m.node("Reshape", m.node("Transpose", y, perm=[0, 2, 1, 3]), m.ints(1, length, width))
    x = m.node("Add", "x", dense(y, width, width))
    y = dense(normalised(x), width, 32)
    half = m.node("Add", m.node("Erf", m.node("Div", y, m.const(np.float32(np.sqrt(2))))), m.const(np.float32(1)))
    y = m.node("Mul", m.node("Mul", y, half), m.const(np.float32(0.5)))
    x = m.node("Add", x, dense(y, 32, width))
    return m, m.gemm(m.mean(x, [1]), width, 5)


def sound(opset):
    m = Net((1, 1, 64), opset)
    x = m.keep(m.norm(m.conv("x", 8, 9, 4, dims=1)), "Relu")
    x = m.keep(x, "MaxPool", kernel_shape=[2], strides=[2])
    x = m.keep(m.norm(m.conv(x, 16, 3, dims=1)), "Relu")
    y = m.node(
        "Squeeze",
        m.node("GlobalAveragePool", x),
        *([m.ints(2)] if opset >= 13 else []),
        **({} if opset >= 13 else {"axes": [2]}),
    )
    return m, m.node("LogSoftmax", m.gemm(y, 16, 5), axis=-1)


def segmentation(opset):
    m = Net((1, 3, 16, 16), opset)
    x = m.keep(m.conv("x", 8, 3, 2), "PRelu", m.const(m.rng.uniform(0.1, 0.3, (8, 1, 1)).astype(np.float32)))
    y = m.keep(m.conv(x, 16, 3, 2), "Elu")
    y = m.conv(m.pool(y, "AveragePool", 3, 1, 1), 4, 1)
    sizes = m.ints(1, 4, 16, 16)
    y = m.node(
        "Resize",
        y,
        m.roi(),
        "" if opset >= 13 else m.const(np.zeros(0, np.float32)),
        sizes,
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    return m, m.node("Softmax", y, axis=1)


def speech(opset):
    """A mask of a spectrum: dense layer, two recurrent ones, and sums over time."""
    m, hidden = Net((1, 12, 16), opset), 8
    x = m.node("Relu", m.node("Add", m.node("MatMul", "x", m.weights(16, 16)), m.weights(16)))
    x, into = m.node("Transpose", x, perm=[1, 0, 2]), 16
    for kind, gates in (("GRU", 3), ("LSTM", 4)):
        w, r = m.weights(1, gates * hidden, into), m.weights(1, gates * hidden, hidden)
        first = m.const(np.zeros((1, 1, hidden), np.float32))
        inputs = [x, w, r, m.weights(1, 2 * gates * hidden), "", *[first] * (gates - 2)]
        y = m.node(kind, *inputs, hidden_size=hidden)
        x, into = m.node("Reshape", y, m.ints(12, 1, hidden)), hidden
    y = m.node("Sigmoid", m.node("MatMul", m.node("Transpose", x, perm=[1, 0, 2]), m.weights(hidden, 16)))
    if opset < 12:
        return m, m.node("Mul", y, "x")
    return m, m.node("Mul", y, "x"), m.node("Einsum", y, "x", equation="btf,btf->bf")


NETWORKS: dict[str, Callable] = {
    function.__name__: function
    for function in (
        resnet,
        mobilefacenet,
        mobilenet_v2,
        mobilenet_v3,
        shufflenet,
        unet,
        yolo,
        transformer,
        sound,
        segmentation,
        speech,
    )
}


V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
FACE = ((2, 64, 5, 2), (4, 128, 1, 2), (2, 128, 6, 1), (4, 128, 1, 2), (2, 128, 2, 1))
# of the sizes that they are published with
PUBLISHED: dict[str, Callable] = {
    "mobilenet_v2_224": lambda opset: mobilenet_v2(opset, 224, 32, V2, 1280, 1000),
    "mobilefacenet_112": lambda opset: mobilefacenet(opset, 112, 64, FACE, 512, 128),
}


def quantised(
    folder,
    name,
    opset=17,
    qdq=True,
    activations="QInt8",
    weights="QInt8",
    per_channel=True,
    prepare=False,
    **size,
):
    """(path, shape of the input) of a network as the quantiser of onnxruntime writes it."""
    m, *outputs = (NETWORKS | PUBLISHED)[name](opset, **size)
    plain, path = folder / f"{name}.float.onnx", folder / f"{name}.onnx"
    m.save(plain, *outputs)
    if prepare:
        shape_inference.quant_pre_process(plain, plain, skip_symbolic_shape=True)
    samples = iter(
        [{"x": m.rng.normal(0, 1, m.shape).astype(np.float32)} for _ in range(2 if name in PUBLISHED else 8)]
    )

    class Reader(quantization.CalibrationDataReader):
        def get_next(self):
            return next(samples, None)

    types: dict[str, Any] = {
        "activation_type": quantization.QuantType[activations],
        "weight_type": quantization.QuantType[weights],
    }
    kind = quantization.QuantFormat.QDQ if qdq else quantization.QuantFormat.QOperator
    quantization.quantize_static(plain, path, Reader(), quant_format=kind, per_channel=per_channel, **types)
    return path, m.shape


def _random(rng, t, spread):
    """Values of an input: bytes of their whole range, other numbers around 0."""
    if t.dtype in ("int8", "uint8"):
        return rng.integers(np.iinfo(t.dtype).min, np.iinfo(t.dtype).max + 1, t.shape).astype(t.dtype)
    return rng.normal(0, spread, t.shape).astype(t.dtype)


@pytest.fixture
def compared(onnxruntime_outputs):
    """Compares a `QdqModel` with onnxruntime: how far values may be apart, and how many; gives the graph."""

    def run(m, most=0.001, share=1.0, scale=1.0, opset=None, spread=3.0):
        path = m.save()
        if opset is not None:
            model = onnx.load(path)
            model.opset_import[0].version = opset
            del model.graph.value_info[:]  # those of another opset
            onnx.save(model, path)
        graph, differences = import_onnx(path), []
        for _ in range(3):
            inputs = {t.name: _random(m.rng, t, spread) for t in graph.inputs}
            mine, _ = reference.run(graph, inputs)
            for name, expected in onnxruntime_outputs(path, inputs).items():
                assert (mine[name].shape, mine[name].dtype) == (expected.shape, expected.dtype)
                assert len(np.unique(mine[name])) > 1 or expected.size == 1
                differences.append(np.abs(mine[name].astype(np.float64) - expected).reshape(-1) / scale)
        differ = np.concatenate(differences)
        assert differ.max() <= most, f"{differ.max():.4g} of the scale"
        assert (differ > 0.5 * most).mean() <= share
        return graph

    return run


@pytest.fixture
def quantise(tmp_path):
    """Quantises a network by name; see `quantised`."""
    return lambda name, **options: quantised(tmp_path, name, **options)


@pytest.fixture
def net(tmp_path):
    return Dialect(tmp_path)
