"""Networks whose heads are the lanes of an entry: transformations that do not change results.

With one matrix per lane a product of matrices is one of entries, and what is summed or compared along rows and columns
lies in different entries: no lane needs another one's value. That suits heads that are narrower than an entry.

Products of matrices per head become products of images (1, heads, tokens, elements), whose channels are heads. A matrix
or a mask that all heads share is repeated for each. A layer in front computes its elements in the order of the lanes,
and one behind them reads them so. Caches with a row more, and outputs, are read and written as the host has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from ...hw.config import Config
from .. import graph as g
from ..kernels import table
from ..kernels.roots import EXTENSIONS
from ..kernels.stand_ins import RowsJoined, RowsOut, stand_in


@dataclass(frozen=True, eq=False)
class PaddedDense(g.StandIn, g.QDense):
    """A layer whose rows or columns are in the order of lanes, with zeros for those of heads that are not there."""


def heads_in_lanes(graph: g.Graph, cfg: Config) -> g.Graph:
    """Heads that are narrower than a block become lanes of one, where `cfg` computes all around them, too."""
    if not _able(cfg) or not any(isinstance(op, g.ShiftMatMul) for op in graph.ops):
        return graph
    products = _Products(graph, cfg.block_in)
    if not products.changed:
        return graph
    layers = _Layers(replace(graph, ops=tuple(products.ops)), cfg.block_in)
    return joined(replace(graph, ops=tuple(layers.ops())), cfg)


def _able(cfg: Config) -> bool:
    """True where `cfg` computes roots and functions of lanes, as norms and softmax need them."""
    able = {*EXTENSIONS} <= cfg.extensions and cfg.tables > 1
    return able and cfg.batch == 1 and cfg.block_in == cfg.block_out


class _Rewriter:
    """The operators around those of `graph`."""

    def __init__(self, graph: g.Graph, block: int):
        self.graph, self.block, self.readers = graph, block, graph.readers
        self.wanted = {t.name for t in graph.wanted}
        self.made = {op.output.name: op for op in graph.ops}

    def before(self, t: g.Tensor, *passed: type[g.Operator]) -> g.Operator | None:
        """What makes `t`; of operators of the kinds `passed` what makes their input."""
        op = self.made.get(t.name)
        while isinstance(op, passed):
            op = self.made.get(op.x.name)
        return op

    def only_reader(self, t: g.Tensor) -> g.Operator | None:
        """What reads `t`, if nothing else does."""
        readers = self.readers.get(t.name, [])
        return readers[0] if len(readers) == 1 and t.name not in self.wanted else None


class _Products(_Rewriter):
    """`ops` are those of `graph` with products in lanes; `changed` if there are any."""

    def __init__(self, graph: g.Graph, block: int):
        super().__init__(graph, block)
        self.unused, self.changed = graph.names.unused, False
        self.shaped: dict[tuple[str, tuple[int, ...]], g.Tensor] = {}  # by the names of tensors and their new shapes
        self.ops: list[g.Operator] = []
        self.done: set[str] = set()
        for op in graph.ops:
            if op.name not in self.done:
                self.ops.append(self._instead(op))

    def _instead(self, op: g.Operator) -> g.Operator:
        match op:
            case g.ShiftMatMul():
                return self._product(op)
            case g.Binary(output=g.Tensor(shape=(1, _, _, _) as shape)):  # what is the same for all heads is repeated
                inputs = (self._spread(t, shape) if _shared(t, shape) else t for t in op.inputs)
                return replace(op, inputs=tuple(inputs))
        return op

    def _product(self, op: g.ShiftMatMul) -> g.Operator:
        new = op
        match self.made.get(op.inputs[1].name):
            case g.Transpose(axes=(0, 1, 3, 2)) as swap:
                new = replace(op, inputs=(op.x, swap.x), transposed=not op.transposed)
        if (turned := self._turned(new)) is not None:
            return turned
        self.changed |= new.in_lanes(self.block)
        return new if new.in_lanes(self.block) else op

    def _turned(self, op: g.ShiftMatMul) -> g.Operator | None:
        """The product of the rows of x, one per head, with a matrix per token, where heads come first afterwards."""
        (x, y), then = (t.shape for t in op.inputs), self.only_reader(op.output)
        if len(x) != 4 or x[0] != 1 or (1,) * (4 - len(y)) + y[:-2] != x[:2] or op.transposed:
            return None
        if not _heads_first(then) or op.inputs[1].data is not None:
            return None
        if not isinstance(self.before(op.x, g.Reshape), g.QDense):  # whose rows are tokens
            return None
        (_, tokens, heads, inner), columns = x, y[-1]
        if (tokens > 1 and heads > self.block) or (heads % self.block and inner >= self.block):
            return None
        first = replace(op.x, name=self.unused(f"{op.x.name}.heads"), shape=(1, heads, tokens, inner))
        self.ops.append(g.Transpose(first.name, (op.x,), first, (0, 2, 1, 3)))
        second = self._spread(op.inputs[1], (1, heads, tokens * inner, columns))
        self.done.add(then.name)
        self.changed = True
        if tokens == 1:
            return replace(op, inputs=(first, second), output=then.output)
        inputs = self._reshaped(first, (tokens, 1, inner)), self._reshaped(second, (tokens, inner, columns))
        y = replace(op.output, name=self.unused(f"{op.output.name}.rows"), shape=(1, heads, tokens, 1, columns))
        self.ops.append(replace(op, inputs=inputs, output=y))
        return g.Reshape(then.name, (y,), then.output)

    def _reshaped(self, t: g.Tensor, pixels: tuple[int, ...]) -> g.Tensor:
        """`t` with its pixels in another shape, which is made once."""
        shape = (*t.shape[:2], *pixels)
        if (t.name, shape) not in self.shaped:
            self.shaped[t.name, shape] = y = replace(t, name=self.unused(f"{t.name}.rows"), shape=shape)
            self.ops.append(g.Reshape(y.name, (t,), y))
        return self.shaped[t.name, shape]

    def _spread(self, t: g.Tensor, shape: tuple[int, ...]) -> g.Tensor:
        """`t` for each channel of `shape`: before the functions of its values, so that it is done once."""
        if (t.name, shape) not in self.shaped:
            self.shaped[t.name, shape] = self._repeated(t, shape)
        return self.shaped[t.name, shape]

    def _repeated(self, t: g.Tensor, shape: tuple[int, ...]) -> g.Tensor:
        before = self.made.get(t.name)
        match before:
            case g.Reshape(x=g.Tensor(dtype="int8")):
                return self._spread(before.x, shape)
            case g.Requantize(x=g.Tensor(dtype="int8")) | g.Lookup(x=g.Tensor(dtype="int8")):
                x = self._spread(before.x, shape)
                y = replace(t, name=self.unused(f"{t.name}.heads"), shape=shape)
                self.ops.append(replace(before, name=y.name, inputs=(x,), output=y))
                return y
        y = replace(t, name=self.unused(f"{t.name}.heads"), shape=shape)
        x = replace(t, name=self.unused(f"{t.name}.one"), shape=(1, 1, *shape[2:]))
        self.ops.append(g.Reshape(x.name, (t,), x))
        self.ops.append(g.Take(y.name, (x,), y, ((), (0,) * shape[1], (), ())))
        return y


def _shared(t: g.Tensor, shape: tuple[int, ...]) -> bool:
    return t.data is None and (1,) * (4 - len(t.shape)) + t.shape == (1, 1, *shape[2:])


class _Layers(_Rewriter):
    """Layers whose elements become heads, or that read these, in the order of lanes."""

    def ops(self) -> Iterator[g.Operator]:
        """The operators of `graph` with these layers."""
        instead: dict[str, list[g.Operator]] = {}  # of operators behind them, by name
        for op in self.graph.ops:
            new: g.Operator = op
            if type(op) is g.QDense:
                if (image := self._heads_read(op)) is not None:
                    places = _places(image.shape, self.block)
                    y = replace(op.x, name=f"{op.x.name}.lanes", shape=(op.x.shape[0], len(places)))
                    yield g.Lanes(y.name, (image,), y, self.block)
                    weight = op.weight[:, places] * (places >= 0)
                    op = new = stand_in(PaddedDense, op, inputs=(y,), weight=weight, work=op.macs)
                if moves := self._heads_made(op):
                    *passed, last = moves
                    new, lanes = _in_lanes(op, last, self.block)
                    instead |= {move.name: [] for move in passed}
                    instead[last.name] = [lanes]
            yield from instead.get(op.name, [new])

    def _heads_read(self, op: g.QDense) -> g.Tensor | None:
        """The image of heads whose rows the layer reads."""
        before = self.before(op.x, g.Reshape)
        if not _heads_first(before) or not _possible(before.x.shape, self.block):
            return None
        return before.x if op.x.shape == _rows_of(before.x.shape) else None

    def _heads_made(self, op: g.QDense) -> list[g.Reshape | g.Transpose]:
        """The operators behind the layer that make an image of heads of its output, which nothing else reads."""
        moves, t = list[g.Reshape | g.Transpose](), op.output
        while isinstance(then := self.only_reader(t), (g.Reshape, g.Transpose)):
            moves, t = [*moves, then], then.output
            if _heads_first(then) and _possible(t.shape, self.block) and op.output.shape == _rows_of(t.shape):
                return moves
            if isinstance(then, g.Transpose) and not _in_order(then):
                break
        return []


def _in_lanes(op: g.QDense, last: g.Operator, block: int) -> tuple[g.QDense, g.Lanes]:
    """The layer with its elements in the order of lanes, and the image of heads, the output of `last`, of these."""
    places = _places(last.output.shape, block)
    there, scale = places >= 0, np.broadcast_to(op.weight_scale, len(op.bias))[places]
    y = replace(op.output, name=f"{op.output.name}.lanes", shape=(op.output.shape[0], len(places)))
    weight, bias = op.weight[places] * there[:, None], op.bias[places] * there
    new = stand_in(PaddedDense, op, output=y, weight=weight, bias=bias, weight_scale=scale, work=op.macs)
    return new, g.Lanes(last.name, (y,), last.output, block)


def _heads_first(op: g.Operator | None) -> TypeGuard[g.Transpose]:
    return isinstance(op, g.Transpose) and op.axes == (0, 2, 1, 3)


def _in_order(op: g.Transpose) -> bool:
    """True if no element changes its place."""
    axes = [k for k in op.axes if op.x.shape[k] > 1]
    return axes == sorted(axes)


def _possible(image: tuple[int, ...], block: int) -> bool:
    """True if the heads of an image are lanes: of one row, or of one block."""
    n, heads, rows, elements = image
    return n == 1 and (heads % block == 0 or elements < block) and (rows == 1 or heads <= block)


def _rows_of(image: tuple[int, ...]) -> tuple[int, int]:
    return image[2], image[1] * image[3]


def _places(image: tuple[int, ...], block: int) -> np.ndarray:
    """Which element of a row is at each place of its order in lanes; -1 in the lanes of heads that are not there."""
    _, heads, _, elements = image
    places = np.full((-(-heads // block) * block, elements), -1)
    places[:heads] = np.arange(heads * elements).reshape(heads, elements)
    return places.reshape(-1, block, elements).swapaxes(1, 2).reshape(-1)


def joined(graph: g.Graph, cfg: Config) -> g.Graph:
    """`graph` with its caches with a row more as the host has them: inputs that nothing else reads, and outputs."""
    inputs, readers = {t.name for t in graph.inputs}, graph.readers

    def instead(op: g.Operator) -> g.Operator:
        match op:
            case g.Concat(axis=2, inputs=(g.Tensor(dtype="int8", shape=(1, heads, _, width)) as cache, row)):
                alone = cache.name in inputs and len(readers[cache.name]) == 1 and op.output in graph.outputs
                if alone and row.shape == (1, heads, 1, width) and row.data is None:
                    new = stand_in(RowsJoined, op)
                    return op if table.refusal(new, cfg) else new
        return op

    return replace(graph, ops=tuple(map(instead, graph.ops)))


def rows_out(graph: g.Graph, cfg: Config) -> g.Graph:
    """`graph` with its outputs in lanes as the host has them, where `cfg` can write them: the last transformation."""
    if not _able(cfg):
        return graph
    unused, made = graph.names.unused, {op.output.name: op for op in graph.ops}
    images: dict[str, g.Tensor] = {}
    ops: list[g.Operator] = []
    for op in graph.ops:
        op, y = replace(op, inputs=tuple(images.get(t.name, t) for t in op.inputs)), op.output
        ops.append(op)
        source = made.get(op.x.name) if isinstance(op, g.Reshape) else op
        inside = isinstance(source, g.Lanes) or source is not None and source.in_lanes(cfg.block_in)
        if inside and y in graph.outputs and y.dtype == "int8" and len(y.shape) == 4:
            image = replace(y, name=f"{y.name}.image")
            whole = RowsOut(f"{y.name}.rows", (image,), y, (0,) * 4, (1,) * 4)
            if not table.refusal(whole, cfg):
                images[y.name] = image = replace(image, name=unused(image.name))
                ops[-1:] = [replace(op, output=image), replace(whole, name=unused(whole.name), inputs=(image,))]
    return replace(graph, ops=tuple(ops)) if images else graph
