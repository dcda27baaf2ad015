"""Int8 scales of a Llama from texts, and one decoder step as a graph of integers.

Weights have a scale per output channel, activations one each, with zero point 0, so that the cache of keys and values
is int8, too. The scales come from texts that the model writes itself: nothing else is needed. Norms leave out what the
float model adds to a mean square, 1e-5.

Rows and columns of matrices are permuted so that attention moves no lanes: `Lanes`. A gain below 0 becomes one above,
and the columns that meet its element change their sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ....hw.errors import UnsupportedError
from ....runtime.kernels.attention import LARGEST_CONTEXT, ROTATION_BITS
from ... import graph as g
from ...graph import ranges as check
from ...graph.recurrent.state import State
from ..source import Source
from .checkpoint import Checkpoint, read_checkpoint
from .floats import FloatLlama, angles, sample, silu_of
from .lanes import BLOCK, Lanes, arranged, padded

TEXTS, LENGTH, PERCENTILE = 16, 256, 99.99  # of the calibration: texts, tokens of each, share of values in range
# whose largest elements count: the residual is in every later layer
WHOLE = ("middle", "end", "attention_out", "hidden_out", "logits")
COMMON = ("gate", "silu")  # whose scale is the same in all layers, so that one table of SiLU serves them
_LOGITS = 1 << 15
Ranges = Mapping[tuple[str, int], float]  # the largest magnitude of a value, by name and layer


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


def decoder_step(model: Checkpoint, ranges: Ranges, context: int, seen: int | None = None) -> g.Graph:
    """The graph of one token: inputs `token` and `position`, int32 (1,), output `logits`, float32 (1, words).

    Keys and values of `context` tokens, a multiple of 16, are states; the first `seen` of them are read, or all. Up to
    position `seen` results are the same. Raises `UnsupportedError` where integers can leave int32, or a context is so
    long that sums of weights would.
    """
    if context > LARGEST_CONTEXT:
        raise UnsupportedError(
            f"{model.name}: a context of {context} tokens; attention in integers holds at most {LARGEST_CONTEXT}"
        )
    return _Step(model, ranges, context, seen or context).graph()


def import_llama(source: Source) -> g.Graph:
    """`decoder_step` of a checkpoint of llama2.c, calibrated by texts of its own, for its whole context.

    Raises as `read_checkpoint`, `calibrate` and `decoder_step`.
    """
    model = read_checkpoint(source)
    return decoder_step(model, calibrate(model), padded(model.sizes.context))


class _Step:
    """Collects the operators; a value is named after its layer, as `2.queries`."""

    def __init__(self, model: Checkpoint, ranges: Ranges, context: int, seen: int):
        self.model, self.context, self.seen, self.lanes = model, context, seen, Lanes(model.sizes)
        layers = range(model.sizes.layers)
        common = {(name, k): max(ranges[name, j] for j in layers) for name in COMMON for k in layers}
        self.ranges = {**ranges, **common}
        self.token, self.position = (g.Tensor(name, (1,), "int32") for name in ("token", "position"))
        self.ops: list[g.Operator] = []
        self.states: list[State] = []
        turned = angles(model.sizes, context)[:, self.lanes.pairs] * (self.lanes.pairs >= 0)
        self.cosine, self.sine = (np.round(f(turned) * (1 << ROTATION_BITS)).astype(np.int16) for f in (np.cos, np.sin))

    def graph(self) -> g.Graph:
        """The whole step."""
        scale = self.ranges["embedding", 0] / 127
        table = g.Tensor("words", self.model.embedding.shape, scale=scale, data=_int8(self.model.embedding, scale))
        x = self.add(g.Gather, "embedding", (table, self.token), (1, self.model.sizes.width), scale, axis=0)
        for k in range(self.model.sizes.layers):
            x = self.hidden(k, self.attention(k, x))
        last = self.norm("last", x, self.model.norm, self.scale("last", 0))
        logits = self.logits(last, self.model.classifier * _signs(self.model.norm))
        for op in self.ops:
            if text := check.problem(op):
                raise UnsupportedError(f"{self.model.name}: {op.name} {text}")
        return g.Graph(self.model.name, (self.token, self.position), (logits,), tuple(self.ops), tuple(self.states))

    def scale(self, name: str, layer: int) -> float:
        """The scale of a value."""
        return self.ranges[name, layer] / 127

    def add(
        self, kind: type[g.Operator], name: str, inputs: tuple[g.Tensor, ...], shape: tuple[int, ...], scale: float,
        **facts: object,
    ) -> g.Tensor:  # fmt: skip
        """The output of a new operator."""
        output = g.Tensor(name, shape, scale=scale)
        self.ops.append(kind(name, inputs, output, **facts))
        return output

    def dense(self, name: str, x: g.Tensor, weight: np.ndarray, scale: float, low: int = -128) -> g.Tensor:
        """`x` times the rows of `weight`."""
        scales = _channel_scales(weight)
        facts = {"weight": _int8(weight, scales[:, None]), "weight_scale": scales, "bias": _zeros(weight)}
        return self.add(g.QDense, name, (x,), (1, len(weight)), scale, low=low, **facts)

    def norm(self, name: str, x: g.Tensor, gain: np.ndarray, scale: float) -> g.Tensor:
        """`x` by its root mean square, times the magnitude of `gain`."""
        return self.add(g.RmsNorm, name, (x,), x.shape, scale, gain=np.abs(gain.astype(np.float64)))

    def turned(self, x: g.Tensor) -> g.Tensor:
        """Queries or keys, turned by the position."""
        facts = {"cosine": self.cosine, "sine": self.sine}
        return self.add(g.Rotate, f"{x.name}.turned", (x, self.position), x.shape, x.scale, **facts)

    def kept(self, kind: type[g.Write], name: str, shape: tuple[int, ...], new: g.Tensor) -> g.Tensor:
        """The state `name` with `new` at the position, which the next token finds."""
        state = g.Tensor(name, shape, scale=new.scale)
        written = self.add(kind, f"{name}.written", (state, new, self.position), shape, new.scale)
        self.states.append(State(state, np.zeros(shape, np.int8), written))
        return written

    def attention(self, k: int, x: g.Tensor) -> g.Tensor:
        """The first half of layer `k`."""
        layer, s, lanes = self.model.layers[k], self.model.sizes, self.lanes
        h = self.norm(f"{k}.attention_in", x, layer.attention_norm, self.scale("attention_in", k))
        signs = _signs(layer.attention_norm)

        def part(name: str, weight: np.ndarray, rows: np.ndarray, low: int) -> g.Tensor:
            return self.dense(f"{k}.{name}", h, arranged(weight * signs, rows), self.scale(name, k), low)

        queries = self.turned(part("queries", layer.queries, lanes.queries, -128))
        key = self.turned(part("keys", layer.keys, lanes.keys, -128))
        value = part("values", layer.values, lanes.values, -127)
        keys = self.kept(g.WriteRows, f"{k}.keys.cache", (1, len(lanes.keys), self.context, 1), key)
        block = self.kept(g.WriteRows, f"{k}.values.block", (1, len(lanes.values), BLOCK, 1), value)
        values = self.kept(g.WriteColumns, f"{k}.values.cache", (1, self.context, len(lanes.values), 1), block)
        facts = {"key_groups": lanes.half, "value_groups": lanes.value_groups, "head": s.head, "seen": self.seen}
        inputs, shape = (queries, keys, values, self.position), (1, len(lanes.outputs))
        y = self.add(g.Attention, f"{k}.attention", inputs, shape, self.scale("attention", k), **facts)
        weight = arranged(layer.attention_out.T, lanes.outputs).T
        y = self.dense(f"{k}.attention_out", y, weight, self.scale("attention_out", k))
        return self.add(g.Add, f"{k}.middle", (x, y), x.shape, self.scale("middle", k))

    def hidden(self, k: int, x: g.Tensor) -> g.Tensor:
        """The second half of layer `k`."""
        layer = self.model.layers[k]
        h = self.norm(f"{k}.hidden_in", x, layer.hidden_norm, self.scale("hidden_in", k))
        signs = _signs(layer.hidden_norm)
        gate, up = (
            self.dense(f"{k}.{name}", h, weight * signs, self.scale(name, k))
            for name, weight in (("gate", layer.gate), ("up", layer.up))
        )
        values = np.arange(-128, 128) * gate.scale
        table = _int8(silu_of(values), self.scale("silu", k))
        silu = self.add(g.Lookup, f"{k}.silu", (gate,), gate.shape, self.scale("silu", k), function="silu", table=table)
        y = self.add(g.Mul, f"{k}.hidden", (silu, up), up.shape, self.scale("hidden", k))
        y = self.dense(f"{k}.hidden_out", y, layer.hidden_out, self.scale("hidden_out", k))
        return self.add(g.Add, f"{k}.end", (x, y), x.shape, self.scale("end", k))

    def logits(self, x: g.Tensor, weight: np.ndarray) -> g.Tensor:
        """A score per word, out of int16 ones."""
        scale = self.ranges["logits", 0] * 1.25 / _LOGITS
        scales = _channel_scales(weight)
        shape, factors = (1, len(weight)), x.scale * scales / scale
        facts = {"weight": _int8(weight, scales[:, None]), "bias": _zeros(weight), "scales": factors}
        sums, real = g.Tensor("logits.int16", shape, "int16", scale), g.Tensor("logits", shape, "float32")
        self.ops.append(g.Dense16(sums.name, (x,), sums, **facts))
        self.ops.append(g.Dequantize(real.name, (sums,), real))
        return real


def _channel_scales(weight: np.ndarray) -> np.ndarray:
    return (np.maximum(np.abs(weight).max(1), 1e-9) / 127).astype(np.float32)


def _int8(x: np.ndarray, scale: float | np.ndarray) -> np.ndarray:
    return np.clip(np.round(x / scale), -127, 127).astype(np.int8)


def _zeros(weight: np.ndarray) -> np.ndarray:
    return np.zeros(len(weight), np.int32)


def _signs(gain: np.ndarray) -> np.ndarray:
    """float32: -1 for gains below 0, else 1."""
    return np.where(gain < 0, np.float32(-1), np.float32(1))
