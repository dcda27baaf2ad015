"""Groups the channels of layers by compute unit. Results stay the same, bit for bit.

Layers read channels in any order and give theirs in any; element-wise operators, pools and depthwise layers give the
order that they read; a concatenation and a flattened image follow the orders of their inputs. All other operators need
the order of the file. Tensors that share one order (`Ties`) get an order in which each unit has consecutive channels
(`Orders`). Weights -k, 0 and k become -1, 0 and 1 for unit `ternary`: the factor moves into the layer's scale
(`relabelled`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import singledispatch
from typing import Any

import numpy as np

from ...hw.errors import InputError
from ...hw.rounding import requantise
from ...runtime.hostops.arrays import AnyArray
from .. import graph as g
from . import Names
from .ranges import problem
from .rewrite import Producers, Rule, rewrite


class Kind(Enum):
    """Source of the order of channels of an operator's output."""

    LAYER = "any order that is wanted"
    SAME = "the order of its operands"
    DERIVED = "the orders of its operands, one after the other"
    FIXED = "the order of the file"


@dataclass(frozen=True)
class Tie:
    """How an operator treats orders of channels: these are dimension `axis` of its output, -1 where they are none.

    `operands` has for each input the dimension along which it may have another order than the file's, -1 where it must
    have that.
    """

    kind: Kind
    axis: int
    operands: tuple[int, ...]


@dataclass
class Ties:
    """The ties of a graph: `of` by operator, `axis` by tensor whose channels a layer gave.

    `root` stands for the tensors that share one order.
    """

    of: dict[str, Tie] = field(default_factory=dict[str, Tie])
    axis: dict[str, int] = field(default_factory=dict[str, int])
    _parents: dict[str, str] = field(default_factory=dict[str, str])

    def root(self, tensor: str) -> str:
        """The name that stands for all tensors with the order of `tensor`."""
        while (parent := self._parents.get(tensor, tensor)) != tensor:
            self._parents[tensor] = self._parents.get(parent, parent)
            tensor = parent
        return tensor

    def add(self, op: g.Operator) -> None:
        """Note how `op` treats the orders of its inputs, which are known."""
        axes = [-1 if t.data is not None else self.axis.get(t.name, -1) for t in op.inputs]
        tie = self.of[op.name] = _tie(op, axes) or Tie(Kind.FIXED, -1, (-1,) * len(axes))
        if tie.axis < 0:
            return
        self.axis[op.output.name] = tie.axis
        if tie.kind is Kind.SAME:
            for t, axis in zip(op.inputs, tie.operands):
                if axis >= 0 and self.axis.get(t.name) == axis:
                    self._parents[self.root(t.name)] = self.root(op.output.name)


def ties(graph: g.Graph) -> Ties:
    """The ties of every operator of `graph`."""
    found = Ties()
    for op in graph.ops:
        found.add(op)
    return found


@singledispatch
def _tie(op: g.Operator, axes: list[int]) -> Tie | None:
    """How `op` treats orders; None if it needs the order of the file.

    `axes` has the dimension of each input's channels, -1 where no layer gave them.
    """
    if op.elementwise:
        return _of_operands(op, axes)
    known = len(axes) == 1 and axes[0] >= 0 and op.x.shape[axes[0]] > 1
    axis = op.carried(axes[0]) if known else -1
    return None if axis < 0 else Tie(Kind.SAME, axis, (axes[0],))


@_tie.register(g.Linear)
def _of_layer(op: g.Linear, axes: list[int]) -> Tie | None:
    if op.groups > 1:
        alike = op.depthwise and len(op.weight) == op.groups and axes[0] == 1
        return Tie(Kind.SAME, 1, (1,)) if alike else None
    return Tie(Kind.LAYER, 1, (1 if axes[0] == 1 else -1,))


