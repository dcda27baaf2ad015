"""Operators of language models whose values have a scale per token, found in each run.

Their exact integers are in runtime/hostops/token_scales.py. Rows belong to T consecutive tokens of a text, as in
attention.py. Layers are convolutions of the two bytes of each value (1, C, 2 * T, 1), with int32 sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...runtime.hostops.token_scales import MANTISSA_BITS
from .host_calls import Kernel
from .operators import Operator


def mantissas(factors: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """int32 (multiplier, exponent), the multiplier of 15 bits: `multiplier * 2**exponent` is nearly each factor."""
    fraction, exponent = np.frexp(np.asarray(factors, np.float64))
    multiplier = np.minimum(np.round(fraction * (1 << MANTISSA_BITS)), (1 << MANTISSA_BITS) - 1).astype(np.int32)
    return multiplier, np.where(multiplier > 0, exponent - MANTISSA_BITS, 0).astype(np.int32)


class _OfRows(Operator):
    """Base of operators on the rows (T, C) of the first input."""

    def expect_types(self, *dtypes: str) -> None:
        """Raise `InputError` unless inputs and output have these types."""
        self.expect("the types", [t.dtype for t in self.tensors], [*dtypes])

    def expect_output(self, *shape: int) -> None:
        """Raise `InputError` unless the output has this shape."""
        self.expect("the output's shape", self.output.shape, shape)

    def expect_rows(self, gain: np.ndarray | None) -> None:
        """Raise `InputError` unless the first input is rows of int16 or int32 that the gains fit."""
        self.expect("whether rows are int16 or int32", self.x.dtype in ("int16", "int32"), True)
        self.expect("the dimensions", len(self.x.shape), 2)
        if gain is not None:
            self.expect("the gains", (str(gain.dtype), gain.shape), ("int16", self.x.shape[1:]))


class _WithScales(_OfRows):
    """Base of operators with a real scale for each channel, or row of a table."""

    scales: np.ndarray

    @property
    def mantissas(self) -> tuple[np.ndarray, np.ndarray]:
        """`scales` as (multipliers, exponents)."""
        return mantissas(self.scales)


class _WithFactor(_OfRows):
    """Base of operators with a real factor."""

    factor: float

    @property
    def mantissa(self) -> tuple[int, int]:
        """`factor` as (multiplier, exponent)."""
        multiplier, exponent = mantissas(self.factor)
        return int(multiplier), int(exponent)


@dataclass(frozen=True, eq=False)
class TokenBytes(_OfRows):
    """int8 (1, C, 2 * T, 1): the bytes of rows (T, C), times `gain`, int16 (C,), if given, in 16 bits."""

    host = (Kernel("token_bytes", constants="gain?"),)

    gain: np.ndarray | None = None

    def check(self) -> None:
        self.expect_rows(self.gain)
        self.expect_output(1, self.x.shape[1], 2 * self.x.shape[0], 1)


@dataclass(frozen=True, eq=False)
class TokenScales(_OfRows):
    """int32 (T, 2): the scales of `TokenBytes`; with `gain` also over the root of the sum of squares.

    `epsilon` is added to that sum.
    """

    host = (Kernel("token_scales", "epsilon?", "gain?"),)

    gain: np.ndarray | None = None
    epsilon: int = 0

    def check(self) -> None:
        self.expect_rows(self.gain)
        self.expect_output(self.x.shape[0], 2)


@dataclass(frozen=True, eq=False)
class ScaleTokenSums(_WithScales):
    """int16 or int32 (T, C): sums (1, C, 2 * T, 1) times scales of tokens (T, 2) and channels, plus an int32 `bias`.

    A third input, the residual, is added. Results saturate.
    """

    host = (Kernel("scale_token_sums", "dtype", "multiplier=mantissas.0 exponent=mantissas.1 bias"),)

    scales: np.ndarray
    bias: np.ndarray

    def check(self) -> None:
        self.expect_types(*["int32"] * len(self.inputs), self.output.dtype)
        self.expect("whether results are int16 or int32", self.output.dtype in ("int16", "int32"), True)
        self.expect_output(self.x.shape[2] // 2, self.x.shape[1])
        self.expect("the scales' and bias' shapes", {self.scales.shape, self.bias.shape}, {self.x.shape[1:2]})


@dataclass(frozen=True, eq=False)
class TokenLogits(_OfRows):
    """float32 (T, C): sums (1, C, 2 * T, 1) times the tokens' scales (T, 2), times `scale`, float32 (C,)."""

    host = (Kernel("token_logits", constants="scale"),)

    scale: np.ndarray

    def check(self) -> None:
        self.expect_types("int32", "int32", "float32")
        self.expect_output(self.x.shape[2] // 2, self.x.shape[1])
        self.expect("the scales", (str(self.scale.dtype), self.scale.shape), ("float32", self.x.shape[1:2]))


@dataclass(frozen=True, eq=False)
class EmbedTokens(_WithScales):
    """int32 (T, C): rows of `table`, int8 (words, C), at the tokens, int32 (T,), times the row's `scales` (words,)."""

    host = (Kernel("embed_tokens", "", "table multiplier=mantissas.0 exponent=mantissas.1"),)

    table: np.ndarray
    scales: np.ndarray

    def check(self) -> None:
        self.expect_types("int32", "int32")
        self.expect_output(*self.x.shape, self.table.shape[1])
        self.expect("the scales' shape", self.scales.shape, self.table.shape[:1])


@dataclass(frozen=True, eq=False)
class RotatePairs(_OfRows):
    """Rotary embedding of int16 rows: neighbours in the first `heads` heads are pairs. The second input is a position.

    `cosine` and `sine` are int16 (positions, head / 2) in Q1.14.
    """

    host = (Kernel("rotate_pairs", "heads", "cosine sine"),)

    cosine: np.ndarray
    sine: np.ndarray
    heads: int

    def check(self) -> None:
        self.expect_types("int16", "int32", "int16")
        self.expect_output(*self.x.shape)
        self.expect("the shape of the sines", self.sine.shape, self.cosine.shape)


@dataclass(frozen=True, eq=False)
class WriteTokens(_OfRows):
    """A cache, int16 (N, C), with elements from `start` on of rows, the second input, at the position, the third."""

    host = (Kernel("write_tokens", "start"),)

    start: int

    def check(self) -> None:
        self.expect_types("int16", "int16", "int32", "int16")
        self.expect_output(*self.x.shape)


@dataclass(frozen=True, eq=False)
class CacheAttention(_WithFactor):
    """int16 (T, heads * D): attention of the queries in the rows over a cache (N, 2 * kv_heads * D).

    The cache is the second input, the position the third. `factor` times a sum of products is a score in steps of
    1/256.
    """

    host = (Kernel("cache_attention", "heads kv_heads multiplier=mantissa.0 exponent=mantissa.1"),)

    heads: int
    kv_heads: int
    factor: float

    def check(self) -> None:
        self.expect_types("int16", "int16", "int32", "int16")
        self.expect_output(self.x.shape[0], self.heads * self.head)

    @property
    def head(self) -> int:
        """D, the elements of a head."""
        return self.inputs[1].shape[1] // 2 // self.kv_heads

    @property
    def macs(self) -> int:
        return 2 * self.x.shape[0] * self.heads * self.head * self.inputs[1].shape[0]


@dataclass(frozen=True, eq=False)
class GatedProduct(_WithFactor):
    """int32 (T, C): the SiLU of the gates, the first half of rows (T, 2 * C), times the second half, over 2**shift.

    `factor` times a gate has 12 fractional bits. Results saturate.
    """

    host = (Kernel("gated_product", "multiplier=mantissa.0 exponent=mantissa.1 shift"),)

    factor: float
    shift: int

    def check(self) -> None:
        self.expect_types("int32", "int32")
        self.expect_output(self.x.shape[0], self.x.shape[1] // 2)
