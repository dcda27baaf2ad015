"""Roots of rows whose means of squares are at and near squares, where roots change, seen in the norms' results."""

from math import isqrt

import numpy as np
import pytest

from tilewright.compiler.graph import IntegerNorm, Tensor
from tilewright.compiler.kernels.integer_roots import tables_of_roots


def row(total):
    """16 bytes whose squares add up to `total`, or little less, the largest first."""
    found = []
    for _ in range(16):
        found.append(-min(128, isqrt(total)))
        total -= found[-1] ** 2
    return found


@pytest.mark.parametrize("together", [1, 3, 4, 16])
def test_roots_near_squares(launch, together):
    """Elements times such a weight: another root would change at least one of the results."""
    means = [max(1, k * k + d) for k in (*range(1, 20), *range(20, 129, 7), 127, 128) for d in (-1, 0, 1)]
    x = np.array([row(16 * (mean - 1)) for mean in means], np.int8)[: len(means) // together * together]
    weight = Tensor("w", (16,), "int32", data=np.full(16, 500_000, np.int32))
    for part in x.reshape(-1, together, 16) if together > 3 else x[: 6 * together].reshape(-1, together, 16):
        op = IntegerNorm("norm", (Tensor("x", part.shape), weight), Tensor("y", part.shape), 12)
        launch(op, data={"x": part})


def test_tables_give_every_root():
    """What the launch makes of them, in numpy, for every mean that can occur."""
    lower, upper = tables_of_roots()
    mean = np.arange(1, 16386)
    low = lower[np.minimum(mean, 255)] + upper[np.minimum(mean >> 6, 255)]
    tries = (low + 127) ** 2 <= mean, (low + 128) ** 2 <= mean
    np.testing.assert_array_equal(low + 126 + tries[0] + tries[1], [isqrt(m) for m in mean.tolist()])
