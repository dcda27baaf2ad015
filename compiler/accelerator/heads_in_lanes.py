"""Rewrites of networks with narrow heads: the heads become the lanes of an entry. Results do not change.

With one matrix per lane, products, sums and comparisons along rows and columns combine entries: no lane needs the value
of another lane. Products of matrices per head become products of images (1, heads, tokens, elements), whose channels
are heads. Layers before and behind compute and read elements in the order of lanes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ...hw.config import Config
from .. import graph as g
from ..graph.rewrite import Producers, Result, Rule, moved_from, moved_places, reading, rewrite
from ..kernels import table
from ..kernels.cache import RowsJoined, RowsOut
from ..kernels.norm import EXTENSIONS
from ..kernels.recording import stand_in


@dataclass(frozen=True, eq=False)
class PaddedDense(g.StandIn, g.QDense):
    """A layer whose rows or columns are in the order of lanes, with zeros for those of heads that are not there."""


def heads_in_lanes(graph: g.Graph, cfg: Config) -> g.Graph:
    """Heads narrower than a block become lanes, where `cfg` computes the operators around them, too."""
    if not _able(cfg):
        return graph
    rules = _Rules(graph, cfg.block_in)
    known = Rule(g.Operator, lambda op, *around: rules.instead.get(op.name))
    found = rewrite(graph, known, Rule(g.ShiftMatMul, rules.product), Rule(g.Binary, rules.masked))
    if not any(op.in_lanes(cfg.block_in) for op in found.ops):
        return graph
    return joined(rewrite(found, known, Rule(g.QDense, rules.layer)), cfg)


def _able(cfg: Config) -> bool:
    """True where `cfg` computes norms and softmax, which are around heads."""
    able = {*EXTENSIONS} <= cfg.extensions and cfg.tables > 1
    return able and cfg.batch == 1 and cfg.block_in == cfg.block_out


class _Rules:
    """Rules for one graph; `instead` has their results for operators behind the one that they are called for."""

    def __init__(self, graph: g.Graph, block: int):
        self.block, self.unused, self.instead = block, graph.names.unused, dict[str, Result]()
        self.ops: list[g.Operator] = []  # the new operators before the one that a rule is called for
        self.producers: Producers = {}
        self._reshaped, self._spread = cache(self._reshape), cache(self._repeat)  # each operator is made once

    def masked(self, op: g.Binary, readers: g.Readers, producers: Producers) -> Result:
        """Repeat operands that all heads share."""
        self.ops, self.producers, shape = [], producers, op.output.shape
        if len(shape) != 4 or shape[0] != 1:
            return None
        shared = [t.data is None and (1,) * (4 - len(t.shape)) + t.shape == (1, 1, *shape[2:]) for t in op.inputs]
        inputs = tuple(self._spread(t, shape) if same else t for t, same in zip(op.inputs, shared))
        return [*self.ops, replace(op, inputs=inputs)]

    def product(self, op: g.ShiftMatMul, readers: g.Readers, producers: Producers) -> Result:
        """A product in lanes; a transposition of its second operand becomes part of it."""
        match producers.get(op.inputs[1].name):
            case g.Transpose(axes=(0, 1, 3, 2)) as swap:
                op = replace(op, inputs=(op.x, swap.x), transposed=not op.transposed)
        self.ops, self.producers = [], producers
        return self._turned(op, readers.only(op)) or ([op] if op.in_lanes(self.block) else None)

    def _turned(self, op: g.ShiftMatMul, then: g.Operator | None) -> Result:
        """The product of a token's rows, one per head, with a matrix of the token, if heads come first afterwards."""
        x, y = (t.shape for t in op.inputs)
        if len(x) != 4 or x[0] != 1 or (1,) * (4 - len(y)) + y[:-2] != x[:2] or op.transposed:
            return None
        if not isinstance(then, g.Transpose) or then.axes != (0, 2, 1, 3) or op.inputs[1].data is not None:
            return None
        if not isinstance(self.producers.get(moved_from(op.x, self.producers)[0].name), g.QDense):  # rows are tokens
            return None
        (_, tokens, heads, inner), columns = x, y[-1]
        if (tokens > 1 and heads > self.block) or (heads % self.block and inner >= self.block):
            return None
        first = replace(op.x, name=self.unused(f"{op.x.name}.heads"), shape=(1, heads, tokens, inner))
        self.ops.append(g.Transpose(first.name, (op.x,), first, (0, 2, 1, 3)))
        second = self._spread(op.inputs[1], (1, heads, tokens * inner, columns))
        if tokens == 1:
            self.instead[then.name] = then.output
            return [*self.ops, replace(op, inputs=(first, second), output=then.output)]
        shape = 1, heads, tokens
        inputs = self._reshaped(first, (*shape, 1, inner)), self._reshaped(second, (*shape, inner, columns))
        y = replace(op.output, name=self.unused(f"{op.output.name}.rows"), shape=(*shape, 1, columns))
        self.instead[then.name] = [g.Reshape(then.name, (y,), then.output)]
        return [*self.ops, replace(op, inputs=inputs, output=y)]

    def _reshape(self, t: g.Tensor, shape: tuple[int, ...]) -> g.Tensor:
        y = replace(t, name=self.unused(f"{t.name}.rows"), shape=shape)
        self.ops.append(g.Reshape(y.name, (t,), y))
        return y

    def _repeat(self, t: g.Tensor, shape: tuple[int, ...]) -> g.Tensor:
        """`t` repeated for each channel of `shape`, before functions of its values, so that all readers share it."""
        y = replace(t, name=self.unused(f"{t.name}.heads"), shape=shape)
        match self.producers.get(t.name):
            case g.Reshape(x=g.Tensor(dtype="int8") as x):
                return self._spread(x, shape)
            case (g.Requantize(x=g.Tensor(dtype="int8")) | g.Lookup(x=g.Tensor(dtype="int8"))) as before:
                self.ops.append(replace(before, name=y.name, inputs=(self._spread(before.x, shape),), output=y))
            case _:
                one = self._reshaped(t, (1, 1, *shape[2:]))
                self.ops.append(g.Take(y.name, (one,), y, ((), (0,) * shape[1], (), ())))
        return y

    def layer(self, op: g.QDense, readers: g.Readers, producers: Producers) -> Result:
        """A layer whose outputs become heads, or that reads heads, with rows or columns in the order of lanes."""
        if type(op) is not g.QDense:
            return None
        lanes, moves, work = list[g.Operator](), self._heads_made(op, readers), op.macs
        image, before = moved_from(op.x, producers)
        if self._are_heads(moved_places(image), moved_places(image, *before)):
            places = _places(image.shape, self.block)
            y = replace(op.x, name=f"{op.x.name}.lanes", shape=(op.x.shape[0], len(places)))
            lanes.append(g.Lanes(y.name, (image,), y, self.block))
            weight = op.weight[:, places] * (places >= 0)
            op = stand_in(PaddedDense, op, inputs=(y,), weight=weight, work=work)
        if moves:
            *passed, last = moves
            places = _places(last.output.shape, self.block)
            there, scale = places >= 0, op.weight_scale[places]
            y = replace(op.output, name=f"{op.output.name}.lanes", shape=(op.output.shape[0], len(places)))
            weight, bias = op.weight[places] * there[:, None], op.bias[places] * there
            facts = {"weight_scale": scale, "steps": None if op.steps is None else op.steps[places]}
            op = stand_in(PaddedDense, op, output=y, weight=weight, bias=bias, work=work, **facts)
            self.instead |= {move.name: move.output for move in passed}
            self.instead[last.name] = [g.Lanes(last.name, (y,), last.output, self.block)]
        return [*lanes, op]

    def _heads_made(self, op: g.QDense, readers: g.Readers) -> list[g.Operator]:
        """The movements that turn the output of the layer, which nothing else reads, into an image of heads."""
        moves, then = list[g.Operator](), readers.only(op)
        while then is not None and then.rearranges:
            moves, then = [*moves, then], readers.only(then)
            if self._are_heads(moved_places(op.output, *moves), moved_places(op.output)):
                return moves
        return []

    def _are_heads(self, image: np.ndarray, rows: np.ndarray) -> bool:
        """True if an image with the elements of `rows` may have its heads in lanes: one row, or one block of heads."""
        if image.ndim != 4 or len(image) > 1:
            return False
        _, heads, tokens, elements = image.shape
        fits = (heads % self.block == 0 or elements < self.block) and (tokens == 1 or heads <= self.block)
        return fits and np.array_equal(image[0].swapaxes(0, 1).reshape(tokens, -1), rows)


