"""Normalisations of ONNX, and softmax as old files have it, as elementary operators."""

from __future__ import annotations

import numpy as np

from ..nodes import Node, Reader, Rewrite
from .chain import Chain, as_float


def _batch_normalization(reader: Reader, node: Node) -> list[Node] | None:
    parameters = [reader.real(t) for t in node.inputs[1:5]]
    if len(parameters) < 4 or any(p is None for p in parameters) or node.attrs.get("training_mode", 0):
        return None
    gamma, beta, mean, variance = (np.asarray(p, np.float64) for p in parameters)
    if (variance < 0).any():
        return None
    factor = gamma / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
    shape = (-1,) + (1,) * (len(reader.shapes[node.inputs[0]]) - 2)
    chain = Chain(reader, node)
    y = chain.add("Mul", node.inputs[0], as_float(factor).reshape(shape))
    chain.add("Add", y, as_float(beta - mean * factor).reshape(shape))
    return chain.finish()


def _normalised(chain: Chain, x: str, axes: list[int], epsilon: float) -> str:
    """(x - mean) / sqrt(variance + epsilon) over `axes`."""
    d = chain.add("Sub", x, chain.add("ReduceMean", x, axes=axes))
    variance = chain.add("ReduceMean", chain.add("Mul", d, d), axes=axes)
    return chain.add("Div", d, chain.add("Sqrt", chain.add("Add", variance, as_float([epsilon]))))


def _layer_normalization(reader: Reader, node: Node) -> list[Node] | None:
    if any(node.outputs[1:]):
        return None
    rank = len(reader.shapes[node.inputs[0]])
    chain, axes = Chain(reader, node), list(range(node.attrs.get("axis", -1) % rank, rank))
    y = chain.add("Mul", _normalised(chain, node.inputs[0], axes, node.attrs.get("epsilon", 1e-5)), node.inputs[1])
    if node.input(2):
        chain.add("Add", y, node.inputs[2])
    return chain.finish()


def _instance_normalization(reader: Reader, node: Node) -> list[Node] | None:
    scale, bias = (reader.real(t) for t in node.inputs[1:3])
    if scale is None or bias is None:
        return None
    rank = len(reader.shapes[node.inputs[0]])
    chain, shape = Chain(reader, node), (-1,) + (1,) * (rank - 2)
    y = _normalised(chain, node.inputs[0], list(range(2, rank)), node.attrs.get("epsilon", 1e-5))
    chain.add("Add", chain.add("Mul", y, scale.reshape(shape)), bias.reshape(shape))
    return chain.finish()


def _softmax(reader: Reader, node: Node) -> list[Node] | None:
    """Before opset 13 softmax is over all dimensions from the axis on."""
    shape = reader.shapes[node.inputs[0]]
    axis = node.attrs.get("axis", 1 if reader.opset < 13 else -1) % len(shape)
    if reader.opset >= 13 or all(n == 1 for n in shape[axis + 1 :]):
        node.attrs["axis"] = axis
        return None
    chain, rows = Chain(reader, node), int(np.prod(shape[:axis]))
    y = chain.add("Reshape", node.inputs[0], np.array([rows, -1], np.int64))
    chain.add("Reshape", chain.add(node.op, y, axis=1), np.array(shape, np.int64))
    return chain.finish()


