"""Choosing the next token from the logits of a language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..hw.errors import InputError
from .arrays import Array

Choose = Callable[[Array, Sequence[int]], int]  # of the logits, float32 (words,), and the tokens of the text so far
_COLDEST = 1e-200  # below it quotients of float32 logits would overflow; all others but the largest have weight 0 there
_PENALTIES = 0.01, 100.0  # beyond them a penalised logit says nothing any more


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen: from the logits to probabilities, in the order of the fields.

    `repeat_penalty` divides positive logits of tokens that the text has, and multiplies negative ones; 1 changes
    nothing. `temperature` divides all logits; 0 leaves the most likely token alone. `top_k` keeps that many of the most
    likely tokens, 0 all. `top_p` keeps the fewest of the most likely tokens whose probabilities reach it together; they
    are those of the tokens that `top_k` keeps. Of equal logits the lower token comes first.

    Raises `InputError` for a value outside these ranges.
    """

    repeat_penalty: float = 1.0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        least, most = _PENALTIES
        if not least <= self.repeat_penalty <= most:
            raise InputError(f"repeat_penalty {self.repeat_penalty}: must be from {least:g} to {most:g}; 1 for none")
        if not (self.temperature >= 0 and np.isfinite(self.temperature)):
            raise InputError(
                f"temperature {self.temperature}: must be a finite number from 0 on; 0 takes the most likely token"
            )
        if self.top_k < 0:
            raise InputError(f"top_k {self.top_k}: must be 0, which keeps all tokens, or a number of them")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p {self.top_p}: must be above 0 and at most 1, which keeps all tokens")

    def probabilities(self, logits: Array, tokens: Sequence[int]) -> Array:
        """float64 (words,): the probability of each token after `tokens`."""
        scores = logits.astype(np.float64)
        if self.repeat_penalty != 1:
            seen = np.unique(np.array(tokens, np.int64))
            scores[seen] *= np.where(scores[seen] > 0, 1 / self.repeat_penalty, self.repeat_penalty)
        if not self.temperature:
            return np.eye(1, len(scores), int(scores.argmax()))[0]
        weights = np.exp((scores - scores.max()) / max(self.temperature, _COLDEST))
        if self.top_k or self.top_p < 1:
            kept = np.argsort(-scores, kind="stable")[: self.top_k or None]
            if self.top_p < 1:
                reached = np.cumsum(weights[kept]) / weights[kept].sum()
                kept = kept[: int(np.searchsorted(reached, self.top_p)) + 1]
            others = np.ones(len(weights), bool)
            others[kept] = False
            weights[others] = 0
        return weights / weights.sum()

    def chooser(self, seed: int | None) -> Choose:
        """Chooses tokens by these probabilities; the seed fixes the sequence, None makes a new one each time."""
        rng = np.random.default_rng(seed)

        def choose(logits: Array, tokens: Sequence[int]) -> int:
            found = self.probabilities(logits, tokens)
            return int(rng.choice(len(found), p=found)) if self.temperature else int(found.argmax())

        return choose
