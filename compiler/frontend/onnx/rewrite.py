"""Composed operators of ONNX as elementary ones: normalisations, n-ary operators, orders of pixels, old softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from .nodes import LIKE, REAL, Node, Reader
from .qlinear import QLINEAR

Rewrite = Callable[[Reader, Node], "list[Node] | None"]


class Chain:
    """Nodes that take the place of `node`: `add` appends one on earlier results, the last has the node's name."""

    def __init__(self, reader: Reader, node: Node):
        self.reader, self.node = reader, node
        self.nodes: list[Node] = []

    def add(self, op: str, *inputs: str | np.ndarray, **attrs: object) -> str:
        """The result of a new node; an array among its inputs becomes a constant."""
        names = [t if isinstance(t, str) else self.reader.constant(t, f"{self.node.name}.constant") for t in inputs]
        name = f"{self.node.name}.{len(self.nodes)}"
        output = self.reader.unused(f"{name}.y")
        self.nodes.append(Node(op, name, names, [output], dict(attrs)))
        return output

    def finish(self) -> list[Node]:
        """The nodes, the last of which writes what the node wrote."""
        self.nodes[-1].outputs = self.node.outputs[:1]
        self.nodes[-1].name = self.node.name
        return self.nodes


def _float(array: object) -> np.ndarray:
    return np.asarray(array, np.float32)


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
    y = chain.add("Mul", node.inputs[0], _float(factor).reshape(shape))
    chain.add("Add", y, _float(beta - mean * factor).reshape(shape))
    return chain.finish()


def _normalised(chain: Chain, x: str, axes: list[int], epsilon: float) -> str:
    """(x - mean) / sqrt(variance + epsilon) over `axes`."""
    d = chain.add("Sub", x, chain.add("ReduceMean", x, axes=axes))
    variance = chain.add("ReduceMean", chain.add("Mul", d, d), axes=axes)
    return chain.add("Div", d, chain.add("Sqrt", chain.add("Add", variance, _float([epsilon]))))


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


def _global_pool(reduction: str) -> Rewrite:
    def rewrite(reader: Reader, node: Node) -> list[Node]:
        axes = list(range(2, len(reader.shapes[node.inputs[0]])))
        return [Node(reduction, node.name, node.inputs[:1], node.outputs, {"axes": axes})]

    return rewrite


def _chain_of(op: str) -> Rewrite:
    """An operator on any number of inputs, two at a time."""

    def rewrite(reader: Reader, node: Node) -> list[Node] | None:
        if len(node.inputs) == 2 and node.op == op:
            return None
        if len(node.inputs) == 1:
            return [Node("Identity", node.name, node.inputs, node.outputs)]
        chain, y = Chain(reader, node), node.inputs[0]
        for other in node.inputs[1:]:
            y = chain.add(op, y, other)
        return chain.finish()

    return rewrite


