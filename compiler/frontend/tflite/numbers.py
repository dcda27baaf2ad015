"""Operators of .tflite files on float32, integers and truth values, which run on the host, and conversions to them.

Most of them also exist on int8 tensors, with handlers in importer.py: the importer takes the handler from `HANDLERS`
where `are_numbers(node)` holds, that is, where the first input is float32, int32, int64 or bool.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ... import graph as g
from ..core import Refused
from ..linear import per_channel, reach
from ..moves import TO_NCHW
from . import layers
from .builder import TfliteImporter, dimension
from .file import FileNode, schema
from .layers import Handler, operand, unary
from .shapes import dequantised

NUMBERS = ("FLOAT32", "INT32", "INT64", "BOOL")
_FIRST = {"TRANSPOSE_CONV": 2}  # the position of the image
_LEAST_NORM = 1e-6  # by which L2_NORMALIZATION divides
_ACTIVATION = schema.ActivationFunctionType
_ACTIVATIONS = {
    _ACTIVATION.RELU: "relu",
    _ACTIVATION.RELU6: "relu6",
    _ACTIVATION.RELU_N1_TO_1: "relu_n1_to_1",
}


def are_numbers(imp: TfliteImporter, node: FileNode) -> bool:
    """Whether the first input is float32, integers or truth values."""
    return imp.info(node, _FIRST.get(node.kind, 0)).type in NUMBERS


def function(name: str) -> Handler:
    """A function of one value."""
    return unary(lambda imp, node, x, y: g.NumberFunction(node.name, (x,), y, name), dtype=None)


def binary(name: str) -> Handler:
    """A function of two operands, with its fused activation."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        y = imp.result(node)
        operands = tuple(operand(imp, node, k, len(y.shape), dtype=None) for k in (0, 1))
        _emit_activated(imp, node, y, lambda called, out: g.NumberBinary(called, operands, out, name))

    return convert


def _emit_activated(
    imp: TfliteImporter, node: FileNode, y: g.Tensor, make: Callable[[str, g.Tensor], g.Operator]
) -> None:
    """Append the operator `make` gives for a name and an output, `y`, then the node's activation."""
    kind = node.option("fusedActivationFunction", _ACTIVATION.NONE)
    if kind == _ACTIVATION.NONE:
        imp.produce(node, make(node.name, y))
        return
    activation = _activation(kind)
    part = replace(y, name=imp.unused(f"{node.name}.linear"))
    imp.emit(make(part.name, part))
    imp.produce(node, g.NumberFunction(node.name, (part,), y, activation))


def sum_of_all(imp: TfliteImporter, node: FileNode) -> None:
    """ADD_N: the inputs, added one after the other."""
    y = imp.result(node)
    total, *others = (imp.activation(node, k, dtype=None) for k in range(len(node.inputs)))
    for k, x in enumerate(others[:-1], 1):
        total = imp.add(g.NumberBinary, (total, x), replace(y, name=f"{node.name}.{k}"), "add")
    for x in others[-1:]:
        imp.produce(node, g.NumberBinary(node.name, (total, x), y, "add"))


def comparison(imp: TfliteImporter, node: FileNode) -> None:
    """GREATER and its like, of numbers, truth values or int8."""
    y = imp.result(node)
    operands = tuple(operand(imp, node, k, len(y.shape), dtype=None) for k in (0, 1))
    imp.produce(node, g.Compare(node.name, operands, y, node.kind.lower()))


def logic(imp: TfliteImporter, node: FileNode) -> None:
    """LOGICAL_AND, LOGICAL_OR: a choice between the operands; LOGICAL_NOT: a comparison with false."""
    y = imp.result(node)
    x = operand(imp, node, 0, len(y.shape), dtype=None)
    if node.kind == "LOGICAL_NOT":
        no = imp.constant(f"{node.name}.false", np.zeros((1,) * len(y.shape), bool))
        imp.produce(node, g.Compare(node.name, (x, no), y, "equal"))
        return
    other = operand(imp, node, 1, len(y.shape), dtype=None)
    values = (x, other, x) if node.kind == "LOGICAL_AND" else (x, x, other)
    imp.produce(node, g.Select(node.name, values, y))


