"""Graphs of integers computed by PyTorch: an implementation apart from numpy's kernels, which must agree in every bit.

Products and sums are float64, whose 53 bits hold them; requantisation is in int64 with the rounding contract `double`
of hw/rounding.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....compiler import graph as g
from ....compiler.graph.elementwise import ADD_SHIFT
from ....hw.errors import UnsupportedError
from .backend import F, torch

BITS = 31


def scores(graph: g.Graph, images: np.ndarray) -> np.ndarray:
    """The outputs (N, ...) of a graph of one input and one output for float32 images (N, C, H, W).

    Raises `UnsupportedError` for operators that no trained network has.
    """
    values = {graph.inputs[0].name: torch.from_numpy(images)}
    for op in graph.ops:
        compute = _OPERATORS.get(type(op))
        if compute is None:
            raise UnsupportedError(f"operator {op.name!r}: a {type(op).__name__} is none of a trained network")
        values[op.output.name] = compute(op, *(values[t.name] for t in op.inputs))
    return values[graph.outputs[0].name].numpy()


def rescaled(acc: Any, multiplier: Any, exponent: Any) -> Any:
    """int64 `acc * multiplier * 2**(exponent - 31)`, rounded twice: ties up, then away from zero."""
    multiplier, exponent = (torch.as_tensor(v, dtype=torch.int64) for v in (multiplier, exponent))
    left, right = exponent.clamp(min=0), (-exponent).clamp(min=0)
    high = (_wrapped(acc << left) * multiplier + (1 << (BITS - 1))) >> BITS
    mask = (torch.ones_like(right) << right) - 1
    above = (high & mask) > ((mask >> 1) + (high < 0).long())
    return (high >> right) + above.long()


def _wrapped(acc: Any) -> Any:
    return ((acc + (1 << BITS)) & ((1 << (BITS + 1)) - 1)) - (1 << BITS)


def _stored(op: Any, acc: Any, multipliers: tuple[Any, Any]) -> Any:
    """The output's int8 values of accumulators, as int64."""
    return (rescaled(acc, *multipliers) + op.output.zero_point).clamp(op.low, op.high)


def _linear(op: g.Linear, x: Any) -> Any:
    shape = (1, -1, *(1,) * (x.ndim - 2))
    centred, weight = (x - op.x.zero_point).double(), torch.from_numpy(op.weight.astype(np.float64))
    if isinstance(op, g.QConv2d):
        top, left, bottom, right = op.pads
        padded = F.pad(centred, (left, right, top, bottom))
        acc = F.conv2d(padded, weight, None, op.strides, 0, op.dilations, op.groups)
    else:
        acc = F.linear(centred, weight)
    acc = acc.long() + torch.from_numpy(op.bias.astype(np.int64)).reshape(shape)
    multiplier, exponent = (torch.from_numpy(v).reshape(shape) for v in op.multipliers)
    return _stored(op, acc, (multiplier, exponent))


def _add(op: g.Add, x: Any, y: Any) -> Any:
    total: Any = 0
    for value, tensor, parameters in zip((x, y), op.inputs, op.multipliers):
        total = total + rescaled((value - tensor.zero_point) << ADD_SHIFT, *parameters)
    return _stored(op, total, op.multipliers[2])


def _mean(op: g.AveragePool, x: Any) -> Any:
    ones = torch.ones((x.shape[1], 1, *op.kernel), dtype=torch.float64)
    acc = F.conv2d((x - op.x.zero_point).double(), ones, None, op.strides, groups=x.shape[1]).long()
    return _stored(op, acc, op.multipliers)


def _max(op: g.MaxPool, x: Any) -> Any:
    return F.max_pool2d(x.double(), op.kernel, op.strides).long()


def _quantize(op: g.Quantize, x: Any) -> Any:
    return (torch.round(x / op.output.scale) + op.output.zero_point).clamp(-128, 127).long()


def _dequantize(op: g.Dequantize, x: Any) -> Any:
    return (x - op.x.zero_point).float() * torch.tensor(op.x.scale, dtype=torch.float32)


def _cut(op: g.StridedSlice, x: Any) -> Any:
    ends = (first + n for first, n in zip(op.begin, op.output.shape))
    return x[(slice(None), *(slice(*pair) for pair in list(zip(op.begin, ends))[1:]))]


def _join(op: g.Concat, *x: Any) -> Any:
    return torch.cat(x, op.axis)


def _reshape(op: g.Reshape, x: Any) -> Any:
    return x.reshape(len(x), *op.output.shape[1:])


_OPERATORS: dict[type, Callable[..., Any]] = {
    g.Add: _add,
    g.AveragePool: _mean,
    g.Concat: _join,
    g.Dequantize: _dequantize,
    g.MaxPool: _max,
    g.QConv2d: _linear,
    g.QDense: _linear,
    g.Quantize: _quantize,
    g.Reshape: _reshape,
    g.StridedSlice: _cut,
}
