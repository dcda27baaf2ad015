"""The loss of a language model by quantisation: its integer graph run step by step, and perplexities."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ....hw.errors import UnsupportedError
from ...graph import Graph
from ...graph.reference import initial_state, run
from .checkpoint import Checkpoint
from .floats import FloatLlama, sample, surprise
from .quantise import LENGTH, TEXTS

_FIRST_SEED = 1000  # of the measured texts; the calibration uses seeds from 0 on


class Steps:
    """The golden interpreter of `decoder_step`, from the first token of a text on."""

    def __init__(self, graph: Graph):
        self._graph, self._state, self._position = graph, initial_state(graph), 0

    @property
    def state(self) -> Mapping[str, np.ndarray]:
        """The keys and values so far, by the names of the graph's states."""
        return self._state

    def logits(self, token: int) -> np.ndarray:
        """float32 (words,): the scores after the next `token`."""
        inputs = {"token": np.array([token], np.int32), "position": np.array([self._position], np.int32)}
        self._position += 1
        return run(self._graph, inputs, state=self._state)[0]["logits"][0]


def perplexity(model: Checkpoint, graph: Graph, count: int) -> dict[str, float]:
    """Perplexities {"float32": of the model, "int8": of its integer `graph`} on `count` texts that the model samples.

    The seeds are fixed and differ from the seeds of the calibration. Raises `UnsupportedError` where every text ends
    with its first token.
    """
    assert _FIRST_SEED > TEXTS
    length = min(LENGTH, model.sizes.context)
    real, integer = [], []
    for seed in range(_FIRST_SEED, _FIRST_SEED + count):
        text, steps = sample(model, length, seed), Steps(graph)
        real.append(surprise(FloatLlama(model, len(text)).logits(text), text))
        integer.append(surprise(np.array([steps.logits(token) for token in text]), text))
    if not sum(map(len, real)):
        raise UnsupportedError(
            f"{model.name}: all its texts end with their first token: a perplexity needs longer ones"
        )
    return {key: float(np.exp(np.concatenate(v).mean())) for key, v in (("float32", real), ("int8", integer))}