def _depth_to_space(reader: Reader, node: Node) -> list[Node]:
    n, c, h, w = reader.shapes[node.inputs[0]]
    size, chain = node.attrs["blocksize"], Chain(reader, node)
    crd = node.attrs.get("mode", b"DCR") == b"CRD"
    split = [n, c // size**2, size, size, h, w] if crd else [n, size, size, c // size**2, h, w]
    y = chain.add("Reshape", node.inputs[0], np.array(split, np.int64))
    y = chain.add("Transpose", y, perm=[0, 1, 4, 2, 5, 3] if crd else [0, 3, 4, 1, 5, 2])
    chain.add("Reshape", y, np.array([n, c // size**2, h * size, w * size], np.int64))
    return chain.finish()


def _space_to_depth(reader: Reader, node: Node) -> list[Node]:
    n, c, h, w = reader.shapes[node.inputs[0]]
    size, chain = node.attrs["blocksize"], Chain(reader, node)
    y = chain.add("Reshape", node.inputs[0], np.array([n, c, h // size, size, w // size, size], np.int64))
    y = chain.add("Transpose", y, perm=[0, 3, 5, 1, 2, 4])
    chain.add("Reshape", y, np.array([n, c * size**2, h // size, w // size], np.int64))
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
    scaled = chain.add("Mul", mean, _float([node.attrs.get("alpha", 1e-4)]))
    root = chain.add(
        "Pow", chain.add("Add", scaled, _float([node.attrs.get("bias", 1.0)])), _float([node.attrs.get("beta", 0.75)])
    )
    chain.add("Div", x, root)
    return chain.finish()


def _where(reader: Reader, node: Node) -> list[Node] | None:
    """A choice that is known when the file is read, between values and constants."""
    condition, x, y = (reader.real(t) for t in node.inputs)
    if condition is None or (x is None) == (y is None):
        return None
    if y is not None:
        known, other, taken = y, node.inputs[1], condition
    else:
        known, other, taken = np.asarray(x), node.inputs[2], ~condition
    chain = Chain(reader, node)
    kept = chain.add("Mul", other, _float(taken))
    chain.add("Add", kept, _float(np.where(taken, 0, known)))
    return chain.finish()


def _expand(reader: Reader, node: Node) -> list[Node] | None:
    shape = reader.value(node.inputs[1])
    if shape is None:
        return None
    chain = Chain(reader, node)
    chain.add("Mul", node.inputs[0], np.ones(shape.tolist(), np.float32))
    return chain.finish()


def _tile(reader: Reader, node: Node) -> list[Node] | None:
    repeats = reader.value(node.inputs[1])
    if repeats is None:
        return None
    chain, y = Chain(reader, node), node.inputs[0]
    for axis, count in enumerate(repeats.tolist()):
        if count > 1:
            y = chain.add("Concat", *[y] * count, axis=axis)
    return chain.finish() if chain.nodes else [Node("Identity", node.name, node.inputs[:1], node.outputs)]


def _dynamic_quantize(reader: Reader, node: Node) -> list[Node]:
    """Integers that are computed when the network runs, as float32: y, its scale and its zero point."""
    x, (y, scale, zero) = node.inputs[0], node.outputs
    chain, flat = Chain(reader, node), {"axes": list(range(len(reader.shapes[x])))}
    high = chain.add("Max", chain.add("ReduceMax", x, **flat), _float([0]))
    low = chain.add("Min", chain.add("ReduceMin", x, **flat), _float([0]))
    step = chain.add("Div", chain.add("Sub", high, low), _float([255]))
    start = chain.add("Neg", chain.add("Div", low, step))
    bounds = _float(0), _float(255)
    zero_point = chain.add("Round", chain.add("Clip", start, *bounds))
    steps = chain.add("Add", chain.add("Round", chain.add("Div", x, step)), zero_point)
    values = chain.add("Clip", steps, *bounds)
    one = np.array([1], np.int64)
    for result, name in ((values, y), (step, scale), (zero_point, zero)):
        if name:
            inputs = [result] if name == y else [result, reader.constant(one, f"{node.name}.shape")]
            chain.nodes.append(Node("Identity" if name == y else "Reshape", f"{node.name}.{name}", inputs, [name]))
    return chain.nodes


def _resize(reader: Reader, node: Node) -> list[Node] | None:
    """A gather per axis for the nearest pixels, else a matrix per axis."""
    x, nearest = node.inputs[0], node.attrs.get("mode", b"nearest") == b"nearest"
    sizes, scales = (reader.value(t) if t else None for t in (node.input(3), node.input(2)))
    crops = node.attrs.get("coordinate_transformation_mode", b"half_pixel") == b"tf_crop_and_resize"
    stretched = node.attrs.get("keep_aspect_ratio_policy", b"stretch") == b"stretch"
    if crops or not stretched or node.attrs.get("antialias", 0):
        return None
    given, by_size = (sizes, True) if sizes is not None and sizes.size else (scales, False)
    if given is None:
        return None
    shape, chain = reader.shapes[x], Chain(reader, node)
    axes = [k % len(shape) for k in node.attrs.get("axes", range(len(shape)))]
    changed = [k for k, axis in enumerate(axes) if given[k] != (shape[axis] if by_size else 1)]
    if not nearest and any(axes[k] < len(shape) - 2 for k in changed):
        return None
    integers = not nearest and reader.types[x] != TensorProto.FLOAT
    if integers:
        x = chain.add(REAL, x)
    for k in changed:
        matrix = _along(reader, node, shape[axes[k]], given[k], by_size)
        if nearest:
            x = chain.add("Gather", x, matrix.argmax(1).astype(np.int64), axis=axes[k])
        elif axes[k] == len(shape) - 1:
            x = chain.add("MatMul", x, np.ascontiguousarray(matrix.T))
        else:
            x = chain.add("MatMul", matrix, x)
    if integers:
        chain.add(LIKE, x, node.inputs[0])
    return chain.finish() if chain.nodes else [Node("Identity", node.name, [x], node.outputs)]


def _along(reader: Reader, node: Node, size: int, given: np.ndarray, by_size: bool) -> np.ndarray:
    """float32 (new size, size): what a resize does along one axis, by ONNX's reference."""
    kept = {key: value for key, value in node.attrs.items() if key != "axes"}
    one = Node("Resize", "resize", ["x", "", "", "given"] if by_size else ["x", "", "given"], ["y"], kept)
    amounts = np.array([size if by_size else 1, given], np.int64 if by_size else np.float32)
    (rows,) = reader.evaluate(one, [np.eye(size, dtype=np.float32), amounts])
    return np.ascontiguousarray(rows.T, np.float32)


REWRITES: dict[str, Rewrite] = {
    "BatchNormalization": _batch_normalization,
    "DepthToSpace": _depth_to_space,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Expand": _expand,
    "GlobalAveragePool": _global_pool("ReduceMean"),
    "GlobalMaxPool": _global_pool("ReduceMax"),
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LRN": _local_response,
    "LogSoftmax": _softmax,
    "Max": _chain_of("Max"),
    "Min": _chain_of("Min"),
    "Resize": _resize,
    "Softmax": _softmax,
    "SpaceToDepth": _space_to_depth,
    "Sum": _chain_of("Add"),
    "Tile": _tile,
    "Where": _where,
    **QLINEAR,
}
