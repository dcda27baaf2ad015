"""A rewrite of networks of sequences, (…, rows, features), to networks of images. Results do not change.

Products of matrices, dense layers on many rows, and the element-wise operators between them become operators on images
(matrices, features, 1, rows): features are channels, in lanes as a dense layer reads them, rows are pixels, in adjacent
entries as weights are read, and heads are whole blocks of channels. The features of a tensor are its last dimension;
with `nchw` they are the second one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np

from ...hw.config import Config
from .. import graph as g
from ..graph.rewrite import Producers, Rule, moved_from, moved_places, rewrite, transposes
from ..kernels.recording import stand_in

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def as_images(graph: g.Graph, cfg: Config) -> g.Graph:
    """Sequences become images whose pixels are rows, where matrices are multiplied or dense layers have many rows."""
    if not multiplies_images(cfg) or any(op.in_lanes(cfg.block_in) for op in graph.ops):
        return graph
    return rewrite(graph, Rule(g.Operator, _Images(graph, cfg.block_in).instead))


def multiplies_images(cfg: Config) -> bool:
    """True if `cfg` multiplies images by matrices that it computes, or that move their lanes."""
    return cfg.batch == 1 and cfg.block_in == cfg.block_out and "overwrite" in cfg.extensions


def image_shape(shape: tuple[int, ...], nchw: bool = False) -> tuple[int, int, int, int]:
    """The shape of the image of a tensor."""
    *outer, rows, features = (1, 1, *(shape[k] for k in TO_NHWC)) if nchw else (1, 1, *shape)
    return math.prod(outer), features, 1, rows


def to_image(x: np.ndarray, nchw: bool = False) -> np.ndarray:
    """The image of an array."""
    count, features, _, rows = image_shape(x.shape, nchw)
    x = x.transpose(TO_NHWC) if nchw else x
    return np.ascontiguousarray(x.reshape(count, rows, features).swapaxes(1, 2)[:, :, None])


def _aligned(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape


def _goes_along(op: g.Operator, nchw: bool = False) -> bool:
    """True if all tensors are int8, and it is element-wise or reduces the features alone, keeping their dimension."""
    rank = len(op.output.shape)
    features = 1 if nchw else rank - 1
    match op:
        case g.Softmax():
            able = op.axis == features
        case g.Mean():
            able = tuple(op.axes) == (features,) and rank == len(op.x.shape)
        case _:
            *shapes, y = (image_shape(_aligned(t.shape, rank), nchw) for t in op.tensors)
            broadcasts = all(size == max(own) and {*own} <= {1, size} for size, *own in zip(y, *shapes))
            able = op.elementwise and broadcasts
    return able and {t.dtype for t in op.tensors} == {"int8"}


def _begins(op: g.Operator, before: g.Operator | None) -> bool:
    """True for products of matrices, and for dense layers on rows; `before` computes the first input."""
    match op:
        case g.BatchMatMul(images=False):
            counts = {image_shape(t.shape)[0] for t in op.inputs}
            return max(counts) == image_shape(op.output.shape)[0] and len(counts - {1}) <= 1
        case g.QDense() if type(op) is g.QDense and type(before) is g.Reshape:
            return op.x.shape[0] > 1 and before.x.shape[2:] == op.x.shape[1:]
    return False


def _chosen(graph: g.Graph) -> dict[str, bool]:
    """For each operator that becomes an operator on images, by name, whether its tensors are NCHW."""
    producers, nchw = graph.producers, _nchw(graph)
    chosen = {op.name for op in graph.ops if _begins(op, producers.get(op.x.name))}
    able, pairs = chosen | nchw, list[set[str]]()
    for op in graph.ops:
        before = [producers[t.name].name for t in op.inputs if t.name in producers]
        inside = len(op.output.shape) == 3 or len(op.output.shape) == 4 and not chosen.isdisjoint(before)
        if inside and _goes_along(op):
            able.add(op.name)
        sources = (moved_from(t, producers)[0].name for t in op.inputs)
        pairs += [{op.name, producers[name].name} for name in sources if name in producers]
    pairs, size = [pair for pair in pairs if pair <= able], 0
    while size < len(chosen):  # with those that they exchange tensors with
        size = len(chosen)
        for pair in pairs:
            chosen |= pair if pair & chosen else set()
    return {name: name in nchw for name in chosen}


def _nchw(graph: g.Graph) -> set[str]:
    """Groups of element-wise operators on NCHW between changes of layout from and to NHWC."""
    producers, readers = graph.producers, graph.readers
    found = {op.name: op for op in graph.ops if len(op.output.shape) == 4 and _goes_along(op, True)}

    def between(op: g.Operator) -> bool:
        before = [producers.get(t.name) for t in op.inputs if t.data is None]
        inside = all(p is not None and (p.name in found or transposes(p, TO_NCHW)) for p in before)
        outside = all(r.name in found or transposes(r, TO_NHWC) for r in readers.get(op.output.name, []))
        return inside and outside and bool(before) and op.output not in graph.wanted

    while others := [name for name, op in found.items() if not between(op)]:
        for name in others:
            del found[name]
    return {*found}


class _Images:
    """Replaces operators of a graph by operators on images, whose channels are in blocks of `block`."""

    def __init__(self, graph: g.Graph, block: int):
        self.chosen, self.block, self.unused = _chosen(graph), block, graph.names.unused
        self.ops: list[g.Operator] = []
        self.producers: Producers = {}
        self._made = cache(self._make)

    def instead(self, op: g.Operator, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        """The operator on the images of the inputs, and movements around it."""
        if op.name not in self.chosen:
            return None
        self.ops, self.producers, nchw = [], producers, self.chosen[op.name]
        y = replace(op.output, name=self.unused(f"{op.output.name}.image"), shape=image_shape(op.output.shape, nchw))
        self.ops.append(self._on_images(op, y, nchw))
        count, features, _, rows = y.shape
        plain, name = self._made(g.Transpose, y, (count, 1, rows, features), TO_NHWC), f"{op.output.name}.plain"
        if nchw:
            plain = self._made(g.Reshape, plain, tuple(op.output.shape[k] for k in TO_NHWC))
            return [*self.ops, g.Transpose(self.unused(name), (plain,), op.output, TO_NCHW, True)]
        return [*self.ops, g.Reshape(self.unused(name), (plain,), op.output)]

    def _on_images(self, op: g.Operator, y: g.Tensor, nchw: bool) -> g.Operator:
        rank = len(op.output.shape)
        match op:
            case g.BatchMatMul():
                second = op.inputs[1]  # transposed or not, as its rows are in the computed order
                turned = None if second.data is not None or self._view(second) else self._view(second, swapped=True)
                inputs, transposed = (self._image(op.x), turned or self._image(second)), op.transposed != bool(turned)
                return replace(op, inputs=inputs, output=y, transposed=transposed, images=True)
            case g.QDense():
                weight = op.weight[:, :, None, None]
                return stand_in(g.QConv2d, op, inputs=(self._image(op.x),), output=y, weight=weight)
            case g.Softmax():
                along = {"axis": 1}
            case g.Mean():
                along = {"axes": (1,)}
            case _:
                along = {}
        inputs = (self._spread(self._image(t, rank, nchw), y.shape) for t in op.inputs)
        return replace(op, inputs=tuple(inputs), output=y, **along)

    def _image(self, t: g.Tensor, rank: int = 2, nchw: bool = False) -> g.Tensor:
        """The image of an operand that broadcasts to `rank` dimensions: one that exists, or a new one."""
        if t.data is not None:
            data = to_image(t.data.reshape(_aligned(t.shape, rank)), nchw)
            return replace(t, name=self.unused(f"{t.name}.image"), shape=data.shape, data=data)
        return self._view(t, nchw) or self._converted(t, nchw)

    def _view(self, t: g.Tensor, nchw: bool = False, swapped: bool = False) -> g.Tensor | None:
        """The image of `t` as a view of the tensor that `t` is moved from; None if elements lie in another order.

        With `swapped` it is the image of `t` with its last two dimensions exchanged.
        """
        source, moves = moved_from(t, self.producers)
        found = moved_places(source, *moves)
        found = to_image(found.swapaxes(-1, -2) if swapped else found, nchw)
        if not np.array_equal(found.reshape(-1), np.arange(found.size)):
            return None
        if found.shape == source.shape:
            return source
        counts = sorted((source.shape[0], found.shape[0]))
        if source.shape[2:] == found.shape[2:] and not counts[1] % counts[0]:
            return self._made(g.Heads, source, found.shape, not min(source.shape[1], found.shape[1]) % self.block)
        return self._made(g.Reshape, source, found.shape)

    def _converted(self, t: g.Tensor, nchw: bool) -> g.Tensor:
        """The image of `t`, made by new movements: once for all reshapes of a tensor."""
        count, features, _, rows = image_shape(t.shape, nchw)
        if nchw:
            t = self._made(g.Transpose, t, tuple(t.shape[k] for k in TO_NHWC), TO_NHWC)
        while isinstance(before := self.producers.get(t.name), g.Reshape):
            t = before.x
        x = self._made(g.Reshape, t, (count, 1, rows, features))
        return self._made(g.Transpose, x, (count, features, 1, rows), TO_NCHW)

    def _spread(self, image: g.Tensor, shape: tuple[int, ...]) -> g.Tensor:
        """An image that all heads or all rows share, repeated for each."""
        if image.data is not None or image.shape == shape or image.shape[1] != shape[1]:
            return image
        indices = tuple(() if have == count else (0,) * count for have, count in zip(image.shape, shape))
        return self._made(g.Take, image, shape, indices)

    def _make(self, kind: type[g.Operator], x: g.Tensor, shape: tuple[int, ...], *facts: object) -> g.Tensor:
        """Append an operator on `x` with an output of this shape: `_made` does so once."""
        y = replace(x, name=self.unused(f"{x.name}.{kind.__name__.lower()}"), shape=shape, data=None)
        self.ops.append(kind(y.name, (x,), y, *facts))
        return y
