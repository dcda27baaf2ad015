"""Constant weights of layers: one scale per output channel, int8 parts of those that are wider."""

from __future__ import annotations

import math

import numpy as np

from ... import graph as g
from ..core import Builder, Node, like
from ..values import Weights


def of_bytes(weight: Weights) -> bool:
    """True if the integers of the file are int8 or uint8."""
    return weight.integers.dtype in (np.int8, np.uint8)


def dense_weights(node: Node, weight: Weights) -> tuple[np.ndarray, np.ndarray] | None:
    """((O, I), scales); None where there is one scale per input."""
    if weight.integers.ndim != 2:
        return None
    channel = 0 if node.attrs.get("transB", 0) else 1
    centred = weight.centred if channel == 0 else weight.centred.T
    return scaled(centred, weight, channel)


def scaled(weight: np.ndarray, source: Weights, channel: int) -> tuple[np.ndarray, np.ndarray] | None:
    """`weight`, and one scale per output channel, which is dimension `channel` in the file."""
    if source.scale.size > 1 and source.axis != channel:
        return None
    return weight, np.broadcast_to(source.scale.astype(np.float64), (source.integers.shape[channel],))


def halves(weight: np.ndarray) -> list[np.ndarray]:
    """int8 weights whose sum is `weight`: one, or two where zero points take weights out of int8."""
    first = np.clip(weight, -128, 127)
    parts = [first] if (first == weight).all() else [first, weight - first]
    return [np.ascontiguousarray(part.astype(np.int8)) for part in parts]


def doubled(imp: Builder, name: str, x: g.Tensor, groups: int) -> g.Tensor:
    """`x` with the channels of each group twice, for weights in two parts."""
    n, c, *size = x.shape
    pixels = math.prod(size)
    rows = imp.reshape(f"{name}.groups", x, (n, groups, c // groups, pixels))
    twice = like(x, f"{name}.twice", (n, groups, 2 * c // groups, pixels))
    twice = imp.add(g.Concat, (rows, rows), twice, 2)
    return imp.reshape(f"{name}.doubled", twice, (n, 2 * c, *size))
