"""Int8 scales of a Llama from texts, and its integers.

Weights have a scale per output channel, activations one each, with zero point 0, so that the cache of keys and values
is int8, too. The scales come from texts that the model writes itself: nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...graph import Graph
from ..source import Source
from .checkpoint import Checkpoint, read_checkpoint
from .floats import FloatLlama, sample
from .integers import GAINS, MATRICES, Integers, Matrix, Ranges, nearest, read_integers
from .step import decoder_step

TEXTS, LENGTH, PERCENTILE = 16, 256, 99.99  # of the calibration: texts, tokens of each, share of values in range
# whose largest elements count: the residual is in every later layer
WHOLE = ("middle", "end", "attention_out", "hidden_out", "logits")


def calibrate(model: Checkpoint, texts: Sequence[Sequence[int]] | None = None) -> dict[tuple[str, int], float]:
    """The magnitude that 99.99 % of the elements of each value stay within, or all, over `texts` of tokens.

    Without `texts` the model writes them. Raises `FileError` where float32 overflows.
    """
    found: dict[tuple[str, int], float] = {}
    texts = texts or [sample(model, min(LENGTH, model.sizes.context), seed) for seed in range(TEXTS)]
    for text in texts:

        def observe(name: str, layer: int, value: np.ndarray) -> None:
            share = 100.0 if name in WHOLE else PERCENTILE
            most = float(np.percentile(np.abs(value), share))
            found[name, layer] = max(found.get((name, layer), 1e-6), most)

        observe("logits", 0, FloatLlama(model, len(text), observe).logits(text))
    return found


def quantised(model: Checkpoint, ranges: Ranges) -> Integers:
    """The integers of a model whose values stay within `ranges`."""

    def of_layers(name: str) -> np.ndarray:
        return np.stack([getattr(layer, name) for layer in model.layers])

    matrices = {name: Matrix.of(of_layers(name)) for name in MATRICES} | {"classifier": Matrix.of(model.classifier)}
    gains = {name: of_layers(name) for name in GAINS} | {"norm": model.norm}
    embedding = nearest(model.embedding, ranges["embedding", 0] / 127)
    return Integers(model.name, model.sizes, embedding, matrices, gains, dict(ranges))


def import_llama(source: Source) -> Graph:
    """`decoder_step` of a checkpoint of llama2.c, calibrated by texts of its own, for its whole context.

    Raises as `read_checkpoint`, `calibrate` and `decoder_step`.
    """
    model = read_checkpoint(source)
    return _whole(quantised(model, calibrate(model)))


def import_integers(source: Source) -> Graph:
    """`decoder_step` of the integers in a file, for its whole context. Raises as `read_integers` and `decoder_step`."""
    return _whole(read_integers(source))


def _whole(model: Integers) -> Graph:
    return decoder_step(model, model.sizes.context)
