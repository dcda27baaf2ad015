"""Operators of .tflite files on plain numbers: float32 and integers between, before and behind the quantised ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ... import graph as g
from .elementwise import Handler, operand
from .file import FileNode, schema
from .importer import Refused, TfliteImporter

NUMBERS = ("FLOAT32", "INT32", "INT64")
_ACTIVATION = schema.ActivationFunctionType
_ACTIVATIONS = {
    _ACTIVATION.RELU: "relu",
    _ACTIVATION.RELU6: "relu6",
    _ACTIVATION.RELU_N1_TO_1: "relu_n1_to_1",
}


def are_numbers(imp: TfliteImporter, node: FileNode) -> bool:
    """Whether the first input is float32 or integers."""
    return imp.info(node, 0).type in NUMBERS


def function(name: str) -> Handler:
    """A function of one value."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x, y = imp.activation(node, 0, dtype=None), imp.result(node)
        imp.emit(node, g.NumberFunction(node.name, (x,), y, name))

    return convert


def binary(name: str) -> Handler:
    """A function of two operands, with its fused activation."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        y = imp.result(node)
        operands = tuple(operand(imp, node, k, len(y.shape), dtype=None) for k in (0, 1))
        kind = node.option("fusedActivationFunction", _ACTIVATION.NONE)
        if kind == _ACTIVATION.NONE:
            imp.emit(node, g.NumberBinary(node.name, operands, y, name))
            return
        activation = _activation(kind)
        part = replace(y, name=imp.unused(f"{node.name}.linear"))
        imp.ops.append(g.NumberBinary(part.name, operands, part, name))
        imp.emit(node, g.NumberFunction(node.name, (part,), y, activation))

    return convert


def axes_of(imp: TfliteImporter, node: FileNode, x: g.Tensor) -> tuple[int, ...]:
    """The axes at input 1, counted from the first, each once."""
    return tuple(sorted({int(a) % len(x.shape) for a in imp.constant(node, 1).reshape(-1)}))


def reduce(name: str) -> Handler:
    """A reduction along axes."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
        imp.emit(node, g.NumberReduce(node.name, (x,), y, name, axes_of(imp, node, x)), plain=True)

    return convert


def sloped(imp: TfliteImporter, node: FileNode) -> None:
    """LEAKY_RELU of float32."""
    x, y = imp.activation(node, 0, dtype=None), imp.result(node)
    slope = np.full((1,) * len(x.shape), node.option("alpha", 0.0), np.float32)
    alpha = g.Tensor(imp.unused(f"{node.name}.alpha"), slope.shape, "float32", data=slope)
    imp.emit(node, g.NumberBinary(node.name, (x, alpha), y, "leaky_relu"))


def softmax(imp: TfliteImporter, node: FileNode) -> None:
    """SOFTMAX and LOG_SOFTMAX of float32, along the last dimension."""
    if node.kind == "SOFTMAX" and node.option("beta", 0.0) != 1.0:
        raise Refused(f"has beta {node.option('beta', 0.0)}; of float32 only 1 is supported")
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    op = g.FloatSoftmax(node.name, (x,), y, len(x.shape) - 1, node.kind == "LOG_SOFTMAX")
    imp.emit(node, op, plain=True)


def dense(imp: TfliteImporter, node: FileNode) -> None:
    """FULLY_CONNECTED of float32 with constant weights of float32."""
    weight, info = imp.constant(node, 1), imp.info(node, 1)
    if info.type != "FLOAT32":
        raise Refused(
            f"has float32 input {imp.info(node, 0).name!r} and weights of {info.type.lower()} (dynamic quantisation); "
            "quantise activations, too"
        )
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    bias = imp.constant(node, 2) if imp.given(node, 2) else np.zeros(len(weight), np.float32)
    rows = imp.reshape(f"{node.name}.rows", x, (x.nbytes // 4 // weight.shape[1], weight.shape[1]))
    kind = node.option("fusedActivationFunction", _ACTIVATION.NONE)
    flat = replace(y, name=imp.unused(f"{node.name}.sums"), shape=(rows.shape[0], len(weight)))
    imp.ops.append(g.NumberDense(flat.name, (rows,), flat, weight, bias))
    if kind != _ACTIVATION.NONE:
        last = replace(flat, name=imp.unused(f"{node.name}.clamped"))
        imp.ops.append(g.NumberFunction(last.name, (flat,), last, _activation(kind)))
        flat = last
    imp.emit(node, g.Reshape(node.name, (flat,), y), plain=True)


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
        part = replace(y, name=imp.unused(f"{node.name}.int8"))
        imp.ops.append(g.Cast(part.name, (x,), part))
        middle = g.Tensor(imp.unused(f"{node.name}.128"), (1,), y.dtype, data=np.array([128], y.dtype))
        imp.emit(node, g.NumberBinary(node.name, (part, middle), y, "add"), plain=True)
        return
    imp.emit(node, g.Cast(node.name, (x,), y), plain=True)


def gather(imp: TfliteImporter, node: FileNode) -> None:
    """GATHER of computed positions along one axis."""
    x, where = (imp.activation(node, k, plain=True, dtype=None) for k in (0, 1))
    axis = node.option("axis", 0) % len(x.shape)
    if not imp.info(node, 1).shape:  # one position: its dimension goes
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        part = replace(imp.result(node, plain=True), name=imp.unused(f"{node.name}.row"), shape=shape)
        imp.ops.append(g.Gather(part.name, (x, where), part, axis))
        imp.emit(node, g.Reshape(node.name, (part,), imp.result(node, plain=True)), plain=True)
        return
    imp.emit(node, g.Gather(node.name, (x, where), imp.result(node, plain=True), axis), plain=True)


def gather_nd(imp: TfliteImporter, node: FileNode) -> None:
    """GATHER_ND."""
    x, where = (imp.activation(node, k, plain=True, dtype=None) for k in (0, 1))
    imp.emit(node, g.GatherNd(node.name, (x, where), imp.result(node, plain=True)), plain=True)


# operator -> its handler for float32 and integers, where the operator is another than on quantised values
HANDLERS: dict[str, Handler] = {
    **{kind: binary(kind.lower()) for kind in ("ADD", "DIV", "MAXIMUM", "MINIMUM", "MUL", "POW", "PRELU", "SUB")},
    **{kind: function(kind.lower()) for kind in ("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOG")},
    **{kind: function(kind.lower()) for kind in ("LOGISTIC", "NEG", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1")},
    **{kind: function(kind.lower()) for kind in ("ROUND", "RSQRT", "SIGN", "SIN", "SQRT", "SQUARE", "TANH")},
    **{kind: reduce(kind.lower()) for kind in ("MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM")},
    "FULLY_CONNECTED": dense,
    "LEAKY_RELU": sloped,
    "LOG_SOFTMAX": softmax,
    "SOFTMAX": softmax,
    "SQUARED_DIFFERENCE": binary("squared_difference"),
}
