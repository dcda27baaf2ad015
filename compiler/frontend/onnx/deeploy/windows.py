"""Sums of convolutions in int32 on the host: a product of matrices for each group, on all windows of the images."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from .... import graph as g
from ..values import Fixed
from .values import Convolution

if TYPE_CHECKING:
    from .tensors import Tensors


def sums(imp: Tensors, value: Convolution) -> g.Tensor:
    """The sums of a convolution: one product of matrices for each group, on all windows of the padded images."""
    node, x, geometry = value.node, value.x, value.geometry
    top, left, bottom, right = geometry.pads
    if any(geometry.pads):
        pads = ((0, 0), (0, 0), (top, bottom), (left, right))
        shape = tuple(n + before + after for n, (before, after) in zip(x.shape, pads))
        padded = replace(x, name="", shape=shape, data=None)
        x = imp.append(g.Pad(f"{node.name}.padded", (x,), padded, pads, float(x.zero_point)))
    outputs, _, *kernel = value.weight.shape
    groups, (n, c) = geometry.groups, x.shape[:2]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, geometry.dilations)]
    sizes = [(size - r) // s + 1 for size, r, s in zip(x.shape[2:], reach, geometry.strides)]
    places = [
        tuple(k * d + i * s for k in range(count) for i in range(size))
        for count, size, s, d in zip(kernel, sizes, geometry.strides, geometry.dilations)
    ]
    if any(found != tuple(range(size)) for found, size in zip(places, x.shape[2:])):
        taken = replace(x, name="", shape=(n, c, *map(len, places)), data=None)
        x = imp.append(g.Take(f"{node.name}.windows", (x,), taken, ((), (), *places)))
    apart = imp.shaped(x, (n, c, kernel[0], sizes[0], kernel[1], sizes[1]))
    order = (0, 1, 2, 4, 3, 5)
    if kernel != [1, 1]:
        moved = replace(apart, name="", shape=tuple(apart.shape[k] for k in order), data=None)
        apart = imp.append(g.Transpose(f"{node.name}.taps", (apart,), moved, order))
    columns = imp.shaped(apart, (n, groups, c // groups * math.prod(kernel), math.prod(sizes)))
    weight = value.weight.reshape(groups, outputs // groups, -1)
    matrix = imp.constant8(node, Fixed(weight.shape, weight)) or imp.integers32(f"{node.name}.weight", weight)
    found = imp.products(node.name, matrix, columns)
    found = imp.shaped(found, value.shape)
    if not value.bias.any():
        return found
    bias = value.bias.reshape(-1, *[1] * (len(value.shape) - 2))
    return imp.binary(node.name, "add", found, imp.integers32(f"{node.name}.bias", bias))
