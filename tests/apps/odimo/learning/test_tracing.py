"""apps/odimo/learning/tracing.py: models of users as networks in training, and what it refuses."""

import numpy as np
import pytest

from tilewright.apps.odimo.torch_layers import Signed, Unsigned
from tilewright.apps.odimo.torch_network import ADD, FLATTEN, LAYER, MAX_POOL, MEAN_POOL, input_scale, trace
from tilewright.hw.errors import UnsupportedError

torch = pytest.importorskip("torch")

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
