"""Transformations of a network for modules that keep activations in blocks of channels. Results stay the same.

Outputs of the graph and next values of its states stay; other tensors may be removed.

Images of few channels become pairs of columns: a convolution into few channels, a depthwise one on them and a pointwise
one out of them leave half of the lanes of every entry empty. Between them a pixel can be two columns of the image, `o`
channels of the left one, then `o` of the right one. The convolutions become others that compute the same integers with
half the entries; their weights are those of the originals, moved, and zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import graph as g
from .rewrite import Producers, Rule, moved_from, reading, rewrite, without_unread


def simplify(graph: g.Graph) -> g.Graph:
    """Merge movements and padding into the operators that read them, and remove operators without readers."""
    movements = Rule(g.StridedSlice, _slice), Rule(g.Reshape, _reshape), Rule(g.Transpose, _transpose)
    svdf = Rule(g.Features, lambda op, readers, producers: [op])  # a convolution has other scales
    return without_unread(rewrite(graph, *movements, svdf, Rule(g.QDense, _dense), Rule(g.QConv2d, _convolution)))


def _slice(op: g.StridedSlice, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
    """A slice that is the whole of its input as a reshape."""
    if op.output.shape != op.x.shape or min(op.strides) < 0:
        return None
    return _reshape(g.Reshape(op.name, op.inputs, op.output), readers, producers)


def _reshape(op: g.Reshape, readers: g.Readers, producers: Producers) -> list[g.Operator]:
    """One movement for those that end with a reshape."""
    before = producers.get(op.x.name)
    if (exchanged := _exchanged(op, producers)) is not None:
        return [exchanged]
    if isinstance(before, g.Reshape):  # it does not read another one: that was merged
        return [replace(op, inputs=before.inputs)]
    return [op]


def _transpose(op: g.Transpose, readers: g.Readers, producers: Producers) -> list[g.Operator] | g.Tensor:
    """A transposition that moves dimensions of 1 only as a reshape; none, where it undoes the one before."""
    if (exchanged := _exchanged(op, producers)) is not None:
        return [exchanged]
    moved = [axis for axis in op.axes if op.x.shape[axis] > 1]
    if moved == sorted(moved):
        return _reshape(g.Reshape(op.name, op.inputs, op.output), readers, producers)
    before = producers.get(op.x.name)
    if isinstance(before, g.Transpose) and all(before.axes[axis] == k for k, axis in enumerate(op.axes)):
        return [op] if op.output.name in readers.wanted else before.x
    return [op]


def _dense(op: g.QDense, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
    """A dense layer on flattened images as a convolution of these."""
    before = producers.get(op.x.name)
    return _flattened(op, before, producers) if isinstance(before, g.Reshape) else None


def _convolution(op: g.QConv2d, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
    """A convolution that pads its input as the operator before it does."""
    pad = producers.get(op.x.name)
    if not isinstance(pad, g.Pad) or pad.value != op.x.zero_point or any(map(any, pad.pads[:2])):
        return None
    pads = tuple(own + pad.pads[2 + k % 2][k // 2] for k, own in enumerate(op.pads))
    return [replace(op, inputs=pad.inputs, pads=pads)]


def _exchanged(op: g.Operator, producers: Producers) -> g.Operator | None:
    """One operator for the movements that end with `op`, where together they exchange channels, and no more."""
    chain = [*moved_from(op.x, producers)[1], op]
    for k, first in enumerate(chain[:-1]):
        x, y = first.x, op.output
        if len(x.shape) != 4 or x.shape != y.shape or not any(isinstance(part, g.Transpose) for part in chain[k:]):
            continue
        places = moved = np.arange(math.prod(x.shape)).reshape(x.shape)
        for part in chain[k:]:
            moved = part.moved(moved)
        channels = moved[0, :, 0, 0] // (x.shape[2] * x.shape[3])
        if (np.diff(channels) != 1).any() and np.array_equal(moved, places[:, channels % x.shape[1]]):
            return g.Take(op.name, (x,), y, ((), tuple(int(c) for c in channels), (), ()))
    return None


@dataclass(frozen=True, eq=False)
class WholeImage(g.QConv2d):
    """A dense layer on flattened images, as a convolution whose kernel is as large as the image."""


def _flattened(op: g.QDense, flat: g.Reshape, producers: Producers) -> list[g.Operator]:
    """The dense layer `op` on the output of `flat`, as a convolution if `flat` flattens an image of several pixels."""
    image, last = flat.x, producers.get(flat.x.name)
    axes = (0, 1, 2, 3)
    if isinstance(last, g.Transpose) and len(last.axes) == 4 and last.axes[0] == 0:
        image, axes = last.x, last.axes
    if len(image.shape) != 4 or image.shape[2] * image.shape[3] == 1 or image.shape[0] != op.x.shape[0]:
        return [op]
    source = producers.get(image.name)
    if flat.x is image and (source is None or source.x.dtype != "int8"):
        return [op]  # nothing computes the image in blocks of channels: its rows are as good as they lie
    if source is not None and source.rearranges and _in_order(source, last if image is not flat.x else None):
        row = g.Reshape(f"{op.name}.row", (source.x,), replace(op.x, name=f"{op.name}.row"))
        return [row, replace(op, inputs=(row.output,))]
    n = image.shape[0]
    order = [image.shape[axis] for axis in axes[1:]]
    back = [1 + axes[1:].index(axis) for axis in (1, 2, 3)]
    weight = np.ascontiguousarray(op.weight.reshape(-1, *order).transpose(0, *back))
    y = replace(op.output, name=f"{op.output.name}.image", shape=(n, len(weight), 1, 1))
    parameters = weight, op.weight_scale, op.bias, op.low, op.high
    conv = WholeImage(f"{op.name}.image", (image,), y, *parameters, ternary=op.ternary, **op.scaling)
    return [conv, g.Reshape(op.name, (y,), op.output)]


def _in_order(first: g.Operator, then: g.Operator | None) -> bool:
    """True if the two movements, of which `then` may be missing, leave the elements in their order."""
    places = first.moved(np.arange(math.prod(first.x.shape)).reshape(first.x.shape))
    places = places if then is None else then.moved(places)
    return bool((np.diff(places.reshape(-1)) > 0).all())


def moved_states(graph: g.Graph) -> g.Graph:
    """States get the layout in which they are computed: movements on their way in and out vanish.

    That is possible where every operator that reads a state moves it alike, and its next values are moved back.
    """
    producers = graph.producers
    outputs = {t.name for t in graph.outputs}
    for k, state in enumerate(graph.states):
        readers = [op for op in graph.ops if state.tensor in op.inputs]
        back = producers.get(state.next.name)
        if not readers or back is None or not back.rearranges or not _undone(back, readers):
            continue
        if outputs & {op.output.name for op in readers} or any(s.next is state.tensor for s in graph.states):
            continue
        first = readers[0].output
        tensor = replace(first, name=state.tensor.name)
        states = list(graph.states)
        states[k] = g.State(tensor, np.ascontiguousarray(readers[0].moved(state.initial)), back.x)
        same = {op.output.name: tensor for op in readers}
        ops = [reading(op, same) for op in graph.ops if op not in readers]
        states = [s if s.next.name not in same else replace(s, next=tensor) for s in states]
        graph = replace(graph, ops=tuple(ops), states=tuple(states))
        producers = graph.producers
    return without_unread(graph)


def _undone(back: g.Operator, readers: list[g.Operator]) -> bool:
    """True if every one of `readers` is a movement that undoes `back`."""
    places = np.arange(math.prod(back.x.shape)).reshape(back.x.shape)
    moved = back.moved(places)
    return all(op.rearranges and np.array_equal(op.moved(moved), places) for op in readers)


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
    return kinds and even and steady and not dilated and min(_right(first), _read_pairs(middle)[1]) >= 0


def _right(op: g.QConv2d) -> int:
    """Columns of padding on the right that the outputs read."""
    return (op.output.shape[3] - 1) * op.strides[1] + op.weight.shape[3] - op.x.shape[3] - op.pads[1]


def _read_pairs(op: g.QConv2d) -> tuple[int, int]:
    """(first, last) pair that a pair of outputs reads, relative to its own."""
    return -op.pads[1] // 2, (op.weight.shape[3] - op.pads[1]) // 2


def _paired(t: g.Tensor) -> g.Tensor:
    n, c, h, w = t.shape
    return replace(t, name=f"{t.name}.pairs", shape=(n, 2 * c, h, w // 2))


def _to_pairs(op: g.QConv2d, x: g.Tensor, weight: np.ndarray, stride: int, pads: tuple[int, int]) -> PairedConv:
    """`op` of `x` and into pairs: `stride` is along columns, `pads` are left and right; `weight` (2 * O, ...)."""
    scaling: dict[str, Any] = op.scaling | {"steps": None if op.steps is None else np.tile(op.steps, 2)}
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
        **scaling,
    )


def _into(op: g.QConv2d) -> PairedConv:
    o, c, kh, kw = op.weight.shape
    step = op.strides[1]
    weight = np.zeros((2, o, c, kh, kw + step), np.int8)
    for k in range(2):
        weight[k, ..., k * step : k * step + kw] = op.weight
    return _to_pairs(op, op.x, weight.reshape(2 * o, c, kh, -1), 2 * step, (op.pads[1], _right(op)))


def _between(op: g.QConv2d) -> PairedConv:
    o, _, kh, kw = op.weight.shape
    low, high = _read_pairs(op)
    weight = np.zeros((2, o, 2, o, kh, high - low + 1), np.int8)
    channel = np.arange(len(op.weight))
    for k in range(2):
        for tap in range(kw):
            pair, column = divmod(k + tap - op.pads[1], 2)
            weight[k, channel, column, channel, :, pair - low] = op.weight[:, 0, :, tap]
    return _to_pairs(op, _paired(op.x), weight.reshape(2 * o, 2 * o, kh, -1), op.strides[1], (-low, high))


def _out_of(op: g.QConv2d) -> UnpairedConv:
    o, c, *_ = op.weight.shape
    weight = np.zeros((o, 2, c, 1, 2), np.int8)
    for k in range(2):
        weight[:, k, :, :, k] = op.weight[..., 0]
    parameters = weight.reshape(o, 2 * c, 1, 2), op.weight_scale, op.bias, op.low, op.high, (1, 2)
    return UnpairedConv(op.name, (_paired(op.x),), op.output, *parameters, work=op.macs, **op.scaling)
