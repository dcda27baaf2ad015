"""Builds small quantised models, ONNX and .tflite, and shows the instructions of schedules."""

from typing import Any

import flatbuffers
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from ai_edge_litert import schema_py_generated

from tilewright.compiler import build
from tilewright.compiler import graph as g
from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import reference
from tilewright.hw.errors import UnsupportedError
from tilewright.hw.isa import Isa


class QdqModel:
    """A QDQ model in the making: every method appends nodes and returns the name of the resulting tensor."""

    def __init__(self, folder, seed=0, activations=np.int8):
        self.folder, self.rng, self.type = folder, np.random.default_rng(seed), activations
        self.middle = {np.uint8: 1 << 7, np.uint16: 1 << 15}.get(activations, 0)  # of the type's range
        self.nodes, self.constants, self.inputs, self.outputs = [], {}, [], []

    def const(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def node(self, kind, *inputs, name=None, **attrs):
        name = name or f"{kind.lower()}_{len(self.nodes)}"
        return self.nodes_of(kind, inputs, [f"{name}.y"], name, **attrs)[0]

    def nodes_of(self, kind, inputs, outputs, name, **attrs):
        """A node of several outputs, which are returned."""
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), outputs, name=name, **attrs))
        return outputs

    def input(self, name, shape, dtype="FLOAT"):
        self.inputs.append(onnx.helper.make_tensor_value_info(name, getattr(onnx.TensorProto, dtype), shape))
        return name

    def output(self, tensor, dtype="FLOAT"):
        self.outputs.append(onnx.helper.make_tensor_value_info(tensor, getattr(onnx.TensorProto, dtype), None))

    def quantise(self, x, scale=0.05, zero_point=3, **names):
        """quantize + dequantize; `zero_point` counts from the middle of the type's range."""
        zero = self.type(zero_point + self.middle)
        parameters = self.const(np.float32(scale)), self.const(zero)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *parameters, **names), *parameters)

    def weights(self, *shape, axis=0, per_channel=True):
        w = self.rng.integers(-127, 128, shape).astype(np.int8)
        scale = self.rng.uniform(0.002, 0.01, shape[axis] if per_channel else ()).astype(np.float32)
        parameters = [self.const(w), self.const(scale), self.const(np.zeros(scale.shape, np.int8))]
        return self.node("DequantizeLinear", *parameters, axis=axis), scale

    def bias(self, weight_scale, x_scale=0.05):
        scale = np.float32(x_scale) * weight_scale
        b = self.rng.integers(-2000, 2000, weight_scale.shape).astype(np.int32)
        parameters = self.const(b), self.const(scale), self.const(np.zeros(scale.shape, np.int32))
        return self.node("DequantizeLinear", *parameters, axis=0)

    def dense(self, *, scale=0.05, zero_point=0, weight=1, weight_scale=0.5, bias=None, bias_scale=None, y_scale=1.0):
        """The file of x (1, 4) quantised with `scale` -> Gemm `layer` of equal weights -> quantised with `y_scale`."""
        x = self.quantise(self.input("x", [1, 4]), scale, zero_point, name="first")
        weights, scales = self.const(np.full((3, 4), weight, np.int8)), self.const(np.float32(weight_scale))
        w = self.node("DequantizeLinear", weights, scales, self.const(np.int8(0)), name="weights")
        b = [] if bias is None else [self.const(np.array(bias))]
        if bias_scale is not None:
            scales = self.const(np.float32(bias_scale)), self.const(np.int32(0))
            b = [self.node("DequantizeLinear", *b, *scales, name="biases")]
        y = self.node("Gemm", x, w, *b, name="layer", transB=1)
        self.output(self.quantise(y, y_scale, name="last"))
        return self.save()

    def proto(self):
        constants = [onnx.numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = onnx.helper.make_graph(self.nodes, "test", self.inputs, self.outputs, constants)
        opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
        model = onnx.shape_inference.infer_shapes(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9))
        for value in model.graph.output:  # the shape must be there, even where nobody knows it
            value.type.tensor_type.shape.SetInParent()
        return model

    def save(self, name="model.onnx"):
        path = self.folder / name
        onnx.save(self.proto(), path)
        return path


@pytest.fixture
def qdq(tmp_path):
    """A maker of `QdqModel`s that are saved in the test's folder."""
    return lambda *args, **kwargs: QdqModel(tmp_path, *args, **kwargs)