def select(imp: TfliteImporter, node: FileNode) -> None:
    """SELECT, whose condition may be one element per entry of the first dimension, and SELECT_V2, which broadcasts."""
    y = imp.result(node, plain=True)
    condition, *values = (imp.activation(node, k, plain=True, dtype=None) for k in range(3))
    if node.kind == "SELECT" and len(condition.shape) == 1 < len(y.shape):
        condition = imp.reshape(f"{node.name}.rows", condition, (*condition.shape, *(1,) * (len(y.shape) - 1)))
    imp.produce(node, g.Select(node.name, (condition, *values), y), plain=True)


def one_hot(imp: TfliteImporter, node: FileNode) -> None:
    """ONE_HOT: a choice between two constants along a new dimension."""
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    count, rank = int(imp.number(node, 1)), len(imp.file.tensors[node.outputs[0]].shape)
    axis = dimension(node.option("axis", -1), rank)
    values = [imp.activation(node, k, plain=True, dtype=None) for k in (2, 3)]
    along = np.arange(count).reshape(*(count if k == axis else 1 for k in range(rank))).astype(x.dtype)
    x = imp.reshape(f"{node.name}.column", x, tuple(1 if k == axis else n for k, n in enumerate(y.shape)))
    positions = imp.constant(f"{node.name}.positions", along)
    equal = imp.add(g.Compare, (x, positions), g.Tensor(f"{node.name}.there", y.shape, "bool"), "equal")
    imp.produce(node, g.Select(node.name, (equal, *values), y), plain=True)


def axes_of(imp: TfliteImporter, node: FileNode, x: g.Tensor) -> tuple[int, ...]:
    """The axes at input 1, counted from the first, each once. Raises `Refused` for one that `x` does not have."""
    return tuple(sorted({dimension(int(a), len(x.shape)) for a in imp.known(node, 1).reshape(-1)}))


def reduce(name: str) -> Handler:
    """A handler of a reduction along constant axes, of float32 or integers."""

    def make(imp: TfliteImporter, node: FileNode, x: g.Tensor, y: g.Tensor) -> g.Operator:
        return g.NumberReduce(node.name, (x,), y, name, axes_of(imp, node, x))

    return unary(make, plain=True, dtype=None)


def sloped(imp: TfliteImporter, node: FileNode, x: g.Tensor, y: g.Tensor) -> g.Operator:
    """LEAKY_RELU of float32."""
    slope = np.full((1,) * len(x.shape), node.option("alpha", 0.0), np.float32)
    return g.NumberBinary(node.name, (x, imp.constant(f"{node.name}.alpha", slope)), y, "leaky_relu")


def softmax(imp: TfliteImporter, node: FileNode, x: g.Tensor, y: g.Tensor) -> g.Operator:
    """SOFTMAX and LOG_SOFTMAX of float32, along the last dimension."""
    if node.kind == "SOFTMAX" and node.option("beta", 0.0) != 1.0:
        raise Refused(f"has beta {node.option('beta', 0.0)}; of float32 only 1 is supported")
    return g.FloatSoftmax(node.name, (x,), y, len(x.shape) - 1, node.kind == "LOG_SOFTMAX")


def _weights(imp: TfliteImporter, node: FileNode) -> np.ndarray:
    """Constant weights of float32, at input 1. Raises `Refused` for others."""
    weight, info = imp.known(node, 1), imp.info(node, 1)
    if info.type != "FLOAT32":
        x = imp.info(node, _FIRST.get(node.kind, 0)).name
        raise Refused(
            f"has float32 input {x!r} and weights of {info.type.lower()} (dynamic quantisation); "
            f"tilewright quantise {imp.file.path} --calibration DATA.npz makes an int8 network of it"
        )
    return weight


