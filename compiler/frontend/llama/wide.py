"""The wide form of a Llama in integers: int32 residual, int16 cache, and 16-bit inputs of layers with scales per token.

It holds models whose values spread too far for one scale each, as those with massive activations do. The accelerator
computes the sums of all layers with weights; the host does the rest (compiler/graph/token_scales.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ....hw.errors import UnsupportedError
from ....runtime.hostops.roots import ROOT_BITS
from ....runtime.hostops.token_scales import GATE_BITS, MOST_INPUTS, PAIR_BITS, SCORES_PER_UNIT
from ... import graph as g
from ...graph.recurrent import State
from .checkpoint import Checkpoint, Sizes, shapes
from .floats import angles
from .quantise import GAINS, MATRICES, Matrix, Ranges, Stored, save_integers

WIDE_KIND = "a Llama in wide integers, 1"  # of the file's `kind`
_RESIDUAL = ("embedding", "middle", "end", "attention_out", "hidden_out")  # values with the residual's one step
OF_LAYERS = ("queries", "keys", "values", "gate", "up", "hidden")  # values with a step in each layer
_ROOM_16, _ROOM_32 = 2, 16  # times the largest magnitude that was seen fit into int16, and int32
_INT16, _INT32 = 1 << 15, 1 << 31
_MOST_SPREAD = 1 << 20  # the residual over the embedding: the embedding's largest element then has 7 bits
_MOST_EPSILON = 1 << 59  # of a sum of squares, in squares of the step


@dataclass(frozen=True, eq=False)
class WideIntegers:
    """A model: int8 `matrices` with a scale per row, among them `embedding` and `classifier`, and `gains`, float32.

    Arrays per layer have the layer as their first dimension. `ranges` are the largest magnitudes of the values in
    `OF_LAYERS`, and of the residual. `biases` are float32 (layers, outputs) of queries, keys and values together.
    """

    name: str
    sizes: Sizes
    matrices: Mapping[str, Matrix]
    gains: Mapping[str, np.ndarray]
    ranges: Ranges
    rates: np.ndarray
    epsilon: float
    biases: np.ndarray | None
    form: ClassVar[str] = "wide"

    def save(self, path: str | Path) -> None:
        """Write the file; equal models give equal bytes. Raises `FileError` where it cannot be written."""
        matrices, arrays = dict(self.matrices), {**self.gains, "rates": self.rates}
        if self.matrices["classifier"] is self.matrices["embedding"]:
            del matrices["classifier"]
        if self.biases is not None:
            arrays["biases"] = self.biases
        arrays["epsilon"] = np.array([self.epsilon])
        save_integers(path, WIDE_KIND, self.sizes, matrices, self.ranges, arrays)


def stored_wide(stored: Stored) -> WideIntegers:
    """The model in a file that `WideIntegers.save` wrote. Raises `FileError` for a damaged one."""
    sizes = stored.sizes()
    wanted, outputs = shapes(sizes, own_classifier=True), sizes.width + 2 * sizes.kv_width
    matrices = {name: stored.matrix(name, wanted[name]) for name in (*MATRICES, "embedding")}
    tied = "classifier" not in stored
    matrices["classifier"] = matrices["embedding"] if tied else stored.matrix("classifier", wanted["classifier"])
    gains = {name: stored.array(name, wanted[name], "float32") for name in (*GAINS, "norm")}
    ranges = stored.ranges({"residual": 1} | dict.fromkeys(OF_LAYERS, sizes.layers))
    rates = stored.array("rates", (sizes.head // 2,), "float64", True)
    epsilon = float(stored.array("epsilon", (1,), "float64", True)[0])
    biases = stored.array("biases", (sizes.layers, outputs), "float32") if "biases" in stored else None
    stored.check_empty()
    return WideIntegers(stored.path.stem, sizes, matrices, gains, ranges, rates, epsilon, biases)


def wide_integers(model: Checkpoint, largest: Ranges) -> WideIntegers:
    """The integers of a model whose values have these largest magnitudes, by name and layer.

    Raises `UnsupportedError` for layers so wide that sums would leave int64.
    """
    if (widest := max(model.sizes.width, model.sizes.hidden)) > MOST_INPUTS:
        raise UnsupportedError(f"{model.name}: layers of {widest} inputs; the wide form has at most {MOST_INPUTS}")

    def of_layers(name: str) -> np.ndarray:
        return np.stack([getattr(layer, name) for layer in model.layers])

    embedding = Matrix.of(model.embedding)
    classifier = embedding if model.classifier is model.embedding else Matrix.of(model.classifier)
    matrices = {name: Matrix.of(of_layers(name)) for name in MATRICES}
    gains = {name: of_layers(name) for name in GAINS} | {"norm": model.norm}
    ranges = {key: value for key, value in largest.items() if key[0] in OF_LAYERS}
    residual = ranges["residual", 0] = max(value for (name, _), value in largest.items() if name in _RESIDUAL)
    if (least := float(np.abs(model.embedding).max())) * _MOST_SPREAD < residual:
        raise UnsupportedError(
            f"{model.name}: its residual reaches {residual:g}, more than 2^20 times its embedding, {least:g}; the wide "
            "form has one step of 32 bits for both: such a model cannot be quantised"
        )
    biases = [np.concatenate(layer.biases) for layer in model.layers if layer.biases]
    both = {"embedding": embedding, "classifier": classifier}
    known = np.stack(biases) if biases else None
    return WideIntegers(model.name, model.sizes, matrices | both, gains, ranges, model.rates, model.epsilon, known)


def wide_step(model: WideIntegers, context: int, tokens: int = 1) -> g.Graph:
    """The graph of a block of tokens: inputs `token`, int32 (tokens,), and `position`, int32 (1,), of the block.

    The output is `logits`, float32 (tokens, words). Keys and values of `context` tokens are states.
    """
    return _WideStep(model, context, tokens).graph()


class _WideStep:
    """Collects the operators; a value is named after its layer, as `2.queries`."""

    def __init__(self, model: WideIntegers, context: int, tokens: int):
        self.model, self.context, self.tokens = model, context, tokens
        self.token, self.position = g.Tensor("token", (tokens,), "int32"), g.Tensor("position", (1,), "int32")
        self.ops: list[g.Operator] = []
        self.states: list[State] = []
        turn = angles(model.rates, context)
        self.cosine, self.sine = (np.round(f(turn) * (1 << PAIR_BITS)).astype(np.int16) for f in (np.cos, np.sin))
        least = math.sqrt(model.sizes.width * model.epsilon / _MOST_EPSILON)
        self.step = max(model.ranges["residual", 0] * _ROOM_32 / _INT32, least)

    def graph(self) -> g.Graph:
        """The whole step."""
        embedding = self.model.matrices["embedding"]
        facts = {"table": embedding.values, "scales": embedding.scales / self.step}
        x = self.add(g.EmbedTokens, "embedding", (self.token,), self.model.sizes.width, "int32", **facts)
        for k in range(self.model.sizes.layers):
            x = self.hidden(k, self.attention(k, x))
        sums, scales, unit = self.normed("logits", x, self.model.gains["norm"], [self.model.matrices["classifier"]])
        scale = (unit * self.model.matrices["classifier"].scales).astype(np.float32)
        logits = self.add(g.TokenLogits, "logits", (sums, scales), sums.shape[1], "float32", scale=scale)
        return g.Graph(self.model.name, (self.token, self.position), (logits,), tuple(self.ops), tuple(self.states))

    def of_layer(self, name: str, layer: int, room: int, steps: int) -> float:
        """The step of a value."""
        return self.model.ranges[name, layer] * room / steps

    def add(
        self, kind: type[g.Operator], name: str, inputs: tuple[g.Tensor, ...], width: int, dtype: str, **facts: object
    ) -> g.Tensor:
        """The output of a new operator, a row of `width` elements for each token."""
        return self.append(kind, name, inputs, g.Tensor(name, (self.tokens, width), dtype), **facts)

    def append(
        self, kind: type[g.Operator], name: str, inputs: tuple[g.Tensor, ...], output: g.Tensor, **facts: object
    ) -> g.Tensor:
        """The output of a new operator."""
        self.ops.append(kind(name, inputs, output, **facts))
        return output

    def layer(self, name: str, x: g.Tensor, matrices: Sequence[Matrix], **facts: object) -> tuple[g.Tensor, g.Tensor]:
        """(int32 sums of the bytes of `x` times the rows of all `matrices`, scales of the tokens)."""
        gain = {"gain": facts["gain"]} if facts else {}
        shape = (1, x.shape[1], 2 * self.tokens, 1)
        values = self.append(g.TokenBytes, f"{name}.bytes", (x,), g.Tensor(f"{name}.bytes", shape), **gain)
        scales = self.add(g.TokenScales, f"{name}.scales", (x,), 2, "int32", **facts)
        weight = np.concatenate([matrix.values for matrix in matrices])[:, :, None, None]
        sums = g.Tensor(f"{name}.sums", (1, len(weight), 2 * self.tokens, 1), "int32")
        return self.append(g.IntegerConv2d, sums.name, (values,), sums, weight=weight), scales

    def normed(
        self, name: str, x: g.Tensor, gain: np.ndarray, matrices: Sequence[Matrix]
    ) -> tuple[g.Tensor, g.Tensor, float]:
        """`layer` of the norm of the residual `x`, and what the scales are multiples of."""
        step, width = float(max(np.abs(gain).max(), 1e-30)) / (_INT16 - 1), x.shape[1]
        epsilon = round(width * self.model.epsilon / self.step**2)
        whole = np.round(gain.astype(np.float64) / step).astype(np.int16)
        unit = step * math.sqrt(width) / (1 << ROOT_BITS)
        return *self.layer(name, x, matrices, gain=whole, epsilon=epsilon), unit

    def added(self, name: str, x: g.Tensor, y: g.Tensor, matrix: Matrix, unit: float) -> g.Tensor:
        """The residual `x` plus `y`, in steps of `unit`, times `matrix`."""
        sums, scales = self.layer(name, y, [matrix])
        facts = {"scales": unit * matrix.scales / self.step, "bias": np.zeros(x.shape[1], np.int32)}
        return self.add(g.ScaleTokenSums, name, (sums, scales, x), x.shape[1], "int32", **facts)

    def matrix(self, name: str, layer: int) -> Matrix:
        """A matrix of a layer."""
        return self.model.matrices[name][layer]

    def attention(self, k: int, x: g.Tensor) -> g.Tensor:
        """The first half of layer `k`."""
        s, names = self.model.sizes, ("queries", "keys", "values")
        matrices = [self.matrix(name, k) for name in names]
        sums, scales, unit = self.normed(f"{k}.attention_in", x, self.model.gains["attention_norm"][k], matrices)
        steps = [self.of_layer(name, k, _ROOM_16, _INT16) for name in names]
        units = np.repeat(steps, [len(matrix.values) for matrix in matrices])
        bias = np.zeros(len(units)) if self.model.biases is None else self.model.biases[k] / units
        facts = {
            "scales": unit * np.concatenate([matrix.scales for matrix in matrices]) / units,
            "bias": np.clip(np.round(bias), -_INT32, _INT32 - 1).astype(np.int32),
        }
        qkv = self.add(g.ScaleTokenSums, f"{k}.queries_keys_values", (sums, scales), len(units), "int16", **facts)
        facts = {"cosine": self.cosine, "sine": self.sine, "heads": s.heads + s.kv_heads}
        qkv = self.add(g.RotatePairs, f"{k}.rotated", (qkv, self.position), len(units), "int16", **facts)
        cache = g.Tensor(f"{k}.tokens.cache", (self.context, 2 * s.kv_width), "int16")
        written = g.Tensor(f"{cache.name}.written", cache.shape, "int16")
        self.append(g.WriteTokens, written.name, (cache, qkv, self.position), written, start=s.width)
        self.states.append(State(cache, np.zeros(cache.shape, np.int16), written))
        factor = steps[0] * steps[1] / math.sqrt(s.head) * SCORES_PER_UNIT
        facts = {"heads": s.heads, "kv_heads": s.kv_heads, "factor": factor}
        y = self.add(g.CacheAttention, f"{k}.attention", (qkv, written, self.position), s.width, "int16", **facts)
        return self.added(f"{k}.middle", x, y, self.matrix("attention_out", k), steps[2])

    def hidden(self, k: int, x: g.Tensor) -> g.Tensor:
        """The second half of layer `k`."""
        matrices, width = [self.matrix(name, k) for name in ("gate", "up")], self.model.sizes.hidden
        sums, scales, unit = self.normed(f"{k}.hidden_in", x, self.model.gains["hidden_norm"][k], matrices)
        gate, up = (self.of_layer(name, k, _ROOM_32, _INT32) for name in ("gate", "up"))
        units = np.repeat([gate, up], width)
        factors = unit * np.concatenate([matrix.scales for matrix in matrices]) / units
        facts = {"scales": factors, "bias": np.zeros(2 * width, np.int32)}
        both = self.add(g.ScaleTokenSums, f"{k}.gate_up", (sums, scales), 2 * width, "int32", **facts)
        shift = math.ceil(math.log2(self.of_layer("hidden", k, _ROOM_32, _INT32) / (gate * up)))
        facts = {"factor": gate * (1 << GATE_BITS), "shift": max(shift, -31)}
        y = self.add(g.GatedProduct, f"{k}.hidden", (both,), width, "int32", **facts)
        return self.added(f"{k}.end", x, y, self.matrix("hidden_out", k), gate * up * 2.0 ** max(shift, -31))
