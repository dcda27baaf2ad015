"""Composed operators of ONNX as elementary ones: norms, choices, functions, sums of products, running sums.

A function takes the inputs of the operator (None where one is left out) and, as keywords, its attributes. It returns
the result, or None to keep the node, which is refused by name where no other module reads it.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto, helper

from .nodes import Chain, Rewrite, Term, as_float


def _column(x: Term) -> tuple[int, ...]:
    """The shape of one number per channel that broadcasts to `x`."""
    return (-1,) + (1,) * (len(x.shape) - 2)


def _batch_normalization(
    c: Chain, x: Term, *parameters: Term, epsilon: float = 1e-5, training_mode: int = 0
) -> Term | None:
    arrays = [parameter.real for parameter in parameters]
    if len(arrays) < 4 or any(a is None for a in arrays) or training_mode:
        return None
    gamma, beta, mean, variance = (np.asarray(a, np.float64) for a in arrays)
    if (variance < 0).any():
        return None
    factor = gamma / np.sqrt(variance + epsilon)
    return x * as_float(factor).reshape(_column(x)) + as_float(beta - mean * factor).reshape(_column(x))


def _normalised(x: Term, axes: Sequence[int], epsilon: float) -> Term:
    """(x - mean) / sqrt(variance + epsilon) over `axes`."""
    d = x - x.node("ReduceMean", axes=axes)
    return d / ((d * d).node("ReduceMean", axes=axes) + epsilon).node("Sqrt")


def _layer_normalization(
    c: Chain, x: Term, scale: Term, bias: Term | None = None, *, axis: int = -1, epsilon: float = 1e-5
) -> Term | None:
    if any(c.node.outputs[1:]):
        return None
    y = _normalised(x, x.axes_from(axis), epsilon) * scale
    return y if bias is None else y + bias


def _instance_normalization(c: Chain, x: Term, scale: Term, bias: Term, *, epsilon: float = 1e-5) -> Term | None:
    if scale.real is None or bias.real is None:
        return None
    y = _normalised(x, range(2, len(x.shape)), epsilon)
    return y * scale.real.reshape(_column(x)) + bias.real.reshape(_column(x))


def _group_normalization(
    c: Chain, x: Term, scale: Term, bias: Term, *, num_groups: int, epsilon: float = 1e-5
) -> Term | None:
    if scale.real is None or bias.real is None or x.shape[1] % num_groups:
        return None
    rows = x.reshape(x.shape[0], num_groups, -1)
    y = _normalised(rows, [2], epsilon).reshape(*x.shape)
    return y * scale.real.reshape(_column(x)) + bias.real.reshape(_column(x))


def _unit_root_mean_square(x: Term, axes: Sequence[int], epsilon: float) -> Term:
    """`x / sqrt(mean of squares over axes + epsilon)`."""
    return x / ((x * x).node("ReduceMean", axes=axes) + epsilon).node("Sqrt")


def _root_mean_square(c: Chain, x: Term, scale: Term, *, axis: int = -1, epsilon: float = 1e-5) -> Term | None:
    return None if any(c.node.outputs[1:]) else _unit_root_mean_square(x, x.axes_from(axis), epsilon) * scale


def product_and_sum(
    x: Term, y: Term, bias: Term | None, *, alpha: float = 1.0, beta: float = 1.0, transA: float = 0, transB: float = 0
) -> Term:
    """What a Gemm computes, of matrices in the last two dimensions: `alpha * x @ y + beta * bias`."""
    first, second = (x.swapped() if transA else x), (y.swapped() if transB else y)
    total = first.node("MatMul", second)
    total = total if alpha == 1.0 else total * alpha
    if bias is None:
        return total
    return total + (bias if beta == 1.0 else bias * beta)


def _gemm(c: Chain, x: Term, y: Term, bias: Term | None = None, **attrs: float) -> Term | None:
    """A Gemm of more dimensions than ONNX gives it, as files have that went through Deeploy."""
    return None if len(x.shape) == 2 else product_and_sum(x, y, bias, **attrs)


def _fused_product(
    c: Chain, x: Term, y: Term, *, transBatchA: int = 0, transBatchB: int = 0, **attrs: float
) -> Term | None:
    """Onnxruntime's FusedMatMul."""
    return None if transBatchA or transBatchB else product_and_sum(x, y, None, **attrs)