@pytest.fixture
def refusal():
    """The text with which an ONNX file is refused, one line without names of Relax variables."""

    def run(path):
        with pytest.raises(UnsupportedError) as caught:
            import_onnx(path)
        text = str(caught.value)
        assert "\n" not in text and "lv" not in text
        return text

    return run


@pytest.fixture
def like():
    """A maker of tensors of the same scale, (1, 16, 6, 6) unless a shape is given."""
    return lambda name, *shape: g.Tensor(name, shape or (1, 16, 6, 6), scale=0.1, zero_point=3)


@pytest.fixture
def conv(like):
    """A maker of 3x3 convolutions of 16 channels, of `like`'s x where none is given."""

    def make(groups, channels=16, pads=(1, 1, 1, 1), x=None, y=None, name="conv"):
        x = x or like("x")
        weight = np.random.default_rng(0).integers(-99, 99, (channels, 16 // groups, 3, 3)).astype(np.int8)
        y = y or like("y", 1, channels, *output_size(x.shape[2:], (3, 3), (1, 1), pads))
        parameters = np.full(channels, 0.002, np.float32), np.zeros(channels, np.int32)
        return g.QConv2d(name, (x,), y, weight, *parameters, pads=pads, groups=groups)

    return make


@pytest.fixture
def onnxruntime_outputs():
    """Outputs of onnxruntime by the definition of QDQ: nothing is fused, floats between quantisations."""

    def run(path, inputs):
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs)))

    return run


@pytest.fixture
def instructions():
    """(mnemonic, fields) of what a schedule becomes, in order, without micro-op loads and FINISH."""

    def show(scheduled, cfg="vta"):
        launch = build(scheduled, cfg).finish()
        isa = Isa(launch.cfg)
        found = [(isa.mnemonic(fields), fields) for fields in isa.decode(launch.insn)]
        return [(name, fields) for name, fields in found if name not in ("LOAD.UOP", "FINISH")]

    return show


schema: Any = schema_py_generated  # whose own types leave arrays out

# operator -> its options table, which most name after themselves
TFLITE_OPTIONS = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "BATCH_TO_SPACE_ND": "BatchToSpaceNDOptions",
    "CONV_2D": "Conv2DOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "SPACE_TO_BATCH_ND": "SpaceToBatchNDOptions",
    "SUM": "ReducerOptions",
    "TOPK_V2": "TopKV2Options",
    "SVDF": "SVDFOptions",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
}
REGULAR = """
    ABS ADD ARG_MAX ARG_MIN ASSIGN_VARIABLE BROADCAST_TO CALL_ONCE CAST CONCATENATION DEPTH_TO_SPACE DIV EQUAL
    EXP FILL FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GATHER_ND GELU GREATER GREATER_EQUAL HARD_SWISH
    LEAKY_RELU LESS LESS_EQUAL LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOG_SOFTMAX MIRROR_PAD MUL NEG NOT_EQUAL
    ONE_HOT PACK READ_VARIABLE RANGE RANK RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SELECT SELECT_V2
    SHAPE SOFTMAX SPACE_TO_DEPTH SPLIT SPLIT_V SQUARED_DIFFERENCE STRIDED_SLICE SUB TILE TRANSPOSE_CONV UNPACK
    VAR_HANDLE
"""
TFLITE_OPTIONS |= {kind: f"{kind.title().replace('_', '')}Options" for kind in REGULAR.split()}


