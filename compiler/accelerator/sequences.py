"""Networks of sequences, (…, rows, features), as networks of images: a transformation that does not change results.

Products of matrices and dense layers on many rows become operators on images, and with them the element-wise operators
that they exchange tensors with. What splits features into heads moves nothing then.

An image of rows is (matrices, features, 1, rows): rows are pixels, features are channels. In blocks of channels it has
the features of a row in lanes, as a dense layer wants them, and rows one after the other, as weights want them; heads
are whole blocks of its channels. The features of a tensor are its last dimension; with `nchw` they are the second one.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from functools import singledispatch, singledispatchmethod

import numpy as np

from ...hw.config import Config
from .. import graph as g

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_MOVES = (g.Reshape, g.Transpose)
_KEPT = (g.Attention, g.Write)  # of networks whose attention has kernels of its own


def as_images(graph: g.Graph, cfg: Config) -> g.Graph:
    """Sequences become images whose pixels are rows, where matrices are multiplied or dense layers have many rows."""
    able = cfg.batch == 1 and cfg.block_in == cfg.block_out and "overwrite" in cfg.extensions
    if not able or any(isinstance(op, _KEPT) or op.in_lanes(cfg.block_in) for op in graph.ops):
        return graph
    found = _Islands(graph).chosen
    return _Rewriter(graph, found, cfg.block_in).graph if found else graph


def image_shape(shape: tuple[int, ...], nchw: bool = False) -> tuple[int, int, int, int]:
    """The shape of the image of a tensor."""
    if nchw and len(shape) == 4:
        shape = tuple(shape[k] for k in TO_NHWC)
    *outer, rows, features = (1, 1, *shape)[-max(2, len(shape)) :]
    return math.prod(outer), features, 1, rows


def to_image(x: np.ndarray, nchw: bool = False) -> np.ndarray:
    """The image of an array."""
    x = x.transpose(TO_NHWC) if nchw and x.ndim == 4 else x
    count, features, _, rows = image_shape(x.shape)
    return np.ascontiguousarray(x.reshape(count, rows, features).swapaxes(1, 2)[:, :, None])


def from_image(image: np.ndarray, shape: tuple[int, ...], nchw: bool = False) -> np.ndarray:
    """The array of `shape` whose image this is."""
    rows = image[:, :, 0].swapaxes(1, 2)
    if nchw and len(shape) == 4:
        return rows.reshape([shape[k] for k in TO_NHWC]).transpose(TO_NCHW)
    return rows.reshape(shape)


def _aligned(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape


def _broadcasts(op: g.Operator, nchw: bool) -> bool:
    """True if shapes that broadcast still do as images."""
    shapes = [image_shape(_aligned(t.shape, len(op.output.shape)), nchw) for t in op.inputs]
    of_output = image_shape(op.output.shape, nchw)
    sizes = zip(*(_aligned(shape, len(of_output)) for shape in shapes), of_output)
    return all(size == max(own) and set(own) <= {1, size} for *own, size in sizes)


@singledispatch
def _goes_along(op: g.Operator, nchw: bool) -> bool:
    """True if the operator is element-wise, or along the features alone and keeps their dimension."""
    return False


for _kind in (g.Binary, g.Pairwise, g.Requantize, g.Lookup):
    _goes_along.register(_kind, _broadcasts)


@_goes_along.register
def _(op: g.Softmax, nchw: bool) -> bool:
    return op.axis == _features(op, nchw)


@_goes_along.register
def _(op: g.Mean, nchw: bool) -> bool:
    return tuple(op.axes) == (_features(op, nchw),) and len(op.output.shape) == len(op.x.shape)


def _features(op: g.Operator, nchw: bool) -> int:
    return 1 if nchw else len(op.output.shape) - 1


@singledispatch
def _begins(op: g.Operator, before: g.Operator | None) -> bool:
    """True of products of matrices, and of dense layers on rows; `before` computes the first input."""
    return False


@_begins.register
def _(op: g.BatchMatMul, before: g.Operator | None) -> bool:
    counts = {image_shape(t.shape)[0] for t in op.inputs}
    return not op.images and max(counts) == image_shape(op.output.shape)[0] and len(counts - {1}) <= 1


@_begins.register
def _(op: g.QDense, before: g.Operator | None) -> bool:
    sequence = before is not None and len(before.x.shape) == 3 and before.x.shape[-1] == op.x.shape[1]
    return op.x.shape[0] > 1 and type(before) is g.Reshape and sequence


@_begins.register
def _(op: g.Features, before: g.Operator | None) -> bool:
    return False


def _movements(graph: g.Graph) -> dict[str, g.Reshape | g.Transpose]:
    """Reshapes and transpositions by their outputs."""
    return {op.output.name: op for op in graph.ops if isinstance(op, _MOVES)}


def _moved(op: g.Reshape | g.Transpose, x: np.ndarray) -> np.ndarray:
    """`x` as the movement leaves it."""
    return x.transpose(op.axes) if isinstance(op, g.Transpose) else x.reshape(op.output.shape)


class _Islands:
    """The operators that become operators on images, `chosen`: by name, and whether their tensors are NCHW."""

    def __init__(self, graph: g.Graph):
        self.graph, self.readers, self.moves = graph, graph.readers, _movements(graph)
        self.producers = {op.output.name: op for op in graph.ops}
        self.nchw = self._nchw()
        self.chosen: dict[str, bool] = {}
        waiting = [op for op in graph.ops if self._begins(op)]
        while waiting:
            op = waiting.pop()
            if op.name not in self.chosen:
                self.chosen[op.name] = op.name in self.nchw
                waiting += [near for near in self._near(op) if self._joins(near)]

    def _begins(self, op: g.Operator) -> bool:
        return _begins(op, self.producers.get(op.x.name))

    def _joins(self, op: g.Operator) -> bool:
        """True if an operator beside one that is chosen is chosen, too."""
        if self._begins(op):
            return True
        nchw, rank = op.name in self.nchw, len(op.output.shape)
        before = [self.producers[t.name] for t in op.inputs if t.name in self.producers]
        return (rank == 3 or rank == 4 and (nchw or any(map(self._begins, before)))) and self._goes_along(op, nchw)

    def _goes_along(self, op: g.Operator, nchw: bool) -> bool:
        return all(t.dtype == "int8" for t in (*op.inputs, op.output)) and _goes_along(op, nchw)

    def _near(self, op: g.Operator) -> Iterator[g.Operator]:
        """The operators that `op` exchanges tensors with, through movements."""
        for t in op.inputs:
            name = t.name
            while name in self.moves:
                name = self.moves[name].x.name
            if name in self.producers:
                yield self.producers[name]
        behind = [*self.readers.get(op.output.name, [])]
        while behind:
            after = behind.pop()
            if after.output.name in self.moves:
                behind += self.readers.get(after.output.name, [])
            else:
                yield after

    def _nchw(self) -> set[str]:
        """Element-wise operators on NCHW whose neighbours all are NHWC: groups between changes of layout."""
        able = [op for op in self.graph.ops if len(op.output.shape) == 4 and self._goes_along(op, True)]
        found, left = {op.name for op in able}, -1
        while left != len(found):
            left = len(found)
            found -= {op.name for op in able if op.name in found and not self._between(op, found)}
        return found

    def _between(self, op: g.Operator, found: set[str]) -> bool:
        before = [self.producers.get(t.name) for t in op.inputs if t.data is None]
        after = self.readers.get(op.output.name, [])
        inside = all(p is not None and (p.name in found or self._relays(p, TO_NCHW)) for p in before)
        outside = all(r.name in found or self._relays(r, TO_NHWC) for r in after)
        return inside and outside and bool(before) and op.output not in self.graph.wanted

    def _relays(self, op: g.Operator, axes: tuple[int, ...]) -> bool:
        """True of the transposition by `axes`, and of a reshape that does the same, as of a mask of one row."""
        move = self.moves.get(op.output.name)
        if move is None or len(op.x.shape) != 4 or op.output.shape != tuple(op.x.shape[k] for k in axes):
            return False
        places = np.arange(math.prod(op.x.shape)).reshape(op.x.shape)
        return np.array_equal(_moved(move, places), places.transpose(axes))


class _Rewriter:
    """`graph`, the network with the `chosen` operators on images, whose channels are in blocks of `block`."""

    def __init__(self, graph: g.Graph, chosen: dict[str, bool], block: int):
        self.block, self.moves, self.unused = block, _movements(graph), graph.names.unused
        self.ops: list[g.Operator] = []
        self.images: dict[str, tuple[g.Tensor, bool]] = {}  # by the names of tensors: image, whether these are NCHW
        self.views: dict[tuple[str, bool, bool], g.Tensor] = {}
        self.spread: dict[tuple[str, tuple[int, ...]], g.Tensor] = {}
        for op in graph.ops:
            if op.name in chosen:
                self._rewrite(op, chosen[op.name])
            else:
                self.ops.append(op)
        self.graph = replace(graph, ops=tuple(self.ops))

    def _rewrite(self, op: g.Operator, nchw: bool) -> None:
        y = replace(op.output, name=self.unused(f"{op.output.name}.image"), shape=image_shape(op.output.shape, nchw))
        self.ops.append(self._on_images(op, y, nchw))
        self.images[op.output.name] = y, nchw
        self._plain(y, op.output, nchw)

    @singledispatchmethod
    def _on_images(self, op: g.Operator, y: g.Tensor, nchw: bool) -> g.Operator:
        """`op` on the images of its inputs, with output `y`."""
        return replace(op, inputs=self._operands(op, nchw), output=y)

    @_on_images.register
    def _(self, op: g.BatchMatMul, y: g.Tensor, nchw: bool) -> g.Operator:
        second, transposed = self._second(op)
        return replace(op, inputs=(self._image(op.x), second), output=y, transposed=transposed, images=True)

    @_on_images.register
    def _(self, op: g.QDense, y: g.Tensor, nchw: bool) -> g.Operator:
        facts = {"low": op.low, "high": op.high, "ternary": op.ternary, **op.scaling}
        weight = op.weight[:, :, None, None]
        return g.QConv2d(op.name, (self._image(op.x),), y, weight, op.weight_scale, op.bias, **facts)

    @_on_images.register
    def _(self, op: g.Softmax, y: g.Tensor, nchw: bool) -> g.Operator:
        return replace(op, inputs=self._operands(op, nchw), output=y, axis=1)

    @_on_images.register
    def _(self, op: g.Mean, y: g.Tensor, nchw: bool) -> g.Operator:
        return replace(op, inputs=self._operands(op, nchw), output=y, axes=(1,))

    @_on_images.register(g.Binary)
    @_on_images.register(g.Pairwise)
    def _(self, op: g.Operator, y: g.Tensor, nchw: bool) -> g.Operator:
        return replace(op, inputs=tuple(self._spread(t, y.shape) for t in self._operands(op, nchw)), output=y)

    def _operands(self, op: g.Operator, nchw: bool) -> tuple[g.Tensor, ...]:
        return tuple(self._operand(t, len(op.output.shape), nchw) for t in op.inputs)

    def _operand(self, t: g.Tensor, rank: int, nchw: bool) -> g.Tensor:
        """The image of an operand that broadcasts to `rank` dimensions."""
        if t.data is not None:
            data = to_image(t.data.reshape(_aligned(t.shape, rank)), nchw)
            return replace(t, name=self.unused(f"{t.name}.image"), shape=data.shape, data=data)
        return self._image(t, nchw)

    def _spread(self, image: g.Tensor, shape: tuple[int, ...]) -> g.Tensor:
        """The image of a mask, which is the same for all heads or all rows, once for each of them."""
        if image.data is not None or image.shape == shape or image.shape[1] != shape[1]:
            return image
        key = image.name, shape
        if key not in self.spread:
            y = replace(image, name=self.unused(f"{image.name}.mask"), shape=shape)
            indices = (() if have == count else (0,) * count for have, count in zip(image.shape, shape))
            self.ops.append(g.Take(y.name, (image,), y, tuple(indices)))
            self.spread[key] = y
        return self.spread[key]

    def _second(self, op: g.BatchMatMul) -> tuple[g.Tensor, bool]:
        """(image of the second operand, whether it is transposed): in the order in which its rows are computed."""
        y = op.inputs[1]
        for swapped in (False, True):
            if y.data is None and (view := self._view(y, False, swapped)) is not None:
                return view, op.transposed != swapped
        return self._operand(y, len(y.shape), False), op.transposed

    def _image(self, t: g.Tensor, nchw: bool = False) -> g.Tensor:
        """The image of a computed tensor: of one that exists, or made of what the tensor is moved from."""
        if self._view(t, nchw, False) is None:
            source, chain = self._source(t)
            places = np.arange(t.nbytes).reshape(source.shape)
            found = to_image(_after(chain, places), nchw)
            if chain and np.array_equal(found.reshape(-1), to_image(places).reshape(-1)):
                self._converted(source, False)
        return self._view(t, nchw, False) or self._converted(t, nchw)

    def _source(self, t: g.Tensor, known: Container[str] = ()) -> tuple[g.Tensor, list[g.Reshape | g.Transpose]]:
        """(tensor that `t` is moved from, the movements): the first that is `known`, or is not moved itself."""
        chain = list[g.Reshape | g.Transpose]()
        while t.name in self.moves and t.name not in known:
            chain.insert(0, self.moves[t.name])
            t = chain[0].x
        return t, chain

    def _converted(self, t: g.Tensor, nchw: bool) -> g.Tensor:
        """Append what makes the image of `t`."""
        x, (count, features, _, rows) = t, image_shape(t.shape, nchw)
        if nchw and len(t.shape) == 4:
            x = self._moved(x, tuple(t.shape[k] for k in TO_NHWC), TO_NHWC)
        x = self._moved(x, (count, 1, rows, features))
        image = self._moved(x, (count, features, 1, rows), TO_NCHW)
        self.images[t.name] = image, nchw
        return image

    def _view(self, t: g.Tensor, nchw: bool, swapped: bool) -> g.Tensor | None:
        """The image of `t` as one of a tensor that `t` is moved from; None if its elements lie in another order.

        With `swapped` of the tensor whose last two dimensions are exchanged.
        """
        key = t.name, nchw, swapped
        if key in self.views:
            return self.views[key]
        source, chain = self._source(t, self.images)
        if source.name not in self.images:
            return None
        image, form = self.images[source.name]
        places = np.arange(image.nbytes)
        found = _after(chain, from_image(places.reshape(image.shape), source.shape, form))
        found = to_image(found.swapaxes(-1, -2) if swapped else found, nchw)
        if not np.array_equal(found.reshape(-1), places):
            return None
        if found.shape != image.shape:
            image = self._heads(image, replace(image, name=self.unused(f"{t.name}.image"), shape=found.shape))
        self.views[key] = image
        return image

    def _heads(self, image: g.Tensor, view: g.Tensor) -> g.Tensor:
        """Append what makes `view` of the image, which has the same elements in their order."""
        if image.shape[3] == view.shape[3]:
            whole = not min(image.shape[1], view.shape[1]) % self.block
            self.ops.append(g.Heads(view.name, (image,), view, whole))
        else:
            self.ops.append(g.Reshape(view.name, (image,), view))
        return view

    def _plain(self, image: g.Tensor, t: g.Tensor, nchw: bool) -> None:
        """Append what makes `t` of its image."""
        count, features, _, rows = image.shape
        plain = self._moved(image, (count, 1, rows, features), TO_NHWC)
        if nchw and len(t.shape) == 4:
            plain = self._moved(plain, tuple(t.shape[k] for k in TO_NHWC))
            self.ops.append(g.Transpose(self.unused(f"{t.name}.plain"), (plain,), t, TO_NCHW, True))
        else:
            self.ops.append(g.Reshape(self.unused(f"{t.name}.plain"), (plain,), t))

    def _moved(self, x: g.Tensor, shape: tuple[int, ...], axes: tuple[int, ...] = ()) -> g.Tensor:
        """`x` with its dimensions in the order `axes`, or, without, in another shape."""
        y = replace(x, name=self.unused(f"{x.name}.moved"), shape=shape, data=None)
        if x.data is not None:
            data = x.data.transpose(axes) if axes else x.data.reshape(shape)
            return replace(y, data=np.ascontiguousarray(data))
        self.ops.append(g.Transpose(y.name, (x,), y, axes) if axes else g.Reshape(y.name, (x,), y))
        return y


def _after(chain: Iterable[g.Reshape | g.Transpose], x: np.ndarray) -> np.ndarray:
    """`x` as the movements leave it, one after the other."""
    for op in chain:
        x = _moved(op, x)
    return x
