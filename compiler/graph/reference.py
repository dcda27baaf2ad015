"""The golden interpreter of quantised networks, the exact result of a graph, and the comparison of a run with it.

The numpy kernels that the class of an operator names (host_calls.py) are its definition; the host runs the same ones.
The device must give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...hw.errors import InputError
from . import Graph, Operator


def run(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    contract: str | None = None,
    state: dict[str, np.ndarray] | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(outputs by tensor name, int32 accumulators by layer name) of `graph` on `inputs` by tensor name.

    The inputs may hold several batches, concatenated in the first dimension; then so do the results.
    `contract` overrules the graph's rounding contract. `state` has the values of the graph's states, by name, as
    `initial_state` gives them, and gets those that the run leaves, batch by batch; without it the run starts from the
    initial ones. Raises `InputError` for missing or unknown inputs, and for wrong shapes.
    """
    state = initial_state(graph) if state is None else state
    runs = [_batch(graph.under(contract), batch, state) for batch in _batches(graph, inputs)]
    values, accumulators = ({key: np.concatenate([r[k][key] for r in runs]) for key in runs[0][k]} for k in (0, 1))
    return {t.name: values[t.name] for t in graph.outputs}, accumulators


def initial_state(graph: Graph) -> dict[str, np.ndarray]:
    """The initial values of the graph's states, by name."""
    return {s.tensor.name: s.initial for s in graph.states}


def trace(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    contract: str | None = None,
    state: dict[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Every tensor of the graph by name, inputs and states included, for inputs of exactly the graph's shapes.

    `contract` and `state` as in `run`.
    """
    (batch,) = _batches(graph, inputs)
    return _batch(graph.under(contract), batch, initial_state(graph) if state is None else state)[0]


def apply(op: Operator, *arrays: np.ndarray, contract: str = "double") -> np.ndarray:
    """The output of one operator for all of its inputs, including constants."""
    for call in op.calls(contract):
        arrays = (call(*arrays),)
    return arrays[0]


def _batches(graph: Graph, inputs: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    if strangers := [name for name in inputs if name not in {t.name for t in graph.inputs}]:
        raise InputError(f"the network has no input {strangers[0]!r}; it has {', '.join(t.name for t in graph.inputs)}")
    counts = set[int]()
    for t in graph.inputs:
        if t.name not in inputs:
            raise InputError(f"input {t.name!r} is missing; the given inputs are {', '.join(inputs) or 'none'}")
        shape = np.shape(inputs[t.name])
        if shape[1:] != t.shape[1:] or len(shape) != len(t.shape) or not shape[0] or shape[0] % t.shape[0]:
            first = "N" if t.shape[0] == 1 else f"{t.shape[0]} * N"
            raise InputError(
                f"input {t.name!r} has shape {shape}; expected ({', '.join(map(str, (first, *t.shape[1:])))})"
            )
        counts.add(shape[0] // t.shape[0])
    if len(counts) > 1:
        raise InputError(f"the inputs hold different numbers of batches: {', '.join(map(str, sorted(counts)))}")
    return [
        {t.name: np.asarray(inputs[t.name])[k * t.shape[0] : (k + 1) * t.shape[0]] for t in graph.inputs}
        for k in range(counts.pop())
    ]


def _batch(
    graph: Graph, values: dict[str, np.ndarray], state: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(every tensor by name, accumulators by layer name) of one batch; `state` gets its next values."""
    accumulators: dict[str, np.ndarray] = {}
    values = values | {t.name: t.data for t in graph.constants if t.data is not None} | state
    for op in graph.ops:
        arrays = [values[t.name] for t in op.inputs]
        for call in op.calls(graph.contract):
            arrays = [call(*arrays)]
            if call.dtype == "int32":
                accumulators[op.name] = arrays[0]
        values[op.output.name] = arrays[0]
    state.update({s.tensor.name: values[s.next.name] for s in graph.states})
    return values, accumulators


@dataclass(frozen=True)
class Difference:
    """The first operator whose output differs: `count` of its `total` elements do, the first of them at `index`."""

    operator: str
    kind: str
    tensor: str
    index: tuple[int, ...]
    got: float
    expected: float
    count: int
    total: int

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.operator!r}: {self.count:,} of {self.total:,} elements differ, the first at "
            f"{list(self.index)}: {self.got:g}, expected {self.expected:g}"
        )


@dataclass(frozen=True)
class Saturation:
    """Numbers of the `elements` of an operator's int8 output that are the least value, and the largest.

    Clamped values are among them. A least value that means 0, as after a ReLU, loses nothing: `low` is 0 then.
    """

    operator: str
    elements: int
    low: int
    high: int

    @property
    def share(self) -> float:
        """Share of the elements at either end."""
        return (self.low + self.high) / self.elements


@dataclass(frozen=True)
class Comparison:
    """Numbers of operators and elements compared, the first difference, if any, and the values at the ends of int8."""

    operators: int
    elements: int
    difference: Difference | None
    saturation: tuple[Saturation, ...] = ()


def compare(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    got: Mapping[str, np.ndarray],
    contract: str | None = None,
    state: dict[str, np.ndarray] | None = None,
) -> Comparison:
    """Compare the tensors `got` by name with the reference, bit for bit, in the order of the operators.

    Operators whose outputs are not in `got` are skipped. `contract` and the `state` that the run found are
    as in `run`.
    """
    expected = trace(graph, inputs, contract, state)
    operators = elements = 0
    ends: list[Saturation] = []
    for op in graph.ops:
        name = op.output.name
        if name not in got:
            continue
        mine, theirs = np.asarray(got[name]), expected[name]
        operators, elements = operators + 1, elements + theirs.size
        differ = mine.view(f"u{mine.itemsize}") != theirs.view(f"u{theirs.itemsize}")
        if differ.any():
            index = tuple(int(i) for i in np.argwhere(differ)[0])
            values = float(mine[index]), float(theirs[index])
            found = Difference(op.name, type(op).__name__, name, index, *values, int(differ.sum()), theirs.size)
            return Comparison(operators, elements, found, tuple(ends))
        if theirs.dtype == np.int8 and theirs.size and not op.copies:
            ends.append(_saturation(op, theirs))
    return Comparison(operators, elements, None, tuple(ends))


def _saturation(op: Operator, values: np.ndarray) -> Saturation:
    low, high = (int(np.count_nonzero(values == end)) for end in (-128, 127))
    return Saturation(op.name, values.size, 0 if op.output.zero_point == -128 else low, high)
