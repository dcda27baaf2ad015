"""apps/odimo/learning/types.py: preferences that never fall with the channel, and weights of both types."""

import numpy as np
import pytest

from tilewright.apps.odimo import torch_integers as exact
from tilewright.apps.odimo import torch_integers as export
from tilewright.apps.odimo import torch_layers as types
from tilewright.apps.odimo.integers import to_graph
from tilewright.apps.odimo.mapping import counts, nearest, preferred
from tilewright.apps.odimo.task import TYPE
from tilewright.apps.odimo.torch_layers import int8
from tilewright.apps.odimo.torch_network import trace
from tilewright.compiler.graph import reference

torch = pytest.importorskip("torch")


@pytest.fixture
def layer():
    torch.manual_seed(0)
    found = types.typed(torch.nn.Conv2d(8, 8, 3, 2, 1))
    with torch.no_grad():
        found.theta.copy_(torch.randn(8))
    return found


def test_preferences_never_fall(layer):
    assert (layer.preference.diff() >= 0).all() and layer.theta.min() < 0
    with torch.no_grad():
        layer.theta[0] = 0.0
    ends = layer.preference[[0, -1]]
    assert torch.isclose(ends.sum(), torch.tensor(0.0)) and torch.isclose(layer.shares.sum(), torch.tensor(8.0))


def test_what_is_wanted_is_a_range(layer):
    assert layer.wanted == int((layer.preference <= 0).sum())


def test_any_preference_gives_two_ranges(layer):
    for block in (1, 4):
        preference = {"a": layer.preference.detach().numpy()}
        (chosen,) = preferred(preference, nearest(preference, block)).values()
        assert (np.diff(chosen.astype(int)) >= 0).all() and not (~chosen).sum() % block
        assert abs((~chosen).sum() - layer.wanted) <= block / 2


def test_the_mixture_of_both_types(layer):
    x = torch.randn(2, 8, 6, 6)
    conv = torch.nn.functional.conv2d
    standard = conv(x, int8(layer.weight), None, 2, 1)
    depthwise = conv(x, int8(layer.depthwise), None, 2, 1, groups=8)
    first, last = (share.reshape(8, 1, 1) for share in layer.shares)
    expected = first * standard + last * depthwise + layer.bias.reshape(8, 1, 1)
    assert torch.allclose(layer(x), expected, atol=1e-5)
    layer.assign([False] * 3 + [True] * 5)
    assert layer.last_depthwise == 5 and layer.counts.tolist() == [3, 5]
    expected = torch.cat([standard[:, :3], depthwise[:, 3:]], 1) + layer.bias.reshape(8, 1, 1)
    assert torch.allclose(layer(x), expected, atol=1e-5)


def test_the_integers_are_those_of_the_weights(layer):
    layer.assign([False] * 4 + [True] * 4)
    weight, scale = layer.integers()
    assert torch.allclose(weight * scale.reshape(8, 1, 1, 1), layer.effective(), atol=1e-6)
    assert weight[4:].count_nonzero() <= 4 * 9 and weight.abs().amax((1, 2, 3)).tolist() == [127.0] * 8


def test_all_thetas_and_both_weights_learn(layer):
    layer(torch.randn(2, 8, 6, 6)).square().sum().backward()
    assert all(p.grad.abs().min() > 0 for p in (layer.theta, layer.bias)) and layer.depthwise.grad.abs().max() > 0


def test_which_layers_have_a_choice(residual_model, images):
    network = trace(residual_model, images, TYPE)
    assert list(network.sizes()) == ["second.0"] and network.ties() == []  # the order of its channels stays
    assert isinstance(types.typed(torch.nn.Conv2d(4, 4, 1)), types.PlainConv2d)
    assert len(network.split_parameters()[1]) == 1
    assert all(not p.dim() or p.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("depthwise", [0, 4, 8])
def test_integers_of_torch_and_of_the_graph(residual_model, images, depthwise):
    """As the mixture of training, but for a step of the activations here and there; two implementations agree."""
    network = trace(residual_model, images, TYPE)
    network.train()
    network(torch.from_numpy(images))
    choice = {"second.0": np.arange(8) >= 8 - depthwise}
    network.assign(choice)
    integers = export.integers(network, images.shape[1:])
    assert {node.name: node.depthwise for node in integers.nodes}["second.0"] == depthwise
    assert counts(choice) == {"second.0": (8 - depthwise, depthwise)}
    graph = to_graph(integers, "net")
    found = exact.scores(graph, images)
    for image, scores in zip(images, found):
        assert np.array_equal(reference.trace(graph, {"image": image[None]}, "double")["scores"][0], scores)
    with torch.no_grad():
        trained = network.eval()(torch.from_numpy(images)).numpy()
    assert np.abs(trained - found).max() <= 3 * integers.nodes[-1].scale