def _biases(imp: TfliteImporter, node: FileNode, position: int, count: int) -> np.ndarray:
    return imp.known(node, position).reshape(-1) if imp.given(node, position) else np.zeros(count, np.float32)


def convolution(imp: TfliteImporter, node: FileNode) -> None:
    """CONV_2D and DEPTHWISE_CONV_2D of float32, by weights of float32, or of int8 with a scale per channel."""
    x, y, depthwise = imp.activation(node, 0, dtype=None), imp.result(node), node.kind == "DEPTHWISE_CONV_2D"
    size, strides, scale = layers.image(x), layers.strides_of(node), None
    if imp.info(node, 1).type == "INT8" and imp.info(node, 1).scale.size > 1:
        weight, scale = layers.weights(imp, node, 1, 3 if depthwise else 0)
    else:
        weight = _weights(imp, node)
    weight = weight.transpose((3, 0, 1, 2) if depthwise else TO_NCHW)
    dilations = node.option("dilationHFactor", 1), node.option("dilationWFactor", 1)
    groups = x.shape[1] // weight.shape[1]
    parts = np.ascontiguousarray(weight), _biases(imp, node, 2, len(weight))
    geometry = strides, layers.padding(node, size, reach(weight.shape[2:], dilations), strides), dilations, groups

    def make(name: str, out: g.Tensor) -> g.Operator:
        if scale is not None:
            return g.HybridConv2d(name, (x,), out, *parts, *geometry, weight_scale=scale)
        return g.FloatConv2d(name, (x,), out, *parts, *geometry, ordered=True)

    _emit_activated(imp, node, y, make)


def transposed(imp: TfliteImporter, node: FileNode) -> None:
    """TRANSPOSE_CONV of float32."""
    weight, x, y = _weights(imp, node), imp.activation(node, 2, dtype=None), imp.result(node)
    pads = layers.cropped(node, layers.image(x), layers.image(y), weight.shape[1:3])
    parts = np.ascontiguousarray(weight.transpose(3, 0, 1, 2)), _biases(imp, node, 3, len(weight))
    geometry = layers.strides_of(node), pads

    def make(name: str, out: g.Tensor) -> g.Operator:
        return g.FloatConvTranspose2d(name, (x,), out, *parts, *geometry, ordered=True)

    _emit_activated(imp, node, y, make)


