"""The loss of a language model by quantisation: its integer graph run step by step, and perplexities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....hw.errors import UnsupportedError
from ...graph import Graph
from ...graph.reference import initial_state, run
from .checkpoint import Checkpoint
from .floats import FloatLlama, surprise
from .quantise import TEXTS, own_texts

_FIRST_SEED = 1000  # of the measured texts; the calibration uses seeds from 0 on

Logits = Callable[[Sequence[int]], np.ndarray]  # float32 (len(text), words) of a text


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


class Loss(NamedTuple):
    """Perplexities of a float32 model and of its integers, and the share of positions at which both find the same most
    likely token.
    """

    float32: float
    integers: float
    agreement: float

    def facts(self) -> dict[str, Any]:
        """The figures for JSON."""
        return {"perplexity": {"float32": self.float32, "integers": self.integers}, "agreement": self.agreement}


def perplexity(model: Checkpoint, graph: Graph, count: int) -> Loss:
    """`perplexities` of the steps of `graph` on at most `count` texts that the model samples."""
    return perplexities(model, by_steps(graph), measured_texts(model, count))


def by_steps(graph: Graph) -> Logits:
    """The logits of texts, of which `graph` computes a token at a time."""

    def logits(text: Sequence[int]) -> np.ndarray:
        steps = Steps(graph)
        return np.array([steps.logits(token) for token in text])

    return logits


def measured_texts(model: Checkpoint, count: int) -> list[list[int]]:
    """At most `count` texts that the model samples, by seeds that the calibration has not."""
    assert _FIRST_SEED > TEXTS
    return own_texts(model, _FIRST_SEED, count)


def perplexities(model: Checkpoint, logits: Logits, texts: Sequence[Sequence[int]]) -> Loss:
    """What the integers of a model lose, whose `logits` are given, on `texts`.

    Raises `UnsupportedError` where every text ends with its first token.
    """
    real, integer, same = [], [], []
    for text in texts:
        both = FloatLlama(model, len(text)).logits(text), logits(text)
        for found, scores in zip((real, integer), both):
            found.append(surprise(scores, text))
        same.append(np.equal(*(scores[:-1].argmax(-1) for scores in both)))
    if not sum(map(len, real)):
        raise UnsupportedError(
            f"{model.name}: all its texts end with their first token: a perplexity needs longer ones"
        )
    float32, integers = (float(np.exp(np.concatenate(found).mean())) for found in (real, integer))
    return Loss(float32, integers, float(np.concatenate(same).mean()))
