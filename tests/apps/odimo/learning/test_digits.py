"""apps/odimo/learning/digits.py: the data and the network."""

import numpy as np
import pytest

from tilewright.apps.odimo import task as digits
from tilewright.apps.odimo.torch_network import trace


def test_digits():
    pytest.importorskip("sklearn")
    (images, labels), (held, held_labels) = digits.digits_data()
    assert images.shape == (1200, 1, 8, 8) and held.shape == (597, 1, 8, 8) and images.dtype == np.float32
    assert np.array_equal(images * 64, np.round(images * 64)) and set(labels) == set(held_labels) == set(range(10))
    assert np.array_equal(digits.digits_data()[1][0], held)


def test_the_network_has_layers_of_its_width():
    network = trace(digits.digits_model(12), np.ones((1, 1, 8, 8), np.float32))
    assert list(network.sizes().values()) == [12, 12, 12, 12, 10]
    assert [node.shape for node in network.nodes][:4] == [(12, 8, 8), (12, 8, 8), (12, 4, 4), (12, 2, 2)]
