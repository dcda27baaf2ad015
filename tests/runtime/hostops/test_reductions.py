"""Kernels along axes, against numpy; LiteRT's bytes are compared elsewhere."""

import numpy as np

from tilewright.runtime.hostops.reductions import arg_max, reduce_max, reduce_min, top_k

X = np.random.default_rng(2).integers(-9, 9, (4, 5, 6)).astype(np.int8)


def test_extremes():
    assert np.array_equal(reduce_max(X, axes=[0, 2], shape=[1, 5, 1]), X.max((0, 2), keepdims=True))
    assert np.array_equal(reduce_min(X, axes=[1], shape=[4, 6]), X.min(1))


def test_the_first_of_several_extremes():
    y = arg_max(X, axis=1, shape=[4, 6], dtype="int64")
    assert y.dtype == np.int64 and all(
        X[i, : y[i, k], k].max(initial=-99) < X[i, y[i, k], k] for i, k in np.ndindex(4, 6)
    )
    assert np.array_equal(arg_max(X, axis=1, shape=[4, 1, 6], dtype="int32", smallest=True)[:, 0], X.argmin(1))


def test_the_largest_of_each_row():
    x = np.array([[3, 9, -4, 9, 3, 0]], np.int8)
    assert top_k(x, count=4, positions=False).tolist() == [[9, 9, 3, 3]]
    assert top_k(x, count=4, positions=True).tolist() == [[1, 3, 0, 4]]
