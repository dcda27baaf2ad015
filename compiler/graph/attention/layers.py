"""Operators of transformers: products of activations, norms, rotations, and attention over a cache.

Their exact integers are in runtime/kernels/attention.py. Except for `BatchMatMul`, zero points are 0. A position is an
int32 tensor (1,), the place of the token in its text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ....runtime.kernels.attention import MEAN_BITS, UNIT_BITS
from ..operators import Operator, Product, Rescaling

LARGEST_WEIGHT = 127  # of `Exponentials`: that of the largest score


@dataclass(frozen=True, eq=False)
class BatchMatMul(Product):
    """`clamp(zo + R(sum((x - zx) * (y - zy))))`: rows of x by columns of y, or of y `transposed`; contract double.

    Shapes are (..., rows, inner) and (..., inner, columns); what stands before the last two dimensions broadcasts.
    With `images` each matrix is an image whose pixels are its rows: (N, inner, 1, rows) instead of (N, rows, inner).
    """

    transposed: bool = False
    images: bool = False

    def check(self) -> None:
        """Raise `InputError` unless it is int8, and the shapes fit."""
        self.expect("the number of operands", len(self.inputs), 2)
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

    @property
    def inner(self) -> int:
        """Products of each sum."""
        return self.x.shape[1 if self.images else -1]

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return math.prod(self.output.shape) * self.inner


@dataclass(frozen=True, eq=False)
class RmsNorm(Rescaling):
    """The last axis divided by the root of its mean square, times `gain`, float64 (D,).

    Nothing is added to the mean square; a row of zeros stays one.
    """

    gain: np.ndarray

    def check(self) -> None:
        """Raise `InputError` unless it is int8 of one shape, with as many gains as elements."""
        self.expect_int8()
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("the gains' shape", self.gain.shape, self.x.shape[-1:])
        _expect_symmetric(self)

    @property
    def integers(self) -> np.ndarray:
        """int16 (D,): the gains, the largest of which is 32767."""
        return np.round(self.gain / self._largest * np.iinfo(np.int16).max).astype(np.int16)

    @property
    def factor(self) -> float:
        """What R multiplies by."""
        step = self._largest / np.iinfo(np.int16).max * math.sqrt(self.x.shape[-1])
        return float(np.float64(step) / 2.0**UNIT_BITS / self.output.scale)

    @property
    def _largest(self) -> float:
        return float(np.abs(self.gain).max()) or 1.0


@dataclass(frozen=True, eq=False)
class Rotate(Operator):
    """Rotary embedding: pairs of neighbours of the last axis, turned by the angles of the position, the second input.

    `cosine` and `sine` are int16 (positions, D / 2) in Q1.14. The scale stays.
    """

    cosine: np.ndarray
    sine: np.ndarray

    def check(self) -> None:
        """Raise `InputError` unless shapes and scales fit."""
        _expect_position(self, 1)
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("the scale", self.output.scale, self.x.scale)
        self.expect("twice the angles", 2 * self.cosine.shape[1], self.x.shape[-1])
        self.expect("the shape of the sines", self.sine.shape, self.cosine.shape)
        _expect_symmetric(self)


@dataclass(frozen=True, eq=False)
class WriteRows(Operator):
    """The first input, a cache (G, N, D), with the second, rows (G, T, D), at the position, the third."""

    def check(self) -> None:
        """Raise `InputError` unless shapes and scales fit."""
        _expect_position(self, 2)
        self.expect("the dimensions", [len(t.shape) for t in self.inputs[:2]], [3, 3])
        (groups, size, width), rows = self.x.shape, self.inputs[1]
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("the rows", rows.shape, (groups, min(rows.shape[1], size), width))
        self.expect("the scales", {rows.scale, self.x.scale}, {self.output.scale})
        _expect_symmetric(self)


@dataclass(frozen=True, eq=False)
class Exponentials(Operator):
    """`round(127 * exp(x - m))` of the last axis up to the position, the second input, m its maximum; else 0."""

    def check(self) -> None:
        """Raise `InputError` unless shapes and scales fit."""
        _expect_position(self, 1)
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("the output's scale", self.output.scale, 1 / LARGEST_WEIGHT)
        _expect_symmetric(self)

    @property
    def table(self) -> np.ndarray:
        """int8 (256,): the result by the difference to the maximum."""
        return np.round(LARGEST_WEIGHT * np.exp(-np.arange(256) * self.x.scale)).astype(np.int8)


@dataclass(frozen=True, eq=False)
class WeightedMean(Rescaling):
    """The mean of the second input, values (G, N, D), by the first, weights >= 0 (G, R, N)."""

    def check(self) -> None:
        """Raise `InputError` unless it is int8, and the shapes fit."""
        self.expect_int8()
        weights, values = self.inputs
        self.expect("the dimensions", [len(weights.shape), len(values.shape)], [3, 3])
        self.expect("the values' shape", values.shape[:-1], (weights.shape[0], weights.shape[2]))
        self.expect("the output's shape", self.output.shape, (*weights.shape[:-1], values.shape[-1]))
        _expect_symmetric(self)

    @property
    def factor(self) -> float:
        """What R multiplies by."""
        return float(np.float64(self.inputs[1].scale) / self.output.scale / 2.0**MEAN_BITS)

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return math.prod(self.output.shape) * self.x.shape[-1]


def _expect_symmetric(op: Operator) -> None:
    op.expect("the zero points", {t.zero_point for t in (*op.inputs, op.output)}, {0})


def _expect_position(op: Operator, index: int) -> None:
    op.expect("the number of inputs", len(op.inputs), index + 1)
    position, rest = op.inputs[index], (*op.inputs[:index], op.output)
    op.expect("the position", (position.dtype, position.shape), ("int32", (1,)))
    op.expect("the conversion", {t.dtype for t in rest}, {"int8"})
