"""The golden interpreter of quantised networks: the exact result of a graph.

The numpy kernels that the class of an operator names (host_calls.py) are its definition; the host runs the same ones.
The device must give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...hw.errors import InputError
from . import Graph, Operator
from .host_calls import host_calls


def run(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    contract: str | None = None,
    state: dict[str, np.ndarray] | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(outputs by tensor name, int32 accumulators by layer name) of `graph` on `inputs` by tensor name.

    The inputs may hold several batches, concatenated in the first dimension, as then do the results.
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
    """Compute one operator on its inputs, constant ones included."""
    for call in host_calls(op, contract):
        arrays = (call(*arrays),)
    return arrays[0]


def _batches(graph: Graph, inputs: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    if strangers := [name for name in inputs if name not in {t.name for t in graph.inputs}]:
        raise InputError(f"the network has no input {strangers[0]!r}; it has {', '.join(t.name for t in graph.inputs)}")
    counts = set()
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
        for call in host_calls(op, graph.contract):
            arrays = [call(*arrays)]
            if call.dtype == "int32":
                accumulators[op.name] = arrays[0]
        values[op.output.name] = arrays[0]
    state.update({s.tensor.name: values[s.next.name] for s in graph.states})
    return values, accumulators
