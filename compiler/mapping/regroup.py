"""Groups the channels of layers by compute unit. The graph computes, bit for bit, what it did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...hw.config import Config
from .. import graph as g
from ..graph.rewrite import Producers, Rule, rewrite
from ..names import Names
from .check import ternary_channels
from .file import ChannelMapping
from .orders import Orders
from .ternary import relabelled
from .ties import Kind, Tie, ties


def regroup(graph: g.Graph, mapping: ChannelMapping, cfg: Config) -> g.Graph:
    """`graph` with the channels of every mapped layer grouped by unit: GEMM's, dead ones up to a whole block of
    `cfg.block_out`, those of unit `ternary`, whose number is the layer's field `ternary`.

    Weights, biases and scales are permuted, and so are the input channels of the layers that read them; inputs, outputs
    and states stay in their order. Where an operator between them needs the file's order, channels are gathered before
    it. Weights of ternary channels become -1, 0 and 1 where the results in the graph's rounding contract stay.

    Raises `InputError` and `UnsupportedError` for a mapping that does not fit network or configuration, `InputError`
    also for weights that are not ternary, and for layers of one sum whose ternary channels differ.
    """
    ternary = ternary_channels(graph, mapping, cfg)
    if not ternary:
        return graph

    def labels(op: g.Linear, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        channels = ternary.get(op.name)
        return None if channels is None else [relabelled(op, sorted(channels), contract)]

    contract = graph.contract
    graph = rewrite(graph, Rule(g.Linear, labels))
    found = ties(graph)
    return _Rewriter(graph, Orders(graph, found, ternary, cfg.block_out)).graph()


_Key = tuple[int, bytes] | None  # dimension of the channels and their order; None for the file's
_Version = tuple[g.Tensor, np.ndarray | None]  # a tensor and its order


class _Rewriter:
    """Makes the operators anew. A tensor keeps its name in the file's order, and has another in any other order."""

    def __init__(self, graph: g.Graph, orders: Orders):
        self._graph, self._orders, self._ties = graph, orders, orders.ties
        self._layers = {op.name: op for op in graph.layers}
        given = (*graph.inputs, *graph.constants, *(s.tensor for s in graph.states))
        self._names = Names((*graph.names, *(t.name for t in given)))
        self._ops: list[g.Operator] = []
        # every tensor by its name, in the orders in which it is there; the first is the one that its operator gives
        self._versions: dict[str, dict[_Key, _Version]] = {}
        for t in given:
            self._versions[t.name] = {None: (t, None)}

    def graph(self) -> g.Graph:
        """The graph in the new orders."""
        for op in self._graph.ops:
            tie, order = self._ties.of[op.name], self._orders.of(op.output.name)
            if tie.kind is Kind.DERIVED:
                order = self._orders.natural(op)
            elif tie.kind is Kind.FIXED:
                order = None
            inputs = tuple(self._read(t, axis, tie, order) for t, axis in zip(op.inputs, tie.operands))
            y = self._tensor(op.output, tie.axis, order)
            self._versions[op.output.name] = {_key(tie.axis, order): (y, order)}
            self._ops.append(self._rewritten(op, inputs, y, order))
        for t in self._graph.wanted:
            self._version(t, self._ties.axis.get(t.name, 0), None)
        return replace(self._graph, ops=tuple(self._ops))

    def _read(self, t: g.Tensor, axis: int, tie: Tie, order: np.ndarray | None) -> g.Tensor:
        """Input `t` of an operator whose output has `order`, in the order in which the operator reads it."""
        if axis < 0:
            return self._version(t, self._ties.axis.get(t.name, 0), None)
        return self._version(t, axis, order if tie.kind is Kind.SAME else self._orders.of(t.name))

    def _version(self, t: g.Tensor, axis: int, order: np.ndarray | None) -> g.Tensor:
        """`t` with its channels, dimension `axis`, in `order`, gathered where nothing gives it so."""
        versions, key = self._versions[t.name], _key(axis, order)
        if key not in versions:
            source, given = next(iter(versions.values()))
            y = self._tensor(t, axis, order)
            places = _places(given, order, t.shape[axis])
            if source.data is not None:
                y = replace(y, data=np.ascontiguousarray(source.data.take(places, axis)))
            else:
                indices = tuple(tuple(map(int, places)) if k == axis else () for k in range(len(t.shape)))
                self._ops.append(g.Take(self._names.unused(f"{t.name}.gather"), (source,), y, indices))
            versions[key] = y, order
        return versions[key][0]

    def _tensor(self, t: g.Tensor, axis: int, order: np.ndarray | None) -> g.Tensor:
        if order is None:
            return t
        shape = (*t.shape[:axis], len(order), *t.shape[axis + 1 :])
        return replace(t, name=self._names.unused(f"{t.name}.grouped"), shape=shape, data=None)

    def _rewritten(self, op: g.Operator, inputs: tuple, y: g.Tensor, order: np.ndarray | None) -> g.Operator:
        """`op` from `inputs` to `y`, which is in `order`."""
        tie, layer = self._ties.of[op.name], self._layers.get(op.name)
        if layer is None or tie.kind is Kind.FIXED:
            return replace(op, inputs=inputs, output=y)
        weight = layer.weight
        if tie.kind is Kind.LAYER and tie.operands == (1,):
            weight = _in_order(weight, self._orders.of(op.x.name), 1)
        facts: dict[str, Any] = {"weight": _in_order(weight, order, 0), "bias": _in_order(layer.bias, order, 0)}
        scale = layer.weight_scale if order is None else layer.weight_scale[np.maximum(order, 0)]
        if layer.depthwise:
            facts["groups"] = y.shape[1]
        if last := self._orders.ternary.get(op.name, 0):
            facts["ternary"] = last
        return replace(layer, inputs=inputs, output=y, weight_scale=scale, **facts)


def _key(axis: int, order: np.ndarray | None) -> tuple[int, bytes] | None:
    return None if order is None else (axis, order.tobytes())


def _places(given: np.ndarray | None, order: np.ndarray | None, count: int) -> np.ndarray:
    """Where each channel of `order` is in `given`, both of `count` channels of the file; 0 of dead ones."""
    given, order = (np.arange(count) if found is None else found for found in (given, order))
    where = np.zeros(count, np.int64)
    where[given[given >= 0]] = np.flatnonzero(given >= 0)
    return np.where(order < 0, 0, where[order])


def _in_order(values: np.ndarray, order: np.ndarray | None, axis: int) -> np.ndarray:
    """`values` with dimension `axis` in `order`, zeros for dead channels."""
    if order is None:
        return values
    found = values.take(np.maximum(order, 0), axis)
    found[(slice(None),) * axis + (order < 0,)] = 0
    return found
