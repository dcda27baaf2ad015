"""Kernels, strides and padding of convolutions and pools, by the attributes of a node; rows are images, too."""

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


class _Attributes:
    """The attributes of a node that slides windows over the spatial dimensions of an input of shape `x`."""

    def __init__(self, node: Node, x: Sequence[int]):
        if len(x) not in (3, 4):
            raise Problem(node, f"has {len(x) - 2} spatial dimensions; only 1 and 2 are supported")
        attrs, n = node.attrs, len(x) - 2
        self.size, self.auto, self.upper = x[2:], attrs.get("auto_pad", "NOTSET"), attrs.get("auto_pad") == "SAME_UPPER"
        self.strides, self.dilations = (list(attrs.get(key, [1] * n)) for key in ("strides", "dilations"))
        self.pads = [0] * 2 * n if self.auto == "VALID" else list(attrs.get("pads", [0] * 2 * n))
        self.same, self.groups = self.auto in ("SAME_UPPER", "SAME_LOWER"), attrs.get("group", 1)

    def geometry(self, pads: Sequence[int]) -> Geometry:
        """The attributes in two dimensions, with `pads` in one or two."""
        return Geometry(_pair(self.strides, 1), _four(pads), _pair(self.dilations, 1), self.groups)


def _pair(values: Sequence[int], fill: int) -> Pair:
    return (fill, values[0]) if len(values) == 1 else (values[0], values[1])


def _four(pads: Sequence[int]) -> Four:
    return (0, pads[0], 0, pads[1]) if len(pads) == 2 else (pads[0], pads[1], pads[2], pads[3])


def convolution(imp: Reading, node: Node, x: Sequence[int], weight: Sequence[int]) -> Geometry:
    """The geometry of a Conv node on an input of shape `x` with weights of that shape."""
    a = _Attributes(node, x)
    out = [-(-size // s) for size, s in zip(a.size, a.strides)]
    return a.geometry(same(a.size, out, reach(weight[2:], a.dilations), a.strides, a.upper) if a.same else a.pads)


def transposed(imp: Reading, node: Node, x: Sequence[int], weight: Sequence[int]) -> Geometry:
    """The geometry of a ConvTranspose node; its pads are cut off, or added where they are negative."""
    a, out = _Attributes(node, x), imp.shape(node, node.outputs[0])[2:]
    total = [(i - 1) * s + r - o for i, s, r, o in zip(a.size, a.strides, reach(weight[2:], a.dilations), out)]
    if "output_shape" in node.attrs or a.same:
        begin = [t // 2 if a.upper else t - t // 2 for t in total]
    else:
        begin = a.pads[: len(total)]
    if min(begin) < 0:
        raise Problem(node, "has an output_shape larger than what its kernel reaches, which is not supported")
    return a.geometry([*begin, *(t - b for t, b in zip(total, begin))])


def window(imp: Reading, node: Node, x: Sequence[int]) -> tuple[Pair, Pair, Four]:
    """(kernel, strides, pads) of a pool; `ceil_mode` adds padding after the last window's begin."""
    a, kernel = _Attributes(node, x), list(node.attrs["kernel_shape"])
    out, n = imp.shape(node, node.outputs[0])[2:], len(kernel)
    pads = same(a.size, out, kernel, a.strides, a.upper) if a.same else a.pads
    for k in range(n):
        pads[n + k] = max(pads[n + k], (out[k] - 1) * a.strides[k] + kernel[k] - a.size[k] - pads[k])
    return _pair(kernel, 1), _pair(a.strides, 1), _four(pads)
