"""`tilewright run --check`: a run against the golden interpreter, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..hw.errors import UnsupportedError
from .programs import NETWORKS, graph_in, is_network, python_value, read_graph, read_target
from .where import Where

if TYPE_CHECKING:
    import numpy as np

    from ..compiler.graph import Graph
    from ..compiler.graph.reference import Saturation
    from ..hw.config import Config


def need_network(model: str, option: str = "--check", cfg: Config | None = None) -> None:
    """Raise `UnsupportedError`, naming `option`, unless `model` is a network: only networks have golden values.

    For a configuration also a graph that Python source makes is one.
    """
    if is_network(model) or (cfg is not None and graph_in(python_value(model, cfg)) is not None):
        return
    raise UnsupportedError(f"{model}: {option} needs golden values; MODEL must be a network, {', '.join(NETWORKS)}")


def check(
    model: str,
    cfg: Config,
    contract: str | None,
    where: Where,
    samples: Sequence[Mapping[str, np.ndarray]],
    results: Sequence[Mapping[str, np.ndarray]],
    reset: bool = False,
    mapping: str | None = None,
    batch: int = 1,
    target: str | None = None,
) -> dict[str, object]:
    """Compare the `results` of a run on `samples` with the golden interpreter's.

    Then the network is compiled again with every tensor as an output and run on one sample, the first whose results
    differ or the first of all; its operators are compared in order. State is kept from sample to sample, unless they
    were run with a `reset` before each. Of a program that takes a `batch` of them, every result is compared with that
    of its sample alone. `mapping` is the file of the channels' compute units, `target` as of `open_program`.
    `text` of the result is a summary for people, `saturation` has for each operator how many of its values are at the
    ends of int8.
    """
    import numpy as np

    from ..compiler.graph.reference import compare
    from ..compiler.network import compile_graph
    from ..compiler.target.variants import of_images, together

    graph, chosen = read_graph(model, cfg, contract), read_target(target, cfg)
    if samples:
        _need_inputs(model, [t.name for t in graph.inputs], samples[0])
    samples = [{t.name: np.asarray(sample[t.name], t.dtype) for t in graph.inputs} for sample in samples]
    wrong, states = _golden(graph, samples, results, reset)
    probe = wrong[0] if wrong else 0
    graph, sets, at = of_images(graph, batch), together(samples, batch), probe // batch
    with where.open(compile_graph(graph, cfg, every_value=True, mapping=mapping, target=chosen)) as loaded:
        for sample in sets[:at] if graph.states and not reset else ():
            loaded.run(sample)
        found = compare(graph, sets[at], loaded.run(sets[at]), state=states[probe])
    equal = not wrong and found.difference is None
    text = f"golden interpreter ({graph.contract}): {len(samples) - len(wrong)} of {len(samples)} results equal; "
    text += f"on input {probe} " if batch == 1 else f"in the run of input {probe}, {batch} at once, "
    if found.difference is not None:
        text += f"operator {found.operators} of {len(graph.ops)} differs: {found.difference}"
    else:
        text += f"all {found.operators} operators are equal, {found.elements:,} elements"
    text += _saturated(found.saturation)
    facts: dict[str, object] = {"contract": graph.contract, "results_equal": len(samples) - len(wrong), "input": probe}
    facts |= {"operators": found.operators, "elements": found.elements, "equal": equal, "text": text}
    facts["saturation"] = [vars(one) for one in found.saturation]
    return facts | {"difference": None if found.difference is None else vars(found.difference)}


def _golden(
    graph: Graph,
    samples: Sequence[Mapping[str, np.ndarray]],
    results: Sequence[Mapping[str, np.ndarray]],
    reset: bool,
) -> tuple[list[int], list[dict[str, np.ndarray]]]:
    """(the numbers of the results that are not the golden interpreter's, the state before each sample)."""
    from ..compiler.graph import reference
    from ..compiler.graph.reference import initial_state

    wrong, state, states = [], initial_state(graph), []
    for k, (sample, result) in enumerate(zip(samples, results, strict=True)):
        state = initial_state(graph) if reset else state
        states.append(dict(state))
        golden, _ = reference.run(graph, sample, state=state)
        if any(result[name].tobytes() != value.tobytes() for name, value in golden.items()):
            wrong.append(k)
    return wrong, states


def _need_inputs(model: str, names: Sequence[str], sample: Mapping[str, np.ndarray]) -> None:
    """Raise `UnsupportedError` where `sample` has not all inputs of the network."""
    if not sample.keys() >= set(names):
        raise UnsupportedError(
            f"{model}: --check needs the network's inputs, {', '.join(names)}; given are {', '.join(sample)}, of "
            "another entry of its program"
        )


def _saturated(found: Sequence[Saturation]) -> str:
    """Where the most values are at the ends of int8; empty where none is."""
    most = max(found, key=lambda one: one.share, default=None)
    if most is None or not most.share:
        return ""
    count, total = (sum(values) for values in zip(*((one.low + one.high, one.elements) for one in found)))
    return (
        f"; {count:,} of {total:,} int8 values are saturated, the most in {most.operator!r}: {most.low:,} at -128 and "
        f"{most.high:,} at 127 of {most.elements:,}"
    )
