"""Random QDQ networks of ONNX: every result is quantised, with a scale that its values on a sample decide.

Also float ones, which onnxruntime's quantiser makes int8 with random options.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime import quantization

from tests.compiler.conftest import QdqModel

OPSETS = range(13, 24)
LARGEST = 4096  # elements of a tensor


def session(proto):
    """onnxruntime as the definition of QDQ has it: nothing is fused."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


class RandomQdq(QdqModel):
    """A network in the making: `values` are the real values of its quantised tensors on a sample, by name."""

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.opset = int(self.rng.choice(OPSETS))
        types = [(np.int8, np.int8), (np.uint8, np.uint8), (np.uint8, np.int8)]
        self.type, self.weight_type = types[self.rng.integers(3)]
        self.mixed, self.per_channel = self.rng.random() < 0.2, self.rng.random() < 0.5
        self.values: dict[str, np.ndarray] = {}
        self.grids: dict[str, tuple[float, int, type]] = {}  # scale, zero point and type of `values`
        self.fed: dict[str, np.ndarray] = {}

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def first(self, *shape):
        """An input of the network, float32 or quantised, and its quantised tensor."""
        name = f"x{len(self.inputs)}"
        x = self.rng.normal(0, 1, shape).astype(np.float32)
        if self.rng.random() < 0.5:
            self.input(name, list(shape))
            self.fed[name] = x
            return self.quantised(name, x)
        scale, zero, kind = self.grid(x)
        q = self.steps(x, scale, zero, kind)
        self.input(name, list(shape), "INT8" if kind is np.int8 else "UINT8")
        self.fed[name] = q
        return self.dequantised(name, q, scale, zero, kind)

    def grid(self, real):
        """(scale, zero point, type) that nearly cover the values."""
        kind = self.pick(np.int8, np.uint8) if self.mixed else self.type
        low, high = min(0.0, float(real.min())), max(0.0, float(real.max()))
        scale = np.float32(max(high - low, 1e-3) / 255 * self.rng.uniform(0.8, 1.1))
        info = np.iinfo(kind)
        zero = int(np.clip(np.rint(info.min - low / scale), info.min, info.max))
        return scale, zero, kind

    def steps(self, real, scale, zero, kind):
        info = np.iinfo(kind)
        return np.clip(np.rint(real / scale) + zero, info.min, info.max).astype(kind)

    def quantised(self, x, real, grid=None):
        scale, zero, kind = grid or self.grid(real)
        q = self.node("QuantizeLinear", x, self.const(scale), self.const(kind(zero)))
        return self.dequantised(q, self.steps(real, scale, zero, kind), scale, zero, kind)

    def dequantised(self, name, q, scale, zero, kind):
        y = self.node("DequantizeLinear", name, self.const(scale), self.const(kind(zero)))
        self.values[y] = (q.astype(np.float32) - np.float32(zero)) * scale
        self.grids[y] = scale, zero, kind
        return y

    def real(self, values):
        return self.const(np.asarray(values, np.float32))

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def weight(self, real, axis):
        """A quantised constant, per channel of `axis` or per tensor."""
        per = self.per_channel and axis is not None
        others = tuple(k for k in range(real.ndim) if k != axis) if per else None
        signed = self.weight_type is np.int8
        if signed:
            scale, zero = np.abs(real).max(others) / 127, 0
        else:
            scale = (np.maximum(real.max(others), 0) - np.minimum(real.min(others), 0)) / 255
            zero = np.rint(-np.minimum(real.min(others), 0) / np.maximum(scale, 1e-9))
        scale = np.maximum(scale, 1e-6).astype(np.float32)
        zero = np.broadcast_to(np.asarray(zero).astype(self.weight_type), scale.shape)
        shape = [-1 if k == axis else 1 for k in range(real.ndim)] if per else []
        info = np.iinfo(self.weight_type)
        q = np.rint(real / scale.reshape(shape)) + zero.reshape(shape)
        q = np.clip(q, info.min, info.max).astype(self.weight_type)
        attrs = {"axis": axis} if per else {}
        return self.node("DequantizeLinear", self.const(q), self.const(scale), self.const(zero), **attrs), scale

    def bias(self, count, x, weight_scale):
        scale = np.float32(self.grids[x][0]) * np.broadcast_to(weight_scale, (count,) if self.per_channel else ())
        scale = scale.astype(np.float32)
        b = np.rint(self.rng.normal(0, 0.3, count) / scale).astype(np.int32)
        zero = self.const(np.zeros(scale.shape, np.int32))
        return self.node(
            "DequantizeLinear", self.const(b), self.const(scale), zero, **({"axis": 0} if scale.ndim else {})
        )

    def result(self, *names, grid=None):
        """Quantise what the nodes since `self.start` compute."""
        nodes = self.nodes[self.start :]
        ends = {t: self.values[t] for n in nodes for t in n.input if t in self.values}
        constants = {t: self.constants[t] for n in nodes for t in n.input if t in self.constants}
        info = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            nodes,
            "part",
            [info(t, onnx.TensorProto.FLOAT, v.shape) for t, v in ends.items()],
            [info(t, onnx.TensorProto.FLOAT, None) for t in names],
            [onnx.numpy_helper.from_array(v, t) for t, v in constants.items()],
        )
        opsets = [onnx.helper.make_opsetid("", self.opset)]
        proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
        reals = session(proto).run(None, ends)
        return [self.quantised(t, v, grid) for t, v in zip(names, reals)]

    def grow(self, kind):
        """Append an operator of `kind` on a tensor that it can be on; False where there is none."""
        rank, make, _ = KINDS[kind]
        free = [t for t, v in self.values.items() if rank in (0, v.ndim) and v.size <= LARGEST]
        if not free:
            return False
        x = self.pick(*free[-3:])
        self.start = len(self.nodes)
        outputs = make(self, x)
        if outputs is None:
            del self.nodes[self.start :]
            return False
        names, grid = outputs if isinstance(outputs, tuple) else (outputs, None)
        self.result(*([names] if isinstance(names, str) else names), grid=grid)
        return True

    def proto(self):
        constants = [onnx.numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = onnx.helper.make_graph(self.nodes, "random", self.inputs, self.outputs, constants)
        opsets = [onnx.helper.make_opsetid("", self.opset)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def finish(self):
        """Make outputs of all tensors that nothing reads: real values, or integers of the last quantisation."""
        read = {t for n in self.nodes for t in n.input}
        for t in [t for t in self.values if t not in read]:
            producer = next(n for n in self.nodes if t in n.output)
            if self.rng.random() < 0.4 and producer.input[0] not in self.fed:
                self.nodes.remove(producer)
                self.output(producer.input[0], "INT8" if self.grids[t][2] is np.int8 else "UINT8")
            else:
                self.output(t)


def conv(groups=1, transposed=False):
    def make(m, x):
        n, c, h, w = m.values[x].shape
        depthwise = groups == 0
        g = c if depthwise else (groups if c % groups == 0 else 1)
        out = c * int(m.rng.integers(1, 3)) if depthwise else g * int(m.rng.integers(1, 1 + max(1, 24 // g)))
        k = [int(m.pick(1, 2, 3, 3, 5)) for _ in range(2)]
        dilations = [int(m.pick(1, 1, 1, 2)) for _ in range(2)]
        reach = [(a - 1) * d + 1 for a, d in zip(k, dilations)]
        pads = [int(m.rng.integers(0, r // 2 + 1)) for r in reach * 2]
        if h + pads[0] + pads[2] < reach[0] or w + pads[1] + pads[3] < reach[1]:
            return None
        attrs = {"kernel_shape": k, "dilations": dilations, "pads": pads, "group": g}
        attrs["strides"] = [int(m.pick(1, 1, 2)) for _ in range(2)]
        shape = (c, out // g, *k) if transposed else (out, c // g, *k)
        real = m.rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape)
        sizes = [(n - 1) * s + r for n, s, r in zip((h, w), attrs["strides"], reach)]
        if transposed and (g > 1 or any(n <= pads[k] + pads[k + 2] for k, n in enumerate(sizes))):
            return None
        weight, scale = m.weight(real, 1 if transposed else 0)
        inputs = [x, weight, *([m.bias(out, x, scale)] if m.rng.random() < 0.7 else [])]
        y = m.node("ConvTranspose" if transposed else "Conv", *inputs, **attrs)
        return activated(m, y)

    return make


def activated(m, y):
    kind = m.pick("", "", "Relu", "Clip")
    if kind == "Clip":
        return m.node("Clip", y, m.real(0), m.real(m.pick(1, 6)))
    return m.node(kind, y) if kind else y


def pool(kind):
    def make(m, x):
        _, _, h, w = m.values[x].shape
        k = [int(m.pick(1, 2, 3)) for _ in range(2)]
        if h < k[0] or w < k[1]:
            return None
        attrs: dict[str, Any] = {"kernel_shape": k, "strides": [int(m.pick(1, 2)) for _ in range(2)]}
        if m.rng.random() < 0.4:
            attrs["pads"] = [int(m.rng.integers(0, (a + 1) // 2)) for a in k * 2]
        if m.rng.random() < 0.2:
            attrs["ceil_mode"] = 1
            size = [n + 2 * max(attrs.get("pads", [0])) for n in (h, w)]
            if any(-(-(n - a) // s) * s >= n for n, a, s in zip(size, k, attrs["strides"])):
                return None  # onnxruntime fails where onnx counts a window that begins behind the image
        if kind == "AveragePool" and m.rng.random() < 0.3 and "ceil_mode" not in attrs:
            attrs["count_include_pad"] = 1
        return same(m, x, m.node(kind, x, **attrs), kind == "MaxPool")

    return make


def same(m, x, y, often=True):
    """The result with its operand's quantisation: often, where values are only moved."""
    return (y, m.grids[x]) if m.rng.random() < (0.7 if often else 0.2) else y


def mean(m, x):
    rank = m.values[x].ndim
    axes = m.pick([2, 3], [-1], [1], [1, 2]) if rank == 4 else [int(m.rng.integers(1, rank))]
    keep = int(m.rng.integers(2))
    if m.opset >= 18:
        return m.node("ReduceMean", x, m.ints(*axes), keepdims=keep)
    return m.node("ReduceMean", x, axes=axes, keepdims=keep)


def binary(kind):
    def make(m, x):
        shape = m.values[x].shape
        others = [t for t, v in m.values.items() if v.shape == shape or v.shape == (*shape[:2], 1, 1)]
        case = m.rng.integers(4)
        if case == 0:
            q, _ = m.weight(m.rng.normal(0, 1, m.pick((), shape[1:], (shape[1], *[1] * (len(shape) - 2)))), None)
            return activated(m, m.node(kind, x, q))
        if case == 1 and len(shape) == 4:
            y = m.first(*shape[:2], 1, 1)
        elif len(others) > 1 and case == 2:
            y = m.pick(*others)
        else:
            y = m.first(*shape)
        m.start = len(m.nodes)
        return activated(m, m.node(kind, *((x, y) if m.rng.random() < 0.5 else (y, x))))

    return make


def concat(m, x):
    shape = m.values[x].shape
    axis = int(m.pick(1, 1, 1, len(shape) - 1, 2 % len(shape)))
    others = [t for t, v in m.values.items() if v.ndim == len(shape)]
    fits = [t for t in others if all(k == axis or a == b for k, (a, b) in enumerate(zip(m.values[t].shape, shape)))]
    if m.rng.random() < 0.3 or len(fits) < 2:
        other = list(shape)
        other[axis] = int(m.rng.integers(1, 9))
        fits.append(m.first(*other))
        m.start = len(m.nodes)
    parts = [x, *(fits[-1 - k] for k in range(int(m.pick(1, 1, 2))) if k < len(fits))]
    return same(m, x, m.node("Concat", *parts, axis=axis), False)


def resize(mode):
    def make(m, x):
        n, c, h, w = m.values[x].shape
        attrs = {"mode": mode}
        attrs["coordinate_transformation_mode"] = m.pick(
            "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"
        )
        if mode == "nearest":
            attrs["nearest_mode"] = m.pick("floor", "round_prefer_floor", "ceil", "round_prefer_ceil")
        if m.rng.random() < 0.5:
            scales = [m.pick(1, 2, 2, 3, 0.5, 1.5) for _ in range(2)]
            if h * scales[0] < 1 or w * scales[1] < 1:
                return None
            inputs = ["", m.real([1, 1, *scales])]
        else:
            inputs = ["", "", m.ints(n, c, *(int(m.rng.integers(1, 2 * k + 2)) for k in (h, w)))]
        return same(m, x, m.node("Resize", x, *inputs, **attrs), mode == "nearest")

    return make


def depth_to_space(m, x):
    if m.values[x].shape[1] % 4:
        return None
    return same(m, x, m.node("DepthToSpace", x, blocksize=2, mode=m.pick("DCR", "CRD")))


def space_to_depth(m, x):
    if m.values[x].shape[2] % 2 or m.values[x].shape[3] % 2:
        return None
    return same(m, x, m.node("SpaceToDepth", x, blocksize=2))


def transpose(m, x):
    rank = m.values[x].ndim
    perm = [0, *(int(k) + 1 for k in m.rng.permutation(rank - 1))]
    return same(m, x, m.node("Transpose", x, perm=perm))


def slices(m, x):
    shape = m.values[x].shape
    axis = int(m.rng.integers(1, len(shape)))
    if shape[axis] < 2:
        return None
    start = int(m.rng.integers(0, shape[axis] - 1))
    end = int(m.rng.integers(start + 1, shape[axis] + 1))
    return same(m, x, m.node("Slice", x, m.ints(start), m.ints(end), m.ints(axis), m.ints(m.pick(1, 1, 2))))


def split(m, x):
    shape = m.values[x].shape
    if shape[1] < 2:
        return None
    cut = int(m.rng.integers(1, shape[1]))
    names = [f"part_{len(m.nodes)}_{k}" for k in range(2)]
    return m.nodes_of("Split", [x, m.ints(cut, shape[1] - cut)], names, names[0], axis=1)


def pad(m, x):
    rank = m.values[x].ndim
    amounts = [0, 0, *m.rng.integers(0, 3, rank - 2).tolist()] * 2
    return same(m, x, m.node("Pad", x, m.ints(*amounts), mode=m.pick("constant", "edge")))


def reshape(m, x):
    shape = m.values[x].shape
    return same(m, x, m.node("Reshape", x, m.ints(shape[0], shape[1], -1)))


def requantise(m, x):
    return m.node("Identity", x)


def plain(kind, **attrs):
    return lambda m, x: m.node(kind, x, **{k: v() if callable(v) else v for k, v in attrs.items()})


def clip(m, x):
    return m.node("Clip", x, m.real(-m.rng.random()), m.real(m.rng.random() * 2))


def hard_swish(m, x):
    return m.node("HardSwish", x) if m.opset >= 14 else m.node("Mul", x, m.node("HardSigmoid", x, alpha=1 / 6))


def swish(m, x):
    return m.node("Mul", x, m.node("Sigmoid", x))


def gelu(m, x):
    half = m.node("Erf", m.node("Div", x, m.real(np.sqrt(2))))
    return m.node("Mul", m.node("Mul", x, m.node("Add", half, m.real(1))), m.real(0.5))


def root(m, x):
    return m.node("Sqrt", m.node("Add", m.node("Pow", x, m.real(2)), m.real(1e-3)))


def quotient(m, x):
    return m.node("Div", x, m.weight(m.rng.uniform(0.5, 2, m.values[x].shape[1:]), None)[0])


def extreme(m, x):
    axis = int(m.rng.integers(1, m.values[x].ndim))
    return m.node("ReduceMax", x, m.ints(axis)) if m.opset >= 18 else m.node("ReduceMax", x, axes=[axis])


def prelu(m, x):
    shape = m.values[x].shape
    slope = m.rng.uniform(0.05, 0.4, (shape[1], *[1] * (len(shape) - 2)))
    return m.node("PRelu", x, m.weight(slope, None)[0] if m.rng.random() < 0.7 else m.real(slope))


def norm(m, x):
    c = m.values[x].shape[1]
    parts = m.rng.uniform(0.5, 1.5, c), m.rng.normal(0, 0.3, c), m.rng.normal(0, 0.3, c), m.rng.uniform(0.5, 1.5, c)
    return m.node("BatchNormalization", x, *map(m.real, parts))


def softmax(m, x):
    y = m.node("Softmax", x, axis=int(m.pick(-1, 1)))
    if m.rng.random() < 0.5:
        kind = m.type
        return y, (np.float32(1 / 256), -128 if kind is np.int8 else 0, kind)
    return y


def layer_norm(m, x):
    size = m.values[x].shape[-1]
    if m.opset < 17:
        return None
    return m.node("LayerNormalization", x, m.real(m.rng.uniform(0.5, 1.5, size)), m.real(m.rng.normal(0, 1, size)))


def dense(kind):
    def make(m, x):
        source, v = x, m.values[x]
        if kind == "Gemm" and v.ndim != 2:
            x = m.node("Flatten", x)
            inner = int(np.prod(v.shape[1:]))
        else:
            inner = v.shape[-1]
        out = int(m.rng.integers(1, 33))
        turned = kind == "Gemm" and m.rng.random() < 0.7
        w = m.rng.normal(0, 1 / np.sqrt(inner), (out, inner) if turned else (inner, out))
        weight, scale = m.weight(w, 0 if turned else 1)
        if kind == "Gemm":
            bias = [m.bias(out, source, scale)] if m.rng.random() < 0.7 else []
            return activated(m, m.node("Gemm", x, weight, *bias, transB=int(turned)))
        return activated(m, m.node("MatMul", x, weight))

    return make


def real_bias(m, x):
    """A layer with a bias in float32, as fake-quantised modules of PyTorch have it."""
    inner, out = m.values[x].shape[-1], int(m.rng.integers(1, 33))
    weight, _ = m.weight(m.rng.normal(0, 1 / np.sqrt(inner), (inner, out)), 1)
    return activated(m, m.node("Add", m.node("MatMul", x, weight), m.real(m.rng.normal(0, 0.3, out))))


def product(m, x):
    shape = m.values[x].shape
    other = m.first(*shape[:-2], shape[-1], int(m.rng.integers(1, 17)))
    m.start = len(m.nodes)
    return activated(m, m.node("MatMul", x, other))


class Kind(NamedTuple):
    """What appends operators to tensors of a rank, 0 for any; `name` is that of ONNX, as docs/networks.md has it."""

    rank: int
    make: Callable
    name: str


KINDS = {
    "conv": Kind(4, conv(), "Conv"),
    "grouped": Kind(4, conv(2), "Conv"),
    "depthwise": Kind(4, conv(0), "Conv"),
    "transposed": Kind(4, conv(1, True), "ConvTranspose"),
    "max pool": Kind(4, pool("MaxPool"), "MaxPool"),
    "average pool": Kind(4, pool("AveragePool"), "AveragePool"),
    "global pool": Kind(4, plain("GlobalAveragePool"), "GlobalAveragePool"),
    "mean": Kind(0, mean, "ReduceMean"),
    "add": Kind(0, binary("Add"), "Add"),
    "sub": Kind(0, binary("Sub"), "Sub"),
    "mul": Kind(0, binary("Mul"), "Mul"),
    "concat": Kind(0, concat, "Concat"),
    "nearest": Kind(4, resize("nearest"), "Resize"),
    "linear": Kind(4, resize("linear"), "Resize"),
    "depth to space": Kind(4, depth_to_space, "DepthToSpace"),
    "space to depth": Kind(4, space_to_depth, "SpaceToDepth"),
    "transpose": Kind(0, transpose, "Transpose"),
    "slice": Kind(0, slices, "Slice"),
    "split": Kind(0, split, "Split"),
    "pad": Kind(4, pad, "Pad"),
    "reshape": Kind(4, reshape, "Reshape"),
    "requantise": Kind(0, requantise, "QuantizeLinear"),
    "relu": Kind(0, plain("Relu"), "Relu"),
    "clip": Kind(0, clip, "Clip"),
    "sigmoid": Kind(0, plain("Sigmoid"), "Sigmoid"),
    "tanh": Kind(0, plain("Tanh"), "Tanh"),
    "leaky": Kind(0, plain("LeakyRelu", alpha=0.1), "LeakyRelu"),
    "hard sigmoid": Kind(0, plain("HardSigmoid"), "HardSigmoid"),
    "hard swish": Kind(0, hard_swish, "HardSwish"),
    "swish": Kind(0, swish, "Sigmoid"),
    "elu": Kind(0, plain("Elu"), "Elu"),
    "gelu": Kind(0, gelu, "Erf"),
    "root": Kind(0, root, "Sqrt"),
    "quotient": Kind(0, quotient, "Div"),
    "extreme": Kind(0, extreme, "ReduceMax"),
    "prelu": Kind(0, prelu, "PRelu"),
    "norm": Kind(4, norm, "BatchNormalization"),
    "softmax": Kind(0, softmax, "Softmax"),
    "layer norm": Kind(0, layer_norm, "LayerNormalization"),
    "gemm": Kind(0, dense("Gemm"), "Gemm"),
    "matmul": Kind(0, dense("MatMul"), "MatMul"),
    "real bias": Kind(0, real_bias, "float32 bias"),
    "product": Kind(0, product, "MatMul"),
}


def random_network(folder, seed, kinds=None, count=None, made_by=RandomQdq):
    """A network of `count` operators out of `kinds`; the operators that it has, in order."""
    m = made_by(folder, seed)
    n, c = int(m.pick(1, 1, 1, 2)), int(m.pick(1, 3, 4, 8, 16, 17))
    m.first(n, c, int(m.rng.integers(3, 15)), int(m.rng.integers(3, 15)))
    kinds, made = list(kinds or KINDS), []
    wanted = count or int(m.rng.integers(4, 11))
    for _ in range(50):
        if len(made) == wanted:
            break
        kind = kinds[m.rng.integers(len(kinds))]
        if m.grow(kind):
            made.append(kind)
    m.finish()
    return m, made


class RandomFloat(RandomQdq):
    """A float network in the making: nothing is quantised."""

    def first(self, *shape):
        name = f"x{len(self.inputs)}"
        self.input(name, list(shape))
        self.fed[name] = self.rng.normal(0, 1, shape).astype(np.float32)
        return self.quantised(name, self.fed[name])

    def quantised(self, x, real, grid=None):
        self.values[x] = real
        self.grids[x] = 1.0, 0, np.int8
        return x

    def weight(self, real, axis):
        return self.real(real), np.float32(1)

    def bias(self, count, x, weight_scale):
        return self.real(self.rng.normal(0, 0.3, count))

    def finish(self):
        read = {t for n in self.nodes for t in n.input}
        for t in [t for t in self.values if t not in read and t not in self.fed]:
            self.output(t)


OPTIONS = (
    "ActivationSymmetric WeightSymmetric DedicatedQDQPair ForceQuantizeNoInputCheck AddQDQPairToWeight QuantizeBias "
    "QDQKeepRemovableActivations MatMulConstBOnly"
).split()


def statically_quantised(folder, seed, kinds):
    """A float network of `kinds`, the path of what `quantize_static` makes of it, and its options; None of no operator.

    Where onnxruntime's own kernels multiply bytes of both signs, weights have 7 bits: on processors without VNNI its
    sums saturate at 16 bits.
    """
    m, made = random_network(folder, seed, kinds, made_by=RandomFloat)
    if not made:
        return None
    kind, rng = quantization.QuantType, np.random.default_rng(seed)
    activations, weights = [(kind.QUInt8, kind.QInt8), (kind.QInt8, kind.QInt8), (kind.QUInt8, kind.QUInt8)][
        rng.integers(3)
    ]
    by_operator = bool(rng.integers(3) == 0)
    facts: dict[str, Any] = {
        "quant_format": quantization.QuantFormat.QOperator if by_operator else quantization.QuantFormat.QDQ,
        "activation_type": activations,
        "weight_type": weights,
        "per_channel": bool(rng.integers(2)),
        "reduce_range": bool(rng.random() < 0.2 or (by_operator and activations is kind.QUInt8)),
        "extra_options": {name: bool(rng.integers(2)) for name in OPTIONS if rng.random() < 0.3},
    }
    samples = iter(
        [{name: rng.normal(0, 1, x.shape).astype(np.float32) for name, x in m.fed.items()} for _ in range(4)]
    )

    class Reader(quantization.CalibrationDataReader):
        def get_next(self):
            return next(samples, None)

    plain, path = m.save("float.onnx"), folder / "static.onnx"
    quantization.quantize_static(plain, path, Reader(), **facts)
    return m, path, facts
