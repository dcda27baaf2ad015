"""The form of a Llama's integers, static (step.py) or wide (wide.py): chosen by the loss, stored, and made graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....hw.errors import FileError, UnsupportedError
from ... import graph as g
from ...graph.reference import run
from ..source import Source
from .checkpoint import Checkpoint, read_checkpoint, weight_count
from .few_bits import few_bit_matrices
from .measure import Logits, by_steps, perplexities
from .quantise import KIND, Integers, Stored, calibrate, own_texts, quantised, static_integers, unfit
from .step import decoder_step
from .wide import WIDE_KIND, WideIntegers, stored_wide, wide_integers, wide_step

FORMS = (Integers.form, WideIntegers.form)
AnyIntegers = Integers | WideIntegers
_LOSS = 1.1  # times the perplexity of float32: with more, the static form is not taken
_FEW_BITS_WORK = 4  # times the tokens of texts of its own: rounding to few bits needs more than the ranges of values
_TOKENS, _WORK = 64, 3e9  # that the choice reads, at most; times the weights


def integers_of(
    model: Checkpoint,
    texts: Sequence[Sequence[int]] | None = None,
    form: str | None = None,
    weight_bits: int = 8,
) -> AnyIntegers:
    """The integers of a model, calibrated on `texts` of tokens or on texts of its own.

    Without a `form` it is the static one where its perplexity on the first tokens of these texts is at most 1.1 times
    that of float32, with weights of 8 bits, else the wide one. With `weight_bits` 4 the matrices of layers have few
    bits; embedding and classifier keep 8. Raises as `calibrate`, `quantised` and `wide_integers`.
    """
    texts = texts or own_texts(model, work=1 if weight_bits == 8 else _FEW_BITS_WORK)
    integers = _with_8_bits(model, texts, form)
    if weight_bits == 8:
        return integers
    few = few_bit_matrices(model, texts, static=isinstance(integers, Integers))
    return replace(integers, matrices={**integers.matrices, **few})


def _with_8_bits(model: Checkpoint, texts: Sequence[Sequence[int]], form: str | None) -> AnyIntegers:
    if form != WideIntegers.form and not (form is None and unfit(model)):
        static = quantised(model, calibrate(model, texts))
        if form is not None or _suffices(model, static, texts):
            return static
    return wide_integers(model, calibrate(model, texts, 100))


def _suffices(model: Checkpoint, integers: Integers, texts: Sequence[Sequence[int]]) -> bool:
    most = int(min(_TOKENS, max(16, _WORK / weight_count(model.sizes, own_classifier=False))))
    few = list[Sequence[int]]()
    for text in texts:
        if len(text) > 1 and (left := most - sum(map(len, few))) > 1:
            few.append(text[:left])
    if not few:
        return True
    try:
        found = perplexities(model, logits_of(integers, max(map(len, few))), few)
    except UnsupportedError:  # its integers can leave int32
        return False
    return found.integers <= _LOSS * found.float32


def logits_of(model: AnyIntegers, context: int) -> Logits:
    """The logits of texts of at most `context` tokens. Raises as `decoder_step`."""
    if isinstance(model, Integers):
        return by_steps(decoder_step(model, context))

    def together(text: Sequence[int]) -> np.ndarray:
        inputs = {"token": np.array(text, np.int32), "position": np.zeros(1, np.int32)}
        return run(wide_step(model, len(text), len(text)), inputs)[0]["logits"]

    return together


def read_integers(source: Source) -> AnyIntegers:
    """The model in a file that `save` of either form wrote. Raises `FileError` for another, or a damaged one."""
    stored = Stored(source)
    if stored.kind not in (KIND, WIDE_KIND):
        raise FileError(f"{stored.path}: holds no language model in integers; give what tilewright quantise wrote")
    return static_integers(stored) if stored.kind == KIND else stored_wide(stored)


def step_of(model: AnyIntegers) -> g.Graph:
    """The graph of one token, for the model's whole context. Raises as `decoder_step`."""
    context = model.sizes.context
    return wide_step(model, context) if isinstance(model, WideIntegers) else decoder_step(model, context)


def import_llama(source: Source) -> g.Graph:
    """`step_of` a checkpoint of llama2.c, calibrated by texts of its own. Raises as `read_checkpoint` and `step_of`."""
    return step_of(integers_of(read_checkpoint(source)))


def import_integers(source: Source) -> g.Graph:
    """`step_of` the integers in a file. Raises as `read_integers` and `step_of`."""
    return step_of(read_integers(source))