def _fused(op: str) -> Rewrite:
    """`op` and an activation, as onnxruntime's optimiser joins them; `activation_params` are those of a Conv's."""

    def rewrite(
        c: Chain, *inputs: Term | None, activation: str = "", activation_params: Sequence[float] = (), **attrs: object
    ) -> Term | None:
        own = {
            key: attrs.pop(f"activation_{key}") for key in ("alpha", "beta", "gamma") if f"activation_{key}" in attrs
        }
        if own.pop("gamma", 0) or (activation == "Clip" and own) or (inputs[3:] and op == "Conv"):
            return None
        y = c.add(op, *inputs, **attrs)
        if activation == "Clip":
            return y.node(activation, *activation_params)
        return y.node(activation, **(own | dict(zip(("alpha", "beta"), activation_params)))) if activation else y

    return rewrite


def _deeploy_root_mean_square(c: Chain, x: Term, scale: Term, *, eps: float = 1e-6) -> Term:
    return _unit_root_mean_square(x, x.axes_from(-1), eps) * scale


def _mean_variance(c: Chain, x: Term, *, axes: Sequence[int] = (0, 2, 3)) -> Term:
    d = x - x.node("ReduceMean", axes=axes)
    return d / ((d * d).node("ReduceMean", axes=axes).node("Sqrt") + 1e-9)


def _unit_length(c: Chain, x: Term, *, axis: int = -1, p: int = 2) -> Term:
    """Vectors of length 1; of a vector of zeros, zeros."""
    length = x.node("ReduceL1" if p == 1 else "ReduceL2", axes=[axis])
    return x / length.node("Max", float(np.finfo(np.float32).tiny))


