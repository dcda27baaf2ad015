"""GRU, and LSTM from given values on or with its last ones, step by step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core import Node
from .nodes import Chain, Reader, Rewrite, as_float

MOST_STEPS = 256  # each becomes a dozen operators
_DEFAULTS = {"GRU": [b"Sigmoid", b"Tanh"], "LSTM": [b"Sigmoid", b"Tanh", b"Tanh"]}
_GATES = {"GRU": 3, "LSTM": 4}
PLAIN = {"hidden_size", "direction"}
_KNOWN = {*PLAIN, "linear_before_reset", "activations", "layout", "input_forget"}
Step = Callable[["Way", str, "list[str]"], "list[str]"]


class Way:
    """One direction: its gates of the inputs at every step, and its weights of the hidden values, transposed."""

    def __init__(self, chain: Chain, x: str, weights: tuple[np.ndarray, np.ndarray, np.ndarray], index: int):
        self.chain, node = chain, chain.node
        weight, self.recurrence, bias = (part[index] for part in weights)
        self.hidden = self.recurrence.shape[1]
        self.gates = _GATES[node.op]
        of_inputs, self.biases = bias.reshape(2, -1)
        self.inner = bool(node.attrs.get("linear_before_reset", 0))  # the reset gate comes after the product
        inside = slice(2 * self.hidden, None) if node.op == "GRU" and self.inner else slice(0)
        added = of_inputs + self.biases
        added[inside] = of_inputs[inside]
        steps, rows, _ = chain.reader.shapes[x]
        flat = chain.add("MatMul", chain.reshape(x, steps * rows, -1), as_float(weight.T))
        self.inputs = chain.reshape(chain.add("Add", flat, as_float(added)), steps, rows, self.gates * self.hidden)

    def part(self, x: str, first: int, end: int) -> str:
        """The gates from `first` to before `end`."""
        return self.chain.slice(x, 1, first * self.hidden, end * self.hidden)

    def product(self, h: str, first: int, end: int) -> str:
        """The hidden values times the weights of these gates."""
        return self.chain.add("MatMul", h, as_float(self.recurrence[first * self.hidden : end * self.hidden].T))

    def at(self, step: int) -> str:
        """The gates of the inputs of one step."""
        return self.chain.add("Gather", self.inputs, np.array(step, np.int64), axis=0)


def _gru(way: Way, now: str, values: list[str]) -> list[str]:
    add, (h,) = way.chain.add, values
    gates = add("Sigmoid", add("Add", way.part(now, 0, 2), way.product(h, 0, 2)))
    update, reset = way.part(gates, 0, 1), way.part(gates, 1, 2)
    if way.inner:
        inside = add("Add", way.product(h, 2, 3), as_float(way.biases[2 * way.hidden :]))
        inside = add("Mul", reset, inside)
    else:
        inside = way.product(add("Mul", reset, h), 2, 3)
    new = add("Tanh", add("Add", way.part(now, 2, 3), inside))
    return [add("Add", add("Mul", add("Sub", as_float(1), update), new), add("Mul", update, h))]


def _lstm(way: Way, now: str, values: list[str]) -> list[str]:
    add, (h, c) = way.chain.add, values
    sums = add("Add", now, way.product(h, 0, 4))
    gates = add("Sigmoid", way.part(sums, 0, 3))
    i, o, f = (way.part(gates, k, k + 1) for k in range(3))
    c = add("Add", add("Mul", f, c), add("Mul", i, add("Tanh", way.part(sums, 3, 4))))
    return [add("Mul", o, add("Tanh", c)), c]


def _recurrent(step: Step) -> Rewrite:
    def rewrite(reader: Reader, node: Node) -> list[Node] | None:
        x, count = node.inputs[0], 1 if node.op == "GRU" else 2
        first = [node.input(5 + k) for k in range(count)]
        if node.op == "LSTM" and not any((*first, *node.outputs[1:])) and node.attrs.keys() <= PLAIN:
            return None  # one operator
        weights = _weights(reader, node)
        steps, rows, _ = reader.shapes[x]
        if weights is None or steps > MOST_STEPS or not _plain(reader, node, steps):
            return None
        chain, ways, hidden = Chain(reader, node), len(weights[0]), weights[1].shape[2]
        seen, last = list[str](), [list[str]() for _ in range(count)]
        for k in range(ways):
            way = Way(chain, x, weights, k)
            none = reader.constant(np.zeros((rows, hidden), np.float32), f"{node.name}.zeros")
            values = [chain.add("Gather", t, np.array(k, np.int64), axis=0) if t else none for t in first]
            found = [""] * steps
            backwards = k == 1 or node.attrs.get("direction", b"forward") == b"reverse"
            for t in reversed(range(steps)) if backwards else range(steps):
                values = step(way, way.at(t), values)
                found[t] = values[0]
            if node.outputs[0]:
                joined = chain.add("Concat", *found, axis=0) if steps > 1 else found[0]
                seen.append(chain.reshape(joined, steps, 1, rows, hidden))
            for kept, value in zip(last, values):
                kept.append(chain.reshape(value, 1, rows, hidden))
        for output, parts, axis in zip(node.outputs, (seen, *last), (1, 0, 0)):
            chain.write(output, "Concat", *parts, axis=axis)
        return chain.nodes

    return rewrite


def _weights(reader: Reader, node: Node) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Weights of the inputs, of the hidden values, and the biases of both; None where they are not constant."""
    weight, recurrence = (reader.real(t) for t in node.inputs[1:3])
    if weight is None or recurrence is None:
        return None
    bias = reader.real(node.inputs[3]) if node.input(3) else np.zeros((len(weight), 2 * weight.shape[1]), np.float32)
    return None if bias is None else (weight, recurrence, bias)


def _plain(reader: Reader, node: Node, steps: int) -> bool:
    """True of default activations, whole sequences, steps first, and none of what only some LSTMs have."""
    lengths = reader.value(node.inputs[4]) if node.input(4) else None
    if (node.input(4) and (lengths is None or (lengths != steps).any())) or node.input(7):
        return False
    defaults, given = _DEFAULTS[node.op], node.attrs.get("activations")
    if given is not None and list(given) != defaults * (len(given) // len(defaults)):
        return False
    return node.attrs.keys() <= _KNOWN and not node.attrs.get("layout", 0) and not node.attrs.get("input_forget", 0)


RECURRENT: dict[str, Rewrite] = {"GRU": _recurrent(_gru), "LSTM": _recurrent(_lstm)}