def pool(cls: type[g.FloatMaxPool] | type[g.FloatAveragePool]) -> Handler:
    """A handler of a pooling of float32 images."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x, y, strides = imp.activation(node, 0, dtype=None), imp.result(node), layers.strides_of(node)
        kernel = layers.window(node)
        pads = layers.padding(node, layers.image(x), kernel, strides)
        _emit_activated(imp, node, y, lambda name, out: cls(name, (x,), out, kernel, strides, pads))

    return convert


def resize(imp: TfliteImporter, node: FileNode, x: g.Tensor, y: g.Tensor) -> g.Operator:
    """RESIZE_BILINEAR of float32."""
    flags = bool(node.option("alignCorners", False)), bool(node.option("halfPixelCenters", False))
    return g.NumberResize(node.name, (x,), y, *flags)


def matmul(imp: TfliteImporter, node: FileNode) -> None:
    """BATCH_MATMUL of float32."""
    operands = []
    for k, option in enumerate(("adjX", "adjY")):
        x = imp.activation(node, k, plain=True, dtype=None)
        if node.option(option, False):
            axes = (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2)
            x = imp.relayout(x, imp.unused(f"{node.name}.{k}"), axes)
        operands.append(x)
    op = g.FloatMatMul(node.name, tuple(operands), imp.result(node, plain=True), ordered=True)
    imp.produce(node, op, plain=True)


def normalised(imp: TfliteImporter, node: FileNode) -> None:
    """L2_NORMALIZATION of float32: divided by the root of the sum of squares along the last dimension."""
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    least = imp.constant(f"{node.name}.least", np.full((1,) * len(x.shape), _LEAST_NORM, np.float32))
    squares = imp.add(g.NumberFunction, (x,), replace(x, name=f"{node.name}.squares"), "square")
    sums = replace(x, name=f"{node.name}.sums", shape=(*x.shape[:-1], 1))
    sums = imp.add(g.NumberReduce, (squares,), sums, "sum", (len(x.shape) - 1,))
    root = imp.add(g.NumberFunction, (sums,), replace(sums, name=f"{node.name}.root"), "sqrt")
    norm = imp.add(g.NumberBinary, (root, least), replace(sums, name=f"{node.name}.norm"), "maximum")
    imp.produce(node, g.NumberBinary(node.name, (x, norm), y, "div"), plain=True)


def gelu(imp: TfliteImporter, node: FileNode) -> None:
    """GELU of float32."""
    function("gelu_tanh" if node.option("approximate", False) else "gelu")(imp, node)


def embedding(imp: TfliteImporter, node: FileNode) -> None:
    """EMBEDDING_LOOKUP: rows of a table, at the positions of the first input; of an integer table the real values."""
    where, y, info = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True), imp.info(node, 1)
    if y.dtype == "float32" and info.type == "INT8" and info.data is not None:
        table = imp.constant(f"{node.name}.table", dequantised(info))
    else:
        table = imp.activation(node, 1, plain=True, dtype=None)
    imp.produce(node, g.Gather(node.name, (table, where), y, 0), plain=True)


def dense(imp: TfliteImporter, node: FileNode) -> None:
    """FULLY_CONNECTED of float32 with constant weights of float32 or int8."""
    hybrid = imp.info(node, 1).type == "INT8"
    weight, scale = layers.weights(imp, node, 1, 0) if hybrid else (_weights(imp, node), None)
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    bias = imp.known(node, 2) if imp.given(node, 2) else np.zeros(len(weight), np.float32)
    rows = imp.reshape(f"{node.name}.rows", x, (x.nbytes // 4 // weight.shape[1], weight.shape[1]))
    kind = node.option("fusedActivationFunction", _ACTIVATION.NONE)
    flat = replace(y, name=f"{node.name}.sums", shape=(rows.shape[0], len(weight)))
    if scale is None:
        flat = imp.add(g.NumberDense, (rows,), flat, weight, bias)
    else:
        facts = per_channel(scale, len(weight)), bool(node.option("asymmetricQuantizeInputs", False))
        flat = imp.add(g.HybridDense, (rows,), flat, weight, bias, *facts)
    if kind != _ACTIVATION.NONE:
        flat = imp.add(g.NumberFunction, (flat,), replace(flat, name=f"{node.name}.clamped"), _activation(kind))
    imp.produce(node, g.Reshape(node.name, (flat,), y), plain=True)


def _activation(kind: int) -> str:
    """The function of a fused activation. Raises `Refused` for one that is no rectifier."""
    if kind not in _ACTIVATIONS:
        raise Refused(f"has fused activation {kind}; only none, RELU, RELU6 and RELU_N1_TO_1 are supported")
    return _ACTIVATIONS[kind]


def cast(imp: TfliteImporter, node: FileNode) -> None:
    """CAST of the values as the file has them, without their quantisation."""
    raw, y = imp.outside(node.inputs[0]), imp.result(node, plain=True)
    x = raw or imp.activation(node, 0, plain=True, dtype=None)
    if raw is None and imp.info(node, 0).unsigned:
        if y.dtype not in ("float32", "int32", "int64"):
            raise Refused(f"casts a quantised uint8 tensor to {y.dtype}; only float32, int32 and int64 are supported")
        part = imp.add(g.Cast, (x,), replace(y, name=f"{node.name}.int8"))
        middle = imp.constant(f"{node.name}.128", np.array([128], y.dtype))
        imp.produce(node, g.NumberBinary(node.name, (part, middle), y, "add"), plain=True)
        return
    imp.produce(node, g.Cast(node.name, (x,), y), plain=True)


def gather(imp: TfliteImporter, node: FileNode) -> None:
    """GATHER of computed positions along one axis, or of some for each of the first dimensions."""
    x, where = (imp.activation(node, k, plain=True, dtype=None) for k in (0, 1))
    axis, batches = (
        dimension(node.option("axis", 0), len(x.shape)),
        node.option("batchDims", 0) % (len(where.shape) + 1),
    )
    if batches:
        _gather_each(imp, node, x, where, axis, batches)
        return
    if not imp.info(node, 1).shape:  # one position: its dimension goes
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        part = replace(imp.result(node, plain=True), name=f"{node.name}.row", shape=shape)
        part = imp.add(g.Gather, (x, where), part, axis)
        imp.produce(node, g.Reshape(node.name, (part,), imp.result(node, plain=True)), plain=True)
        return
    imp.produce(node, g.Gather(node.name, (x, where), imp.result(node, plain=True), axis), plain=True)


def _gather_each(imp: TfliteImporter, node: FileNode, x: g.Tensor, where: g.Tensor, axis: int, batches: int) -> None:
    """GATHER with `batches` leading dimensions in both inputs: positions count within each batch.

    `x` as (batches, around the axis, axis, behind) becomes (batches * axis, ...), and positions count from each batch.
    """
    if axis != batches:
        raise Refused(f"has axis {axis} and batch_dims {batches}; only equal ones are supported")
    count, size, each = math.prod(x.shape[:batches]), x.shape[axis], math.prod(where.shape[batches:])
    rows = imp.reshape(f"{node.name}.rows", x, (count * size, *x.shape[axis + 1 :]))
    positions = imp.reshape(f"{node.name}.positions", where, (count, each))
    first = imp.constant(f"{node.name}.first", (np.arange(count) * size).astype(where.dtype)[:, None])
    place = replace(positions, name=f"{node.name}.place", data=None)
    place = imp.add(g.NumberBinary, (positions, first), place, "add")
    y = imp.result(node, plain=True)
    part = replace(y, name=f"{node.name}.taken", shape=(count, each, *x.shape[axis + 1 :]))
    part = imp.add(g.Gather, (rows, place), part, 0)
    imp.produce(node, g.Reshape(node.name, (part,), y), plain=True)


def gather_nd(imp: TfliteImporter, node: FileNode) -> None:
    """GATHER_ND at computed positions."""
    x, where = (imp.activation(node, k, plain=True, dtype=None) for k in (0, 1))
    imp.produce(node, g.GatherNd(node.name, (x, where), imp.result(node, plain=True)), plain=True)


# operator -> its handler for float32 and integers, where the operator is another than on quantised values
HANDLERS: dict[str, Handler] = {
    **{kind: binary(kind.lower()) for kind in ("ADD", "DIV", "MAXIMUM", "MINIMUM", "MUL", "POW", "PRELU", "SUB")},
    **{kind: function(kind.lower()) for kind in ("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOG")},
    **{kind: function(kind.lower()) for kind in ("LOGISTIC", "NEG", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1")},
    **{kind: function(kind.lower()) for kind in ("ROUND", "RSQRT", "SIGN", "SIN", "SQRT", "SQUARE", "TANH")},
    **{kind: reduce(kind.lower()) for kind in ("MEAN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN")},
    **{kind: reduce(kind.lower()) for kind in ("REDUCE_PROD", "SUM")},
    "ADD_N": sum_of_all,
    "AVERAGE_POOL_2D": pool(g.FloatAveragePool),
    "BATCH_MATMUL": matmul,
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": convolution,
    "FULLY_CONNECTED": dense,
    "GELU": gelu,
    "L2_NORMALIZATION": normalised,
    "LEAKY_RELU": unary(sloped, dtype=None),
    "LOG_SOFTMAX": unary(softmax, plain=True, dtype=None),
    "MAX_POOL_2D": pool(g.FloatMaxPool),
    "RESIZE_BILINEAR": unary(resize, dtype=None),
    "SOFTMAX": unary(softmax, plain=True, dtype=None),
    "SQUARED_DIFFERENCE": binary("squared_difference"),
    "TRANSPOSE_CONV": transposed,
}
