"""Transformations of a network for modules that keep activations in blocks of channels. They do not change results.

Outputs of the graph and next values of its states stay; other tensors may be removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from .. import graph as g


def simplify(graph: g.Graph) -> g.Graph:
    """Merge movements and padding into the operators that read them, and remove operators without readers."""
    producers: dict[str, g.Operator] = {}
    same: dict[str, g.Tensor] = {}  # tensors that two transpositions only move there and back
    ops: list[g.Operator] = []
    for op in graph.ops:
        for new in _rewritten(_on(op, same), producers):
            before = producers.get(new.x.name)
            if before is not None and _moved_back(before, new) and new.output not in graph.wanted:
                same[new.output.name] = before.x
                continue
            ops.append(new)
            producers[new.output.name] = new
    return replace(graph, ops=_without_unread(ops, graph))


def _rewritten(op: g.Operator, producers: dict[str, g.Operator]) -> list[g.Operator]:
    before = producers.get(op.x.name)
    if _takes_all(op):
        op = g.Reshape(op.name, op.inputs, op.output)
    if (exchanged := _exchanged(op, producers)) is not None:
        return [exchanged]
    if isinstance(op, (g.Reshape, g.Transpose)) and _keeps_order(op) and isinstance(before, g.Reshape):
        return [g.Reshape(op.name, before.inputs, op.output)]  # `before` does not read another reshape: it was merged
    if isinstance(op, g.Transpose) and _keeps_order(op):
        return [g.Reshape(op.name, op.inputs, op.output)]
    if isinstance(op, g.QDense) and not isinstance(op, g.Features) and isinstance(before, g.Reshape):
        return _flattened(op, before, producers)
    if isinstance(op, g.QConv2d) and isinstance(before, g.Pad) and _can_merge(op, before):
        pads = tuple(own + before.pads[2 + k % 2][k // 2] for k, own in enumerate(op.pads))
        return [replace(op, inputs=before.inputs, pads=pads)]
    return [op]


def _exchanged(op: g.Operator, producers: dict[str, g.Operator]) -> g.Operator | None:
    """One operator for the movements that end with `op`, where together they exchange channels, and no more."""
    chain: list[g.Operator] = []
    last: g.Operator | None = op
    while isinstance(last, _MOVES):
        chain.insert(0, last)
        last = producers.get(last.x.name)
    for k, first in enumerate(chain[:-1]):
        x, y = first.x, op.output
        if len(x.shape) != 4 or x.shape != y.shape or not any(isinstance(part, g.Transpose) for part in chain[k:]):
            continue
        places = moved = np.arange(math.prod(x.shape)).reshape(x.shape)
        for part in chain[k:]:
            moved = _moved(part, moved)
        channels = moved[0, :, 0, 0] // (x.shape[2] * x.shape[3])
        if (np.diff(channels) != 1).any() and np.array_equal(moved, places[:, channels % x.shape[1]]):
            return g.Take(op.name, (x,), y, ((), tuple(int(c) for c in channels), (), ()))
    return None


def _keeps_order(op: g.Operator) -> bool:
    """True if the order of elements stays: reshapes, and transpositions that move dimensions of 1 only."""
    if isinstance(op, g.Transpose):
        moved = [axis for axis in op.axes if op.x.shape[axis] > 1]
        return moved == sorted(moved)
    return True


def _takes_all(op: g.Operator) -> bool:
    """True of a slice that is the whole of its input."""
    return isinstance(op, g.StridedSlice) and op.output.shape == op.x.shape and min(op.strides) > 0


def _moved_back(first: g.Operator, then: g.Operator) -> bool:
    """True if `then` undoes the transposition `first`."""
    if not isinstance(first, g.Transpose) or not isinstance(then, g.Transpose):
        return False
    return all(first.axes[axis] == k for k, axis in enumerate(then.axes))


def _can_merge(op: g.QConv2d, pad: g.Pad) -> bool:
    return pad.value == op.x.zero_point and not any(map(any, pad.pads[:2])) and len(pad.pads) == 4


@dataclass(frozen=True, eq=False)
class WholeImage(g.QConv2d):
    """A dense layer on flattened images, as a convolution whose kernel is as large as the image."""


def _flattened(op: g.QDense, flat: g.Reshape, producers: dict[str, g.Operator]) -> list[g.Operator]:
    """The dense layer `op` on the output of `flat`, as a convolution if `flat` flattens an image of several pixels."""
    image, last = flat.x, producers.get(flat.x.name)
    axes = (0, 1, 2, 3)
    if isinstance(last, g.Transpose) and len(last.axes) == 4 and last.axes[0] == 0:
        image, axes = last.x, last.axes
    if len(image.shape) != 4 or image.shape[2] * image.shape[3] == 1 or image.shape[0] != op.x.shape[0]:
        return [op]
    source = producers.get(image.name)
    if flat.x is image and isinstance(source, (type(None), g.Quantize, g.Recode)):
        return [op]  # nothing computes the image in blocks of channels: its rows are as good as they lie
    if isinstance(source, _MOVES) and _in_order(source, last if image is not flat.x else None):
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
    places = _moved(first, np.arange(math.prod(first.x.shape)).reshape(first.x.shape))
    places = places if then is None else _moved(then, places)
    return bool((np.diff(places.reshape(-1)) > 0).all())


def _without_unread(ops: list[g.Operator], graph: g.Graph) -> tuple[g.Operator, ...]:
    needed, live = {t.name for t in graph.wanted}, []
    for op in reversed(ops):
        if op.output.name in needed:
            live.append(op)
            needed |= {t.name for t in op.inputs}
    return tuple(reversed(live))


def moved_states(graph: g.Graph) -> g.Graph:
    """States in the layout in which they are computed: movements on their way in and out are none any more.

    That is possible where every operator that reads a state moves it alike, and its next values are moved back.
    """
    producers = {op.output.name: op for op in graph.ops}
    outputs = {t.name for t in graph.outputs}
    for k, state in enumerate(graph.states):
        readers = [op for op in graph.ops if state.tensor in op.inputs]
        back = producers.get(state.next.name)
        if not readers or not isinstance(back, _MOVES) or not _undone(back, readers):
            continue
        if outputs & {op.output.name for op in readers} or any(s.next is state.tensor for s in graph.states):
            continue
        first = readers[0].output
        tensor = replace(first, name=state.tensor.name)
        states = list(graph.states)
        states[k] = g.State(tensor, np.ascontiguousarray(_moved(readers[0], state.initial)), back.x)
        same = {op.output.name: tensor for op in readers}
        ops = [_on(op, same) for op in graph.ops if op not in readers]
        states = [s if s.next.name not in same else replace(s, next=tensor) for s in states]
        graph = replace(graph, ops=tuple(ops), states=tuple(states))
        producers = {op.output.name: op for op in graph.ops}
    return replace(graph, ops=_without_unread(list(graph.ops), graph))


_MOVES = (g.Reshape, g.Transpose)


def _undone(back: g.Operator, readers: list[g.Operator]) -> bool:
    """True if every one of `readers` is a movement that undoes `back`."""
    places = np.arange(math.prod(back.x.shape)).reshape(back.x.shape)
    moved = _moved(back, places)
    return all(isinstance(op, _MOVES) and np.array_equal(_moved(op, moved), places) for op in readers)


def _moved(op: g.Operator, x: np.ndarray) -> np.ndarray:
    return x.transpose(op.axes) if isinstance(op, g.Transpose) else x.reshape(op.output.shape)


def _on(op: g.Operator, same: dict[str, g.Tensor]) -> g.Operator:
    """`op` on other inputs, by their names."""
    if not any(t.name in same for t in op.inputs):
        return op
    return replace(op, inputs=tuple(same.get(t.name, t) for t in op.inputs))
