"""Roots of rows whose means of squares are at and near squares, where roots change, seen in the norms' results."""

from math import isqrt

import numpy as np
import pytest

from tilewright.compiler.graph import IntegerNorm, Tensor
from tilewright.compiler.kernels.norm import digits


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


@pytest.mark.parametrize("lanes, found", [(4, [64, 16, 4, 1]), (8, [64, 8, 1]), (16, [16, 1]), (32, [32, 1])])
def test_digits_reach_every_root(lanes, found):
    assert digits(lanes) == found