class TfliteModel:
    """A .tflite model in the making: methods append tensors and operators, and return tensor numbers."""

    def __init__(self, folder, seed=0):
        self.folder, self.rng = folder, np.random.default_rng(seed)
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.subgraphs, self.model.operatorCodes = 3, [self.graph], []
        self.model.buffers = [schema.BufferT()]
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []

    def tensor(self, shape, scale=None, zero_point=0, dtype="INT8", name=None, data=None, axis=0):
        """A tensor; `scale` None leaves the quantisation out, an array is one scale per index of `axis`."""
        t = schema.TensorT()
        t.name = f"t{len(self.graph.tensors)}" if name is None else name
        t.shape, t.type = np.array(shape, np.int32), getattr(schema.TensorType, dtype)
        if scale is not None:
            q = t.quantization = schema.QuantizationParametersT()
            q.scale = np.array(scale, np.float32).reshape(-1)
            q.zeroPoint = np.full(q.scale.size, zero_point, np.int64)
            q.quantizedDimension = axis
        if data is not None:
            t.buffer = len(self.model.buffers)
            self.model.buffers.append(schema.BufferT())
            self.model.buffers[-1].data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        self.graph.tensors.append(t)
        return len(self.graph.tensors) - 1

    def input(self, shape, scale=0.05, zero_point=-3, **others):
        self.graph.inputs.append(self.tensor(shape, scale, zero_point, **others))
        return self.graph.inputs[-1]

    def output(self, tensor):
        self.graph.outputs.append(tensor)

    def const(self, array, scale=None, zero_point=0, axis=0):
        array = np.asarray(array)
        dtypes = {"i1": "INT8", "u1": "UINT8", "i2": "INT16", "i4": "INT32", "i8": "INT64", "f4": "FLOAT32"}
        dtype = dtypes[array.dtype.str[1:]]
        return self.tensor(array.shape, scale, zero_point, dtype, None, array, axis)

    def weights(self, shape, axis=0, per_channel=True, bias=True):
        """[weights, biases] with random values; the biases suit an input scale of 0.05."""
        scale = self.rng.uniform(0.002, 0.01, shape[axis] if per_channel else 1).astype(np.float32)
        w = self.const(self.rng.integers(-127, 128, shape).astype(np.int8), scale, 0, axis)
        b = self.rng.integers(-3000, 3000, shape[axis]).astype(np.int32)
        return [w, self.const(b, np.float32(0.05) * scale)] if bias else [w]

    def node(self, kind, inputs, outputs, deprecated=False, intermediates=None, **options):
        code = schema.OperatorCodeT()
        number = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode, code.builtinCode = min(number, 127), 0 if deprecated else number
        code.version = 2 if kind == "BROADCAST_TO" else 1  # the oldest
        self.model.operatorCodes.append(code)
        op = schema.OperatorT()
        op.opcodeIndex = len(self.model.operatorCodes) - 1
        op.inputs, op.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
        op.intermediates = None if intermediates is None else np.array(intermediates, np.int32)
        if kind in TFLITE_OPTIONS:
            op.builtinOptionsType = getattr(schema.BuiltinOptions, TFLITE_OPTIONS[kind])
            op.builtinOptions = getattr(schema, f"{TFLITE_OPTIONS[kind]}T")()
            for name, value in options.items():
                assert hasattr(op.builtinOptions, name)
                setattr(op.builtinOptions, name, value)
        self.graph.operators.append(op)
        return outputs[0] if outputs else None

    def op(self, kind, inputs, shape, scale=0.08, zero_point=4, **options):
        """An operator with one int8 output."""
        return self.node(kind, inputs, [self.tensor(shape, scale, zero_point)], **options)

    def save(self, name="model.tflite"):
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        path = self.folder / name
        path.write_bytes(builder.Output())
        return path


