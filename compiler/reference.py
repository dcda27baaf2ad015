"""The numpy interpreter of a quantised network: what a graph computes, exactly.

Convolutions and dense layers are computed here from their definition (compiler/graph.py); element-wise operators
and pooling are the functions of runtime/hostops.py, which are their definition.
"""

from __future__ import annotations

import numpy as np

from ..hw.errors import InputError, UnsupportedError
from ..runtime import hostops
from .graph import AveragePool, Dequantize, Graph, Linear, MaxPool, Op, QConv2d, QDense, Quantize, Reshape


def accumulate(op: Linear, x: np.ndarray) -> np.ndarray:
    """The int32 accumulators of a layer on int8 `x`: `bias + sum((x - zero_point) * weight)`, wrapping.

    Sums of int8 products stay below 2**53, so float64 matrix products are exact.
    """
    centred = x.astype(np.float64) - op.x.zero_point
    weight = op.weight.astype(np.float64)
    if isinstance(op, QConv2d):
        windows = _windows(op, centred)
        sums = np.moveaxis(np.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3))), 3, 1)
        bias = op.bias.reshape(-1, 1, 1)
    else:
        sums, bias = centred @ weight.T, op.bias
    return (sums.astype(np.int64) + bias).astype(np.int32)


def _windows(op: QConv2d, x: np.ndarray) -> np.ndarray:
    """(n, c, oh, ow, kh, kw): what each output pixel sees of centred `x`, whose padding is 0."""
    top, left, bottom, right = op.pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (kh, kw), (sh, sw), (dh, dw) = op.weight.shape[2:], op.strides, op.dilations
    view = np.lib.stride_tricks.sliding_window_view(x, ((kh - 1) * dh + 1, (kw - 1) * dw + 1), (2, 3))
    return view[:, :, ::sh, ::sw, ::dh, ::dw]


def run(
    graph: Graph, inputs: dict[str, np.ndarray], contract: str = "double"
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(outputs by tensor name, int32 accumulators by layer name) of `graph` on `inputs` by tensor name.

    The inputs may hold more samples than the graph's batch dimension says: all of them are computed at once.
    `contract` is the rounding contract of hw/rounding.py. Raises `InputError` for missing inputs or wrong shapes.
    """
    values: dict[str, np.ndarray] = {}
    accumulators: dict[str, np.ndarray] = {}
    for t in graph.inputs:
        if t.name not in inputs:
            raise InputError(f"input {t.name!r} is missing; given are {', '.join(inputs) or 'none'}")
        x = np.asarray(inputs[t.name])
        if x.shape[1:] != t.shape[1:] or x.ndim != len(t.shape):
            raise InputError(f"input {t.name!r} has shape {x.shape}; expected (N, {', '.join(map(str, t.shape[1:]))})")
        values[t.name] = x
    for op in graph.ops:
        x = values[op.x.name]
        if isinstance(op, Linear):
            x = accumulators[op.name] = accumulate(op, x)
        values[op.output.name] = _apply(op, x, contract)
    return {t.name: values[t.name] for t in graph.outputs}, accumulators


def _apply(op: Op, x: np.ndarray, contract: str) -> np.ndarray:
    """The operator's output; `x` is its input, or its accumulators if it has any."""
    y = op.output
    if isinstance(op, (QConv2d, QDense)):
        multiplier, exponent = op.multipliers
        clamp = {"zero_point": y.zero_point, "low": op.low, "high": op.high}
        return hostops.requantise(x, multiplier=multiplier, exponent=exponent, **clamp, contract=contract)
    if isinstance(op, Quantize):
        return hostops.quantize(x, scale=y.scale, zero_point=y.zero_point)
    if isinstance(op, Dequantize):
        return hostops.dequantize(x, scale=op.x.scale, zero_point=op.x.zero_point)
    if isinstance(op, MaxPool):
        return hostops.max_pool(x, kernel=op.kernel, strides=op.strides, pads=op.pads)
    if isinstance(op, AveragePool):
        multiplier, exponent = op.multipliers
        points = {"x_zero_point": op.x.zero_point, "zero_point": y.zero_point}
        scale = {"multiplier": multiplier, "exponent": exponent, "contract": contract}
        return hostops.average_pool(x, kernel=op.kernel, strides=op.strides, **points, **scale)
    if isinstance(op, Reshape):
        return x.reshape(len(x) // op.x.shape[0] * y.shape[0], *y.shape[1:])
    raise UnsupportedError(f"{type(op).__name__} {op.name!r}: the reference does not compute this operator")