def _of_operands(op: g.Operator, axes: list[int]) -> Tie | None:
    """Operands that broadcast: those with all channels share the order, constants and others follow it."""
    shape = op.output.shape
    behind = {axis - len(t.shape) for t, axis in zip(op.inputs, axes) if axis >= 0 and t.shape[axis] > 1}
    if len(behind) != 1:
        return None
    axis = len(shape) + behind.pop()
    found = list[int]()
    for t in op.inputs:
        own = axis - len(shape) + len(t.shape)
        found.append(own if own >= 0 and t.shape[own] > 1 else -1)
    whole = all(own < 0 or t.shape[own] == shape[axis] for t, own in zip(op.inputs, found))
    return Tie(Kind.SAME, axis, tuple(found)) if whole and shape[axis] > 1 else None


@_tie.register(g.Concat)
def _of_concat(op: g.Concat, axes: list[int]) -> Tie | None:
    known = {axis for axis in axes if axis >= 0}
    if len(known) != 1:
        return None
    axis = known.pop()
    if axis == op.axis and len(axes) > 1:
        return Tie(Kind.DERIVED, axis, tuple(axis if own >= 0 else -1 for own in axes))
    return Tie(Kind.SAME, axis, (axis,) * len(axes)) if op.output.shape[axis] > 1 else None


@_tie.register(g.Reshape)
def _of_reshape(op: g.Reshape, axes: list[int]) -> Tie | None:
    """Dimensions of 1 come and go; otherwise all but the first become one, whose order is derived."""
    (axis,) = axes
    if axis >= 0 and op.x.shape[axis] > 1 and (own := op.carried(axis)) >= 0:
        return Tie(Kind.SAME, own, (axis,))
    if axis > 0 and len(op.output.shape) == 2 and op.output.shape[0] == op.x.shape[0]:
        return Tie(Kind.DERIVED, 1, (axis,))
    return None


def derived(op: g.Operator, tie: Tie, orders: list[AnyArray]) -> AnyArray:
    """The order of the output of `op`, of kind `DERIVED`, from the orders of its inputs along `tie.operands`.

    An order has the channel of the file at each place, -1 where there is none.
    """
    if len(op.inputs) > 1:  # a concatenation, else a reshape
        starts = np.cumsum([0, *(t.shape[tie.axis] for t in op.inputs)])
        parts = [np.where(order < 0, -1, order + start) for order, start in zip(orders, starts)]
        return np.concatenate(parts)
    (order,), axis, shape = orders, tie.operands[0] - 1, op.x.shape[1:]
    places = np.arange(np.prod(shape)).reshape(shape).take(np.maximum(order, 0), axis)
    dead = np.expand_dims(order < 0, tuple(k for k in range(len(shape)) if k != axis))
    return np.where(dead, -1, places).reshape(-1)


Ternary = Mapping[str, frozenset[int]]  # channels of unit `ternary`, by layer
_MOST_SHOWN = 4  # channels in a message
_LONGEST = 40  # characters of a layer's name in a message


