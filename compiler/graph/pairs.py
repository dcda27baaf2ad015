"""Images of few channels in pairs of columns: two pixels of at most half a block of channels share one entry.

A convolution into few channels, a depthwise one on them and a pointwise one out of them leave half of the lanes of
every entry empty. Between them a pixel can be two columns of the image: `o` channels of the left one, then `o` of the
right one. The convolutions become others that compute the same integers with half the entries; their weights are those
of the originals, moved, and zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .. import graph as g
from .rewrite import Producers, Rule, rewrite


@dataclass(frozen=True, eq=False)
class PairedConv(g.StandIn, g.QConv2d):
    """A convolution of or into pairs of columns."""


@dataclass(frozen=True, eq=False)
class UnpairedConv(g.StandIn, g.QConvTranspose2d):
    """A pointwise convolution of pairs of columns, whose output has the columns one by one."""


def pair_columns(graph: g.Graph, block: int) -> g.Graph:
    """`graph` with every such sequence of three convolutions computed in pairs, for blocks of `block` channels."""
    found: dict[str, g.Operator] = {}

    def paired(op: g.QConv2d, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        middle = None if op.name in found else readers.only(op)  # the last of three is not the first of three more
        last = None if middle is None else readers.only(middle)
        if isinstance(middle, g.QConv2d) and isinstance(last, g.QConv2d) and _pairable(op, middle, last, block):
            found.update((new.name, new) for new in (_into(op), _between(middle), _out_of(last)))
        return [found[op.name]] if op.name in found else None

    return rewrite(graph, Rule(g.QConv2d, paired))


def _pairable(first: g.QConv2d, middle: g.QConv2d, last: g.QConv2d, block: int) -> bool:
    o = len(first.weight)
    depthwise = middle.depthwise and len(middle.weight) == middle.groups
    pointwise = last.weight.shape[2:] == (1, 1) and last.strides == (1, 1) and not any(last.pads)
    even = not any(op.output.shape[3] % 2 for op in (first, middle))
    steady = middle.strides[1] == 1 and middle.output.shape[3] == first.output.shape[3]
    dilated = first.dilations[1] > 1 or middle.dilations[1] > 1
    narrow = all(op.weight.dtype == np.int8 and not op.ternary for op in (first, middle, last))
    fits = narrow and first.groups == last.groups == 1 and 2 * o <= block and len(first.weight[0]) < block
    kinds = depthwise and pointwise and fits
    return kinds and even and steady and not dilated and min(_right(first), _reach(middle)[1]) >= 0


def _right(op: g.QConv2d) -> int:
    """The columns of padding on the right that the outputs need: the given ones without those that none reads."""
    return (op.output.shape[3] - 1) * op.strides[1] + op.weight.shape[3] - op.x.shape[3] - op.pads[1]


def _reach(op: g.QConv2d) -> tuple[int, int]:
    """(first, last) pair that a pair of outputs reads, relative to its own."""
    return -op.pads[1] // 2, (op.weight.shape[3] - op.pads[1]) // 2


def _paired(t: g.Tensor) -> g.Tensor:
    n, c, h, w = t.shape
    return replace(t, name=f"{t.name}.pairs", shape=(n, 2 * c, h, w // 2))


def _convolution(op: g.QConv2d, x: g.Tensor, weight: np.ndarray, stride: int, pads: tuple[int, int]) -> PairedConv:
    """`op` of `x` and into pairs: `stride` is that of columns, `pads` are left and right; `weight` (2 * O, ...)."""
    return PairedConv(
        op.name,
        (x,),
        _paired(op.output),
        weight,
        np.tile(op.weight_scale, 2),
        np.tile(op.bias, 2),
        op.low,
        op.high,
        (op.strides[0], stride),
        (op.pads[0], pads[0], op.pads[2], pads[1]),
        op.dilations,
        work=op.macs,
        **op.scaling,
    )


def _into(op: g.QConv2d) -> PairedConv:
    o, c, kh, kw = op.weight.shape
    step = op.strides[1]
    weight = np.zeros((2, o, c, kh, kw + step), np.int8)
    for k in range(2):
        weight[k, ..., k * step : k * step + kw] = op.weight
    return _convolution(op, op.x, weight.reshape(2 * o, c, kh, -1), 2 * step, (op.pads[1], _right(op)))


def _between(op: g.QConv2d) -> PairedConv:
    o, _, kh, kw = op.weight.shape
    low, high = _reach(op)
    weight = np.zeros((2, o, 2, o, kh, high - low + 1), np.int8)
    channel = np.arange(o)
    for k in range(2):
        for tap in range(kw):
            pair, column = divmod(k + tap - op.pads[1], 2)
            weight[k, channel, column, channel, :, pair - low] = op.weight[:, 0, :, tap]
    return _convolution(op, _paired(op.x), weight.reshape(2 * o, 2 * o, kh, -1), op.strides[1], (-low, high))


def _out_of(op: g.QConv2d) -> UnpairedConv:
    o, c, *_ = op.weight.shape
    weight = np.zeros((o, 2, c, 1, 2), np.int8)
    for k in range(2):
        weight[:, k, :, :, k] = op.weight[..., 0]
    facts = {"weight_scale": op.weight_scale, "bias": op.bias, "low": op.low, "high": op.high, "strides": (1, 2)}
    facts |= op.scaling
    whole = weight.reshape(o, 2 * c, 1, 2)
    return UnpairedConv(op.name, (_paired(op.x),), op.output, whole, **facts, work=op.macs)
