"""apps/odimo/torch_integers.py: integers of a trained network, and these in torch equal the golden interpreter's."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from tilewright.apps.odimo import torch_integers
from tilewright.apps.odimo.integers import to_graph
from tilewright.apps.odimo.mapping import counts
from tilewright.apps.odimo.task import TYPE
from tilewright.apps.odimo.torch_integers import integers
from tilewright.apps.odimo.torch_layers import torch
from tilewright.apps.odimo.torch_network import trace
from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.hw.errors import UnsupportedError
from tilewright.hw.rounding import rescale


def test_rescaling_is_that_of_the_contract():
    rng = np.random.default_rng(0)
    acc = rng.integers(-(2**31), 2**31, 5000)
    multiplier, exponent = rng.integers(2**30, 2**31, 5000), rng.integers(-31, 3, 5000)
    found = torch_integers.rescaled(*(torch.from_numpy(v) for v in (acc, multiplier, exponent)))
    assert np.array_equal(found.numpy(), rescale(acc, multiplier, exponent))


def test_networks_equal_the_golden_interpreter(residual):
    graph = to_graph(residual, "net")
    images = (np.random.default_rng(1).integers(-64, 65, (50, 2, 6, 6)) / 64).astype(np.float32)
    expected, _ = reference.run(graph, {"image": images})
    found = torch_integers.scores(graph, images)
    assert found.dtype == np.float32 and np.array_equal(found, expected["scores"]) and len(np.unique(found)) > 20


def test_other_operators_are_refused(residual):
    graph = to_graph(residual, "net")
    (op,) = (op for op in graph.ops if isinstance(op, g.Reshape))
    other = g.Transpose(
        op.name, (replace(op.x, shape=(1, 8, 1, 1)),), replace(op.output, shape=(1, 8, 1, 1)), (0, 1, 2, 3)
    )
    with pytest.raises(UnsupportedError, match="operator 'flat': a Transpose is none of a trained network"):
        torch_integers.scores(g.Graph("t", (other.x,), (other.output,), (other,)), np.zeros((1, 8, 1, 1), np.float32))


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
    found = torch_integers.scores(graph, images)
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
    assert np.array_equal(torch_integers.scores(graph, images), expected["scores"])


def test_a_bias_that_does_not_fit(network):
    with torch.no_grad():
        network.norms["first_0"].bias[0] = 1e9
    with pytest.raises(UnsupportedError, match="layer 'first.0': a bias of .* steps does not fit; train longer"):
        integers(network, (2, 6, 6))


@pytest.mark.parametrize("depthwise", [0, 4, 8])
def test_integers_of_torch_and_of_the_graph(residual_model, images, depthwise):
    """As the mixture of training, but for a step of the activations here and there; two implementations agree."""
    network = trace(residual_model, images, TYPE)
    network.train()
    network(torch.from_numpy(images))
    choice = {"second.0": np.arange(8) >= 8 - depthwise}
    network.assign(choice)
    whole = integers(network, images.shape[1:])
    assert {node.name: node.depthwise for node in whole.nodes}["second.0"] == depthwise
    assert counts(choice) == {"second.0": (8 - depthwise, depthwise)}
    graph = to_graph(whole, "net")
    found = torch_integers.scores(graph, images)
    for image, scores in zip(images, found):
        assert np.array_equal(reference.trace(graph, {"image": image[None]}, "double")["scores"][0], scores)
    with torch.no_grad():
        trained = network.eval()(torch.from_numpy(images)).numpy()
    assert np.abs(trained - found).max() <= 3 * whole.nodes[-1].scale
