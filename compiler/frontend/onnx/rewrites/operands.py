"""Operators of ONNX on any number of operands, and those that repeat or choose them, as elementary ones."""

from __future__ import annotations

import numpy as np

from ..nodes import Node, Reader, Rewrite
from .chain import Chain, as_float


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
    kept = chain.add("Mul", other, as_float(taken))
    chain.add("Add", kept, as_float(np.where(taken, 0, known)))
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
    high = chain.add("Max", chain.add("ReduceMax", x, **flat), as_float([0]))
    low = chain.add("Min", chain.add("ReduceMin", x, **flat), as_float([0]))
    step = chain.add("Div", chain.add("Sub", high, low), as_float([255]))
    start = chain.add("Neg", chain.add("Div", low, step))
    bounds = as_float(0), as_float(255)
    zero_point = chain.add("Round", chain.add("Clip", start, *bounds))
    steps = chain.add("Add", chain.add("Round", chain.add("Div", x, step)), zero_point)
    chain.write(y, "Clip", steps, *bounds)
    one = np.array([1], np.int64)
    chain.write(scale, "Reshape", step, one)
    chain.write(zero, "Reshape", zero_point, one)
    return chain.nodes


def _celu(reader: Reader, node: Node) -> list[Node]:
    chain, alpha = Chain(reader, node), node.attrs.get("alpha", 1.0)
    y = chain.add("Elu", chain.add("Div", node.inputs[0], as_float(alpha)), alpha=1.0)
    chain.add("Mul", y, as_float(alpha))
    return chain.finish()


def _shrink(reader: Reader, node: Node) -> list[Node]:
    """Values moved towards 0 by `bias`; those nearer than `lambd` are 0."""
    chain, x = Chain(reader, node), node.inputs[0]
    bias, edge = (as_float(node.attrs.get(key, other)) for key, other in (("bias", 0.0), ("lambd", 0.5)))
    above = chain.add("Relu", chain.add("Sign", chain.add("Sub", x, edge)))
    below = chain.add("Relu", chain.add("Sign", chain.add("Sub", -edge, x)))
    high = chain.add("Mul", above, chain.add("Sub", x, bias))
    chain.add("Add", high, chain.add("Mul", below, chain.add("Add", x, bias)))
    return chain.finish()


def _gelu(reader: Reader, node: Node) -> list[Node]:
    """BiasGelu, and FastGelu by tanh, whose bias may be left out: onnxruntime's own."""
    chain, x = Chain(reader, node), node.inputs[0]
    x = chain.add("Add", x, node.inputs[1]) if node.input(1) else x
    chain.add("Gelu", x, approximate=b"tanh" if node.op == "FastGelu" else b"none")
    return chain.finish()


def _quick_gelu(reader: Reader, node: Node) -> list[Node]:
    chain, x = Chain(reader, node), node.inputs[0]
    gate = chain.add("Sigmoid", chain.add("Mul", x, as_float(node.attrs.get("alpha", 1.702))))
    chain.add("Mul", x, gate)
    return chain.finish()


def _log_sum(reader: Reader, node: Node) -> list[Node]:
    """The logarithm of a sum, or of a sum of powers of e, less the largest."""
    x, axes = node.inputs[0], [*reader.axes(node)]
    chain, powers = Chain(reader, node), node.op == "ReduceLogSumExp"
    most = chain.add("ReduceMax", x, axes=axes) if powers else ""
    summed = chain.add("Exp", chain.add("Sub", x, most)) if powers else x
    y = chain.add("Log", chain.add("ReduceSum", summed, axes=axes))
    y = chain.add("Add", y, most) if powers else y
    kept = node.attrs.get("keepdims", 1)
    shape = [1 if k in axes else n for k, n in enumerate(reader.shapes[x]) if kept or k not in axes]
    chain.reshape(y, *shape)
    return chain.finish()


OPERANDS: dict[str, Rewrite] = {
    "BiasGelu": _gelu,
    "Celu": _celu,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Expand": _expand,
    "FastGelu": _gelu,
    "Max": _chain_of("Max"),
    "Min": _chain_of("Min"),
    "QuickGelu": _quick_gelu,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum,
    "Shrink": _shrink,
    "Sum": _chain_of("Add"),
    "Tile": _tile,
    "Where": _where,
}
