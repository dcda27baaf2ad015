"""Every operator of a graph: one of each in a table, what it computes in real numbers, and what it refuses."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import ranges, reference
from tilewright.compiler.graph.recurrent import product_scale
from tilewright.hw.errors import InputError, UnsupportedError
from tilewright.hw.rounding import CONTRACTS, quantize_multiplier

SEED = 20261127


def t(*shape, scale=0.1, zero_point=3, dtype="int8", name="y", data=None):
    return g.Tensor(name, shape, dtype, scale, zero_point, data)


def s(*shape, scale=0.1, dtype="int8"):
    """Symmetric: the zero point is 0."""
    return t(*shape, scale=scale, zero_point=0, dtype=dtype)


def w(*shape, scale=0.0003):
    """Wide, of 16 bits."""
    return s(*shape, scale=scale, dtype="int16")


def f(*shape):
    return t(*shape, dtype="float32")


def i32(*shape):
    return t(*shape, dtype="int32", scale=1.0, zero_point=0)


def ones(*shape, dtype="int8"):
    return np.ones(shape, dtype)


def weights(*shape):
    """(weights, scales of the output channels, biases)."""
    rng = np.random.default_rng(SEED)
    scale = rng.uniform(0.002, 0.02, shape[0]).astype(np.float32)
    return rng.integers(-128, 128, shape, np.int8), scale, rng.integers(-99, 99, shape[0]).astype(np.int32)


def reals(*shape):
    return ones(*shape, dtype="float32"), np.zeros(shape[0], np.float32)


X, Y = t(1, 2, 4, 4, name="x"), t(1, 2, 4, 4, scale=0.07, zero_point=-6)
Z, F = t(1, 2, 4, 4, scale=0.13, zero_point=9), t(1, 2, 4, 4, dtype="float32", name="f")
GATES, CELLS = s(2, 3, 4, dtype="int16", scale=2.0**-12), s(2, 1, scale=2.0**-12, dtype="int16")
HIDDEN, OWN = s(2, 2, 1, dtype="int16"), s(2, 4, scale=2.0**-12, dtype="int32")
P, ANGLES, TABLE = i32(1), ones(6, 2, dtype="int16") << 13, np.arange(-128, 128).astype(np.int8)
CACHE, COLUMNS, BLOCK = s(1, 4, 6, 1), s(1, 6, 4, 1), s(1, 4, 3, 1)
FOUND = {"scales": (10.0, 10.0, 5.0, 5.0), "most": 5, "classes": 3, "classes_per_box": 2, "per_class": 4}
FOUND |= {"each_class": False, "score": 0.3, "overlap": 0.5}
BYTE = t(1, dtype="uint8", scale=1.0, zero_point=0)
GATE_WEIGHTS = ones(4, 4, dtype="float32")
X16, BIAS_64 = w(1, 2, 4, 4), np.array([50, 0, -999])
ROWS, BIAS, SUMS = ones(3, 5), np.zeros(3, np.int32), (ones(4, 1), np.zeros(4, np.int32), np.ones(4))


def attention(shapes, seen):
    """Two queries per chunk, one per lane of half a key, of `seen` positions."""
    parts = zip("qkv", shapes, (0.2, 0.3, 0.4))
    inputs = (t(*shape, scale=scale, zero_point=0, name=name) for name, shape, scale in parts)
    return g.Attention("op", (*inputs, replace(P, name="p")), s(1, 4), (0, 1), (1, 0), 2, seen)


OPERATORS = [
    g.QConv2d("op", (X,), t(1, 3, 4, 4, scale=0.2), *weights(3, 2, 1, 1)),
    g.QConvTranspose2d("op", (X,), t(1, 3, 5, 5, scale=0.2), *weights(3, 2, 2, 2)),
    g.QDense("op", (t(2, 5),), t(2, 3, scale=0.2), *weights(3, 5)),
    g.Add("op", (X, Y), Z),
    g.Sub("op", (X, Y), Z),
    g.Mul("op", (X, Y), Z),
    g.Requantize("op", (X,), Z),
    g.NearestRequantize("op", (X,), Z),
    g.Lookup("op", (X,), Z, "f", TABLE),
    g.LeakyRelu("op", (X,), Z, "f", TABLE, (0.75, 0.1)),
    g.NearestPrelu("op", (X,), Z, np.array([0.25, -1.5], np.float32)),
    g.Quantize("op", (f(1, 2),), t(1, 2)),
    g.QuantizeImage("op", (f(1, 4, 4, 2),), t(1, 2, 4, 4)),
    g.RecodeImage("op", (t(1, 4, 4, 2, zero_point=131, dtype="uint8"),), X),
    g.Dequantize("op", (X,), F),
    g.Recode("op", (X,), t(1, 2, 4, 4, zero_point=131, dtype="uint8")),
    g.Softmax("op", (X,), t(1, 2, 4, 4, scale=1 / 256, zero_point=-128), 1),
    g.MaxPool("op", (X,), t(1, 2, 3, 3), (2, 2)),
    g.AveragePool("op", (X,), t(1, 2, 3, 3, scale=0.05, zero_point=-8), (2, 2)),
    g.ExactAveragePool("op", (X,), t(1, 2, 3, 3), (2, 2)),
    g.Mean("op", (X,), t(1, 2, scale=0.03, zero_point=5), (2, 3)),
    g.Sum("op", (X,), t(1, 2, scale=0.9, zero_point=5), (2, 3)),
    g.Reshape("op", (X,), t(1, 32)),
    g.Transpose("op", (X,), t(1, 4, 4, 2), (0, 2, 3, 1)),
    g.Concat("op", (X, X), t(1, 4, 4, 4), 1),
    g.Pad("op", (X,), t(1, 2, 5, 4), ((0, 0), (0, 0), (1, 0), (0, 0)), 7),
    g.Take("op", (X,), t(1, 2, 8, 4), ((), (), (0, 0, 1, 1, 2, 2, 3, 3), ())),
    g.ResizeBilinear("op", (X,), t(1, 2, 8, 3)),
    g.ResizeBilinear("op", (X,), t(1, 2, 8, 3), half_pixel_centers=True, offset=128),
    g.Div("op", (X, Y), Z),
    g.L2Normalization("op", (X,), s(1, 2, 4, 4, scale=1 / 128), 1),
    g.LogSoftmax("op", (X,), t(1, 2, 4, 4, zero_point=120), 1),
    g.ExactAveragePool("op", (X,), t(1, 2, 3, 3), (2, 2), ties_up=True),
    g.NumberFunction("op", (f(2, 3),), f(2, 3), "sqrt"),
    g.NumberBinary("op", (i32(2, 3), i32(3)), i32(2, 3), "floor_div"),
    g.HybridDense("op", (f(2, 5),), f(2, 3), ones(3, 5), reals(3)[1], reals(3)[0]),
    g.HybridConv2d("op", (F,), f(1, 3, 4, 4), ones(3, 2, 1, 1), reals(3)[1], weight_scale=reals(3)[0]),
    g.Rfft("op", (f(2, 3),), f(2, 3, 2), 4),
    g.NumberReduce("op", (i32(2, 3),), i32(2), "reduce_max", (1,)),
    g.NumberDense("op", (f(2, 3, 4),), f(2, 3, 5), *reals(5, 4)),
    g.TopK("op", (t(2, 5),), t(2, 3)),
    g.TopK("op", (t(2, 5),), i32(2, 3), True),
    g.Cast("op", (t(2, 3, dtype="int64"),), f(2, 3)),
    g.NumberResize("op", (F,), f(1, 2, 6, 6)),
    g.Compare("op", (X, t(2, 1, 1, scale=0.05)), t(1, 2, 4, 4, dtype="bool"), "less"),
    g.Select("op", (t(1, 2, 4, 4, dtype="bool"), X, t(2, 1, 1)), t(1, 2, 4, 4)),
    g.Gather("op", (t(9, 3), i32(2)), t(2, 3), 0),
    g.GatherNd("op", (t(9, 6, 3), t(2, 2, dtype="int64")), t(2, 3)),
    g.Detections("op", (f(1, 9, 4), f(1, 9, 4)), f(1, 11, 6), ones(9, 4, dtype="float32"), **FOUND),
    g.Maximum("op", (X, X), t(1, 2, 4, 4)),
    g.Minimum("op", (X, X), t(1, 2, 4, 4)),
    g.PairLookup("op", (X, t(2, 1, 1)), t(1, 2, 4, 4), np.zeros((256, 256), np.int8)),
    g.Prelu("op", (X, t(2, 1, 1, scale=0.02, zero_point=-9)), Z),
    g.SquaredDifference("op", (X, Y), t(1, 2, 4, 4, scale=2.0)),
    g.ReduceMax("op", (X,), t(1, 2), (2, 3)),
    g.ReduceMin("op", (X,), t(1, 2, 1, 4), (2,)),
    g.ArgMax("op", (X,), i32(1, 2, 4), 3),
    g.StridedSlice("op", (X,), t(1, 2, 2, 4), (0, 0, 3, 0), (1, 1, -2, 1)),
    g.Features("op", (t(2, 5),), t(2, 3), *weights(3, 5)),
    g.TimeFilter("op", (X,), t(1, 2, 1, 1), *weights(2, 1, 4, 4), groups=2),
    g.Dense16("op", (t(2, 5),), s(2, 3, dtype="int16"), ROWS, BIAS, np.full(3, 2.5)),
    g.Dense16("op", (t(2, 5),), s(2, 3, dtype="int32"), ROWS, BIAS, np.ones(3)),
    g.Filter16("op", (GATES,), t(2, 3), ones(3, 4, dtype="int16"), BIAS, 0.5),
    g.Lstm("op", (GATES, t(2, 1), CELLS), s(2, 4, 1, dtype="int16"), *SUMS, 2.0**-20),
    g.LstmStep("op", (s(2, 1, 4, dtype="int16"), OWN, CELLS), HIDDEN, 2.0**-20),
    g.LstmOutputs("op", (s(2, 4, 1, dtype="int16"),), s(2, 3, 1)),
    g.LstmCells("op", (GATES,), s(2, 1, 4, dtype="int16")),
    g.Rescale("op", (GATES,), t(2, 3, 4, dtype="int32", zero_point=-300, scale=2.0**-13)),
    g.Softmax16("op", (X,), t(1, 2, 4, 4, scale=2**-16, zero_point=-(1 << 15), dtype="int16"), 1),
    g.WideConv2d("op", (X16,), w(1, 3, 4, 4), *weights(3, 2, 1, 1)[:2], BIAS_64),
    g.WideConvTranspose2d("op", (X16,), w(1, 3, 5, 5), *weights(3, 2, 2, 2)[:2], BIAS_64),
    g.WideDense("op", (w(2, 5),), w(2, 3), *weights(3, 5)[:2], BIAS_64),
    g.WideSoftmax("op", (X16,), w(1, 2, 4, 4, scale=2.0**-15), 1),
    g.WideLookup("op", (X16,), w(1, 2, 4, 4), "f", np.zeros(1 << 16, np.int16)),
    g.BatchMatMul("op", (X, t(4, 3, scale=0.2, zero_point=-6)), t(1, 2, 4, 3, scale=4.0)),
    g.BatchMatMul("op", (t(2, 4, 1, 3), t(1, 5, 1, 4)), t(2, 5, 1, 3, scale=2.0), images=True),
    g.Heads("op", (t(1, 8, 1, 3),), t(2, 4, 1, 3), True),
    g.Lanes("op", (t(3, 8),), t(1, 4, 3, 2), 4),
    g.Lanes("op", (t(1, 8, 1, 3),), t(1, 24), 4),
    g.ShiftMatMul("op", (X, t(4, 3)), t(1, 2, 4, 3), ratio=0.5),
    g.ShiftRequantize("op", (X,), X, ratio=0.5),
    g.ShiftAdd("op", (X, X), X, ratio=0.5),
    g.ShiftMul("op", (X, X), X, ratio=0.5),
    g.IntegerMatMul("op", (X, t(4, 3)), t(1, 2, 4, 3, dtype="int32")),
    g.RequantShift("op", (i32(2),) * 3, t(2), 3, -1, 1),
    g.ValueRange("op", (F,), f(2)),
    g.RangeScale("op", (f(2),), f(1)),
    g.RangeZeroPoint("op", (f(2), f(1)), BYTE),
    g.QuantizeBy("op", (F, f(1), BYTE), X),
    g.PadBy("op", (X, BYTE), t(1, 2, 5, 6), ((0, 0), (0, 0), (1, 0), (2, 0))),
    g.SplitBytes("op", (s(2, 3, dtype="int16"),), t(4, 3)),
    g.ScaleBytes("op", (i32(4, 3),), f(2, 3), 0.5, 9, ones(3, dtype="float32"), ones(3, dtype="float32"), BIAS),
    g.IntegerConv2d("op", (X,), i32(1, 3, 4, 4), ones(3, 2, 1, 1)),
    g.SubtractZeroPoint("op", (i32(2, 3), BYTE), i32(2, 3), BIAS, 1),
    g.ScaleSums("op", (i32(2, 3), BYTE, f(1), f(3)), f(2, 3), BIAS, 1),
    g.IntegerNorm("op", (X, i32(4), i32(4)), X, 16),
    g.IntegerSoftmax("op", (X,), X, 1, 2, 3, 4, 256),
    g.RmsNorm("op", (s(2, 4),), s(2, 4, scale=0.05), np.array([0.5, 2.0, 1.0, 0.0])),
    g.Rotate("op", (s(1, 8), P), s(1, 8), ANGLES, ANGLES),
    g.WriteRows("op", (CACHE, s(1, 4), P), CACHE),
    g.WriteColumns("op", (COLUMNS, BLOCK, P), COLUMNS),
    attention(((1, 8), (1, 4, 6, 1), (1, 6, 2, 1)), 6),
    g.TokenBytes("op", (w(2, 3),), s(1, 3, 4, 1)),
    g.TokenScales("op", (i32(2, 3),), i32(2, 2), ones(3, dtype="int16"), 7),
    g.ScaleTokenSums("op", (i32(1, 3, 4, 1), i32(2, 2), i32(2, 3)), i32(2, 3), np.full(3, 0.01), BIAS),
    g.TokenLogits("op", (i32(1, 3, 4, 1), i32(2, 2)), f(2, 3), np.full(3, 0.01, np.float32)),
    g.EmbedTokens("op", (P,), i32(1, 3), ones(40, 3), np.full(40, 0.3)),
    g.RotatePairs("op", (w(1, 16), P), w(1, 16), ANGLES, ANGLES, 1),
    g.WriteTokens("op", (w(6, 4), w(1, 8), P), w(6, 4), 4),
    g.CacheAttention("op", (w(1, 8), w(6, 4), P), w(1, 4), 2, 1, 0.01),
    g.GatedProduct("op", (i32(2, 6),), i32(2, 3), 0.01, 4),
    g.FloatFunction("op", (F,), f(1, 2, 4, 4), "Elu", 0.5),
    g.FloatBinary("op", (F, f(2, 1, 1)), f(1, 2, 4, 4), "Div"),
    g.FloatReduce("op", (F,), f(1, 2), "ReduceMax", (2, 3)),
    g.FloatSoftmax("op", (F,), f(1, 2, 4, 4), 1, True),
    g.FloatLstm("op", (f(3, 2, 4),), f(3, 2, 1), GATE_WEIGHTS, GATE_WEIGHTS[:, :1], GATE_WEIGHTS[:, 0], True),
    g.FloatMatMul("op", (F, f(4, 3)), f(1, 2, 4, 3)),
    g.FloatConv2d("op", (F,), f(1, 3, 4, 4), *reals(3, 2, 1, 1)),
    g.FloatConvTranspose2d("op", (F,), f(1, 2, 5, 5), *reals(2, 2, 2, 2)),
    g.FloatMaxPool("op", (F,), f(1, 2, 3, 3), (2, 2)),
    g.FloatAveragePool("op", (F,), f(1, 2, 4, 4), (2, 2), (1, 1), (0, 0, 1, 1), True),
    g.FloatResize("op", (F,), f(1, 2, 1, 1), *[np.zeros((1, 2), np.int32)] * 2, *[np.ones((1, 2), np.float32)] * 2),
]
VALID = {type(op).__name__: op for op in reversed(OPERATORS)}  # the first of each class
GROUPED = g.QConv2d(
    "op", (X,), t(1, 6, 4, 4), ones(6, 1, 1, 1), np.ones(6, np.float32), np.zeros(6, np.int32), groups=2
)


def name_of(value):
    return type(value).__name__ if isinstance(value, g.Operator) else str(value)


def arrays(op):
    """Random inputs; positions among the integers are small."""
    rng, found = np.random.default_rng(SEED), []
    for t in op.inputs:
        few = t.dtype in ("int32", "int64", "bool")
        values = rng.integers(0, 2, t.shape) if few else rng.integers(-100, 100, t.shape)
        found.append(values.astype(t.dtype) if t.data is None else t.data)
    return found


@pytest.mark.parametrize("op", OPERATORS, ids=name_of)
def test_calls_compute_the_declared_output(op):
    given = arrays(op)
    for call in op.calls("double"):
        assert json.loads(json.dumps(call.attrs)) == call.attrs
        given = [call(*given)]
        assert given[0].dtype == call.dtype
    assert (given[0].shape, given[0].dtype) == (op.output.shape, op.output.dtype)


def test_every_operator_is_in_the_table():
    abstract = {g.Operator, g.Linear, g.Binary, g.Pairwise, g.Pool, g.Movement, g.FloatOperator, g.StandIn, g.Cells}
    abstract |= {g.Write, g.Divisible, g.Custom, g.Selection, g.HostImage}
    operators = {v for v in vars(g).values() if isinstance(v, type) and issubclass(v, g.Operator)} - abstract
    assert {type(op) for op in OPERATORS} == operators


def softmax(x, axis=1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer(op, x):
    """A dense layer, or a convolution with one tap or stride 1 that is transposed."""
    scale = op.weight_scale.reshape(-1, *(1,) * (op.weight.ndim - 1)).astype(float)
    w, b = op.weight * scale, op.bias * op.weight_scale.astype(float) * op.x.scale
    if x.ndim == 2:
        return x @ w.T + b
    y = np.zeros(op.output.shape) + b.reshape(-1, 1, 1)
    for k, m in np.ndindex(*w.shape[2:]):
        y[:, :, k : k + x.shape[2], m : m + x.shape[3]] += np.einsum("ncij,oc->noij", x, w[:, :, k, m])
    return y


def windows(op, x, function):
    return np.array([
        function(x[n, c, i : i + op.kernel[0], j : j + op.kernel[1]]) for n, c, i, j in np.ndindex(*op.output.shape)
    ]).reshape(op.output.shape)  # fmt: skip


def rms(op, x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True)) * op.gain


def attended(op, q, k, v, _):
    """The position is 0 or 1; lane k of both halves of a chunk is of query k."""
    q, k, count = q.reshape(2, 2, 2), k.reshape(2, 2, -1), int(arrays(op)[3][0]) + 1
    found = np.zeros((2, 2))
    for r, lane in np.ndindex(2, 2):
        scores = q[r, :, 1 - lane] @ k[:, 1 - lane, :count] / math.sqrt(op.head)
        found[r, lane] = softmax(scores, 0) @ v[0, :count, lane, 0]
    return found.reshape(1, 4)


# what operators compute in real numbers, and how many steps of the output a result may be away
REAL = {
    "QConv2d": (layer, 0.51),
    "QConvTranspose2d": (layer, 0.51),
    "QDense": (layer, 0.51),
    "Features": (layer, 0.51),
    "Add": (lambda op, x, y: x + y, 0.51),
    "Sub": (lambda op, x, y: x - y, 0.51),
    "Mul": (lambda op, x, y: x * y, 0.51),
    "Div": (lambda op, x, y: np.where(y == 0, np.sign(x) * 1e9, x / np.where(y == 0, 1, y)), 0.51),
    "Requantize": (lambda op, x: x, 0.51),
    "NearestRequantize": (lambda op, x: x, 0.51),
    "Quantize": (lambda op, x: x, 0.51),
    "QuantizeImage": (lambda op, x: x.transpose(0, 3, 1, 2), 0.51),
    "RecodeImage": (lambda op, x: x.transpose(0, 3, 1, 2), 1e-9),
    "NearestPrelu": (lambda op, x: np.where(x >= 0, x, x * op.slopes[:, None, None]), 0.51),
    "Dequantize": (lambda op, x: x, 1e-4),
    "Recode": (lambda op, x: x, 0),
    "Rescale": (lambda op, x: x, 0.51),
    "Prelu": (lambda op, x, y: np.where(x >= 0, x, x * y), 0.51),
    "SquaredDifference": (lambda op, x, y: (x - y) ** 2, 0.51),
    "Compare": (lambda op, x, y: x < y, 0),
    "Softmax": (lambda op, x: softmax(x), 1),
    "Softmax16": (lambda op, x: softmax(x), 2),
    "LogSoftmax": (lambda op, x: np.log(softmax(x)), 0.51),
    "L2Normalization": (lambda op, x: x / np.sqrt((x * x).sum(1, keepdims=True)), 1),
    "MaxPool": (lambda op, x: windows(op, x, np.max), 1e-9),
    "AveragePool": (lambda op, x: windows(op, x, np.mean), 0.51),
    "ExactAveragePool": (lambda op, x: windows(op, x, np.mean), 0.51),
    "Mean": (lambda op, x: x.mean((2, 3)), 0.76),
    "Sum": (lambda op, x: x.sum((2, 3)), 0.51),
    "BatchMatMul": (lambda op, x, y: x @ y, 0.51),
    "Dense16": (lambda op, x: (x / op.x.scale) @ op.weight.T * op.scales * op.output.scale, 0.51),
    "Filter16": (lambda op, x: (x / op.x.scale * op.weight).sum(2) * op.factor * op.output.scale, 0.51),
    "RmsNorm": (rms, 0.7),
    "Attention": (attended, 1.5),
}


@pytest.mark.parametrize("name", REAL)
def test_results_are_the_real_ones(name):
    op, (function, error) = VALID[name], REAL[name]
    given = arrays(op)
    real = [(a.astype(float) - t.zero_point) * t.scale if t.dtype != "float32" else a for a, t in zip(given, op.inputs)]
    found, y = reference.apply(op, *given), op.output
    steps = function(op, *real) / (y.scale if y.dtype not in ("bool", "float32") else 1)
    if y.dtype not in ("bool", "float32"):
        limits = np.iinfo(y.dtype)
        steps = np.clip(steps + y.zero_point, limits.min, limits.max)
    assert np.abs(found.astype(float) - steps).max() <= error
    assert y.dtype == "bool" or len(np.unique(found)) > 1


def test_each_half_of_a_leaky_rectifier_has_a_multiplier():
    assert VALID["LeakyRelu"].multipliers == (quantize_multiplier(0.75), quantize_multiplier(0.1))


def test_a_mean_has_its_count_in_the_multiplier():
    op = g.Mean("m", (t(1, 4, 5, 25, scale=0.5),), t(1, 4, 1, 1, scale=0.25), (2, 3))
    multiplier, exponent = op.multipliers
    assert op.count == 125 and multiplier < 2**31
    assert multiplier * 2.0 ** (exponent - 31) == pytest.approx(2 / 125, rel=1e-7)


def test_products_of_scales_are_float32():
    x, scale = t(1, 5, scale=float(np.float32(0.1))), np.full(3, 0.3, np.float32)
    dense = replace(VALID["QDense"], inputs=(x,), output=s(1, 3, scale=1.0), weight_scale=scale)
    rounded = replace(dense, float32_scale=True).scales[0]
    assert rounded == np.float64(np.float32(np.float32(0.1) * np.float32(0.3))) != dense.scales[0]
    assert product_scale(0.1, 0.3, over=0.7) == float(np.float32(np.float32(0.1) * np.float32(0.3)) / np.float32(0.7))
    assert product_scale(1e38, 1e38) == math.inf


def test_the_zero_point_of_the_input_folds_into_the_bias():
    weight = np.array([[1, -2, 3, 4], [0, 0, 0, 0], [-128, -128, -128, -128]], np.int8)
    bias = np.array([10, -7, 2**31 - 1], np.int32)
    op = g.QDense("d", (t(1, 4, zero_point=-5),), t(1, 3), weight, np.ones(3, np.float32), bias)
    assert op.corrected_bias.dtype == np.int32
    assert list(op.corrected_bias) == [10 + 5 * 6, -7, 2**31 - 1 - 5 * 512]


def shifted(values, ratio, low=-128, high=127):
    """A RequantShift by a fraction of 2**16."""
    return np.clip((np.asarray(values, np.int64) * int(ratio * 2**16) + (1 << 15)) >> 16, low, high)


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("mul", [1, 47, 7349, 65535, 65536, 78485, 4171896])
def test_products_with_a_fraction_are_rounded_once_in_every_contract(contract, mul):
    ratio, every = mul / 2.0**16, np.arange(-128, 128).astype(np.int8)
    x, y = every[:, None], every[None]
    row, column, grid = (s(*shape, scale=1.0) for shape in ((256, 1), (1, 256), (256, 256)))
    ops = {
        g.ShiftRequantize("op", (row,), row, ratio=ratio): x.astype(int),
        g.ShiftAdd("op", (row, column), grid, ratio=ratio): x.astype(int) + y,
        g.ShiftMul("op", (row, column), grid, ratio=ratio): x.astype(int) * y,
        g.ShiftMatMul("op", (row, column), grid, ratio=ratio): x.astype(int) * y,
        g.QDense("op", (row,), grid, x, np.full(256, ratio), np.zeros(256, np.int32), exact=True): x.astype(int) * y,
    }
    for op, exact in ops.items():
        found = reference.apply(op, *(x, y)[: len(op.inputs)], contract=contract)
        assert np.array_equal(found, shifted(exact, ratio)) and not ranges.problem(op), type(op).__name__
    unsigned = t(256, 1, scale=1.0, zero_point=-128)
    found = reference.apply(g.ShiftRequantize("op", (unsigned,), unsigned, ratio=ratio), x, contract=contract)
    assert np.array_equal(found.astype(int) + 128, shifted(x.astype(int) + 128, ratio, 0, 255))


WORK = {
    "QConv2d": 3 * 2 * 16,
    "QConvTranspose2d": 16 * 3 * 2 * 4,
    "QDense": 2 * 3 * 5,
    "BatchMatMul": 2 * 4 * 3 * 4,
    "IntegerConv2d": 3 * 2 * 16,
    "IntegerMatMul": 2 * 4 * 3 * 4,
    "NumberDense": 6 * 4 * 5,
    "Dense16": 2 * 15,
    "Filter16": 2 * 12,
    "Lstm": 2 * 3 * 4,
    "Attention": 2 * 6 * (2 * 2 + 2),
    "FloatConv2d": 3 * 2 * 16,
    "FloatConvTranspose2d": 2 * 16 * 8,
    "FloatLstm": 3 * 2 * (16 + 4),
    "FloatMatMul": 2 * 4 * 3 * 4,
    "LstmStep": 0,
}


@pytest.mark.parametrize("name", WORK)
def test_multiply_accumulates(name):
    assert VALID[name].macs == WORK[name]


def test_numbers_that_operators_derive():
    assert GROUPED.macs == 6 * 16 and GROUPED.depthwise and not VALID["QConv2d"].depthwise
    assert not replace(VALID["QConv2d"], weight=ones(3, 2, 1, 1)).depthwise
    assert replace(VALID["QDense"], weight=np.sign(weights(3, 5)[0]), ternary=2).ternary == 2
    assert (VALID["Lstm"].functions, VALID["Lstm"].cell_bits) == (5 * 2 * 3, 3)
    assert (VALID["LstmStep"].functions, VALID["LstmStep"].cell_bits) == (5 * 2, 3)
    assert VALID["Detections"].rows == replace(VALID["Detections"], classes=4).rows == 10
    assert (X.nbytes, F.nbytes) == (32, 128)
    shape = replace(VALID["MaxPool"], pads=(1, 1, 1, 1), output=t(1, 2, 5, 5)).shape
    assert (shape.c, shape.o, shape.groups) == (2, 2, 2) and shape.size == (4, 4) and shape.output == (5, 5)
    wide = g.RmsNorm("op", (s(1, 96),), s(1, 96), np.ones(96))
    assert wide.shift == 1 and wide.factors[0] == pytest.approx(48**0.5 / 2**20 / 0.1)


def test_matrices_as_images_give_the_same():
    x, y = t(2, 3, 5), t(2, 7, 5, zero_point=-6)
    op = g.BatchMatMul("op", (x, y), t(2, 3, 7, scale=2.0), transposed=True)
    a, b = arrays(op)
    images = [v.swapaxes(1, 2)[:, :, None] for v in (a, b)]
    inputs = t(2, 5, 1, 3), t(2, 5, 1, 7, zero_point=-6)
    same = g.BatchMatMul("op", inputs, t(2, 7, 1, 3, scale=2.0), True, images=True)
    assert np.array_equal(reference.apply(same, *images)[:, :, 0].swapaxes(1, 2), reference.apply(op, a, b))
    assert same.macs == op.macs and same.inner == op.inner == 5


def test_the_contract_reaches_the_requantisation_unless_a_layer_has_its_own():
    for own in (None, "single"):
        calls = [replace(VALID["QConv2d"], contract=own).calls(c)[-1].attrs["contract"] for c in CONTRACTS]
        assert calls == [own or c for c in CONTRACTS]


def test_operators_without_a_kernel_and_those_that_do_more_than_to_rearrange():
    with pytest.raises(UnsupportedError, match="Operator 'strange': this operator has no kernel"):
        g.Operator("strange", (X,), X).calls("double")
    with pytest.raises(UnsupportedError, match="Recode 'op': does more"):
        VALID["Recode"].moved(np.zeros(X.shape))


CARRIED = [(op, axis) for op in OPERATORS for axis in range(len(op.x.shape)) if op.carried(axis) >= 0]


@pytest.mark.parametrize("op, axis", CARRIED, ids=name_of)
def test_parts_that_an_operator_carries_over_may_be_in_any_order(op, axis):
    given, size = arrays(op), op.x.shape[axis]
    order = np.random.default_rng(SEED).permutation(size)
    moved = [a if t.data is not None else a.take(order, axis) for t, a in zip(op.inputs, given)]
    places = [a.shape[axis] for t, a in zip(op.inputs, given) if t.data is None]
    assert set(places) == {size} and op.output.shape[op.carried(axis)] == size
    expected = reference.apply(op, *given).take(order, op.carried(axis))
    np.testing.assert_array_equal(reference.apply(op, *moved), expected)


def test_some_operators_carry_parts_over_and_others_do_not():
    kinds = {type(op).__name__ for op, _ in CARRIED}
    assert {"Add", "Concat", "MaxPool", "Mean", "Pad", "QConv2d", "Reshape", "Softmax", "Take", "Transpose"} <= kinds
    assert not kinds & {"Gather", "BatchMatMul", "Attention", "IntegerNorm", "Lstm"}
    constant = t(2, 1, 1, data=np.ones((2, 1, 1), np.int8))  # of one value along three dimensions
    op = replace(VALID["Mul"], inputs=(X, constant))
    assert [op.carried(axis) for axis in range(4)] == [0, -1, 2, 3]


@pytest.mark.parametrize("op", [op for op in OPERATORS if op.rearranges], ids=name_of)
def test_rearrangements_are_those_of_their_kernels(op):
    x = np.arange(np.prod(op.x.shape)).reshape(op.x.shape).astype(op.x.dtype)
    assert np.array_equal(op.moved(x), reference.apply(op, x))


@pytest.mark.parametrize("op", [op for op in OPERATORS if op.parts], ids=name_of)
def test_parts_are_channels_of_the_output(op):
    given = arrays(op)
    y = reference.apply(op, *given)
    for (t, start), array in zip(op.parts, given, strict=True):
        assert np.array_equal(y[:, start : start + t.shape[1]], array)


@pytest.mark.parametrize("op", [op for op in OPERATORS if isinstance(op, g.Selection)], ids=name_of)
def test_selections_have_the_elements_that_they_say(op):
    given, found = arrays(op), np.full(op.output.shape, op.filling)
    sources = [op.sources(axis) for axis in range(found.ndim)]
    for index in np.ndindex(*found.shape):
        parts = [source[k] for source, k in zip(sources, index)]
        if None not in parts:
            found[index] = given[max(number for number, _ in parts)][tuple(place for _, place in parts)]
    assert np.array_equal(reference.apply(op, *given), found)


def permutable():
    alike = [op for op in OPERATORS if {len(t.shape) for t in op.inputs} == {len(op.output.shape)}]
    return [op for op in alike if op.elementwise and not isinstance(op, g.NearestPrelu) or isinstance(op, g.Concat)]


@pytest.mark.parametrize("op", permutable(), ids=name_of)
def test_permuted_operators_compute_the_same(op):
    axes, given = tuple(reversed(range(len(op.output.shape)))), arrays(op)
    *inputs, output = (replace(t, name=f"{t.name}.t", shape=t.shape[::-1]) for t in op.tensors)
    found = op.permuted(tuple(inputs), output, axes)
    assert found is not None
    np.testing.assert_array_equal(reference.apply(found, *(a.T for a in given)), reference.apply(op, *given).T)


def test_slopes_stay_with_their_channels():
    op = VALID["NearestPrelu"]
    assert op.permuted((X,), Z, (0, 1, 3, 2)) is not None and op.permuted((X,), Z, (0, 3, 2, 1)) is None


NARROW = {"weight": ones(3, 5, dtype="int16"), "ternary": 1}
MIXED = {"weight": np.array([[5] * 5, [0, 2, 1, -1, 0], [2, 1, -9, 0, 0]], np.int8), "ternary": 2}
LONG = {"inputs": (s(1, 8), s(1, 4, 9000, 1), s(1, 9000, 2, 1), P)}
# (class, changes of the operator in the table, text of the error)
WRONG = [
    ("QDense", {"weight": ones(3, 5, dtype="float32")}, "QDense 'op': the weights' dtype is float32"),
    ("QDense", {"weight": np.full((3, 5), 256, np.int16)}, "whether the weights are -255..255"),
    ("QDense", {"contract": "triple"}, "whether the contract is known"),
    ("QDense", {"bias": np.zeros(4, np.int32)}, "the biases' shape is (4,), expected (3,)"),
    ("QDense", {"bias": np.zeros(3, np.int64)}, "the biases' dtype is int64, expected int32"),
    ("QDense", {"weight_scale": np.float32(1)}, "the scales' shape is (), expected (3,)"),
    ("QDense", {"inputs": (t(2, 6),)}, "the number of input features is 5, expected 6"),
    ("QDense", {"output": t(2, 2)}, "the output's shape is (2, 2)"),
    ("QDense", {"low": 5, "high": -5}, "clamp 5..-5 is not within int8"),
    ("QDense", {"ternary": 4}, "the number of ternary channels is 4, expected 3"),
    ("QDense", {"ternary": -1}, "the number of ternary channels is -1, expected 0"),
    ("QDense", MIXED, "what begins the list of ternary weights beyond -1, 0 and 1 is [-9, 2], expected []"),
    ("QDense", NARROW, "the dtype of the weights with ternary channels is int16, expected int8"),
    ("Grouped", {"ternary": 1}, "the number of groups with ternary channels is 2, expected 1"),
    ("QConv2d", {"output": t(1, 3, 4, 5)}, "the output's shape is (1, 3, 4, 5), expected (1, 3, 4, 4)"),
    ("QConv2d", {"weight": ones(3, 3, 1, 1)}, "the number of input channels"),
    ("QConv2d", {"weight": ones(3, 1, 1, 1), "groups": 2}, "the number of output channels modulo the groups is 1"),
    ("QConvTranspose2d", {"output": t(1, 3, 5, 6)}, "the output's shape is (1, 3, 5, 6)"),
    ("QConvTranspose2d", {"pads": (-1, 0, 0, 0), "output": t(1, 3, 6, 5)}, "the smallest padding"),
    ("Recode", {"output": t(1, 2, 4, 4)}, "the conversion"),
    ("Recode", {"output": t(1, 2, 4, 4, dtype="uint8")}, "the output's shape, scale"),
    ("Quantize", {"inputs": (t(1, 2),)}, "the conversion"),
    ("QuantizeImage", {"inputs": (f(1, 4, 2, 4),)}, "the input's shape"),
    ("QuantizeImage", {"planes": True}, "the input's shape"),
    ("RecodeImage", {"inputs": (X,)}, "the conversion"),
    ("NearestPrelu", {"slopes": np.zeros(3, np.float32)}, "the slopes"),
    ("NearestPrelu", {"slopes": np.array([1, np.nan], np.float32)}, "whether all slopes are numbers"),
    ("NearestPrelu", {"output": t(1, 2, 4, 5)}, "the output's shape"),
    ("Dequantize", {"inputs": (t(1, 2, 4, 4, dtype="int32"),)}, "the conversion"),
    ("Requantize", {"inputs": (F,)}, "the conversion"),
    ("Lookup", {"table": TABLE[1:]}, "the table"),
    ("Add", {"inputs": (X,)}, "the number of operands is 1"),
    ("Add", {"inputs": (X, t(3))}, "shapes [(1, 2, 4, 4), (3,)] do not broadcast"),
    ("Mul", {"output": t(2, 2, 4, 4)}, "the output's shape is (2, 2, 4, 4)"),
    ("Maximum", {"inputs": (X,)}, "the number of operands is 1"),
    ("Minimum", {"inputs": (X, t(3))}, "shapes [(1, 2, 4, 4), (3,)] do not"),
    ("Maximum", {"inputs": (X, Y)}, "the output's quantis"),
    ("Prelu", {"output": t(2, 2, 4, 4)}, "the output's shape is (2, 2, 4, 4)"),
    ("Prelu", {"inputs": (i32(1, 2, 4, 4), X)}, "the conversion"),
    ("PairLookup", {"table": np.zeros(256, np.int8)}, "the table"),
    ("PairLookup", {"output": t(1, 2, 4, 4, dtype="uint8")}, "whether all"),
    ("PairLookup", {"output": t(3)}, "the output's"),
    ("Softmax", {"output": replace(X, scale=2.0)}, "whether 1 is at most"),
    ("Softmax", {"beta": math.inf}, "whether beta is finite"),
    ("Softmax", {"beta": 2.0**-24}, "whether beta times the input's scale is above 2**-26"),
    ("MaxPool", {"output": t(1, 2, 4, 4)}, "the output's shape"),
    ("MaxPool", {"output": t(1, 2, 3, 3, scale=2.0)}, "the output's quantisation"),
    ("MaxPool", {"low": 1, "high": 0}, "clamp 1..0"),
    ("ExactAveragePool", {"output": t(1, 2, 3, 3, scale=2.0)}, "the output's quantisation"),
    ("AveragePool", {"output": t(1, 2, 5, 5), "pads": (1, 1, 1, 1)}, "the padding"),
    ("ResizeBilinear", {"output": t(1, 3, 8, 8)}, "the output's images"),
    ("ResizeBilinear", {"inputs": (t(1, 2, 4),)}, "the number of dim"),
    ("ReduceMax", {"output": t(2)}, "the output's shape"),
    ("ReduceMin", {"output": t(1, 2, 1, 4, scale=2.0)}, "the output's quantis"),
    ("Mean", {"output": t(2, 1)}, "the output's shape is (2, 1)"),
    ("ArgMax", {"output": t(1, 2, 4)}, "the output's dtype"),
    ("ArgMax", {"inputs": (t(1, 2, 4, 4, dtype="bool"),)}, "whether the input holds"),
    ("ArgMax", {"output": i32(1, 2, 3)}, "the output's shape"),
    ("L2Normalization", {"output": X}, "the output's scale"),
    ("L2Normalization", {"output": t(2, 4, 4)}, "the output's shape"),
    ("LogSoftmax", {"axis": 4}, "whether the axis"),
    ("TopK", {"output": t(1, 3)}, "the rows"),
    ("TopK", {"output": t(2, 6)}, "whether rows are long"),
    ("TopK", {"output": t(2, 3, scale=2.0)}, "the output's quantis"),
    ("TopK", {"positions": True}, "the output's dtype"),
    ("Reshape", {"output": t(1, 5)}, "the number of elements"),
    ("Transpose", {"axes": (0, 1, 1, 2)}, "the axes"),
    ("Transpose", {"output": X}, "the output's shape"),
    ("Heads", {"output": t(2, 4, 3, 1)}, "the size"),
    ("Heads", {"output": t(3, 4, 1, 3)}, "the number of channels"),
    ("Heads", {"inputs": (t(2, 6, 1, 3),), "output": t(3, 4, 1, 3)}, "the number of images"),
    ("Lanes", {"output": t(3, 8)}, "the dimensions"),
    ("Lanes", {"inputs": (t(2, 12),)}, "the rows"),
    ("Lanes", {"inputs": (t(1, 12),), "output": t(1, 4, 1, 3), "block": 3}, "the rows is (1, 12), expected (1, 18)"),
    ("Lanes", {"inputs": (t(2, 24),), "output": t(1, 8, 2, 3)}, "whether there is one row"),
    ("Concat", {"output": t(1, 5, 4, 4)}, "the output's size"),
    ("Concat", {"inputs": (X, t(1, 2, 4, 5))}, "the number of different"),
    ("Pad", {"output": X}, "the output's shape"),
    ("Pad", {"pads": ((0, 0), (0, 0), (-1, 0), (0, 0))}, "the smallest padding"),
    ("Pad", {"pads": ((0, 0),)}, "the number of dimensions of the padding"),
    ("Pad", {"value": 128}, "whether the value is a whole"),
    ("StridedSlice", {"begin": (0, 0, 1, 0)}, "whether dimension 2 lies"),
    ("StridedSlice", {"begin": (0, 0)}, "the ranks"),
    ("Take", {"indices": ((), (), (4,), ())}, "whether the indices lie within dim"),
    ("Take", {"indices": ((), ())}, "the number of dimensions"),
    ("Take", {"indices": ((), (), (1, 2), ())}, "the output's shape"),
    ("BatchMatMul", {"inputs": (X, t(5, 3))}, "the number of rows of the second operand"),
    ("BatchMatMul", {"inputs": (X, t(3, 4, 3))}, "do not broadcast"),
    ("BatchMatMul", {"inputs": (X,)}, "the number of operands is 1, expected 2"),
    ("BatchMatMul", {"inputs": (t(4), t(4, 3))}, "whether both operands are matrices"),
    ("BatchMatMul", {"images": True}, "the images is"),
    ("RmsNorm", {"gain": np.ones(3)}, "the gains' shape"),
    ("RmsNorm", {"gain": -np.ones(4)}, "whether the gains are at least 0"),
    ("RmsNorm", {"inputs": (t(2, 4),)}, "the zero points"),
    ("Rotate", {"output": s(1, 8, scale=0.2)}, "the scale is 0.2"),
    ("Rotate", {"sine": ANGLES[:3]}, "the shape of the sines"),
    ("Rotate", {"inputs": (s(1, 8), i32(2))}, "the position is"),
    ("Rotate", {"inputs": (s(2, 3, 4), P), "output": s(2, 3, 4)}, "the dimensions is"),
    ("Rotate", {"inputs": (s(1, 6), P), "output": s(1, 6)}, "what is left of chunks"),
    ("Rotate", {"inputs": (s(7, 8), P), "output": s(7, 8)}, "whether there are angles for as many tokens"),
    ("WriteRows", {"inputs": (CACHE, s(1, 7), P)}, "the rows is"),
    ("WriteRows", {"inputs": (CACHE, s(1, 4, scale=0.3), P)}, "the scales is"),
    ("WriteRows", {"inputs": (s(6, 4), s(1, 4), P)}, "the dimensions of the cache is"),
    ("WriteRows", {"inputs": (CACHE, s(7, 4), P)}, "whether the rows fit the cache"),
    ("WriteColumns", {"inputs": (COLUMNS, s(1, 6, 3, 1), P)}, "the block is"),
    ("WriteColumns", {"inputs": (COLUMNS, s(1, 4, 4, 1), P)}, "what is left of blocks"),
    ("WriteColumns", {"tokens": 2}, "what is left of a block's tokens"),
    ("TokenBytes", {"inputs": (X,)}, "whether rows are int16 or int32 is False"),
    ("TokenBytes", {"gain": ones(3)}, "the gains is ('int8', (3,))"),
    ("TokenScales", {"output": i32(2, 3)}, "the output's shape is (2, 3), expected (2, 2)"),
    ("ScaleTokenSums", {"output": f(2, 3)}, "whether results are int16 or int32 is False"),
    ("ScaleTokenSums", {"bias": BIAS[:2]}, "the scales' and bias' shapes is"),
    ("TokenLogits", {"scale": BIAS}, "the scales is ('int32', (3,))"),
    ("EmbedTokens", {"scales": np.ones(3)}, "the scales' shape is (3,)"),
    ("RotatePairs", {"sine": ANGLES[:3]}, "the shape of the sines"),
    ("WriteTokens", {"output": w(6, 8)}, "the output's shape is (6, 8), expected (6, 4)"),
    ("CacheAttention", {"output": w(1, 8)}, "the output's shape is (1, 8), expected (1, 4)"),
    ("GatedProduct", {"output": w(2, 3)}, "the types is"),
    ("WriteColumns", {"tokens": 0}, "whether there are tokens"),
    ("Attention", {"inputs": (s(1, 8), s(1, 4, 6), s(1, 6, 2, 1), P)}, "the dimensions is"),
    ("Attention", {"inputs": (s(1, 8), CACHE, s(1, 7, 2, 1), P)}, "the positions of the values"),
    ("Attention", LONG, "whether there are at most 8192 positions"),
    ("Attention", {"seen": 7}, "whether as many positions as are read are there"),
    ("Attention", {"key_groups": (0, 1, 1)}, "the lanes of half a key"),
    ("Attention", {"value_groups": (0, 1, 1)}, "the lanes of a value"),
    ("Attention", {"value_groups": (0, 7)}, "groups without keys"),
    ("Attention", {"value_groups": (-1, -1)}, "whether a lane of a value is of a group"),
    ("Attention", {"inputs": (s(8), CACHE, s(1, 6, 2, 1), P)}, "the dimensions of the queries"),
    ("Attention", {"inputs": (s(7, 8), CACHE, s(1, 6, 2, 1), P), "output": s(7, 4)}, "whether as many tokens are read"),
    ("Attention", {"inputs": (s(1, 9), CACHE, s(1, 6, 2, 1), P)}, "the queries is"),
    ("Attention", {"output": s(1, 5)}, "the output's shape"),
    ("IntegerSoftmax", {"period": 0}, "period and levels"),
    ("IntegerNorm", {"inputs": (X, i32(3))}, "the weights"),
    ("IntegerNorm", {"shift": 32}, "the shift"),
    ("RequantShift", {"inputs": (t(2),) * 3}, "the inputs' types"),
    ("RequantShift", {"shift": 32}, "the shift"),
    ("IntegerMatMul", {"inputs": (X, t(3, 3))}, "number of rows"),
    ("ValueRange", {"output": f(1)}, "the output's shape is (1,), expected (2,)"),
    ("RangeScale", {"inputs": (f(1),)}, "the ends is ('float32', (1,))"),
    ("RangeZeroPoint", {"output": f(1)}, "the output is ('float32', (1,))"),
    ("QuantizeBy", {"inputs": (F, f(1), f(1))}, "the types is"),
    ("PadBy", {"output": X}, "the output's shape is (1, 2, 4, 4), expected (1, 2, 5, 6)"),
    ("SplitBytes", {"output": t(2, 3)}, "the output's shape is (2, 3), expected (4, 3)"),
    ("ScaleBytes", {"sums": BIAS[:2]}, "the parameters is"),
    ("ScaleBytes", {"output": f(4, 3)}, "the input's shape is (4, 3), expected (8, 3)"),
    ("IntegerConv2d", {"output": X}, "the types is ('int8', 'int8', 'int8')"),
    ("SubtractZeroPoint", {"sums": BIAS[:2]}, "the sums is ('int32', (2,)), expected ('int32', (3,))"),
    ("ScaleSums", {"inputs": (i32(2, 3), BYTE, BYTE)}, "the types is"),
    ("Lstm", {"inputs": (GATES, t(2, 1))}, "the number of inputs is 2, expected 3"),
    ("Lstm", {"inputs": (t(2, 1), t(2, 1), CELLS)}, "the conversion is"),
    ("Lstm", {"inputs": (GATES, t(2, 1), replace(CELLS, scale=0.3))}, "the cells' scale is 0.6, expected 0.5"),
    ("Lstm", {"inputs": (GATES, t(2, 1), replace(CELLS, scale=0.5))}, "the number of integer bits of the cells, from"),
    ("Lstm", {"output": s(2, 3, 1, dtype="int16")}, "the output's shape is"),
    ("Lstm", {"factor": math.nan}, "scales sums by nan; it must be at least 0"),
    ("Lstm", {"coupled": True}, "the gates' shape is"),
    ("LstmStep", {"inputs": (GATES, OWN)}, "the number of inputs is 2, expected 3"),
    ("LstmStep", {"output": s(2, 2, 1)}, "the conversion is"),
    ("LstmStep", {"inputs": (GATES, OWN, CELLS)}, "the shapes of gates and sums is"),
    ("LstmStep", {"output": s(2, 4, 1, dtype="int16")}, "the output's shape is"),
    ("LstmStep", {"factor": 2.0**30}, "whether R is by less than 2"),
    ("LstmOutputs", {"output": t(2, 3, 1)}, "the output's shape, scale and zero point"),
    ("LstmCells", {"output": s(2, 4, dtype="int16")}, "the output's shape is (2, 4), expected (2, 1, 4)"),
    ("Dense16", {"output": f(2, 3)}, "whether the output is int16 or int32 is False"),
    ("Dense16", {"output": t(2, 3, dtype="int16")}, "the output's zero point is 3, expected 0"),
    ("Filter16", {"bias": np.zeros(2, np.int32)}, "the filters modulo the units is 1"),
    ("Filter16", {"factor": 2.0**31}, "whether R is by less than 2"),
    ("Rescale", {"output": t(2, 3, 4, dtype="int32", scale=2.0**-30)}, "whether R leaves 32 bits"),
    ("Rescale", {"output": f(2, 3, 4)}, "whether the types are int8, int16 or int32"),
    ("Softmax16", {"output": t(1, 2, 4, 4, zero_point=-(1 << 15), dtype="int16")}, "the output's scale in units of"),
    ("NumberFunction", {"inputs": (t(2, 3),)}, "NumberFunction 'op': whether"),
    ("NumberFunction", {"output": f(3)}, "the output"),
    ("NumberReduce", {"output": f(2)}, "the output's type"),
    ("NumberReduce", {"output": i32(3)}, "the output's shape"),
    ("NumberDense", {"inputs": (f(2, 3),)}, "the number of features"),
    ("NumberDense", {"output": f(2, 4)}, "the output's shape"),
    ("NumberDense", {"inputs": (t(2, 3, 4),)}, "the types"),
    ("NumberBinary", {"inputs": (i32(2, 3),)}, "the number"),
    ("NumberBinary", {"output": f(2, 3)}, "the types"),
    ("NumberBinary", {"inputs": (i32(2, 3), i32(2))}, "shapes"),
    ("Detections", {"inputs": (f(1, 9, 5), f(1, 9, 4))}, "the boxes' shape"),
    ("Detections", {"anchors": ones(8, 4, dtype="float32")}, "the anchors"),
    ("Detections", {"inputs": (f(1, 9, 4), f(1, 8, 4))}, "the scores' shape"),
    ("Detections", {"classes": 5}, "whether there are scores"),
    ("Detections", {"classes": 0}, "the smallest count"),
    ("Detections", {"scales": (1.0, 1.0, 1.0, 0.0)}, "whether scales"),
    ("Detections", {"output": f(1, 10, 6)}, "the output's shape"),
    ("NumberResize", {"inputs": (f(2, 3),)}, "the number of dim"),
    ("NumberResize", {"output": f(1, 3, 6, 6)}, "the numbers of im"),
    ("NumberResize", {"output": t(1, 2, 6, 6)}, "the types"),
    ("FloatResize", {"output": f(1, 2, 4, 4)}, "the output's shape"),
    ("Compare", {"inputs": (t(2, dtype="uint8"),) * 2}, "whether the input holds"),
    ("Compare", {"output": X}, "the types"),
    ("Select", {"inputs": (X, X)}, "the number"),
    ("Select", {"inputs": (X, X, X)}, "the condition's"),
    ("Select", {"output": F}, "the types"),
    ("Select", {"output": t(3)}, "the output"),
    ("Cast", {"output": f(3)}, "the output's shape"),
    ("Gather", {"inputs": (t(9, 3), t(2))}, "whether positions"),
    ("Gather", {"output": t(3, 3)}, "the output"),
    ("Gather", {"axis": 2}, "whether the axis"),
    ("GatherNd", {"inputs": (t(9, 6), t(2, 3, dtype="int64"))}, "whether positions fit"),
    ("FloatFunction", {"output": X}, "the conversion is"),
    ("FloatFunction", {"output": f(1, 2, 4)}, "the output's shape is"),
    ("FloatBinary", {"inputs": (F,)}, "the number of operands is"),
    ("FloatReduce", {"output": f(2, 2)}, "the number of elements of the output is"),
    ("FloatSoftmax", {"axis": 4}, "whether the axis exists is"),
    ("FloatMatMul", {"inputs": (F, f(5, 3))}, "the number of rows of the second operand is"),
    ("FloatLstm", {"inputs": (f(3, 2, 5),)}, "the weights' shapes is"),
    ("FloatLstm", {"output": f(3, 2, 6)}, "the output's shape is (3, 2, 6"),
    ("FloatConv2d", {"weight": reals(3, 3, 1, 1)[0]}, "the number of input channels is"),
    ("FloatMaxPool", {"output": f(1, 2, 2, 2)}, "FloatMaxPool 'op': the output's shape"),
    ("FloatConvTranspose2d", {"output": f(1, 3, 5, 5)}, "the number of output channels is"),
]


@pytest.mark.parametrize("name, changes, text", WRONG, ids=[f"{row[0]}-{row[2]}" for row in WRONG])
def test_impossible_operators(name, changes, text):
    op = GROUPED if name == "Grouped" else VALID[name]
    with pytest.raises(InputError) as caught:
        replace(op, **changes)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "shape, facts, text",
    [
        ((1,), {"dtype": "int4"}, "dtype 'int4' must be one of int8, uint8, int16, int32, int64, float32"),
        ((1, 0), {}, "shape (1, 0): every dimension must be at least 1"),
        ((1,), {"scale": 0.0}, "scale 0.0 must be positive"),
        ((1,), {"scale": math.inf}, "scale inf must be positive"),
        ((1,), {"zero_point": 128}, "zero point 128 is outside"),
        ((1,), {"dtype": "uint8", "zero_point": -1}, "zero point -1 is outside 0..255"),
        ((3,), {"data": np.zeros(3, np.int32)}, "data is int32 (3,)"),
    ],
)
def test_impossible_tensors(shape, facts, text):
    with pytest.raises(InputError) as caught:
        t(*shape, **facts)
    assert f"tensor 'y': {text}" in str(caught.value)
