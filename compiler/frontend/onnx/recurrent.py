"""GRU, and LSTM with initial or final states, unrolled into a chain per step; signatures as in rewrites.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .nodes import Chain, Rewrite, Term, as_float
from .qlinear import dynamic_matmul

MOST_STEPS = 256  # each becomes a dozen operators
_ACTIVATIONS = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_GATES = {"GRU": 3, "LSTM": 4}
PLAIN = {"hidden_size", "direction"}  # attributes of an LSTM that one operator computes


class Direction:
    """One direction of a recurrent operator: the gates' inputs at every step, and the recurrent weights.

    `inputs` are x @ W.T + biases, (steps, rows, gates * hidden). The bias of the GRU's new value of the hidden state
    is left out where the reset gate multiplies the product (`linear_before_reset`), and is in `biases`.
    """

    def __init__(self, c: Chain, x: Term, weights: Sequence[np.ndarray], reset_after_matmul: bool):
        weight, self.recurrence, bias = weights
        self.hidden, gates = self.recurrence.shape[1], _GATES[c.node.op]
        self.reset_after_matmul = reset_after_matmul
        of_inputs, self.biases = bias.reshape(2, -1)
        added = of_inputs + self.biases
        if reset_after_matmul:
            added[2 * self.hidden :] = of_inputs[2 * self.hidden :]
        steps, rows, _ = x.shape
        flat = x.reshape(steps * rows, -1).node("MatMul", as_float(weight.T)) + as_float(added)
        self.inputs = flat.reshape(steps, rows, gates * self.hidden)

    def gates(self, x: Term, first: int, end: int) -> Term:
        """The gates from `first` to before `end`."""
        return x.slice(1, first * self.hidden, end * self.hidden)

    def product(self, h: Term, first: int, end: int) -> Term:
        """The hidden values times the weights of these gates."""
        return h.node("MatMul", as_float(self.recurrence[first * self.hidden : end * self.hidden].T))

    def sums(self, gate_inputs: Term, h: Term) -> Term:
        """The sums of all four gates of an LSTM."""
        return gate_inputs + self.product(h, 0, 4)


class QuantisedDirection(Direction):
    """One direction of onnxruntime's DynamicQuantizeLSTM: inputs and hidden values are quantised in each product.

    `matrices` are the weights (inputs, 4 * hidden), their scale and zero point, and those of the recurrence.
    """

    def __init__(self, c: Chain, x: Term, matrices: Sequence[np.ndarray], bias: np.ndarray):
        self.chain, (steps, rows, _), self.biases = c, x.shape, as_float(bias.reshape(2, -1).sum(0))
        weights = [c.constant(part) for part in matrices]
        self.of_hidden, self.hidden = weights[3:], matrices[3].shape[1] // 4
        flat = dynamic_matmul(c, x.reshape(steps * rows, -1), *weights[:3])
        self.inputs = flat.reshape(steps, rows, 4 * self.hidden)

    def sums(self, gate_inputs: Term, h: Term) -> Term:
        """The sums of all four gates; biases come last, as in onnxruntime."""
        return gate_inputs + dynamic_matmul(self.chain, h, *self.of_hidden) + self.biases


def _gru(d: Direction, gate_inputs: Term, state: list[Term]) -> list[Term]:
    (h,) = state
    sigmoid = (d.gates(gate_inputs, 0, 2) + d.product(h, 0, 2)).node("Sigmoid")
    update, reset = d.gates(sigmoid, 0, 1), d.gates(sigmoid, 1, 2)
    if d.reset_after_matmul:
        inside = reset * (d.product(h, 2, 3) + as_float(d.biases[2 * d.hidden :]))
    else:
        inside = d.product(reset * h, 2, 3)
    new = (d.gates(gate_inputs, 2, 3) + inside).node("Tanh")
    return [(1.0 - update) * new + update * h]


def _lstm(d: Direction, gate_inputs: Term, state: list[Term]) -> list[Term]:
    h, c = state
    sums = d.sums(gate_inputs, h)
    sigmoid = d.gates(sums, 0, 3).node("Sigmoid")
    i, o, f = (d.gates(sigmoid, k, k + 1) for k in range(3))
    c = f * c + i * d.gates(sums, 3, 4).node("Tanh")
    return [o * c.node("Tanh"), c]


Step = Callable[[Direction, Term, list[Term]], list[Term]]


def _unrolled(
    c: Chain, x: Term, ways: Sequence[Direction], step: Step, first: Sequence[Term | None], direction: str
) -> tuple[Term, ...]:
    """The hidden values of all steps, and the last states, from `first`: zeros where None."""
    (steps, rows, _), seen, last = x.shape, list[Term](), [list[Term]() for _ in first]
    for k, d in enumerate(ways):
        state = [c.constant(np.zeros((rows, d.hidden), np.float32)) if t is None else t.take(k) for t in first]
        outputs: dict[int, Term] = {}
        for t in reversed(range(steps)) if k == 1 or direction == "reverse" else range(steps):
            state = step(d, d.inputs.take(t), state)
            outputs[t] = state[0]
        joined = c.add("Concat", *(outputs[t] for t in range(steps)), axis=0) if steps > 1 else outputs[0]
        seen.append(joined.reshape(steps, 1, rows, d.hidden))
        for values, value in zip(last, state):
            values.append(value.reshape(1, rows, d.hidden))
    return c.add("Concat", *seen, axis=1), *(c.add("Concat", *values, axis=0) for values in last)


def _recurrent(step: Step) -> Rewrite:
    def rewrite(
        c: Chain, x: Term, w: Term, r: Term, b: Term | None = None, lengths: Term | None = None,
        first_h: Term | None = None, first_c: Term | None = None, peepholes: Term | None = None, *,
        hidden_size: int = 0, direction: str = "forward", linear_before_reset: int = 0,
        activations: Sequence[str] = (), layout: int = 0, input_forget: int = 0,
    ) -> tuple[Term, ...] | None:  # fmt: skip
        node, steps = c.node, x.shape[0]
        first = [first_h] if node.op == "GRU" else [first_h, first_c]
        if node.op == "LSTM" and not any((*first, *node.outputs[1:])) and node.attrs.keys() <= PLAIN:
            return None  # one operator
        weight, recurrence = w.real, r.real
        if weight is None or recurrence is None or steps > MOST_STEPS or peepholes is not None:
            return None
        bias = b.real if b is not None else np.zeros((len(weight), 2 * weight.shape[1]), np.float32)
        whole = lengths is None or (lengths.value is not None and (lengths.value == steps).all())
        defaults = _ACTIVATIONS[node.op]
        known = list(activations) == defaults * (len(activations) // len(defaults))
        if bias is None or not whole or not known or layout or input_forget:
            return None
        after = bool(node.op == "GRU" and linear_before_reset)
        ways = [Direction(c, x, weights, after) for weights in zip(weight, recurrence, bias)]
        return _unrolled(c, x, ways, step, first, direction)

    return rewrite


def _quantised_lstm(
    c: Chain, x: Term, w: Term, r: Term, b: Term | None, lengths: Term | None, first_h: Term | None,
    first_c: Term | None, peepholes: Term | None, *parameters: Term, hidden_size: int = 0, direction: str = "forward",
    activations: Sequence[str] = (), input_forget: int = 0,
) -> tuple[Term, ...] | None:  # fmt: skip
    arrays = [term.value for term in (w, *parameters[:2], r, *parameters[2:])]
    whole = lengths is None or (lengths.value is not None and (lengths.value == x.shape[0]).all())
    known = [array for array in arrays if array is not None]
    bias = np.zeros((w.shape[0], 2 * w.shape[2]), np.float32) if b is None else b.value
    plain = [*activations] in ([], _ACTIVATIONS["LSTM"] * w.shape[0]) and peepholes is None and not input_forget
    if len(known) < 6 or bias is None or not whole or x.shape[0] > MOST_STEPS or not plain:
        return None
    ways = [QuantisedDirection(c, x, [np.asarray(array[k]) for array in known], bias[k]) for k in range(len(bias))]
    return _unrolled(c, x, ways, _lstm, [first_h, first_c], direction)


RECURRENT: dict[str, Rewrite] = {
    "DynamicQuantizeLSTM": _quantised_lstm,
    "GRU": _recurrent(_gru),
    "LSTM": _recurrent(_lstm),
}
