"""Transformations of a network for modules that keep activations in blocks of channels. They do not change results.

Outputs of the graph and next values of its states stay; other tensors may be removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from .. import graph as g
from .rewrite import Producers, Rule, moved_from, reading, rewrite, without_unread


def simplify(graph: g.Graph) -> g.Graph:
    """Merge movements and padding into the operators that read them, and remove operators without readers."""
    movements = Rule(g.StridedSlice, _slice), Rule(g.Reshape, _reshape), Rule(g.Transpose, _transpose)
    svdf = Rule(g.Features, lambda op, readers, producers: [op])  # their scales are not those of a convolution
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
    n, c, h, w = image.shape
    order = [image.shape[axis] for axis in axes[1:]]
    back = [1 + axes[1:].index(axis) for axis in (1, 2, 3)]
    weight = np.ascontiguousarray(op.weight.reshape(-1, *order).transpose(0, *back))
    y = replace(op.output, name=f"{op.output.name}.image", shape=(n, len(weight), 1, 1))
    facts = {"low": op.low, "high": op.high, "ternary": op.ternary, **op.scaling}
    conv = WholeImage(f"{op.name}.image", (image,), y, weight, op.weight_scale, op.bias, **facts)
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