class RandomNetwork(TfliteModel):
    """A random small network: `layers` operators, each on tensors that are there already.

    Every tensor that nothing reads is an output. With `dense` a mean, a dense layer and softmax are the last ones.
    """

    def __init__(self, folder, seed, layers=6, dense=True):
        super().__init__(folder, seed)
        self.shapes, self.scales = {}, {}
        height, width = self.rng.integers(5, 12, 2)
        first = self.note(self.input((1, height, width, int(self.pick([1, 3, 4, 16]))), *self.quantisation()))
        for _ in range(layers):
            self.layer()
        if dense and (images := [t for t in self.shapes if len(self.shapes[t]) == 4]):
            self.head(images[-1])
        read = {t for op in self.graph.operators for t in op.inputs}
        self.graph.outputs = [t for t in self.shapes if t not in read and t != first] or [images[-1]]

    def pick(self, values):
        return values[self.rng.integers(len(values))]

    def quantisation(self):
        return float(np.float32(self.rng.uniform(0.02, 0.2))), int(self.rng.integers(-128, 128))

    def note(self, t):
        tensor = self.graph.tensors[t]
        self.shapes[t] = tuple(int(n) for n in tensor.shape)
        self.scales[t] = (float(tensor.quantization.scale[0]), int(tensor.quantization.zeroPoint[0]))
        return t

    def layer(self):
        x = self.pick([t for t in self.shapes if len(self.shapes[t]) == 4])
        kinds = ["convolution"] * 3 + ["depthwise"] * 2 + ["sum"] * 2
        kinds += ["concatenation", "pooling", "pooling", "padding", "transposed", "function", "slice"]
        made = getattr(self, self.pick(kinds))(x, *self.shapes[x][1:])
        if made is not None:
            self.note(made)

    def window(self, h, w):
        """(kernel, strides, padding, output size) that fit an image."""
        padding = int(self.pick([0, 1]))
        kernel = [int(self.rng.integers(1, min(4, n) + 1)) for n in (h, w)]
        strides = [int(self.pick([1, 1, 2])) for _ in "hw"]
        fits = [-(-n // s) if padding == 0 else (n - k) // s + 1 for n, k, s in zip((h, w), kernel, strides)]
        return kernel, {"padding": padding, "strideH": strides[0], "strideW": strides[1]}, fits

    def scaled_weights(self, x, shape, axis):
        """Weights and biases whose sums suit int8, whatever the scales."""
        scale = self.rng.uniform(0.002, 0.02, shape[axis]).astype(np.float32)
        w = self.const(self.rng.integers(-127, 128, shape).astype(np.int8), scale, 0, axis)
        b = self.rng.integers(-2000, 2000, shape[axis]).astype(np.int32)
        return [w, self.const(b, np.float32(self.scales[x][0]) * scale)]

    def convolution(self, x, h, w, c):
        kernel, options, size = self.window(h, w)
        groups = int(self.pick([1, 1, 1, *([2] if c % 2 == 0 else [])]))
        channels = int(self.pick([4, 8, 20]))
        weights = self.scaled_weights(x, (channels, *kernel, c // groups), 0)
        options["fusedActivationFunction"] = int(self.pick([0, 1, 3]))
        return self.op("CONV_2D", [x, *weights], (1, *size, channels), *self.quantisation(), **options)

    def depthwise(self, x, h, w, c):
        kernel, options, size = self.window(h, w)
        multiplier = int(self.pick([1, 1, 2]))
        if options["strideH"] != options["strideW"]:
            return None  # which LiteRT does not run
        weights = self.scaled_weights(x, (1, *kernel, c * multiplier), 3)
        options |= {"depthMultiplier": multiplier, "fusedActivationFunction": int(self.pick([0, 1]))}
        return self.op("DEPTHWISE_CONV_2D", [x, *weights], (1, *size, c * multiplier), *self.quantisation(), **options)

    def transposed(self, x, h, w, c):
        if h * w > 40:
            return None
        shape, weights = (1, 2 * h, 2 * w, 6), self.scaled_weights(x, (6, 3, 3, c), 0)
        inputs = [self.const(np.array(shape, np.int32)), weights[0], x, weights[1]]
        return self.op("TRANSPOSE_CONV", inputs, shape, *self.quantisation(), padding=0, strideH=2, strideW=2)

    def sum(self, x, h, w, c):
        others = [t for t in self.shapes if self.shapes[t] in ((1, h, w, c), (1, 1, 1, c))]
        kind = self.pick(["ADD", "ADD", "SUB", "MUL"])
        return self.op(kind, [x, self.pick(others)], (1, h, w, c), *self.quantisation())

    def concatenation(self, x, h, w, c):
        same = self.op(
            "QUANTIZE",
            [self.pick([t for t in self.shapes if self.shapes[t][:3] == (1, h, w)])],
            (1, h, w, 0),
            *self.scales[x],
        )
        source = int(self.graph.operators[-1].inputs[0])
        self.graph.tensors[same].shape = np.array(self.shapes[source], np.int32)
        return self.op(
            "CONCATENATION", [x, self.note(same)], (1, h, w, c + self.shapes[source][3]), *self.scales[x], axis=3
        )

    def pooling(self, x, h, w, c):
        kernel, options, size = self.window(h, w)
        options |= {"filterHeight": kernel[0], "filterWidth": kernel[1]}
        return self.op(self.pick(["MAX_POOL_2D", "AVERAGE_POOL_2D"]), [x], (1, *size, c), *self.scales[x], **options)

    def padding(self, x, h, w, c):
        amounts = self.rng.integers(0, 3, (4, 2)).astype(np.int32) * np.array([[0], [1], [1], [0]], np.int32)
        shape = tuple(int(n) for n in np.array((1, h, w, c)) + amounts.sum(1))
        return self.op("PAD", [x, self.const(amounts)], shape, *self.scales[x])

    def function(self, x, h, w, c):
        kind, scale, zero_point = self.pick([("LOGISTIC", 1 / 256, -128), ("TANH", 1 / 128, 0), ("RELU", 0.07, -9)])
        return self.op(kind, [x], (1, h, w, c), scale, zero_point)

    def slice(self, x, h, w, c):
        begin, end = [0, h // 3, 0, c // 4], [1, h, w, c]
        cut = [self.const(np.array(v, np.int32)) for v in (begin, end, [1, 1, 2, 1])]
        return self.op("STRIDED_SLICE", [x, *cut], (1, h - h // 3, -(-w // 2), c - c // 4), *self.scales[x])

    def head(self, x):
        """A mean over the image, a dense layer, softmax."""
        c = self.shapes[x][3]
        y = self.note(self.op("MEAN", [x, self.const(np.array([1, 2], np.int32))], (1, c), *self.quantisation()))
        y = self.note(self.op("FULLY_CONNECTED", [y, *self.scaled_weights(y, (10, c), 0)], (1, 10), 0.1, 3))
        self.note(self.op("SOFTMAX", [y], (1, 10), 1 / 256, -128, beta=1.0))


@pytest.fixture
def random_network(tmp_path):
    """A maker of `RandomNetwork`s by seed, saved in the test's folder."""
    return lambda seed, **kwargs: RandomNetwork(tmp_path, seed, **kwargs)


@pytest.fixture
def tflite(tmp_path):
    """A maker of `TfliteModel`s that are saved in the test's folder."""
    return lambda *args, **kwargs: TfliteModel(tmp_path, *args, **kwargs)


@pytest.fixture
def litert():
    """Outputs of LiteRT's reference kernels (resolver BUILTIN_REF), run after run, for inputs in the file's order."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    def run(path, given):
        interpreter = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
        interpreter.allocate_tensors()
        found = []
        for inputs in given:
            for detail, x in zip(interpreter.get_input_details(), inputs, strict=True):
                interpreter.set_tensor(detail["index"], x)
            interpreter.invoke()
            found.append([interpreter.get_tensor(d["index"]).copy() for d in interpreter.get_output_details()])
        return found

    return run


@pytest.fixture
def micro():
    """Outputs of TensorFlow Lite Micro, run after run; skips the test where its wheel is not installed."""
    runtime = pytest.importorskip("tflite_micro.python.tflite_micro.runtime")

    def run(path, given):
        interpreter = runtime.Interpreter.from_file(str(path))
        outputs, found = len(import_tflite(path).outputs), []
        for inputs in given:
            for k, x in enumerate(inputs):
                interpreter.set_input(x, k)
            interpreter.invoke()
            found.append([interpreter.get_output(k).copy() for k in range(outputs)])
        return found

    return run


@pytest.fixture
def litert_outputs(litert):
    """Outputs of one run of `litert`."""
    return lambda path, *inputs: litert(path, [inputs])[0]


@pytest.fixture
def golden():
    """Outputs of the golden interpreter, run after run, for inputs in the file's order."""

    def run(path, given, contract="double"):
        graph, found = import_tflite(path), []
        state = reference.initial_state(graph)
        for inputs in given:
            values, _ = reference.run(graph, dict(zip((t.name for t in graph.inputs), inputs)), contract, state)
            found.append([values[t.name] for t in graph.outputs])
        return found

    return run


def random_values(rng, t):
    """Values for an input: float32, or integers of all sizes."""
    if t.dtype == "float32":
        return rng.normal(0, 4, t.shape).astype(np.float32)
    info = np.iinfo(t.dtype)
    return rng.integers(info.min, info.max, t.shape, endpoint=True).astype(t.dtype)


@pytest.fixture
def against_litert(litert, golden):
    """Saves a `TfliteModel` and gives (ours, LiteRT's) outputs for random inputs, all runs stacked."""

    def run(m, runs=3):
        path, given = m.save(), []
        for _ in range(runs):
            given.append([])
            for t in import_tflite(path).inputs:
                given[-1].append(random_values(m.rng, t))
        return [[np.stack(column) for column in zip(*side(path, given))] for side in (golden, litert)]

    return run


@pytest.fixture
def equals_litert(against_litert):
    """Asserts that a `TfliteModel`, with more outputs, gives LiteRT's bytes, and not one value alone."""

    def run(m, *outputs):
        for y in outputs:
            m.output(y)
        for mine, expected in zip(*against_litert(m)):
            assert (mine.dtype, mine.shape) == (expected.dtype, expected.shape)
            assert len(np.unique(mine)) > 1
            assert np.array_equal(mine, expected)

    return run
