"""apps/odimo/learning/network.py: choices, ties and temperatures of a whole network."""

import numpy as np
import pytest

from tilewright.apps.odimo.torch_network import trace

torch = pytest.importorskip("torch")

nn = torch.nn


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
