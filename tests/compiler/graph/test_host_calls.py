"""Every operator has kernels, whose attributes survive a file, and says of itself what they do."""

import json

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.host_calls import host_calls
from tilewright.hw.errors import UnsupportedError

X = g.Tensor("x", (1, 2, 4, 4), scale=0.1, zero_point=3)


def t(*shape, scale=0.1, zero_point=3, dtype="int8"):
    return g.Tensor("y", shape, dtype, scale, zero_point)


def weights(*shape):
    return np.ones(shape, np.int8), np.ones(shape[0], np.float32), np.zeros(shape[0], np.int32)


W, CELLS = t(2, 3, 4, dtype="int16", zero_point=0), t(2, 1, scale=2**-12, zero_point=0, dtype="int16")
ROWS, BIAS, FOUR = np.ones((3, 5), np.int8), np.zeros(3, np.int32), (np.zeros(4, np.int32), np.ones(4))


def f(*shape):
    return t(*shape, dtype="float32")


def real_weights(*shape):
    return np.ones(shape, np.float32), np.zeros(shape[0], np.float32)


F = g.Tensor("f", (1, 2, 4, 4), "float32")
FOUND = {"scales": (10.0, 10.0, 5.0, 5.0), "most": 5, "classes": 3, "classes_per_box": 2, "per_class": 4}
FOUND |= {"each_class": False, "score": 0.3, "overlap": 0.5}
POSITION, ANGLES = t(1, dtype="int32", scale=1.0, zero_point=0), np.zeros((6, 2), np.int16)


def s(*shape, scale=0.1):
    return t(*shape, scale=scale, zero_point=0)


GATES = np.ones((4, 4), np.float32)

