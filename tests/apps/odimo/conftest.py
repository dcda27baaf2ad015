"""Small networks, in integers and of torch, which `make test-torch` has an environment with."""

import numpy as np
import pytest

from tilewright.apps.odimo.integers import IntegerNetwork, IntegerNode

RNG = np.random.default_rng(3)


def layer(name, source, inputs, outputs, size, kernel=3, stride=1, **facts):
    """A convolution, or with size () a dense layer, of random ternary weights; rectified unless `low` says else."""
    pad = kernel // 2
    space = tuple((n + 2 * pad - kernel) // stride + 1 for n in size)
    weight = RNG.integers(-1, 2, (outputs, inputs, *(kernel,) * len(size))).astype(np.int8)
    bias = RNG.integers(-50, 50, outputs).astype(np.int32)
    scale = RNG.uniform(0.2, 0.6, outputs).astype(np.float32)
    given = {"scale": 0.05, "zero_point": -128, "low": -128} | facts
    if size:
        given |= {"strides": (stride, stride), "pads": (pad, pad)}
    return IntegerNode(
        name, "layer", (source,), (outputs, *space), weight=weight, bias=bias, weight_scale=scale, **given
    )


@pytest.fixture
def residual():
    """Two convolutions whose results are added, a maximum, a mean and a dense layer; 6x6 images of 2 channels."""
    return IntegerNetwork(
        (2, 6, 6),
        2.0**-6,
        (
            layer("first", "input", 2, 8, (6, 6)),
            layer("second", "first", 8, 8, (6, 6), zero_point=0),
            IntegerNode("sum", "add", ("first", "second"), (8, 6, 6), 0.08, -128, -128),
            IntegerNode("most", "max_pool", ("sum",), (8, 3, 3), 0.08, -128, -128, (2, 2), (2, 2)),
            IntegerNode("mean", "mean_pool", ("most",), (8, 1, 1), 0.08, -128, -128, (3, 3)),
            IntegerNode("flat", "flatten", ("mean",), (8,), 0.08, -128),
            layer("last", "flat", 8, 6, (), 1, zero_point=0),
        ),
    )


@pytest.fixture
def residual_model():
    """`residual` as a model of torch, with batch normalisation."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
            self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
            self.most, self.last = nn.MaxPool2d(2), nn.Linear(8, 6)

        def forward(self, x):
            x = self.first(x)
            x = torch.relu(x + self.second(x))
            return self.last(torch.flatten(nn.functional.adaptive_avg_pool2d(self.most(x), 1), 1))

    torch.manual_seed(1)
    model = Residual()
    with torch.no_grad():  # as training leaves them: signs of either kind, and means that are not zero
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.copy_(torch.randn(8))
                module.bias.copy_(torch.randn(8))
                module.running_mean.copy_(torch.randn(8) / 4)
    return model


@pytest.fixture
def images():
    """Float32 images for both."""
    rng = np.random.default_rng(2)
    return (rng.integers(-64, 65, (9, 2, 6, 6)) / 64).astype(np.float32)
