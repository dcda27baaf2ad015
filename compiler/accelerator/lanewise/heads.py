"""Networks whose heads are lanes: a transformation that does not change results.

Products of matrices per head become products of images (1, heads, tokens, elements), whose channels are heads. A matrix
or a mask that all heads share is repeated for each. A layer in front computes its elements in the order of the lanes,
and one behind them reads them so.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ....hw.config import Config
from ... import graph as g
from ...graph.deeploy.layers import in_lanes
from . import needs
from .caches import joined

_HEADS_FIRST = (0, 2, 1, 3)
_TRANSPOSED = (0, 1, 3, 2)
_ONE_BY_ONE = (g.Requantize, g.Lookup)


@dataclass(frozen=True, eq=False)
class PaddedDense(g.StandIn, g.QDense):
    """A layer whose rows or columns are in the order of lanes, with zeros for those of heads that are not there."""


def heads_in_lanes(graph: g.Graph, cfg: Config) -> g.Graph:
    """`graph` with heads in lanes where it multiplies narrow matrices, if `cfg` computes all around them, too."""
    if needs.needs(cfg) or not any(isinstance(op, g.ShiftMatMul) for op in graph.ops):
        return graph
    found = _Rewriter(graph, cfg.block_in)
    if not found.changed:
        return graph
    return joined(_layers_in_lanes(replace(graph, ops=tuple(found.ops)), cfg.block_in), cfg.block_in)


class _Rewriter:
    """`ops` are those of `graph` with products in lanes; `changed` if there are any."""

    def __init__(self, graph: g.Graph, block: int):
        self.block, self.readers, self.changed = block, graph.readers, False
        self.wanted = {t.name for t in graph.wanted}
        self.producers = {op.output.name: op for op in graph.ops}
        self.unused = graph.names.unused
        self.shared: dict[tuple[str, tuple[int, ...]], g.Tensor] = {}
        self.ops: list[g.Operator] = []
        self.done: set[str] = set()
        for op in graph.ops:
            if op.name not in self.done:
                self.ops.append(self._product(op) if isinstance(op, g.ShiftMatMul) else self._sum(op))

    def _product(self, op: g.ShiftMatMul) -> g.Operator:
        new, before = op, self.producers.get(op.inputs[1].name)
        if before is not None and _swaps(before):
            new = replace(new, inputs=(new.x, before.x), transposed=not new.transposed)
        if (moved := self._of_heads(new)) is not None:
            return moved
        if not in_lanes(new, self.block):
            return op
        self.changed = True
        return new

    def _of_heads(self, op: g.ShiftMatMul) -> g.Operator | None:
        """The product of the rows of x, one per head, with a matrix per token, where heads come first afterwards."""
        x, y = (t.shape for t in op.inputs)
        readers = self.readers.get(op.output.name, [])
        if len(x) != 4 or x[0] != 1 or (1,) * (4 - len(y)) + y[:-2] != x[:2] or op.transposed:
            return None
        if len(readers) != 1 or op.output.name in self.wanted or op.inputs[1].data is not None:
            return None
        before = self.producers.get(op.x.name)
        while isinstance(before, g.Reshape):
            before = self.producers.get(before.x.name)
        if not isinstance(before, g.QDense):  # whose rows are tokens
            return None
        (then,) = readers
        if not isinstance(then, g.Transpose) or then.axes != _HEADS_FIRST:
            return None
        (_, tokens, heads, inner), columns = x, y[-1]
        if (tokens > 1 and heads > self.block) or (heads % self.block and inner >= self.block):
            return None
        first = replace(op.x, name=self.unused(f"{op.x.name}.heads"), shape=(1, heads, tokens, inner))
        self.ops.append(g.Transpose(first.name, (op.x,), first, _HEADS_FIRST))
        second = self._spread(op.inputs[1], (1, heads, tokens * inner, columns))
        self.done.add(then.name)
        self.changed = True
        if tokens == 1:
            return replace(op, inputs=(first, second), output=then.output)
        rows, matrices = self._reshaped(first, (tokens, 1, inner)), self._reshaped(second, (tokens, inner, columns))
        y = replace(op.output, name=self.unused(f"{op.output.name}.rows"), shape=(1, heads, tokens, 1, columns))
        self.ops.append(replace(op, inputs=(rows, matrices), output=y))
        return g.Reshape(then.name, (y,), then.output)

    def _reshaped(self, t: g.Tensor, pixels: tuple[int, ...]) -> g.Tensor:
        """`t` with its pixels in another shape, which is made once."""
        key = t.name, pixels
        if key not in self.shared:
            self.shared[key] = y = replace(t, name=self.unused(f"{t.name}.rows"), shape=(*t.shape[:2], *pixels))
            self.ops.append(g.Reshape(y.name, (t,), y))
        return self.shared[key]

    def _sum(self, op: g.Operator) -> g.Operator:
        """An operator of two tensors of which one is the same for all heads: that is repeated."""
        shape = op.output.shape
        if not isinstance(op, g.Binary) or len(shape) != 4 or shape[0] != 1:
            return op
        inputs = tuple(self._spread(t, shape) if self._shared(t, shape) else t for t in op.inputs)
        return replace(op, inputs=inputs)

    def _shared(self, t: g.Tensor, shape: tuple[int, ...]) -> bool:
        return t.data is None and (1,) * (4 - len(t.shape)) + t.shape == (1, 1, *shape[2:])

    def _spread(self, t: g.Tensor, shape: tuple[int, ...]) -> g.Tensor:
        """`t` for each channel of `shape`: before the functions of its values, so that it is done once."""
        later: list[tuple[g.Tensor, g.Operator]] = []  # tensors on the way to `t`, and the operators that make them
        while (t.name, shape) not in self.shared:
            before = self.producers.get(t.name)
            if not isinstance(before, (g.Reshape, *_ONE_BY_ONE)) or before.x.dtype != "int8":
                self.shared[t.name, shape] = self._repeated(t, shape)
                break
            later.append((t, before))
            t = before.x
        y = self.shared[t.name, shape]
        for t, before in reversed(later):
            if not isinstance(before, g.Reshape):
                x, y = y, replace(t, name=self.unused(f"{t.name}.heads"), shape=shape, data=None)
                self.ops.append(replace(before, name=y.name, inputs=(x,), output=y))
            self.shared[t.name, shape] = y
        return y

    def _repeated(self, t: g.Tensor, shape: tuple[int, ...]) -> g.Tensor:
        y = replace(t, name=self.unused(f"{t.name}.heads"), shape=shape, data=None)
        x = replace(t, name=self.unused(f"{t.name}.one"), shape=(1, 1, *shape[2:]))
        self.ops.append(g.Reshape(x.name, (t,), x))
        self.ops.append(g.Take(y.name, (x,), y, ((), (0,) * shape[1], (), ())))
        return y


def _swaps(op: g.Operator) -> bool:
    return isinstance(op, g.Transpose) and op.axes == _TRANSPOSED


def _layers_in_lanes(graph: g.Graph, block: int) -> g.Graph:
    """`graph` with the layers whose elements become heads, or that read these, in the order of lanes."""
    producers = {op.output.name: op for op in graph.ops}
    wanted, readers = {t.name for t in graph.wanted}, graph.readers
    layers: dict[str, g.Operator] = {}
    moves: dict[str, g.Operator] = {}
    reads: dict[str, g.Operator] = {}
    passed: set[str] = set()
    for op in graph.ops:
        shape, source = op.output.shape, op.x
        if isinstance(op, g.QDense):
            _read_in_lanes(op, producers, block, layers, reads)
        if not isinstance(op, g.Transpose) or op.axes != _HEADS_FIRST or shape[0] != 1 or not _possible(shape, block):
            continue
        chain: list[g.Reshape | g.Transpose] = [op]
        while isinstance(before := producers.get(source.name), (g.Reshape, g.Transpose)):
            chain, source = [*chain, before], before.x
        names = [t.x.name for t in chain]
        alone = all(len(readers[name]) == 1 and name not in wanted for name in names)
        if not alone or type(before) is not g.QDense or source.shape != _rows_of(shape) or not _in_order(chain[1:]):
            continue
        places = _places(shape, block)
        y = replace(source, name=f"{source.name}.lanes", shape=(source.shape[0], len(places)))
        rows = places >= 0
        weight, bias = before.weight[places] * rows[:, None], before.bias[places] * rows
        scale = np.broadcast_to(before.weight_scale, len(before.bias))[places]
        layers[before.name] = _padded(before, output=y, weight=weight, bias=bias, weight_scale=scale)
        moves[op.name] = g.Lanes(op.name, (y,), op.output, block)
        passed |= {link.name for link in chain[1:]}
    ops: list[g.Operator] = []
    for op in graph.ops:
        if op.name not in passed:
            new = layers.get(op.name, op)
            ops += [reads[op.name]] if op.name in reads else []
            ops.append(moves.get(op.name) or new)
    return replace(graph, ops=tuple(ops))


def _read_in_lanes(
    op: g.QDense,
    producers: dict[str, g.Operator],
    block: int,
    layers: dict[str, g.Operator],
    reads: dict[str, g.Operator],
) -> None:
    """Note `op` with its weights in the order of lanes, and what makes its input, by its name, where it reads heads."""
    source = op.x
    while isinstance(before := producers.get(source.name), g.Reshape):
        source = before.x
    if not isinstance(before, g.Transpose) or before.axes != _HEADS_FIRST or type(op) is not g.QDense:
        return
    shape = before.x.shape
    if shape[0] != 1 or not _possible(shape, block) or op.x.shape != _rows_of(shape):
        return
    places = _places(shape, block)
    y = replace(op.x, name=f"{op.x.name}.lanes", shape=(op.x.shape[0], len(places)))
    layers[op.name] = _padded(op, inputs=(y,), weight=op.weight[:, places] * (places >= 0))
    reads[op.name] = g.Lanes(y.name, (before.x,), y, block)


def _padded(op: g.QDense, **changes: Any) -> PaddedDense:
    """`op` with `changes`, which may add weights of 0."""
    facts = {f.name: getattr(op, f.name) for f in fields(op)}
    return PaddedDense(**{**facts, **changes}, work=op.macs)


def _possible(image: tuple[int, ...], block: int) -> bool:
    """True if the heads of an image are lanes: of one row, or of one block."""
    return (image[1] % block == 0 or image[3] < block) and (image[2] == 1 or image[1] <= block)


def _rows_of(image: tuple[int, ...]) -> tuple[int, int]:
    return image[2], image[1] * image[3]


def _places(image: tuple[int, ...], block: int) -> np.ndarray:
    """Which element of a row is at each place of its order in lanes; -1 in the lanes of heads that are not there."""
    _, heads, _, elements = image
    places = np.full((-(-heads // block) * block, elements), -1)
    places[:heads] = np.arange(heads * elements).reshape(heads, elements)
    return places.reshape(-1, block, elements).swapaxes(1, 2).reshape(-1)


def _in_order(chain: list[g.Reshape | g.Transpose]) -> bool:
    """True if no element changes its place."""
    moved = [[k for k in op.axes if op.x.shape[k] > 1] for op in chain if isinstance(op, g.Transpose)]
    return all(axes == sorted(axes) for axes in moved)