OPERATORS = [
    g.QConv2d("op", (X,), t(1, 3, 4, 4), *weights(3, 2, 1, 1)),
    g.QConvTranspose2d("op", (X,), t(1, 3, 5, 5), *weights(3, 2, 2, 2)),
    g.QDense("op", (t(2, 5),), t(2, 3), *weights(3, 5)),
    g.Add("op", (X, X), t(1, 2, 4, 4)),
    g.Sub("op", (X, X), t(1, 2, 4, 4)),
    g.Mul("op", (X, X), t(1, 2, 4, 4)),
    g.Requantize("op", (X,), t(1, 2, 4, 4, scale=0.2)),
    g.NearestRequantize("op", (X,), t(1, 2, 4, 4, scale=0.2)),
    g.Lookup("op", (X,), t(1, 2, 4, 4), "f", np.zeros(256, np.int8)),
    g.LeakyRelu("op", (X,), t(1, 2, 4, 4), "f", np.zeros(256, np.int8), (0.5, 0.1)),
    g.Quantize("op", (t(1, 2, dtype="float32"),), t(1, 2)),
    g.QuantizeImage("op", (t(1, 4, 4, 2, dtype="float32"),), t(1, 2, 4, 4)),
    g.Dequantize("op", (X,), t(1, 2, 4, 4, dtype="float32")),
    g.Recode("op", (X,), t(1, 2, 4, 4, zero_point=131, dtype="uint8")),
    g.Softmax("op", (X,), t(1, 2, 4, 4, scale=1 / 256, zero_point=-128), 1),
    g.MaxPool("op", (X,), t(1, 2, 3, 3), (2, 2)),
    g.AveragePool("op", (X,), t(1, 2, 3, 3), (2, 2)),
    g.ExactAveragePool("op", (X,), t(1, 2, 3, 3), (2, 2)),
    g.Mean("op", (X,), t(1, 2), (2, 3)),
    g.Sum("op", (X,), t(1, 2), (2, 3)),
    g.Reshape("op", (X,), t(1, 32)),
    g.Transpose("op", (X,), t(1, 4, 4, 2), (0, 2, 3, 1)),
    g.Concat("op", (X, X), t(1, 4, 4, 4), 1),
    g.Pad("op", (X,), t(1, 2, 5, 4), ((0, 0), (0, 0), (1, 0), (0, 0)), 7),
    g.Take("op", (X,), t(1, 2, 8, 4), ((), (), (0, 0, 1, 1, 2, 2, 3, 3), ())),
    g.ResizeBilinear("op", (X,), t(1, 2, 8, 3)),
    g.ResizeBilinear("op", (X,), t(1, 2, 8, 3), half_pixel_centers=True, offset=128),
    g.Div("op", (X, X), t(1, 2, 4, 4)),
    g.L2Normalization("op", (X,), t(1, 2, 4, 4, scale=1 / 128, zero_point=0), 1),
    g.LogSoftmax("op", (X,), t(1, 2, 4, 4), 1),
    g.ExactAveragePool("op", (X,), t(1, 2, 3, 3), (2, 2), ties_up=True),
    g.NumberFunction("op", (t(2, 3, dtype="float32"),), t(2, 3, dtype="float32"), "sqrt"),
    g.NumberBinary("op", (t(2, 3, dtype="int32"), t(3, dtype="int32")), t(2, 3, dtype="int32"), "floor_div"),
    g.NumberReduce("op", (t(2, 3, dtype="int32"),), t(2, dtype="int32"), "reduce_max", (1,)),
    g.NumberDense("op", (f(2, 4),), f(2, 3), *real_weights(3, 4)),
    g.TopK("op", (t(2, 5),), t(2, 3)),
    g.TopK("op", (t(2, 5),), t(2, 3, dtype="int32"), True),
    g.Cast("op", (t(2, 3, dtype="int64"),), t(2, 3, dtype="float32")),
    g.NumberResize("op", (F,), f(1, 2, 6, 6)),
    g.Compare("op", (X, t(2, 1, 1)), t(1, 2, 4, 4, dtype="bool"), "less"),
    g.Select("op", (t(1, 2, 4, 4, dtype="bool"), X, t(2, 1, 1)), t(1, 2, 4, 4)),
    g.Gather("op", (t(9, 3), t(2, dtype="int32")), t(2, 3), 0),
    g.GatherNd("op", (t(9, 6, 3), t(2, 2, dtype="int64")), t(2, 3)),
    g.Detections(
        "op",
        (t(1, 9, 4, dtype="float32"), t(1, 9, 4, dtype="float32")),
        t(1, 11, 6, dtype="float32"),
        np.ones((9, 4), np.float32),
        **FOUND,
    ),
    g.Maximum("op", (X, X), t(1, 2, 4, 4)),
    g.Minimum("op", (X, X), t(1, 2, 4, 4)),
    g.PairLookup("op", (X, t(2, 1, 1)), t(1, 2, 4, 4), np.zeros((256, 256), np.int8)),
    g.Prelu("op", (X, t(2, 1, 1)), t(1, 2, 4, 4)),
    g.SquaredDifference("op", (X, X), t(1, 2, 4, 4)),
    g.ReduceMax("op", (X,), t(1, 2), (2, 3)),
    g.ReduceMin("op", (X,), t(1, 2, 1, 4), (2,)),
    g.ArgMax("op", (X,), t(1, 2, 4, dtype="int32"), 3),
    g.StridedSlice("op", (X,), t(1, 2, 2, 4), (0, 0, 3, 0), (1, 1, -2, 1)),
    g.Features("op", (t(2, 5),), t(2, 3), *weights(3, 5)),
    g.TimeFilter("op", (X,), t(1, 2, 1, 1), *weights(2, 1, 4, 4), groups=2),
    g.Dense16("op", (t(2, 5),), t(2, 3, dtype="int16", zero_point=0), ROWS, BIAS, np.ones(3)),
    g.Dense16("op", (t(2, 5),), t(2, 3, dtype="int32", zero_point=0), ROWS, BIAS, np.ones(3)),
    g.Filter16("op", (W,), t(2, 3), np.ones((3, 4), np.int16), BIAS, 0.5),
    g.Lstm("op", (W, t(2, 1), CELLS), t(2, 4, 1, dtype="int16"), np.ones((4, 1), np.int8), FOUR[0], FOUR[1], 0.5),
    g.LstmStep("op", (t(2, 1, 4, dtype="int16"), t(2, 4, dtype="int32"), CELLS), t(2, 2, 1, dtype="int16"), 0.5),
    g.LstmOutputs("op", (t(2, 4, 1, dtype="int16"),), t(2, 3, 1)),
    g.LstmCells("op", (W,), t(2, 1, 4, dtype="int16")),
    g.Rescale("op", (W,), t(2, 3, 4, dtype="int32", zero_point=-300)),
    g.Softmax16("op", (X,), t(1, 2, 4, 4, scale=2**-16, zero_point=-(1 << 15), dtype="int16"), 1),
    g.BatchMatMul("op", (X, t(4, 3)), t(1, 2, 4, 3)),
    g.BatchMatMul("op", (t(2, 4, 1, 3), t(1, 5, 1, 4)), t(2, 5, 1, 3), images=True),
    g.Heads("op", (t(1, 8, 1, 3),), t(2, 4, 1, 3), True),
    g.Lanes("op", (t(3, 8),), t(1, 4, 3, 2), 4),
    g.Lanes("op", (t(1, 8, 1, 3),), t(1, 24), 4),
    g.ShiftMatMul("op", (X, t(4, 3)), t(1, 2, 4, 3), ratio=0.5),
    g.ShiftRequantize("op", (X,), X, ratio=0.5),
    g.ShiftAdd("op", (X, X), X, ratio=0.5),
    g.ShiftMul("op", (X, X), X, ratio=0.5),
    g.IntegerMatMul("op", (X, t(4, 3)), t(1, 2, 4, 3, dtype="int32")),
    g.RequantShift("op", (t(2, dtype="int32"),) * 3, t(2), 3, -1, 1),
    g.IntegerNorm("op", (X, t(4, dtype="int32"), t(4, dtype="int32")), X, 16),
    g.IntegerSoftmax("op", (X,), X, 1, 2, 3, 4, 256),
    g.RmsNorm("op", (s(2, 4),), s(2, 4), np.ones(4)),
    g.Rotate("op", (s(1, 8), POSITION), s(1, 8), ANGLES, ANGLES),
    g.WriteRows("op", (s(1, 4, 6, 1), s(1, 4), POSITION), s(1, 4, 6, 1)),
    g.WriteColumns("op", (s(1, 6, 4, 1), s(1, 4, 3, 1), POSITION), s(1, 6, 4, 1)),
    g.Attention("op", (s(1, 8), s(1, 4, 6, 1), s(1, 6, 2, 1), POSITION), s(1, 4), (0, 1), (1, 0), 2, 6),
    g.FloatFunction("op", (F,), f(1, 2, 4, 4), "Elu", 0.5),
    g.FloatBinary("op", (F, f(2, 1, 1)), f(1, 2, 4, 4), "Div"),
    g.FloatReduce("op", (F,), f(1, 2), "ReduceMax", (2, 3)),
    g.FloatSoftmax("op", (F,), f(1, 2, 4, 4), 1, True),
    g.FloatLstm("op", (f(3, 2, 4),), f(3, 2, 1), GATES, np.ones((4, 1), np.float32), GATES[:, 0], True),
    g.FloatMatMul("op", (F, f(4, 3)), f(1, 2, 4, 3)),
    g.FloatConv2d("op", (F,), f(1, 3, 4, 4), *real_weights(3, 2, 1, 1)),
    g.FloatConvTranspose2d("op", (F,), f(1, 2, 5, 5), *real_weights(2, 2, 2, 2)),
    g.FloatMaxPool("op", (F,), f(1, 2, 3, 3), (2, 2)),
    g.FloatAveragePool("op", (F,), f(1, 2, 4, 4), (2, 2), (1, 1), (0, 0, 1, 1), True),
]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: type(op).__name__)
def test_calls_compute_the_declared_output(op):
    calls = host_calls(op, "double")
    arrays = [np.full(t.shape, 5, t.dtype) for t in op.inputs]
    for call in calls:
        assert json.loads(json.dumps(call.attrs)) == call.attrs
        arrays = [call(*arrays)]
        assert arrays[0].dtype == call.dtype
    assert (arrays[0].shape, arrays[0].dtype) == (op.output.shape, op.output.dtype)


