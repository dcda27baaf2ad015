"""Networks of sequences, (…, rows, features), as networks of images: a transformation that does not change results.

Products of matrices and dense layers on many rows become operators on images (forms.py), and with them the
element-wise operators that they exchange tensors with. What splits features into heads moves nothing then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ....hw.config import Config
from ... import graph as g
from ...graph.deeploy.layers import in_lanes
from .forms import TO_NHWC, from_image, image_shape, matrices, moved, to_image

_MOVES = (g.Reshape, g.Transpose)
_VALUE_BY_VALUE = (g.Binary, g.Pairwise, g.Requantize, g.Lookup)
_KEPT = (g.Attention, g.Write)  # of networks whose attention has kernels of its own


def as_images(graph: g.Graph, cfg: Config) -> g.Graph:
    """`graph` with sequences as images, where it multiplies matrices or has dense layers on several rows."""
    able = cfg.batch == 1 and cfg.block_in == cfg.block_out and "overwrite" in cfg.extensions
    if not able or any(isinstance(op, _KEPT) or in_lanes(op, cfg.block_in) for op in graph.ops):
        return graph
    found = _Islands(graph).chosen
    return _Rewriter(graph, found, cfg.block_in).graph if found else graph


class _Islands:
    """The operators that become operators on images, `chosen`: by name, and whether their tensors are NCHW."""

    def __init__(self, graph: g.Graph):
        self.graph, self.readers = graph, graph.readers
        self.producers = {op.output.name: op for op in graph.ops}
        self.wanted = {t.name for t in graph.wanted}
        self.boundaries = self._nchw()
        self.chosen: dict[str, bool] = {}
        waiting = [op for op in graph.ops if self._seed(op)]
        while waiting:
            op = waiting.pop()
            if op.name in self.chosen:
                continue
            self.chosen[op.name] = op.name in self.boundaries
            waiting += [near for near in self._near(op) if self._joins(near)]

    def _seed(self, op: g.Operator) -> bool:
        if isinstance(op, g.BatchMatMul):
            return not op.images and self._fits(op, False)
        if not isinstance(op, g.QDense) or isinstance(op, g.Features) or op.x.shape[0] == 1:
            return False
        before = self.producers.get(op.x.name)
        return isinstance(before, g.Reshape) and before.x.shape[-1] == op.x.shape[1] and len(before.x.shape) == 3

    def _joins(self, op: g.Operator) -> bool:
        if self._seed(op):
            return True
        rank, nchw = len(op.output.shape), op.name in self.boundaries
        product = any(isinstance(self.producers.get(t.name), g.BatchMatMul) for t in op.inputs)
        if rank == 4 and not nchw and not product:
            return False
        return rank in (3, 4) and _features_last(op, nchw) and self._fits(op, nchw)

    def _fits(self, op: g.Operator, nchw: bool) -> bool:
        """True if shapes that broadcast still do as images."""
        rank = len(op.output.shape)
        shapes = [image_shape(_aligned(t.shape, rank), nchw) for t in op.inputs]
        if isinstance(op, g.BatchMatMul):
            counts = {shape[0] for shape in shapes}
            return max(counts) == image_shape(op.output.shape)[0] and len(counts - {1}) <= 1
        if isinstance(op, (g.Mean, g.Softmax)):
            return True
        return np.broadcast_shapes(*shapes) == image_shape(op.output.shape, nchw)

    def _near(self, op: g.Operator) -> Iterator[g.Operator]:
        """The operators that `op` exchanges tensors with, through movements."""
        for t in op.inputs:
            name = t.name
            while isinstance(before := self.producers.get(name), _MOVES):
                name = before.x.name
            if before is not None:
                yield before
        behind = [*self.readers.get(op.output.name, [])]
        while behind:
            after = behind.pop()
            if isinstance(after, _MOVES):
                behind += self.readers.get(after.output.name, [])
            else:
                yield after

    def _nchw(self) -> set[str]:
        """Element-wise operators on NCHW whose neighbours all are NHWC: groups between changes of layout."""
        found = {op.name for op in self.graph.ops if len(op.output.shape) == 4 and _features_last(op, True)}
        while True:
            wrong = {op.name for op in self.graph.ops if op.name in found and not self._between(op, found)}
            if not wrong:
                return found
            found -= wrong

    def _between(self, op: g.Operator, found: set[str]) -> bool:
        before = [self.producers.get(t.name) for t in op.inputs if t.data is None]
        after = self.readers.get(op.output.name, [])
        inside = all(p is not None and (p.name in found or _relays(p, (0, 3, 1, 2))) for p in before)
        outside = all(r.name in found or _relays(r, TO_NHWC) for r in after)
        return inside and outside and bool(before) and op.output.name not in self.wanted


def _relays(op: g.Operator, axes: tuple[int, ...]) -> bool:
    """True of the transposition by `axes`, and of a reshape that does the same, as of a mask of one row."""
    if isinstance(op, g.Reshape) and len(op.x.shape) == 4:
        kept = [k for k in axes if op.x.shape[k] > 1]
        return kept == sorted(kept) and op.output.shape == tuple(op.x.shape[k] for k in axes)
    return isinstance(op, g.Transpose) and op.relayout and op.axes == axes


def _aligned(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape


def _features_last(op: g.Operator, nchw: bool) -> bool:
    """True if the operator is element-wise, or along the features alone and keeps their dimension."""
    if any(t.dtype != "int8" for t in (*op.inputs, op.output)):
        return False
    features = 1 if nchw else len(op.output.shape) - 1
    if isinstance(op, g.Softmax):
        return op.axis == features
    if isinstance(op, g.Mean):
        return tuple(op.axes) == (features,) and len(op.output.shape) == len(op.x.shape)
    return isinstance(op, _VALUE_BY_VALUE)


class _Rewriter:
    """`graph`, the network with the `chosen` operators on images, whose channels are in blocks of `block`."""

    def __init__(self, graph: g.Graph, chosen: dict[str, bool], block: int):
        self.block = block
        self.ops: list[g.Operator] = []
        self.producers = {op.output.name: op for op in graph.ops}
        self.unused = graph.names.unused
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
        rank = len(op.output.shape)
        y = replace(op.output, name=self.unused(f"{op.output.name}.image"), shape=image_shape(op.output.shape, nchw))
        if isinstance(op, g.BatchMatMul):
            second, transposed = self._second(op)
            new = replace(op, inputs=(self._image(op.x), second), output=y, transposed=transposed, images=True)
        elif isinstance(op, g.QDense):
            facts = {"low": op.low, "high": op.high, "ternary": op.ternary, **op.scaling}
            weight = op.weight[:, :, None, None]
            new = g.QConv2d(op.name, (self._image(op.x),), y, weight, op.weight_scale, op.bias, **facts)
        else:
            inputs = tuple(self._operand(t, rank, nchw) for t in op.inputs)
            if isinstance(op, (g.Binary, g.Pairwise)):
                inputs = tuple(self._spread(t, y.shape) for t in inputs)
            along = {"axis": 1} if isinstance(op, g.Softmax) else {"axes": (1,)} if isinstance(op, g.Mean) else {}
            new = replace(op, inputs=inputs, output=y, **along)
        self.ops.append(new)
        self.images[op.output.name] = y, nchw
        self._plain(y, op.output, nchw)

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
        if (view := self._view(t, nchw, False)) is not None:
            return view
        source, chain = t, []
        while isinstance(before := self.producers.get(source.name), _MOVES):
            source, chain = before.x, [before, *chain]
        places = np.arange(t.nbytes).reshape(source.shape)
        found = places
        for op in chain:
            found = moved(op, found)
        if chain and np.array_equal(to_image(found, nchw).reshape(-1), to_image(places).reshape(-1)):
            self._converted(source, False)
            view = self._view(t, nchw, False)
            assert view is not None
            return view
        return self._converted(t, nchw)

    def _converted(self, t: g.Tensor, nchw: bool) -> g.Tensor:
        """Append what makes the image of `t`."""
        x, (count, rows, features) = t, matrices(t.shape, nchw)
        if nchw and len(t.shape) == 4:
            x = self._moved(x, tuple(t.shape[k] for k in TO_NHWC), TO_NHWC)
        x = self._moved(x, (count, 1, rows, features))
        image = self._moved(x, (count, features, 1, rows), (0, 3, 1, 2))
        self.images[t.name] = image, nchw
        return image

    def _view(self, t: g.Tensor, nchw: bool, swapped: bool) -> g.Tensor | None:
        """The image of `t` as one of a tensor that `t` is moved from; None if its elements lie in another order.

        With `swapped` of the tensor whose last two dimensions are exchanged.
        """
        key = t.name, nchw, swapped
        if key in self.views:
            return self.views[key]
        chain: list[g.Operator] = []
        source = t
        while source.name not in self.images:
            before = self.producers.get(source.name)
            if not isinstance(before, _MOVES) or before.output.dtype != "int8":
                return None
            chain.insert(0, before)
            source = before.x
        image, form = self.images[source.name]
        places = np.arange(image.nbytes)
        found = from_image(places.reshape(image.shape), source.shape, form)
        for op in chain:
            found = moved(op, found)
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
            self.ops.append(g.Transpose(self.unused(f"{t.name}.plain"), (plain,), t, (0, 3, 1, 2), True))
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
