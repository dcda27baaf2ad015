"""apps/odimo/learning/export.py: integers of a trained network."""

import numpy as np
import pytest

from tilewright.apps.odimo import torch_integers as exact
from tilewright.apps.odimo.integers import to_graph
from tilewright.apps.odimo.torch_integers import integers
from tilewright.apps.odimo.torch_network import trace
from tilewright.compiler.graph import reference
from tilewright.hw.errors import UnsupportedError

torch = pytest.importorskip("torch")


@pytest.fixture
def network(residual_model, images):
    net = trace(residual_model, images)
    net.assign({name: np.arange(count) % 2 == 1 for name, count in net.sizes().items()})
    net.train()
    for _ in range(3):
        net(torch.from_numpy(images))
    return net


def test_integers_are_close_to_training(network, images):
    """Biases and factors are rounded, nothing else: most scores are the same step, none is further off than two."""
    graph = to_graph(integers(network, (2, 6, 6)), "net")
    found = exact.scores(graph, images)
    with torch.no_grad():
        expected = network(torch.from_numpy(images)).numpy()
    steps = np.abs(found - expected) / graph.layers[-1].output.scale
    assert (steps < 0.5).mean() > 0.5 and steps.max() < 2.5


def test_ternary_channels_are_ternary_and_signs_of_normalisation_fold_into_weights(network):
    for node in integers(network, (2, 6, 6)).nodes:
        if node.weight is not None:
            assert np.abs(node.weight[1::2]).max() == 1 and np.abs(node.weight[::2]).max() == 127
            assert node.weight_scale is not None and (node.weight_scale > 0).all()


def test_a_channel_that_normalisation_makes_constant(network, images):
    with torch.no_grad():
        network.norms["second_0"].weight[3] = 0.0
    whole = integers(network, (2, 6, 6))
    assert whole.nodes[1].weight is not None
    assert not whole.nodes[1].weight[3].any()
    graph = to_graph(whole, "net")
    expected, _ = reference.run(graph, {"image": images})
    assert np.array_equal(exact.scores(graph, images), expected["scores"])


def test_a_bias_that_does_not_fit(network):
    with torch.no_grad():
        network.norms["first_0"].bias[0] = 1e9
    with pytest.raises(UnsupportedError, match="layer 'first.0': a bias of .* steps does not fit; train longer"):
        integers(network, (2, 6, 6))
