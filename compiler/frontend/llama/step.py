"""One decoder step of a Llama as a graph of integers.

Rows and columns of matrices are permuted so that attention moves no lanes: `Lanes`. A gain below 0 becomes one above,
and the columns that meet its element change their sign. Norms leave out what the float model adds to a mean square,
1e-5.
"""

from __future__ import annotations

import numpy as np

from ....hw.errors import UnsupportedError
from ....runtime.hostops.attention import LARGEST_CONTEXT, ROTATION_BITS
from ... import graph as g
from ...graph import ranges as check
from ...graph.recurrent import State
from .checkpoint import Sizes
from .floats import angles, silu_of
from .quantise import Integers, Matrix, nearest

BLOCK = 16  # lanes: halves of keys, and values, are padded to multiples; values wait for as many positions


def padded(count: int) -> int:
    """`count` rounded up to a multiple of 16."""
    return -(-count // BLOCK) * BLOCK


class Lanes:
    """Row of a matrix for each lane of queries, keys and values, int; -1 for lanes of padding.

    Keys are two halves: first the even elements of all heads, then the odd ones, so that both elements of a pair
    have the same lane. Queries are a chunk of that form for each query head that shares a head of keys. `half` and
    `value_groups` are the heads of keys that lanes of half a key, and of values, belong to.
    """

    def __init__(self, sizes: Sizes):
        groups, head = sizes.kv_heads, sizes.head
        chunks = sizes.heads // groups
        starts = np.arange(groups)[:, None] * head
        half = [_filled((starts + np.arange(odd, head, 2)).reshape(-1)) for odd in (0, 1)]
        natural = _filled(np.arange(groups * head))
        self.keys, self.values = np.concatenate(half), natural
        self.queries = np.concatenate([self._shared(self.keys, k, chunks, head) for k in range(chunks)])
        self.outputs = np.concatenate([self._shared(natural, k, chunks, head) for k in range(chunks)])
        self.half, self.value_groups = (tuple(_groups(rows, head)) for rows in (half[0], natural))
        self.pairs = np.where(half[0] < 0, -1, half[0] % head // 2)

    @staticmethod
    def _shared(rows: np.ndarray, chunk: int, chunks: int, head: int) -> np.ndarray:
        """Rows of the query head `chunk` of each head of keys, in place of `rows` of that."""
        return np.where(rows < 0, -1, (rows // head * chunks + chunk) * head + rows % head)


def _filled(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, np.full(padded(len(rows)) - len(rows), -1)])


def _groups(rows: np.ndarray, head: int) -> list[int]:
    return np.where(rows < 0, -1, rows // head).tolist()


COMMON = ("gate", "silu")  # whose scale is the same in all layers, so that one table of SiLU serves them
_LOGITS = 1 << 15


def decoder_step(model: Integers, context: int) -> g.Graph:
    """The graph of one token: inputs `token` and `position`, int32 (1,), output `logits`, float32 (1, words).

    Keys and values of `context` tokens are states, and all of them are read; they have room for a multiple of 16, but
    there are no angles for the positions beyond the context. Raises `UnsupportedError` where integers can leave int32,
    or a context is so long that sums of weights would.
    """
    if context > LARGEST_CONTEXT:
        raise UnsupportedError(
            f"{model.name}: a context of {context} tokens; attention in integers holds at most {LARGEST_CONTEXT}"
        )
    return _Step(model, context).graph()


class _Step:
    """Collects the operators; a value is named after its layer, as `2.queries`."""

    def __init__(self, model: Integers, context: int):
        self.model, self.room, self.lanes = model, padded(context), Lanes(model.sizes)
        layers = range(model.sizes.layers)
        common = {(name, k): max(model.ranges[name, j] for j in layers) for name in COMMON for k in layers}
        self.ranges = {**model.ranges, **common}
        self.token, self.position = (g.Tensor(name, (1,), "int32") for name in ("token", "position"))
        self.ops: list[g.Operator] = []
        self.states: list[State] = []
        turn = angles(model.rates, context)[:, self.lanes.pairs] * (self.lanes.pairs >= 0)
        self.cosine, self.sine = (np.round(f(turn) * (1 << ROTATION_BITS)).astype(np.int16) for f in (np.cos, np.sin))

    def graph(self) -> g.Graph:
        """The whole step."""
        scale = self.ranges["embedding", 0] / 127
        table = g.Tensor("words", self.model.embedding.shape, scale=scale, data=self.model.embedding)
        x = self.add(g.Gather, "embedding", (table, self.token), (1, self.model.sizes.width), scale, axis=0)
        for k in range(self.model.sizes.layers):
            x = self.hidden(k, self.attention(k, x))
        gain = self.model.gains["norm"]
        logits = self.logits(self.norm("last", x, gain, self.scale("last", 0)), self.matrix("classifier").signed(gain))
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

    def matrix(self, name: str, layer: int | None = None) -> Matrix:
        """A matrix of the model, of a layer or the only one."""
        of_layers = self.model.matrices[name]
        return of_layers if layer is None else of_layers[layer]

    def dense(self, name: str, x: g.Tensor, matrix: Matrix, scale: float, low: int = -128) -> g.Tensor:
        """`x` times the rows of a matrix."""
        facts = {"weight": matrix.values, "weight_scale": matrix.scales, "bias": _zeros(matrix)}
        return self.add(g.QDense, name, (x,), (1, len(matrix.values)), scale, low=low, **facts)

    def norm(self, name: str, x: g.Tensor, gain: np.ndarray, scale: float) -> g.Tensor:
        """`x` by its root mean square, times the magnitude of `gain`."""
        return self.add(g.RmsNorm, name, (x,), x.shape, scale, gain=np.abs(gain.astype(np.float64)))

    def rotated(self, x: g.Tensor) -> g.Tensor:
        """Queries or keys, rotated by the position's angles."""
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
        gain, lanes, head = self.model.gains["attention_norm"][k], self.lanes, self.model.sizes.head
        h = self.norm(f"{k}.attention_in", x, gain, self.scale("attention_in", k))

        def part(name: str, rows: np.ndarray, low: int) -> g.Tensor:
            return self.dense(f"{k}.{name}", h, self.matrix(name, k).signed(gain).rows(rows), self.scale(name, k), low)

        queries = self.rotated(part("queries", lanes.queries, -128))
        key, value = self.rotated(part("keys", lanes.keys, -128)), part("values", lanes.values, -127)
        keys = self.kept(g.WriteRows, f"{k}.keys.cache", (1, len(lanes.keys), self.room, 1), key)
        block = self.kept(g.WriteRows, f"{k}.values.block", (1, len(lanes.values), BLOCK, 1), value)
        values = self.kept(g.WriteColumns, f"{k}.values.cache", (1, self.room, len(lanes.values), 1), block)
        facts = {"key_groups": lanes.half, "value_groups": lanes.value_groups, "seen": self.room}
        inputs, shape = (queries, keys, values, self.position), (1, len(lanes.outputs))
        y = self.add(g.Attention, f"{k}.attention", inputs, shape, self.scale("attention", k), head=head, **facts)
        matrix = self.matrix("attention_out", k).columns(lanes.outputs)
        y = self.dense(f"{k}.attention_out", y, matrix, self.scale("attention_out", k))
        return self.add(g.Add, f"{k}.middle", (x, y), x.shape, self.scale("middle", k))

    def hidden(self, k: int, x: g.Tensor) -> g.Tensor:
        """The second half of layer `k`."""
        gain = self.model.gains["hidden_norm"][k]
        h = self.norm(f"{k}.hidden_in", x, gain, self.scale("hidden_in", k))
        gate, up = (
            self.dense(f"{k}.{name}", h, self.matrix(name, k).signed(gain), self.scale(name, k))
            for name in ("gate", "up")
        )
        values = np.arange(-128, 128) * gate.scale
        table = nearest(silu_of(values), self.scale("silu", k))
        silu = self.add(g.Lookup, f"{k}.silu", (gate,), gate.shape, self.scale("silu", k), function="silu", table=table)
        y = self.add(g.Mul, f"{k}.hidden", (silu, up), up.shape, self.scale("hidden", k))
        y = self.dense(f"{k}.hidden_out", y, self.matrix("hidden_out", k), self.scale("hidden_out", k))
        return self.add(g.Add, f"{k}.end", (x, y), x.shape, self.scale("end", k))

    def logits(self, x: g.Tensor, matrix: Matrix) -> g.Tensor:
        """float32 (1, words): the scores, dequantised from int16."""
        scale = self.ranges["logits", 0] * 1.25 / _LOGITS
        shape, factors = (1, len(matrix.values)), x.scale * matrix.scales / scale
        facts = {"weight": matrix.values, "bias": _zeros(matrix), "scales": factors}
        sums, real = g.Tensor("logits.int16", shape, "int16", scale), g.Tensor("logits", shape, "float32")
        self.ops.append(g.Dense16(sums.name, (x,), sums, **facts))
        self.ops.append(g.Dequantize(real.name, (sums,), real))
        return real


def _zeros(matrix: Matrix) -> np.ndarray:
    return np.zeros(len(matrix.values), np.int32)