class Orders:
    """Orders of the tensors of a graph for the channels of unit `ternary`, by layer.

    An order is int64, for each place the channel of the file there, -1 for a dead one, which fills GEMM's part to whole
    blocks of `block_out`; None stands for the file's order.
    """

    def __init__(self, graph: g.Graph, ties: Ties, ternary: Ternary, block_out: int):
        self.ties = ties
        self._found: dict[str, AnyArray | None] = {}
        self._derived = {
            ties.root(op.output.name): op for op in reversed(graph.ops) if ties.of[op.name].kind is Kind.DERIVED
        }
        self._sizes = {op.output.name: op.output.shape for op in graph.ops}
        self.ternary: dict[str, int] = {}  # number of last channels of each layer, including dead channels
        together: dict[str, list[g.Operator]] = {}
        for op in graph.ops:
            if op.name in ternary:
                together.setdefault(ties.root(op.output.name), []).append(op)
        for root, layers in together.items():
            self._found[root] = self._grouped(layers, ternary, block_out)

    def of(self, tensor: str) -> AnyArray | None:
        """The order of `tensor`'s channels, which are dimension `ties.axis[tensor]`."""
        if tensor not in self.ties.axis:
            return None
        root = self.ties.root(tensor)
        if root not in self._found:
            self._found[root] = None
            if root in self._derived:
                self._found[root] = self.natural(self._derived[root])
        return self._found[root]

    def natural(self, op: g.Operator) -> AnyArray | None:
        """The order that the output of `op`, of kind `DERIVED`, has without a movement."""
        tie, orders = self.ties.of[op.name], list[AnyArray]()
        for t, axis in zip(op.inputs, tie.operands):
            found = None if axis < 0 else self.of(t.name)
            orders.append(np.arange(t.shape[tie.axis if axis < 0 else axis]) if found is None else found)
        return _short(derived(op, tie, orders))

    def _grouped(self, layers: list[g.Operator], ternary: Ternary, block: int) -> AnyArray | None:
        """The order for layers that share one; `ternary` gets the number of ternary channels in each.

        Every layer's ternary channels are the last, so that the sets of any two layers contain one another.
        """
        layers = sorted(layers, key=lambda op: -len(ternary[op.name]))
        rest = frozenset(range(self._sizes[layers[0].output.name][1]))
        parts, starts = list[int](), dict[str, int]()
        for k, op in enumerate(layers):
            if k and not ternary[op.name] <= ternary[layers[k - 1].name]:
                raise InputError(_disagreement(layers[k - 1].name, op.name, ternary))
            if rest != ternary[op.name]:
                part = sorted(rest - ternary[op.name])
                parts += [*part, *[-1] * (-len(part) % block)]
            rest, starts[op.name] = ternary[op.name], len(parts)
        parts += sorted(rest)
        self.ternary |= {name: len(parts) - start for name, start in starts.items()}
        return _short(np.array(parts))


def _short(order: AnyArray) -> AnyArray | None:
    return None if np.array_equal(order, np.arange(len(order))) else order


def _disagreement(first: str, second: str, ternary: Ternary) -> str:
    alone = list[str]()
    for one, other in ((first, second), (second, first)):
        channels = sorted(ternary[one] - ternary[other])
        alone.append(", ".join(map(str, channels[:_MOST_SHOWN])) + (", ..." if len(channels) > _MOST_SHOWN else ""))
    return (
        f"layers {shown(first)} and {shown(second)} share one order of channels, as a sum of them needs: the ternary "
        f"channels of one must be among the other's; {alone[0]} are in the first alone, {alone[1]} in the second; map "
        "them alike"
    )


_VALUES = np.arange(-127, 128)  # values of an output, except the lowest


def factors(op: g.Linear) -> AnyArray:
    """int64 (O,): the k of each channel whose weights are all -k, 0 or k, 1 where all are 0; 0 for other channels."""
    size = np.abs(op.weight.astype(np.int64)).reshape(len(op.weight), -1)
    most = size.max(1)
    one = ((size == 0) | (size == most[:, None])).all(1)
    return np.where(one, np.maximum(most, 1), 0)


def capable(op: g.Linear, contract: str) -> AnyArray:
    """The channels, bool (O,), that `relabelled` can divide by their factor."""
    found = factors(op)
    if not (found > 1).any():
        return found == 1
    return (found > 0) & ((found == 1) | _biases(op, found, contract)[1])


def relabelled(op: g.Linear, channels: Sequence[int], contract: str) -> g.Linear:
    """`op` with weights of -1, 0 and 1 in `channels`: the factor moves into scale and bias, every result stays.

    The requantisation in the rounding contract `contract` gives the same integer for every possible sum of products.
    Raises `InputError`, which names the layer and the channel, where weights have several sizes, or where no multiplier
    and bias round so.
    """
    chosen = np.zeros(len(op.weight), bool)
    chosen[list(channels)] = True
    found = factors(op)
    if (chosen & (found == 0)).any():
        channel = int(np.flatnonzero(chosen & (found == 0))[0])
        size = np.unique(np.abs(op.weight[channel].astype(np.int64)))
        sizes = " and ".join(map(str, size[size > 0][-2:]))
        raise InputError(
            f"layer {shown(op.name)}: channel {channel} cannot be ternary: it has weights of size {sizes}; all must be "
            "-k, 0 or k for one k; map it to gemm"
        )
    divisors = np.where(chosen, np.maximum(found, 1), 1)
    if (divisors == 1).all():
        return op
    bias, same = _biases(op, divisors, contract)
    if (wrong := np.flatnonzero(~same & (divisors > 1))).size:
        channel = int(wrong[0])
        raise InputError(
            f"layer {shown(op.name)}: channel {channel} cannot be ternary: its weights have size {divisors[channel]}, "
            f"and with that in its scale {op.weight_scale[channel]:g} results would round otherwise; map it to gemm"
        )
    return _divided(op, divisors, bias)


