"""Kernels, strides and padding of convolutions and pools, whatever way a node gives them; rows are images, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core import Node, Problem
from ..linear import reach, same
from .nodes import Reading

Pair = tuple[int, int]
Four = tuple[int, int, int, int]


class Geometry(NamedTuple):
    """(h, w) each; `pads` is (top, left, bottom, right)."""

    strides: Pair
    pads: Four
    dilations: Pair
    groups: int


def _spatial(node: Node, rank: int) -> int:
    if rank not in (3, 4):
        raise Problem(node, f"has {rank - 2} spatial dimensions; only 1 and 2 are supported")
    return rank - 2


def _pair(values: Sequence[int], fill: int) -> Pair:
    return (fill, values[0]) if len(values) == 1 else (values[0], values[1])


def _four(pads: Sequence[int]) -> Four:
    return (0, pads[0], 0, pads[1]) if len(pads) == 2 else (pads[0], pads[1], pads[2], pads[3])


def convolution(imp: Reading, node: Node, x: Sequence[int], weight: Sequence[int]) -> Geometry:
    """The geometry of a Conv node on an input of shape `x` with weights of that shape."""
    n, attrs = _spatial(node, len(x)), node.attrs
    ones, kernel = [1] * n, list(weight[2:])
    strides, dilations = attrs.get("strides", ones), attrs.get("dilations", ones)
    pads, auto = list(attrs.get("pads", [0] * 2 * n)), attrs.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        out = [-(-size // s) for size, s in zip(x[2:], strides)]
        pads = same(x[2:], out, reach(kernel, dilations), strides, auto == "SAME_UPPER")
    elif auto == "VALID":
        pads = [0] * 2 * n
    return Geometry(_pair(strides, 1), _four(pads), _pair(dilations, 1), attrs.get("group", 1))


def transposed(imp: Reading, node: Node, x: Sequence[int], weight: Sequence[int]) -> Geometry:
    """The geometry of a ConvTranspose node; its pads are cut off, or added where they are negative."""
    n, attrs = _spatial(node, len(x)), node.attrs
    ones = [1] * n
    strides, dilations = attrs.get("strides", ones), attrs.get("dilations", ones)
    out = imp.shape(node, node.outputs[0])[2:]
    total = [(i - 1) * s + r - o for i, s, r, o in zip(x[2:], strides, reach(weight[2:], dilations), out)]
    auto = attrs.get("auto_pad", "NOTSET")
    if "output_shape" in attrs or auto in ("SAME_UPPER", "SAME_LOWER"):
        begin = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total]
    else:
        begin = list(attrs.get("pads", [0] * n))[:n] if auto == "NOTSET" else [0] * n
    if min(begin) < 0:
        raise Problem(node, "has an output_shape larger than what its kernel reaches, which is not supported")
    pads = [*begin, *(t - b for t, b in zip(total, begin))]
    return Geometry(_pair(strides, 1), _four(pads), _pair(dilations, 1), attrs.get("group", 1))


def window(imp: Reading, node: Node, x: Sequence[int]) -> tuple[Pair, Pair, Four]:
    """(kernel, strides, pads) of a pool; `ceil_mode` adds padding after the last window's begin."""
    n, attrs = _spatial(node, len(x)), node.attrs
    kernel, strides = list(attrs["kernel_shape"]), list(attrs.get("strides", [1] * n))
    pads, auto = list(attrs.get("pads", [0] * 2 * n)), attrs.get("auto_pad", "NOTSET")
    out = imp.shape(node, node.outputs[0])[2:]
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = same(x[2:], out, kernel, strides, auto == "SAME_UPPER")
    elif auto == "VALID":
        pads = [0] * 2 * n
    for k in range(n):
        pads[n + k] = max(pads[n + k], (out[k] - 1) * strides[k] + kernel[k] - x[2 + k] - pads[k])
    return _pair(kernel, 1), _pair(strides, 1), _four(pads)
