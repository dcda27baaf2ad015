"""apps/odimo/torch_network.py: models of users as networks in training, what is refused, ties and temperatures."""

import numpy as np
import pytest

pytest.importorskip("torch")

from tilewright.apps.odimo.torch_layers import Signed, Unsigned, torch
from tilewright.apps.odimo.torch_network import ADD, FLATTEN, LAYER, MAX_POOL, MEAN_POOL, input_scale, trace
from tilewright.hw.errors import UnsupportedError

nn = torch.nn
IMAGES = np.ones((2, 2, 6, 6), np.float32)


def test_nodes_of_a_residual_network(residual_model, images):
    network = trace(residual_model, images)
    assert [node.kind for node in network.nodes] == [LAYER, LAYER, ADD, MAX_POOL, MEAN_POOL, FLATTEN, LAYER]
    assert [node.shape for node in network.nodes][2:5] == [(8, 6, 6), (8, 3, 3), (8, 1, 1)]
    kinds = [type(network.activations[node.part]) for node in network.nodes if node.part in network.activations]
    assert kinds == [Unsigned, Signed, Unsigned, Signed] and len(network.norms) == 2
    assert network.sizes() == {"first.0": 8, "second.0": 8, "last": 6}


def test_a_traced_network_is_close_to_the_model(residual_model, images):
    """With 255 steps of activations and 127 of weights."""
    network = trace(residual_model, images)
    network.assign({name: np.zeros(count, bool) for name, count in network.sizes().items()})
    network.train()
    for _ in range(3):
        network(torch.from_numpy(images))
    network.eval()
    residual_model.eval()
    with torch.no_grad():
        expected, found = residual_model(torch.from_numpy(images)), network(torch.from_numpy(images))
    assert (expected - found).abs().max() < 0.1 * expected.abs().max()


@pytest.mark.parametrize(("most", "scale"), [(1.0, 1 / 64), (127 / 64, 1 / 64), (2.0, 1 / 32), (0.0, 2.0**-26)])
def test_the_input_s_step_is_a_power_of_two(most, scale):
    assert input_scale(np.array([-most, most / 2])) == scale


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Doubled(nn.Module):
    """What the rectifier reads is read by the sum, too."""

    def __init__(self):
        super().__init__()
        self.conv, self.relu = nn.Conv2d(2, 2, 1), nn.ReLU()

    def forward(self, x):
        x = self.conv(x)
        return x + self.relu(x)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.Sigmoid()), "1 is a Sigmoid; it may have Conv2d, Linear"),
        (lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2)), "0 is a convolution with groups"),
        (lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect")), "pads with other values"),
        (lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.MaxPool2d(3, 2, 1)), "1 is a pooling with padding"),
        (lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d(2)), "mean of another size than 1"),
        (lambda: nn.Sequential(nn.ReLU(), nn.Conv2d(2, 4, 3)), "0 must follow a layer or add"),
        (Branches, "torch.fx cannot trace the model .*; write it without branches"),
        (Doubled, "relu must follow a layer or add that it alone reads"),
    ],
)
def test_models_that_it_refuses(model, text):
    with pytest.raises(UnsupportedError, match=text):
        trace(model(), IMAGES)


@pytest.fixture
def network(residual_model, images):
    return trace(residual_model, images)


def test_layers_whose_results_are_added_are_tied(network):
    assert network.ties() == [["first.0", "second.0"]]


def test_ties_reach_through_sums_and_poolings(images):
    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(2 if k == 0 else 4, 4, 3, padding=1) for k in range(5))

        def forward(self, x):
            x = self.convs[0](x)
            x = x + self.convs[1](x)
            x = nn.functional.max_pool2d(x, 2)
            x = x + self.convs[2](x)
            return self.convs[4](self.convs[3](x))

    assert trace(Chain(), images).ties() == [["convs.0", "convs.1", "convs.2"]]


def test_a_choice_is_fixed_and_freed(network):
    network.assign({name: np.arange(count) >= 4 for name, count in network.sizes().items()})
    assert [count.tolist() for count in network.counts().values()] == [[4, 4], [4, 4], [4, 2]]
    network.assign(None)
    network.anneal(0.5)
    assert all(layer.chosen is None and layer.temperature == 0.5 for _, layer in network.mapped())
    assert all(not values.any() for values in network.preference().values())


def test_parameters_are_those_of_weights_and_those_of_choices(network):
    weights, thetas = network.split_parameters()
    assert len(thetas) == 3 and len(weights) + len(thetas) == len(list(network.parameters()))


def test_a_mean_keeps_its_input_s_step(network, images):
    with torch.no_grad():
        values = network.values(torch.from_numpy(images))
    steps = values["adaptive_avg_pool2d"] / network.scale_of("adaptive_avg_pool2d")
    assert torch.allclose(steps, steps.round(), atol=1e-3)
    assert network.scale_of("flatten") == network.scale_of("add")