def _divided(op: g.Linear, divisors: AnyArray, bias: AnyArray) -> g.Linear:
    around = (-1, *(1,) * (op.weight.ndim - 1))
    weight = (op.weight // divisors.reshape(around)).astype(op.weight.dtype)
    scale = (op.weight_scale * divisors).astype(np.float32)
    return replace(op, weight=weight, weight_scale=scale, bias=bias.astype(np.int32))


def _biases(op: g.Linear, found: AnyArray, contract: str) -> tuple[AnyArray, AnyArray]:
    """(int64 (O,) biases for the weights divided by `found`, bool (O,) whether all results stay with them)."""
    divisors = np.maximum(found, 1)
    low = op.bias.astype(np.int64) // divisors
    best, same = low, np.zeros(len(low), bool)
    if problem(op):
        return best, same
    for bias in (low, low + (op.bias % divisors != 0)):
        equal = _equal(op, _divided(op, divisors, bias), divisors, contract)
        best, same = np.where(equal & ~same, bias, best), same | equal
    return best, same & (found > 0)


def _equal(op: g.Linear, new: g.Linear, divisors: AnyArray, contract: str) -> AnyArray:
    """Whether, bool (O,), `new` has the results of `op` for every sum of products that int8 inputs can make.

    Results do not fall as sums rise, so it is enough that each value begins at the same sum.
    """
    if problem(new):
        return np.zeros(len(divisors), bool)
    reach = new.reach()
    low, high = (np.asarray(end, np.int64) - new.bias for end in (reach.low, reach.high))
    ends = np.minimum(low, 0), np.maximum(high, 0)
    thresholds = [
        _thresholds(layer, k, *ends, contract) for layer, k in ((op, divisors), (new, np.ones_like(divisors)))
    ]
    return (thresholds[0] == thresholds[1]).all(1)


def _thresholds(op: g.Linear, factor: AnyArray, low: AnyArray, high: AnyArray, contract: str) -> AnyArray:
    """int64 (O, values): for each channel and output value v the smallest s in low..high with a result of v or more.

    The result of s is `requantise(bias + factor * s)`; the threshold is high + 1 where no s reaches v.
    """
    multiplier, exponent, zero_point = (part[:, None] for part in (*op.multipliers, op.zero_points))
    bias, factor = op.bias.astype(np.int64)[:, None], factor[:, None]
    first = np.broadcast_to(low[:, None], (len(low), len(_VALUES))).copy()
    last = np.broadcast_to(high[:, None] + 1, first.shape).copy()
    facts = zero_point, op.low, op.high, op.contract or contract
    while (first < last).any():
        middle = (first + last) // 2
        reached = requantise(bias + factor * middle, multiplier, exponent, *facts) >= _VALUES
        open_ = first < last
        last = np.where(open_ & reached, middle, last)
        first = np.where(open_ & ~reached, middle + 1, first)
    return first


def grouped(graph: g.Graph, ternary: Ternary, block_out: int) -> g.Graph:
    """`graph` with the channels of the layers in `ternary` grouped by unit: the channels of GEMM, dead channels up to a
    whole block of `block_out`, the channels of unit `ternary`, whose number is the layer's field `ternary`.

    Weights, biases and scales are permuted, and so are the input channels of the layers that read them; inputs, outputs
    and states stay in their order. Where an operator between them needs the file's order, channels are gathered before
    it. Weights of ternary channels become -1, 0 and 1 where the results in the graph's rounding contract stay.

    Raises `InputError` for weights that are not ternary, and for layers of one sum whose ternary channels differ.
    """
    if not ternary:
        return graph

    def labels(op: g.Linear, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        channels = ternary.get(op.name)
        return None if channels is None else [relabelled(op, sorted(channels), contract)]

    contract = graph.contract
    graph = rewrite(graph, Rule(g.Linear, labels))
    found = ties(graph)
    return _Rewriter(graph, Orders(graph, found, ternary, block_out)).graph()


_Key = tuple[int, bytes] | None  # dimension of the channels and their order; None for the file's
_Version = tuple[g.Tensor, AnyArray | None]  # a tensor and its order


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

    def _read(self, t: g.Tensor, axis: int, tie: Tie, order: AnyArray | None) -> g.Tensor:
        """Input `t` of an operator whose output has `order`, in the order in which the operator reads it."""
        if axis < 0:
            return self._version(t, self._ties.axis.get(t.name, 0), None)
        return self._version(t, axis, order if tie.kind is Kind.SAME else self._orders.of(t.name))

    def _version(self, t: g.Tensor, axis: int, order: AnyArray | None) -> g.Tensor:
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

    def _tensor(self, t: g.Tensor, axis: int, order: AnyArray | None) -> g.Tensor:
        if order is None:
            return t
        shape = (*t.shape[:axis], len(order), *t.shape[axis + 1 :])
        return replace(t, name=self._names.unused(f"{t.name}.grouped"), shape=shape, data=None)

    def _rewritten(
        self, op: g.Operator, inputs: tuple[g.Tensor, ...], y: g.Tensor, order: AnyArray | None
    ) -> g.Operator:
        """`op` from `inputs` to `y`, which is in `order`."""
        tie, layer = self._ties.of[op.name], self._layers.get(op.name)
        if layer is None or tie.kind is Kind.FIXED:
            return replace(op, inputs=inputs, output=y)
        weight = layer.weight
        if tie.kind is Kind.LAYER and tie.operands == (1,):
            weight = _in_order(weight, self._orders.of(op.x.name), 1)
        facts: dict[str, Any] = {"weight": _in_order(weight, order, 0), "bias": _in_order(layer.bias, order, 0)}
        facts["steps"] = None if layer.steps is None else _in_order(layer.steps, order, 0)
        scale = layer.weight_scale if order is None else layer.weight_scale[np.maximum(order, 0)]
        if layer.depthwise:
            facts["groups"] = y.shape[1]
        if last := self._orders.ternary.get(op.name, 0):
            facts["ternary"] = last
        return replace(layer, inputs=inputs, output=y, weight_scale=scale, **facts)


def _key(axis: int, order: AnyArray | None) -> tuple[int, bytes] | None:
    return None if order is None else (axis, order.tobytes())


def _places(given: AnyArray | None, order: AnyArray | None, count: int) -> AnyArray:
    """Index in `given` of each channel of `order`, orders of `count` channels of the file; 0 for dead channels."""
    given, order = (np.arange(count) if found is None else found for found in (given, order))
    where = np.zeros(count, np.int64)
    where[given[given >= 0]] = np.flatnonzero(given >= 0)
    return np.where(order < 0, 0, where[order])


def _in_order(values: AnyArray, order: AnyArray | None, axis: int) -> AnyArray:
    """`values` with dimension `axis` in `order`, zeros for dead channels."""
    if order is None:
        return values
    found = values.take(np.maximum(order, 0), axis)
    found[(slice(None),) * axis + (order < 0,)] = 0
    return found


def shown(name: str) -> str:
    """The name of a layer as messages have it, in quotes; some files have names of hundreds of characters."""
    return repr(cut(name))


def cut(name: str) -> str:
    """`name` without its middle where it is long."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}...{name[-_LONGEST // 4 :]}"
