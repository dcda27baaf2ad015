"""A Llama in float32: the reference that the integer model is calibrated and measured against."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....hw.errors import FileError
from .checkpoint import Checkpoint

Observe = Callable[[str, int, np.ndarray], None]  # gets the name of a value, its layer, and the value
_MOST_EXPONENT = np.float32(88)  # whose power of e float32 still holds


def angles(rates: np.ndarray, count: int) -> np.ndarray:
    """float64 (count, head / 2): the angle by which each pair of a head is rotated at each position."""
    return np.arange(count)[:, None] * rates


class FloatLlama:
    """`model` with a cache of keys and values for `context` tokens.

    `observe` is called with every value that has a scale in the integer model.
    """

    def __init__(self, model: Checkpoint, context: int, observe: Observe = lambda name, layer, value: None):
        self.model, self.observe, s = model, observe, model.sizes
        self._cos, self._sin = (f(angles(model.rates, context)).astype(np.float32)[:, None] for f in (np.cos, np.sin))
        self._cache = np.zeros((2, s.layers, context, s.kv_heads, s.head), np.float32)
        self._length = 0

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """float32 (len(tokens), words): the scores of the word after each of the next `tokens`.

        Raises `FileError` where values overflow.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # the logits tell
            x = self._see("embedding", 0, self.model.embedding[np.asarray(tokens)])
            for k in range(self.model.sizes.layers):
                x = self.layer(k, x)
            self._length += len(tokens)
            logits = self._see("last", 0, self._norm(x, self.model.norm)) @ self.model.classifier.T
        if not np.isfinite(logits).all():
            raise FileError(f"{self.model.name}: its values overflow float32; the weights are too large, or damaged")
        return logits

    def layer(self, k: int, x: np.ndarray) -> np.ndarray:
        """float32 (tokens, width): the residual after layer `k` of the next tokens, which is `x` before it."""
        return self._hidden(k, self._attention(k, x, self._length, self._length + len(x)))

    def _attention(self, k: int, x: np.ndarray, first: int, last: int) -> np.ndarray:
        layer, s = self.model.layers[k], self.model.sizes
        h = self._see("attention_in", k, self._norm(x, layer.attention_norm))
        q, key, value = (h @ matrix.T for matrix in (layer.queries, layer.keys, layer.values))
        if layer.biases:
            q, key, value = (y + bias for y, bias in zip((q, key, value), layer.biases))
        q = self._rotated(self._see("queries", k, q).reshape(len(x), s.heads, s.head), first, last)
        key = self._rotated(self._see("keys", k, key).reshape(len(x), s.kv_heads, s.head), first, last)
        value = self._see("values", k, value).reshape(key.shape)
        self._cache[:, k, first:last] = self._see("keys", k, key), value
        self._see("queries", k, q)
        keys, values = (np.repeat(c, s.heads // s.kv_heads, 1) for c in self._cache[:, k, :last])
        scores = np.einsum("thd,shd->hts", q, keys) / np.sqrt(np.float32(s.head))
        seen = np.arange(last) <= np.arange(first, last)[:, None]
        weights = np.exp(np.where(seen, scores, -np.inf) - scores.max(-1, keepdims=True, initial=-np.inf, where=seen))
        weights /= weights.sum(-1, keepdims=True)
        y = self._see("attention", k, np.einsum("hts,shd->thd", weights, values).reshape(len(x), s.width))
        return self._see("middle", k, x + self._see("attention_out", k, y @ layer.attention_out.T))

    def _hidden(self, k: int, x: np.ndarray) -> np.ndarray:
        layer = self.model.layers[k]
        h = self._see("hidden_in", k, self._norm(x, layer.hidden_norm))
        gate = self._see("gate", k, h @ layer.gate.T)
        up = self._see("up", k, h @ layer.up.T)
        silu = self._see("silu", k, silu_of(gate))
        y = self._see("hidden", k, silu * up)
        return self._see("end", k, x + self._see("hidden_out", k, y @ layer.hidden_out.T))

    def _rotated(self, x: np.ndarray, first: int, last: int) -> np.ndarray:
        c, s, even, odd = self._cos[first:last], self._sin[first:last], x[..., 0::2], x[..., 1::2]
        return np.stack([even * c - odd * s, even * s + odd * c], -1).reshape(x.shape)

    def _norm(self, x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        square = (x * x).mean(-1, keepdims=True)
        square[np.isinf(square)] = np.nan  # which the logits show: a quotient of 0 would hide the overflow
        return x / np.sqrt(square + np.float32(self.model.epsilon)) * gain

    def _see(self, name: str, layer: int, value: np.ndarray) -> np.ndarray:
        self.observe(name, layer, value)
        return value


def silu_of(x: np.ndarray) -> np.ndarray:
    """`x / (1 + exp(-x))`, which is 0 far below 0."""
    return x / (1 + np.exp(np.minimum(-x, _MOST_EXPONENT)))


def sample(model: Checkpoint, length: int, seed: int) -> list[int]:
    """A text of at most `length` tokens that the model itself writes, at temperature 1. Raises as `logits`."""
    rng, llama, tokens = np.random.default_rng(seed), FloatLlama(model, length), [model.begin]
    while len(tokens) < length:
        scores = llama.logits(tokens[-1:])[0].astype(np.float64)
        weights = np.exp(scores - scores.max())
        tokens.append(int(rng.choice(len(weights), p=weights / weights.sum())))
        if tokens[-1] in model.ends:
            return tokens[:-1]
    return tokens


def surprise(logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
    """float64 (len(tokens) - 1,): the negative log of the probability that row k of `logits` gives token k + 1."""
    scores = logits[: len(tokens) - 1].astype(np.float64)
    top = scores.max(-1)
    return np.log(np.exp(scores - top[:, None]).sum(-1)) + top - scores[np.arange(len(scores)), tokens[1:]]