def test_every_operator_is_tested_here():
    abstract = {g.Operator, g.Linear, g.Binary, g.Pairwise, g.Pool, g.Movement, g.FloatOperator, g.StandIn, g.Cells}
    abstract |= {g.Write, g.Divisible, g.Custom, g.Selection}
    operators = {v for v in vars(g).values() if isinstance(v, type) and issubclass(v, g.Operator)} - abstract
    assert {type(op) for op in OPERATORS} == operators


def test_the_contract_reaches_the_requantisation():
    op = OPERATORS[0]
    assert [host_calls(op, c)[-1].attrs["contract"] for c in ("double", "single")] == ["double", "single"]


def test_operators_without_a_kernel():
    with pytest.raises(UnsupportedError, match="Operator 'strange': this operator has no kernel"):
        host_calls(g.Operator("strange", (X,), X), "double")


def test_a_layer_may_have_a_contract_of_its_own():
    parameters = (X,), t(1, 3, 4, 4), *weights(3, 2, 1, 1)
    for own, expected in ((None, "double"), ("single", "single")):
        _, requantise = host_calls(g.QConv2d("conv", *parameters, contract=own), "double")
        assert requantise.attrs["contract"] == expected


SEED = 20261127


def arrays(op):
    print("seed", SEED)
    rng = np.random.default_rng(SEED)
    found = []
    for t in op.inputs:
        few = t.dtype in ("int32", "int64", "bool")  # positions among them
        values = rng.integers(0, 2, t.shape) if few else rng.integers(-100, 100, t.shape)
        found.append(values.astype(t.dtype) if t.data is None else t.data)
    return found


