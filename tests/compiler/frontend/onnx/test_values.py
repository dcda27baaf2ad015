"""Constants, and how they vary."""

import numpy as np

from tilewright.compiler.frontend.values import Fixed, View, Weights, channel_vector, constant
from tilewright.compiler.graph import Tensor


def test_weights_have_scales_along_an_axis():
    integers = np.arange(6, dtype=np.uint8).reshape(2, 3)
    one = Weights((2, 3), integers, np.ones(1, np.float32), np.array([2], np.uint8), 0)
    assert one.real.tolist() == one.centred.tolist() == [[-2, -1, 0], [1, 2, 3]]
    each = Weights((2, 3), integers, np.array([1, 2, 4], np.float32), np.array([0, 1, 2]), 1)
    assert each.real.tolist() == [[0, 0, 0], [3, 6, 12]] and each.centred.tolist() == [[0, 0, 0], [3, 3, 3]]


def test_constants_are_known():
    assert constant(Fixed((1,), np.ones(1))) is not None
    assert constant(View((1,), Tensor("x", (1,)))) is None and constant(None) is None


def test_vectors_of_channels():
    shape = (1, 3, 4, 4)
    for array, expected in ((np.array(2.0), [2, 2, 2]), (np.arange(3).reshape(3, 1, 1), [0, 1, 2])):
        assert np.array_equal(np.array(channel_vector(array, shape, 1)), expected)
    assert channel_vector(np.arange(4), shape, 1) is None