def _places(image: tuple[int, ...], block: int) -> np.ndarray:
    """The element of a row at each place of the order in lanes; -1 in lanes without a head."""
    _, heads, _, elements = image
    places = np.full((-(-heads // block) * block, elements), -1)
    places[:heads] = np.arange(heads * elements).reshape(heads, elements)
    return places.reshape(-1, block, elements).swapaxes(1, 2).reshape(-1)


def joined(graph: g.Graph, cfg: Config) -> g.Graph:
    """Caches that are extended by a row, an input that nothing else reads and an output, stay in host layout."""

    def instead(op: g.Concat, readers: g.Readers, producers: Producers) -> Result:
        match op:
            case g.Concat(axis=2, inputs=(g.Tensor(dtype="int8", shape=(1, heads, _, width)) as cache, row)):
                alone = cache in graph.inputs and len(readers[cache.name]) == 1 and op.output in graph.outputs
                if alone and row.shape == (1, heads, 1, width) and row.data is None:
                    new = stand_in(RowsJoined, op)
                    return None if table.refusal(new, cfg) else [new]
        return None

    return rewrite(graph, Rule(g.Concat, instead))


def rows_out(graph: g.Graph, cfg: Config) -> g.Graph:
    """Outputs in lanes are written in host layout, where `cfg` can write them: the last transformation."""
    unused, images = graph.names.unused, dict[str, g.Tensor]()

    def instead(op: g.Operator, readers: g.Readers, producers: Producers) -> Result:
        op, y = reading(op, images), op.output
        source = producers.get(op.x.name) if op.renames else op
        inside = source is not None and source.in_lanes(cfg.block_in)
        if inside and y in graph.outputs and y.dtype == "int8" and len(y.shape) == 4:
            image = replace(y, name=unused(f"{y.name}.image"))
            whole = RowsOut(unused(f"{y.name}.rows"), (image,), y, (0,) * 4, (1,) * 4)
            if not table.refusal(whole, cfg):
                images[y.name] = image
                return [replace(op, output=image), whole]
        return [op]

    return rewrite(graph, Rule(g.Operator, instead)) if _able(cfg) else graph
