"""Constant weights of layers: one scale per output channel, int8 parts of wider ones."""

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


def int8_parts(weight: np.ndarray) -> list[np.ndarray]:
    """int8 weights whose sum is `weight`: one, or several where zero points take weights out of int8."""
    parts, rest = list[np.ndarray](), weight
    while not parts or rest.any():
        parts.append(np.ascontiguousarray(np.clip(rest, -128, 127).astype(np.int8)))
        rest = rest - parts[-1]
    return parts


def repeated(imp: Builder, name: str, x: g.Tensor, groups: int, count: int) -> g.Tensor:
    """`x` with the channels of each group `count` times, for weights in as many parts."""
    if count == 1:
        return x
    n, c, *size = x.shape
    pixels = math.prod(size)
    rows = imp.reshape(f"{name}.groups", x, (n, groups, c // groups, pixels))
    joined = like(x, f"{name}.twice", (n, groups, count * c // groups, pixels))
    joined = imp.add(g.Concat, (rows,) * count, joined, 2)
    return imp.reshape(f"{name}.doubled", joined, (n, count * c, *size))