def _local_response(reader: Reader, node: Node) -> list[Node]:
    """Values over (bias + alpha * mean of squares of neighbouring channels) ** beta: channels are rows of an image."""
    x, size, shape = node.inputs[0], node.attrs["size"], reader.shapes[node.inputs[0]]
    chain = Chain(reader, node)
    rows = chain.add("Reshape", chain.add("Mul", x, x), np.array([shape[0], 1, shape[1], -1], np.int64))
    window = {"kernel_shape": [size, 1], "pads": [(size - 1) // 2, 0, size // 2, 0], "count_include_pad": 1}
    mean = chain.add("Reshape", chain.add("AveragePool", rows, **window), np.array(shape, np.int64))
    scaled = chain.add("Mul", mean, as_float([node.attrs.get("alpha", 1e-4)]))
    root = chain.add(
        "Pow",
        chain.add("Add", scaled, as_float([node.attrs.get("bias", 1.0)])),
        as_float([node.attrs.get("beta", 0.75)]),
    )
    chain.add("Div", x, root)
    return chain.finish()


def _group_normalization(reader: Reader, node: Node) -> list[Node] | None:
    scale, bias = (reader.real(t) for t in node.inputs[1:3])
    shape, groups = reader.shapes[node.inputs[0]], node.attrs["num_groups"]
    if scale is None or bias is None or shape[1] % groups:
        return None
    chain, column = Chain(reader, node), (-1,) + (1,) * (len(shape) - 2)
    rows = chain.reshape(node.inputs[0], shape[0], groups, -1)
    y = chain.reshape(_normalised(chain, rows, [2], node.attrs.get("epsilon", 1e-5)), *shape)
    chain.add("Add", chain.add("Mul", y, scale.reshape(column)), bias.reshape(column))
    return chain.finish()


def _root_mean_square(reader: Reader, node: Node) -> list[Node]:
    rank = len(reader.shapes[node.inputs[0]])
    chain, axes = Chain(reader, node), list(range(node.attrs.get("axis", -1) % rank, rank))
    mean = chain.add("ReduceMean", chain.add("Mul", node.inputs[0], node.inputs[0]), axes=axes)
    root = chain.add("Sqrt", chain.add("Add", mean, as_float([node.attrs.get("epsilon", 1e-5)])))
    chain.add("Mul", chain.add("Div", node.inputs[0], root), node.inputs[1])
    return chain.finish()


def _mean_variance(reader: Reader, node: Node) -> list[Node]:
    chain, axes = Chain(reader, node), [*node.attrs.get("axes", (0, 2, 3))]
    d = chain.add("Sub", node.inputs[0], chain.add("ReduceMean", node.inputs[0], axes=axes))
    deviation = chain.add("Sqrt", chain.add("ReduceMean", chain.add("Mul", d, d), axes=axes))
    chain.add("Div", d, chain.add("Add", deviation, as_float([1e-9])))
    return chain.finish()


def _unit_length(reader: Reader, node: Node) -> list[Node]:
    """Vectors of length 1; of a vector of zeros, zeros."""
    chain, norm = Chain(reader, node), "ReduceL1" if node.attrs.get("p", 2) == 1 else "ReduceL2"
    length = chain.add(norm, node.inputs[0], axes=[node.attrs.get("axis", -1)])
    chain.add("Div", node.inputs[0], chain.add("Max", length, as_float([np.finfo(np.float32).tiny])))
    return chain.finish()


def _skip_layer_normalization(reader: Reader, node: Node) -> list[Node] | None:
    """The normalisation of a sum of two tensors and a bias, onnxruntime's own. Its last result is the sum."""
    if any(node.outputs[1:3]):
        return None
    chain, width = Chain(reader, node), reader.shapes[node.inputs[0]][-1]
    if reader.shapes[node.inputs[2]] != (width,):
        return None
    total = chain.add("Add", node.inputs[0], node.inputs[1])
    total = chain.add("Add", total, node.inputs[4]) if node.input(4) else total
    axis = [len(reader.shapes[node.inputs[0]]) - 1]
    y = chain.add("Mul", _normalised(chain, total, axis, node.attrs.get("epsilon", 1e-12)), node.inputs[2])
    y = chain.add("Add", y, node.inputs[3]) if node.input(3) else y
    chain.write(node.outputs[0], "Identity", y)
    chain.write(node.outputs[3] if len(node.outputs) > 3 else "", "Identity", total)
    return chain.nodes


NORMS: dict[str, Rewrite] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _softmax,
    "LpNormalization": _unit_length,
    "LRN": _local_response,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _root_mean_square,
    "SkipLayerNormalization": _skip_layer_normalization,
    "Softmax": _softmax,
}
