"""Operators of transformers: products of activations, norms, rotations, and attention over a cache of one sequence.

Their exact integers are in runtime/hostops/attention.py. Except for `BatchMatMul`, zero points are 0. The rows
belong to T consecutive tokens of a text; their position is an int32 tensor (1,), n: row k is token n * T + k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ...runtime.hostops.attention import LARGEST_CONTEXT, LARGEST_SCORE, MEAN_BITS, SCORE_STEPS, squares_shift
from ...runtime.hostops.roots import ROOT_BITS, inverse_root
from ...runtime.symbols import MOST_LIMIT
from .host_calls import Kernel
from .operators import Factored, Operator, OwnContract, Product, Reach, Tensor, by_channel
from .ranges import products, times


@dataclass(frozen=True, eq=False)
class BatchMatMul(Product, OwnContract):
    """`clamp(zo + R(sum((x - zx) * (y - zy))))`: rows of x by columns of y, or of y `transposed`.

    Shapes are (..., rows, inner) and (..., inner, columns); the dimensions before the last two broadcast.
    With `images` each matrix is an image whose pixels are its rows: (N, inner, 1, rows) instead of (N, rows, inner).
    Of int16 rows the second operand may be int8; sums have 64 bits, and R a multiplier of 15 bits (`short_rescale`).
    """

    wide = True
    host = (Kernel("batch_matmul", "zero_points transposed images? multiplier exponent contract?"),)

    transposed: bool = False
    images: bool = False

    def check(self) -> None:
        self.expect("the number of operands", len(self.inputs), 2)
        if (self.x.dtype, self.inputs[1].dtype, self.output.dtype) != ("int16", "int8", "int16"):
            self.expect_int8()
        x, y = (t.shape for t in self.inputs)
        if self.images:
            self.expect("the images", [(len(s), *s[2:3]) for s in (x, y, self.output.shape)], [(4, 1)] * 3)
            inner, columns = (y[1], y[3]) if self.transposed else (y[3], y[1])
            self.expect("the number of rows of the second operand", inner, x[1])
            self.expect("the output's shape", self.output.shape, (*self.together(x[:1], y[:1]), columns, 1, x[3]))
            return
        self.expect("whether both operands are matrices", min(len(x), len(y)) > 1, True)
        inner, columns = y[-2:][:: -1 if self.transposed else 1]
        self.expect("the number of rows of the second operand", inner, x[-1])
        self.expect("the output's shape", self.output.shape, (*self.together(x[:-2], y[:-2]), x[-2], columns))

    def reach(self) -> Reach | None:
        x, y = self.inputs
        return None if x.dtype == "int16" else Reach.one(times(products(x.ends, y.ends), self.inner), self.factor)

    @property
    def inner(self) -> int:
        """Products of each sum."""
        return self.x.shape[1 if self.images else -1]

    @property
    def macs(self) -> int:
        return math.prod(self.output.shape) * self.inner


@dataclass(frozen=True, eq=False)
class RmsNorm(Operator):
    """The last axis divided by the root of its mean square, times `gain`, float64 (D,), at least 0.

    Nothing is added to the mean square; a row of zeros stays zero.
    """

    host = (Kernel("rms_norm", constants="multiplier exponent"),)

    gain: np.ndarray

    def carried(self, axis: int) -> int:
        return -1 if axis == len(self.x.shape) - 1 else axis

    def check(self) -> None:
        self.expect_int8()
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("the gains' shape", self.gain.shape, self.x.shape[-1:])
        self.expect("whether the gains are at least 0", bool((self.gain >= 0).all()), True)
        _expect_symmetric(self)

    def reach(self) -> Reach:
        most = 128 * inverse_root(np.zeros(len(self.gain), np.int64))
        return Reach(-most, most, self.factors)

    @property
    def shift(self) -> int:
        """Bits by which the sum of squares is shifted right."""
        return squares_shift(self.x.shape[-1])

    @property
    def factors(self) -> np.ndarray:
        """float64 (D,): the factor of R of each element."""
        root = math.sqrt(self.x.shape[-1] / 2**self.shift)
        return self.gain * root / 2.0**ROOT_BITS / self.output.scale

    @property
    def multipliers(self) -> tuple[np.ndarray, np.ndarray]:
        return by_channel(self.factors)


@dataclass(frozen=True, eq=False)
class Rotate(Operator):
    """Rotary embedding: (T, C * 2W), chunks of two halves, turned by the angles of the position, the second input.

    Element k of the first half and element k of the second are a pair. `cosine` and `sine` are int16 (positions, W) in
    Q1.14. The scale stays.
    """

    host = (Kernel("rotate", constants="cosine sine"),)

    cosine: np.ndarray
    sine: np.ndarray

    @property
    def symbol(self) -> tuple[Tensor, int]:
        """The position, of as many blocks of tokens as there are angles for."""
        return self.inputs[1], len(self.cosine) // self.x.shape[0]

    def check(self) -> None:
        _expect_position(self, 1)
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("the scale", self.output.scale, self.x.scale)
        self.expect("the dimensions", len(self.x.shape), 2)
        self.expect("whether there are angles for as many tokens", self.x.shape[0] <= len(self.cosine), True)
        self.expect("what is left of chunks", self.x.shape[1] % (2 * self.cosine.shape[1]), 0)
        self.expect("the shape of the sines", self.sine.shape, self.cosine.shape)
        _expect_symmetric(self)


class Write(Operator):
    """Base of operators that write the second input into the first, a cache (1, A, B, 1), at the position, the third.

    Scales are equal.
    """

    overwrites = True

    def of_tokens(self, inputs: tuple[Tensor, ...], count: int) -> Operator:
        """The operator on `inputs` of `count` rows; the cache stays as large."""
        return replace(self, inputs=inputs)

    @property
    def run(self) -> int:
        """How many tokens lie behind one another in one part of the cache."""
        return self.x.shape[2]

    def check(self) -> None:
        _expect_position(self, 2)
        self.expect("the dimensions of the cache", (len(self.x.shape), self.x.shape[::3]), (4, (1, 1)))
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("the scales", {self.inputs[1].scale, self.x.scale}, {self.output.scale})
        _expect_symmetric(self)


@dataclass(frozen=True, eq=False)
class WriteRows(Write):
    """A cache (1, C, N, 1) with rows (T, C), each in place of its position modulo N."""

    host = (Kernel("write_rows"),)

    @property
    def symbol(self) -> tuple[Tensor, int]:
        """The position, which may be any."""
        return self.inputs[2], MOST_LIMIT

    def check(self) -> None:
        super().check()
        rows = self.inputs[1].shape
        self.expect("the rows", (len(rows), rows[1:]), (2, self.x.shape[1:2]))
        self.expect("whether the rows fit the cache", rows[0] <= self.x.shape[2], True)


@dataclass(frozen=True, eq=False)
class WriteColumns(Write):
    """A cache (1, N, V, 1) with a block (1, V, B, 1), transposed, in place of the B rows around the position.

    `tokens` is T, the tokens of one position.
    """

    host = (Kernel("write_columns", "tokens?"),)

    tokens: int = 1

    def of_tokens(self, inputs: tuple[Tensor, ...], count: int) -> Operator:
        """The operator on a position of `count` tokens."""
        return replace(self, inputs=inputs, tokens=count)

    @property
    def run(self) -> int:
        """How many tokens lie behind one another in one part of the cache."""
        return self.inputs[1].shape[2]

    @property
    def symbol(self) -> tuple[Tensor, int]:
        """The position, of as many blocks of tokens as the cache has."""
        return self.inputs[2], self.x.shape[1] // self.tokens

    def check(self) -> None:
        super().check()
        block = self.inputs[1].shape
        self.expect("the block", (len(block), block[:2], block[3:]), (4, (1, self.x.shape[2]), (1,)))
        self.expect("what is left of blocks", self.x.shape[1] % block[2], 0)
        self.expect("whether there are tokens", self.tokens > 0, True)
        self.expect("what is left of a block's tokens", block[2] % self.tokens, 0)


@dataclass(frozen=True, eq=False)
class Attention(Factored):
    """The means of values (1, N, V, 1) by the exponentials of queries (T, R * 2W) times keys (1, 2W, N, 1).

    Inputs are queries, keys, values and the position; the output is (T, R * V). Each of R chunks of the queries, and a
    key, has two halves of W lanes: lane k of both is an element of the group `key_groups[k]`, lane k of a value one of
    `value_groups[k]`, and -1 stands for padding. In each chunk each group is a query of its own, a head of `head`
    elements, by whose root its scores are divided. The first `seen` positions are read, by each row up to its own.
    Values are -127 to 127.
    """

    host = (Kernel("attention", "key_groups value_groups seen multipliers exponents"),)

    key_groups: tuple[int, ...]
    value_groups: tuple[int, ...]
    head: int
    seen: int

    @property
    def symbol(self) -> tuple[Tensor, int]:
        """The position, of as many blocks of tokens as are read."""
        return self.inputs[3], self.seen // self.tokens

    def check(self) -> None:
        _expect_position(self, 3)
        queries, keys, values, _ = (t.shape for t in self.inputs)
        self.expect("the dimensions", (len(keys), keys[::3], len(values), values[::3]), (4, (1, 1)) * 2)
        self.expect("the positions of the values", values[1], keys[2])
        self.expect(f"whether there are at most {LARGEST_CONTEXT} positions", keys[2] <= LARGEST_CONTEXT, True)
        self.expect("whether as many positions as are read are there", 0 < self.seen <= keys[2], True)
        self.expect("the lanes of half a key", 2 * len(self.key_groups), keys[1])
        self.expect("the lanes of a value", len(self.value_groups), values[2])
        self.expect("groups without keys", {*self.value_groups} - {*self.key_groups, -1}, set[int]())
        self.expect("whether a lane of a value is of a group", max(self.value_groups) >= 0, True)
        self.expect("the dimensions of the queries", len(queries), 2)
        self.expect("whether as many tokens are read", queries[0] <= self.seen, True)
        self.expect("the queries", queries[1], self.chunks * keys[1])
        self.expect("the output's shape", self.output.shape, (self.tokens, self.chunks * values[2]))
        _expect_symmetric(self)

    def reach(self) -> Reach:
        lanes = max(self.key_groups.count(group) for group in self.value_groups if group >= 0)
        most = np.array([2 * lanes << 14, np.iinfo(np.int32).max])
        return Reach(-most, most, np.array(self.factors))

    def excess(self) -> str:
        """Scores too large for later tokens, which get a constant score, to have weight 0."""
        largest = self.reach().high[0] * self.factors[0]
        if largest < LARGEST_SCORE:
            return ""
        return f"has scores of up to {largest:.3g} steps; at most {LARGEST_SCORE - 1} are allowed; give smaller scales"

    @property
    def tokens(self) -> int:
        """T, the tokens whose queries these are."""
        return self.x.shape[0]

    @property
    def chunks(self) -> int:
        """R, the queries of each group and token."""
        return self.x.shape[-1] // self.inputs[1].shape[1]

    @property
    def factors(self) -> tuple[float, float]:
        """(factor of the sums of products, which makes scores in steps of 1/40; factor of the means, to outputs)."""
        sq, sk, sv = (np.float64(t.scale) for t in self.inputs[:3])
        scores = sq * sk / math.sqrt(self.head) * SCORE_STEPS
        return float(scores), float(sv / self.output.scale / 2.0**MEAN_BITS)

    @property
    def macs(self) -> int:
        used = 2 * sum(k >= 0 for k in self.key_groups) + sum(k >= 0 for k in self.value_groups)
        return self.tokens * self.chunks * self.seen * used


def _expect_symmetric(op: Operator) -> None:
    op.expect("the zero points", {t.zero_point for t in (*op.inputs, op.output)}, {0})


def _expect_position(op: Operator, index: int) -> None:
    op.expect("the number of inputs", len(op.inputs), index + 1)
    position, rest = op.inputs[index], (*op.inputs[:index], op.output)
    op.expect("the position", (position.dtype, position.shape), ("int32", (1,)))
    op.expect("the conversion", {t.dtype for t in rest}, {"int8"})