def carried():
    return [(op, axis) for op in OPERATORS for axis in range(len(op.x.shape)) if op.carried(axis) >= 0]


@pytest.mark.parametrize("op, axis", carried(), ids=lambda v: v if isinstance(v, int) else type(v).__name__)
def test_parts_that_an_operator_carries_over_may_be_in_any_order(op, axis):
    given, size = arrays(op), op.x.shape[axis]
    order = np.random.default_rng(SEED).permutation(size)
    moved = [a if t.data is not None else a.take(order, axis) for t, a in zip(op.inputs, given)]
    places = [a.shape[axis] for t, a in zip(op.inputs, given) if t.data is None]
    assert set(places) == {size} and op.output.shape[op.carried(axis)] == size
    expected = reference.apply(op, *given).take(order, op.carried(axis))
    np.testing.assert_array_equal(reference.apply(op, *moved), expected)


def test_what_carries_parts_over_is_what_is_known_to():
    kinds = {type(op).__name__ for op, _ in carried()}
    assert {"Add", "Concat", "MaxPool", "Mean", "Pad", "QConv2d", "Reshape", "Softmax", "Take", "Transpose"} <= kinds
    assert not kinds & {"Gather", "BatchMatMul", "Attention", "IntegerNorm", "Lstm"}


@pytest.mark.parametrize("op", [op for op in OPERATORS if op.rearranges], ids=lambda op: type(op).__name__)
def test_rearrangements_are_those_of_their_kernels(op):
    x = np.arange(np.prod(op.x.shape)).reshape(op.x.shape).astype(op.x.dtype)
    assert np.array_equal(op.moved(x), reference.apply(op, x))


def test_other_operators_do_more_than_to_rearrange():
    x = g.Tensor("x", (1, 4))
    with pytest.raises(UnsupportedError, match="Recode 'op': does more"):
        g.Recode("op", (g.Tensor("x", (1, 4), "uint8", zero_point=128),), x).moved(np.zeros((1, 4)))


@pytest.mark.parametrize("op", [op for op in OPERATORS if op.parts], ids=lambda op: type(op).__name__)
def test_parts_are_channels_of_the_output(op):
    given = arrays(op)
    y = reference.apply(op, *given)
    for (t, start), array in zip(op.parts, given, strict=True):
        assert np.array_equal(y[:, start : start + t.shape[1]], array)


@pytest.mark.parametrize(
    "op", [op for op in OPERATORS if isinstance(op, g.Selection)], ids=lambda op: type(op).__name__
)
def test_selections_have_the_elements_that_they_say(op):
    given, found = arrays(op), np.full(op.output.shape, op.filling)
    sources = [op.sources(axis) for axis in range(found.ndim)]
    for index in np.ndindex(*found.shape):
        parts = [source[k] for source, k in zip(sources, index)]
        if None not in parts:
            found[index] = given[max(number for number, _ in parts)][tuple(place for _, place in parts)]
    assert np.array_equal(reference.apply(op, *given), found)


def test_a_constant_of_one_value_along_an_axis_lets_its_parts_be_in_any_order():
    constant = g.Tensor("k", (2, 1, 1), data=np.ones((2, 1, 1), np.int8))
    op = g.Mul("op", (X, constant), t(1, 2, 4, 4))
    assert [op.carried(axis) for axis in range(4)] == [0, -1, 2, 3]


def turned(t):
    return g.Tensor(f"{t.name}.t", t.shape[::-1], t.dtype, t.scale, t.zero_point, None if t.data is None else t.data.T)


def permutable():
    alike = [op for op in OPERATORS if {len(t.shape) for t in op.inputs} == {len(op.output.shape)}]
    return [op for op in alike if op.elementwise or isinstance(op, g.Concat)]


@pytest.mark.parametrize("op", permutable(), ids=lambda op: type(op).__name__)
def test_permuted_operators_compute_the_same(op):
    axes, given = tuple(reversed(range(len(op.output.shape)))), arrays(op)
    found = op.permuted(tuple(map(turned, op.inputs)), turned(op.output), axes)
    assert found is not None
    np.testing.assert_array_equal(reference.apply(found, *(a.T for a in given)), reference.apply(op, *given).T)
