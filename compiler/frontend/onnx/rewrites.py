"""Composed operators of ONNX as elementary ones, by name: norms, choices, functions, sums of products."""

from __future__ import annotations

import math
import string

import numpy as np
from onnx import TensorProto

from ..core import Node
from .nodes import Chain, Reader, Rewrite, as_float


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


def _einsum(reader: Reader, node: Node) -> list[Node] | None:
    """One or two operands and a result of letters, none twice in one of them, and no size of 1 in another's place."""
    shapes = [reader.shapes[t] for t in node.inputs]
    letters = _letters(node.attrs["equation"].decode(), [len(shape) for shape in shapes])
    if letters is None or len(shapes) > 2 or not letters[-1]:
        return None
    *terms, result = letters
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes):
        for letter, n in zip(term, shape):
            if sizes.setdefault(letter, n) != n:
                return None
    chain = Chain(reader, node)
    if len(terms) == 1:
        y, found = _summed(chain, node.inputs[0], terms[0], result)
    else:
        alone = [_summed(chain, t, term, other + result) for t, term, other in zip(node.inputs, terms, terms[::-1])]
        y, found = _product(chain, alone, result, sizes)
    chain.add("Transpose", y, perm=[found.index(letter) for letter in result])
    return chain.finish()


def _letters(equation: str, ranks: list[int]) -> list[str] | None:
    """The letters of each operand and of the result, those that an ellipsis stands for included."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        return None
    counts = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks)]
    if any(count < 0 or (count > 0 and "..." not in term) for term, count in zip(terms, counts)):
        return None
    free = [letter for letter in string.ascii_letters if letter not in equation][: max(0, *counts)]
    whole = [term.replace("...", "".join(free[len(free) - count :])) for term, count in zip(terms, counts)]
    if not arrow:
        named = sorted(letter for letter in set("".join(whole)) - set(free) if "".join(whole).count(letter) == 1)
        right = "".join(("..." if free else "", *named))
    found = [*whole, right.replace("...", "".join(free))]
    return found if all(len(set(term)) == len(term) for term in found) else None


def _summed(chain: Chain, x: str, term: str, kept: str) -> tuple[str, str]:
    """`x` summed along the letters that are not `kept`, and the letters that remain."""
    axes = [k for k, letter in enumerate(term) if letter not in kept]
    return chain.add("ReduceSum", x, axes=axes, keepdims=0) if axes else x, "".join(c for c in term if c in kept)


def _product(chain: Chain, operands: list[tuple[str, str]], result: str, sizes: dict[str, int]) -> tuple[str, str]:
    """A product of matrices, and its letters: those of both, of the first and of the second operand."""
    (_, first), (_, second) = operands
    both = "".join(c for c in first if c in second and c in result)
    summed = "".join(c for c in first if c in second and c not in result)
    rows, columns = ("".join(c for c in term if c not in both + summed) for term in (first, second))
    matrices = []
    for (x, term), parts in zip(operands, ((both, rows, summed), (both, summed, columns))):
        turned = chain.add("Transpose", x, perm=[term.index(c) for c in "".join(parts)])
        matrices.append(chain.reshape(turned, *(math.prod(sizes[c] for c in part) for part in parts)))
    found = both + rows + columns
    return chain.reshape(chain.add("MatMul", *matrices), *(sizes[c] for c in found)), found


def _running_sum(reader: Reader, node: Node) -> list[Node] | None:
    axis, shape = reader.value(node.inputs[1]), reader.shapes[node.inputs[0]]
    if axis is None or reader.types[node.inputs[0]] != TensorProto.FLOAT:
        return None
    place = int(axis.reshape(-1)[0]) % len(shape)
    taken = np.triu(np.ones((shape[place], shape[place]), np.float32), node.attrs.get("exclusive", 0))
    perm = [*(k for k in range(len(shape)) if k != place), place]
    chain = Chain(reader, node)
    y = chain.add("MatMul", chain.add("Transpose", node.inputs[0], perm=perm), as_float(_turned(taken, node)))
    chain.add("Transpose", y, perm=np.argsort(perm).tolist())
    return chain.finish()


def _turned(taken: np.ndarray, node: Node) -> np.ndarray:
    return np.ascontiguousarray(taken[::-1, ::-1]) if node.attrs.get("reverse", 0) else taken


def _triangle(reader: Reader, node: Node) -> list[Node] | None:
    """The upper or the lower triangle of matrices."""
    k, shape = reader.value(node.inputs[1]) if node.input(1) else np.zeros(1), reader.shapes[node.inputs[0]]
    if k is None or reader.types[node.inputs[0]] != TensorProto.FLOAT:
        return None
    cut = np.triu if node.attrs.get("upper", 1) else np.tril
    chain = Chain(reader, node)
    chain.add("Mul", node.inputs[0], cut(np.ones(shape[-2:], np.float32), int(k.reshape(-1)[0])))
    return chain.finish()


def _vectors(reader: Reader, node: Node) -> list[Node] | None:
    """A product of matrices one of which is a row or a column."""
    x, y = node.inputs
    shapes = reader.shapes[x], reader.shapes[y]
    if min(map(len, shapes)) > 1 or not all(shapes):
        return None
    chain, (first, second) = Chain(reader, node), shapes
    x = chain.reshape(x, 1, *first) if len(first) == 1 else x
    y = chain.reshape(y, *second, 1) if len(second) == 1 else y
    before = np.broadcast_shapes(first[:-2], second[:-2])
    ends = (*first[-2:-1], *second[-1:]) if len(second) > 1 else first[-2:-1]
    chain.reshape(chain.add("MatMul", x, y), *before, *ends)
    return chain.finish()


ARITHMETIC: dict[str, Rewrite] = {
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
    "CumSum": _running_sum,
    "Einsum": _einsum,
    "MatMul": _vectors,
    "Trilu": _triangle,
}
