"""Networks of torch, where it is installed: `make test-torch` has an environment with it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def residual_model():
    """Two convolutions whose results are added, a maximum, a mean and a dense layer; 6x6 images of 2 channels."""
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
    """Float32 images for it."""
    rng = np.random.default_rng(2)
    return (rng.integers(-64, 65, (9, 2, 6, 6)) / 64).astype(np.float32)