def _rotary_embedding(
    c: Chain, x: Term, cos: Term, sin: Term, positions: Term | None = None, *, interleaved: int = 0,
    num_heads: int = 0, rotary_embedding_dim: int = 0,
) -> Term | None:  # fmt: skip
    """Pairs of features (RoPE) turned by angles of their position; x is (N, heads, T, D) or (N, T, heads * D)."""
    if c.node.domain:
        return None  # onnxruntime's own has other inputs
    shape, rows = x.shape, len(x.shape) == 3
    batch, length = shape[0], shape[1 if rows else 2]
    y = x.reshape(batch, length, num_heads, -1) if rows else x
    size = shape[-1] // num_heads if rows else shape[-1]
    turned = rotary_embedding_dim or size
    angles = [t if positions is None else t.node("Gather", positions, axis=0) for t in (cos, sin)]
    real, imaginary = (t.reshape(*((batch, length, 1) if rows else (batch, 1, length)), turned // 2) for t in angles)
    features = np.arange(turned).reshape((-1, 2) if interleaved else (2, -1))
    a, b = (y.take(part, 3) for part in (features.T if interleaved else features))
    parts = [a * real - b * imaginary, a * imaginary + b * real]
    if turned < size:
        parts.append(y.take(np.arange(turned, size), 3))
    y = c.add("Concat", *parts, axis=3)
    if interleaved:
        y = y.take(np.concatenate([np.arange(turned).reshape(2, -1).T.reshape(-1), np.arange(turned, size)]), 3)
    return y.reshape(*shape) if rows else y


def _skip_layer_normalization(
    c: Chain, x: Term, skip: Term, gamma: Term, beta: Term | None = None, bias: Term | None = None, *,
    epsilon: float = 1e-12,
) -> tuple[Term | None, ...] | None:  # fmt: skip
    """The normalisation of a sum of two tensors and a bias, onnxruntime's own. Its last result is the sum."""
    if any(c.node.outputs[1:3]) or gamma.shape != x.shape[-1:]:
        return None
    total = x + skip if bias is None else x + skip + bias
    y = _normalised(total, [len(x.shape) - 1], epsilon) * gamma
    return (y if beta is None else y + beta), None, None, total


def _skip_root_mean_square(
    c: Chain, x: Term, skip: Term, gamma: Term, bias: Term | None = None, *, epsilon: float = 1e-5
) -> tuple[Term | None, ...] | None:
    """`_skip_layer_normalization` without the mean."""
    if any(c.node.outputs[1:3]):
        return None
    total = x + skip if bias is None else x + skip + bias
    return _unit_root_mean_square(total, x.axes_from(-1), epsilon) * gamma, None, None, total


def _local_response(
    c: Chain, x: Term, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Term:
    """Values over (bias + alpha * mean of squares of neighbouring channels) ** beta: channels are rows of an image."""
    rows = (x * x).reshape(x.shape[0], 1, x.shape[1], -1)
    window = {"kernel_shape": [size, 1], "pads": [(size - 1) // 2, 0, size // 2, 0], "count_include_pad": 1}
    mean = rows.node("AveragePool", **window).reshape(*x.shape)
    return x / (mean * alpha + bias).node("Pow", beta)


def _softmax(c: Chain, x: Term, *, axis: int | None = None) -> Term | None:
    """Before opset 13 softmax is over all dimensions from the axis on."""
    old, shape = c.reader.opset < 13, x.shape
    axis = (axis if axis is not None else 1 if old else -1) % len(shape)
    if not old or all(n == 1 for n in shape[axis + 1 :]):
        c.node.attrs["axis"] = axis
        return None
    return x.reshape(int(np.prod(shape[:axis])), -1).node(c.node.op, axis=1).reshape(*shape)


def _pairwise(op: str) -> Rewrite:
    """`op` on any number of inputs, two at a time."""

    def rewrite(c: Chain, x: Term, *others: Term) -> Term | None:
        if len(others) == 1 and c.node.op == op:
            return None
        for other in others:
            x = x.node(op, other)
        return x

    return rewrite


def _expand(c: Chain, x: Term, shape: Term) -> Term | None:
    if shape.value is None or x.type == TensorProto.BOOL:
        return None
    return x * np.ones(shape.value.tolist(), helper.tensor_dtype_to_np_dtype(x.type))


def _tile(c: Chain, x: Term, repeats: Term) -> Term | None:
    if repeats.value is None:
        return None
    for axis, count in enumerate(repeats.value.tolist()):
        if count > 1:
            x = c.add("Concat", *[x] * count, axis=axis)
    return x


def _mean(c: Chain, *inputs: Term) -> Term:
    return c.add("Sum", *inputs) / float(len(inputs))


def _celu(c: Chain, x: Term, *, alpha: float = 1.0) -> Term:
    return (x / alpha).node("Elu", alpha=1.0) * alpha


def _shrink(c: Chain, x: Term, *, bias: float = 0.0, lambd: float = 0.5) -> Term:
    """Values moved towards 0 by `bias`; those nearer than `lambd` are 0."""
    above = (x - lambd).node("Sign").node("Relu")
    below = (-lambd - x).node("Sign").node("Relu")
    return above * (x - bias) + below * (x + bias)


def _gelu(c: Chain, x: Term, bias: Term | None = None) -> Term:
    """BiasGelu, and FastGelu by tanh, whose bias may be left out: onnxruntime's own."""
    x = x if bias is None else x + bias
    return x.node("Gelu", approximate="tanh" if c.node.op == "FastGelu" else "none")


def _sigmoid_product(alpha: float) -> Rewrite:
    """`x * sigmoid(alpha * x)`, `alpha` where the file has none."""
    return lambda c, x, *, alpha=alpha: x * (x if alpha == 1 else x * alpha).node("Sigmoid")


def _log_sum(c: Chain, x: Term, *_: Term, keepdims: int = 1, **attrs: object) -> Term:
    """The logarithm of a sum, or of a sum of powers of e, less the largest."""
    axes, powers = c.reader.axes(c.node), c.node.op == "ReduceLogSumExp"
    most = x.node("ReduceMax", axes=axes) if powers else None
    summed = x if most is None else (x - most).node("Exp")
    y = summed.node("ReduceSum", axes=axes).node("Log")
    y = y if most is None else y + most
    return y.reshape(*(1 if k in axes else n for k, n in enumerate(x.shape) if keepdims or k not in axes))


def _einsum(c: Chain, first: Term, *others: Term, equation: str) -> Term | None:
    """Sums of products of one or two operands. No letter may stand twice in a term, or for two sizes."""
    operands = [first, *others]
    letters = _letters(equation, [len(x.shape) for x in operands])
    if letters is None or len(operands) > 2 or not letters[-1]:
        return None
    *terms, result = letters
    sizes: dict[str, int] = {}
    for term, x in zip(terms, operands):
        if any(sizes.setdefault(letter, n) != n for letter, n in zip(term, x.shape)):
            return None
    if len(terms) == 1:
        y, order = _summed(operands[0], terms[0], result)
    else:
        alone = [_summed(x, term, other + result) for x, term, other in zip(operands, terms, terms[::-1])]
        y, order = _product(c, alone, result, sizes)
    return y.transpose(order.index(letter) for letter in result)


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
    full = [term.replace("...", "".join(free[len(free) - count :])) for term, count in zip(terms, counts)]
    if not arrow:
        named = sorted(letter for letter in set("".join(full)) - set(free) if "".join(full).count(letter) == 1)
        right = "".join(("..." if free else "", *named))
    letters = [*full, right.replace("...", "".join(free))]
    return letters if all(len(set(term)) == len(term) for term in letters) else None


def _summed(x: Term, term: str, kept: str) -> tuple[Term, str]:
    """`x` summed along the letters that are not `kept`, and the letters that remain."""
    axes = [k for k, letter in enumerate(term) if letter not in kept]
    return x.node("ReduceSum", axes=axes, keepdims=0) if axes else x, "".join(c for c in term if c in kept)


def _product(c: Chain, operands: list[tuple[Term, str]], result: str, sizes: dict[str, int]) -> tuple[Term, str]:
    """(product of matrices, its letters: batch dimensions, rows of the first operand, columns of the second)."""
    (_, first), (_, second) = operands
    batch = "".join(letter for letter in first if letter in second and letter in result)
    summed = "".join(letter for letter in first if letter in second and letter not in result)
    rows, columns = ("".join(c for c in term if c not in batch + summed) for term in (first, second))
    matrices = []
    for (x, term), parts in zip(operands, ((batch, rows, summed), (batch, summed, columns))):
        turned = x.transpose(term.index(letter) for letter in "".join(parts))
        matrices.append(turned.reshape(*(math.prod(sizes[letter] for letter in part) for part in parts)))
    order = batch + rows + columns
    return c.add("MatMul", *matrices).reshape(*(sizes[letter] for letter in order)), order


def _running_sum(c: Chain, x: Term, axis: Term, *, exclusive: int = 0, reverse: int = 0) -> Term | None:
    if axis.value is None or x.type != TensorProto.FLOAT:
        return None
    rank = len(x.shape)
    last = int(axis.value.reshape(-1)[0]) % rank
    summed = np.triu(np.ones((x.shape[last], x.shape[last]), np.float32), exclusive)
    perm = [*(k for k in range(rank) if k != last), last]
    summed = np.ascontiguousarray(summed[::-1, ::-1]) if reverse else summed
    return x.transpose(perm).node("MatMul", summed).transpose(np.argsort(perm).tolist())


def _triangle(c: Chain, x: Term, k: Term | None = None, *, upper: int = 1) -> Term | None:
    """The upper or the lower triangle of matrices."""
    diagonal = np.zeros(1) if k is None else k.value
    if diagonal is None or x.type != TensorProto.FLOAT:
        return None
    cut = np.triu if upper else np.tril
    return x * cut(np.ones(x.shape[-2:], np.float32), int(diagonal.reshape(-1)[0]))


def _vectors(c: Chain, x: Term, y: Term) -> Term | None:
    """A matrix product with a vector: the vector becomes a row or a column."""
    first, second = x.shape, y.shape
    if min(len(first), len(second)) > 1 or not first or not second:
        return None
    a = x.reshape(1, *first) if len(first) == 1 else x
    b = y.reshape(*second, 1) if len(second) == 1 else y
    before = np.broadcast_shapes(first[:-2], second[:-2])
    ends = (*first[-2:-1], *second[-1:]) if len(second) > 1 else first[-2:-1]
    return a.node("MatMul", b).reshape(*before, *ends)


ARITHMETIC: dict[str, Rewrite] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _softmax,
    "LpNormalization": _unit_length,
    "LRN": _local_response,
    "MeanVarianceNormalization": _mean_variance,
    "FusedConv": _fused("Conv"),
    "FusedGemm": _fused("Gemm"),
    "FusedMatMul": _fused_product,
    "Gemm": _gemm,
    "RMSNorm": _deeploy_root_mean_square,
    "RMSNormalization": _root_mean_square,
    "RotaryEmbedding": _rotary_embedding,
    "SimplifiedLayerNormalization": _root_mean_square,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_root_mean_square,
    "Softmax": _softmax,
    "BiasGelu": _gelu,
    "Celu": _celu,
    "Expand": _expand,
    "FastGelu": _gelu,
    "CastLike": lambda c, x, like: x.node("Cast", to=like.type),
    "Max": _pairwise("Max"),
    "Mean": _mean,
    "Min": _pairwise("Min"),
    "QuickGelu": _sigmoid_product(1.702),
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum,
    "Shrink": _shrink,
    "Sum": _pairwise("Add"),
    "Swish": _sigmoid_product(1.0),
    "Tile": _tile,
    "CumSum": _running_sum,
    "Einsum": _einsum,
    "MatMul": _vectors,
    "Trilu": _triangle,
}
