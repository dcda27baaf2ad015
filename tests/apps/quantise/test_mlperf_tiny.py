"""The four kinds of networks of MLPerf Tiny, trained in float on scikit-learn's digits: int8 loses at most one point.

Each is smaller than its original, as the pictures are. The accuracies are those of onnxruntime on 597 pictures that
neither training nor quantisation has seen. `-s` prints a row for docs/quantise.md.
"""

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.apps.quantise.times import predict, predict_float

torch: Any = pytest.importorskip("torch")
datasets: Any = pytest.importorskip("sklearn.datasets")
onnxruntime: Any = pytest.importorskip("onnxruntime")
nn = torch.nn
TRAINED, NORMAL = 1200, 5  # pictures; digits below are normal to the autoencoder, the others are not


def convolution(inputs, outputs, stride=1, groups=1, size=3):
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


def separable(inputs, outputs, stride=1):
    return nn.Sequential(convolution(inputs, inputs, stride, inputs), convolution(inputs, outputs, size=1))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.longer = nn.Sequential(convolution(inputs, outputs, stride), second, nn.BatchNorm2d(outputs))
        self.shorter = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x):
        return torch.relu(self.longer(x) + self.shorter(x))


def classifier(*layers, channels):
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def dense(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU())


NETWORKS = {
    "ResNet": lambda: classifier(
        convolution(1, 8), Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 32, 2), channels=32
    ),
    "DS-CNN": lambda: classifier(convolution(1, 32), *(separable(32, 32) for _ in range(4)), channels=32),
    "MobileNetV1": lambda: classifier(
        convolution(1, 8), separable(8, 16), separable(16, 32, 2), separable(32, 64, 2), separable(64, 64), channels=64
    ),
    "autoencoder": lambda: nn.Sequential(
        dense(64, 128), dense(128, 128), dense(128, 8), dense(8, 128), dense(128, 128), nn.Linear(128, 64)
    ),
}


@pytest.fixture(scope="module")
def digits():
    """(pictures of shape (1797, 1, 8, 8) from 0 to 1 in a random order, their labels)."""
    held = datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(held.target))
    return (held.images[order, np.newaxis] / 16).astype(np.float32), held.target[order]


def trained(network, inputs, targets, loss, epochs=8):
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    network.train()
    for _ in range(epochs):
        for part in torch.randperm(len(inputs)).split(48):
            optimiser.zero_grad()
            loss(network(inputs[part]), targets[part]).backward()
            optimiser.step()
    return network.eval()


def outputs(content, inputs):
    """Those of onnxruntime, without optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(content, options)
    name = session.get_inputs()[0].name
    return np.concatenate([session.run(None, {name: one[np.newaxis]})[0] for one in inputs])


def area(errors, strange):
    """The area under the ROC curve: the share of pairs of a strange and a normal picture of which it errs more."""
    return (errors[strange][:, np.newaxis] > errors[~strange]).mean()


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_at_most_one_point_is_lost(name, digits):
    torch.manual_seed(0)
    torch.set_num_threads(1)  # several threads wait for each other more than they compute
    x, labels = digits
    network, encoder = NETWORKS[name](), name == "autoencoder"
    if encoder:
        x = x.reshape(-1, 64)
    inputs, classes = torch.tensor(x[:TRAINED]), torch.tensor(labels[:TRAINED])
    if encoder:
        normal = inputs[classes < NORMAL]
        trained(network, normal, normal, nn.functional.mse_loss, 40)
        inputs = normal
    else:
        trained(network, inputs, classes, nn.functional.cross_entropy)
    found = tw.quantise(network, inputs[:100])

    x, labels = x[TRAINED:], labels[TRAINED:]
    with torch.no_grad():
        results = network(torch.tensor(x)).numpy(), outputs(found.network.content, x)
    if encoder:
        before, after = (area(np.square(result - x).mean(1), labels >= NORMAL) for result in results)
    else:
        before, after = ((result.argmax(1) == labels).mean() for result in results)
    seconds, (int8, _) = predict_float(found.float_network), predict(found.network, tw.load_config("pynq_z1"))
    share = 100 * (int8.on_device or 0)
    print(
        f"\n| {name} | {100 * before:.1f} | {100 * after:.1f} | {found.way} | {found.comparison.snr_db:.1f} | "
        f"{share:.1f} % | {seconds.ms / int8.ms:,.0f} |"
    )
    assert before > (0.85 if encoder else 0.94) and after >= before - 0.01 and share > 99
