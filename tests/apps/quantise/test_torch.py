"""Modules and programs of PyTorch, and data as PyTorch has it: `make test-torch`, in an environment of its own."""

import json
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import reference
from tilewright.hw.errors import InputError, UnsupportedError

torch: Any = pytest.importorskip("torch")
nn, data = torch.nn, torch.utils.data


class Network(nn.Module):
    """Two inputs: an image, and features that are added to it."""

    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.features, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, image, features, scale=0.5):
        return self.last(self.image(image).mean((2, 3)) + scale * self.features(features))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(2)
    module = Network()
    with torch.no_grad():
        for _ in range(20):  # statistics of the normalisation
            module(torch.randn(16, 1, 8, 8), torch.randn(16, 4))
    return module


@pytest.fixture(scope="module")
def samples(network):
    """(images, features, the network's own classes)."""
    torch.manual_seed(3)
    inputs = torch.randn(40, 1, 8, 8), torch.randn(40, 4)
    with torch.no_grad():
        return *inputs, network.eval()(*inputs).argmax(1)


@pytest.fixture(scope="module")
def quantised(network, samples):
    network.train()
    return tw.quantise(network, data.TensorDataset(*samples))


def test_a_module_and_a_data_set(network, samples, quantised):
    """Figures are those of the samples that judge, every fourth; the module is left as it was."""
    assert network.training and quantised.samples == 40
    images, features, labels = (part[3::4] for part in samples)
    graph, right = import_model(quantised.network), 0
    noise, signal = 0.0, 0.0
    with torch.no_grad():
        expected = network.eval()(images, features).numpy()
    for image, feature, label, floats in zip(images.numpy(), features.numpy(), labels.numpy(), expected):
        (logits,) = reference.run(graph, {"image": image[None], "features": feature[None]})[0].values()
        right += int(logits.argmax() == label)
        noise, signal = noise + ((logits - floats) ** 2).sum(), signal + (floats**2).sum()
    comparison = quantised.comparison
    assert (comparison.float_accuracy, comparison.int8_accuracy) == (1, right / 10)
    assert abs(10 * np.log10(signal / noise) - comparison.snr_db) < 2 and comparison.snr_db > 25
    assert {op.x.name for op in graph.ops if type(op).__name__ == "Quantize"} == {"image", "features"}


def test_the_accelerator_computes_the_same(samples, quantised):
    executable = quantised.compile("tiny")
    inputs = {"image": samples[0][:1].numpy(), "features": samples[1][:1].numpy()}
    (expected,) = reference.run(import_model(quantised.network), inputs)[0].values()
    (logits,) = executable(inputs).values()
    assert np.array_equal(logits, expected)


@pytest.mark.parametrize(
    "form",
    [
        lambda image, features, _: (image, features),
        lambda image, features, _: {"features": features.numpy(), "image": image.double().numpy()},
        lambda *tensors: data.DataLoader(data.TensorDataset(*tensors), batch_size=16),
        lambda image, features, _: [(image[:24], features[:24]), [image[24:], features[24:]]],
    ],
)
def test_forms_of_data(network, samples, quantised, form):
    """All give the network that the data set gives."""
    result = tw.quantise(network, form(*samples))
    assert result.comparison.snr_db == pytest.approx(quantised.comparison.snr_db, abs=3)
    assert (result.samples, result.comparison.agreement) == (40, quantised.comparison.agreement)


def test_programs_and_files(tmp_path, network, samples, quantised):
    image, features, labels = samples
    program = torch.export.export(network.eval(), (image[:1], features[:1]))
    torch.export.save(program, tmp_path / "network.pt2")
    np.savez(tmp_path / "samples.npz", image=image.numpy(), features=features.numpy(), labels=labels.numpy())
    for model in (program, tmp_path / "network.pt2"):
        result = tw.quantise(model, tmp_path / "samples.npz")
        assert result.comparison == quantised.comparison
    result.save(tmp_path / "int8.onnx")
    assert import_model(tmp_path / "int8.onnx").layers
    with pytest.raises(UnsupportedError, match="is quantised already"):
        tw.quantise(tmp_path / "int8.onnx", tmp_path / "samples.npz")


def test_a_file_from_the_command_line(tmp_path, network, samples, quantised, capsys):
    from tilewright.cli.main import run

    image, features, labels = samples
    torch.export.save(torch.export.export(network.eval(), (image[:1], features[:1])), tmp_path / "network.pt2")
    np.savez(tmp_path / "samples.npz", image=image.numpy(), features=features.numpy(), labels=labels.numpy())
    command = ["quantise", str(tmp_path / "network.pt2"), "--calibration", str(tmp_path / "samples.npz")]
    assert run([*command, "--config", "tiny", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["snr_db"] == quantised.comparison.snr_db and facts["float_accuracy"] == 1
    assert facts["network"] == str(tmp_path / "network.int8.onnx") and import_model(facts["network"]).layers


@pytest.mark.parametrize(
    "changed, error, text",
    [
        (
            lambda x, y, z: (x[:, 0], y),
            UnsupportedError,
            r"Network: torch.export cannot trace it on .*\(1, 8, 8\), \(1, 4",
        ),
        (lambda x, y, z: x, InputError, "data has 1 tensors a batch; the network takes image, features, and labels"),
        (lambda x, y, z: [(x, y, z, z)], InputError, "data has 4 tensors a batch"),
        (lambda x, y, z: {"x": x}, InputError, "data has x, but not the network's image, features"),
        (lambda x, y, z: [], InputError, "data holds no batch; give at least one sample"),
        (lambda x, y, z: 3, InputError, "data is a int; give a tensor, a data set or batches of samples"),
        (lambda x, y, z: "samples.npz", InputError, "samples.npz: a module does not say which shapes it takes"),
    ],
)
def test_data_that_does_not_fit(network, samples, changed, error, text):
    with pytest.raises(error, match=text):
        tw.quantise(network, changed(*samples))


def test_what_is_no_network():
    with pytest.raises(
        UnsupportedError, match="a int cannot be quantised; give the path of a float network, or a module"
    ):
        tw.quantise(3, torch.zeros(1, 4))


class Classes(nn.Module):
    """Integers alone."""

    def forward(self, x):
        return torch.relu(x).argmax(1)


def test_results_that_are_integers():
    with pytest.raises(UnsupportedError, match="no output of the network is float32, .*; end it before its ArgMax"):
        tw.quantise(Classes(), torch.randn(4, 5))
