"""apps/odimo/learning/layers.py: one convolution with a mixture of weights is the mixture of the units' results."""

import pytest

from tilewright.apps.odimo import torch_layers as layers
from tilewright.apps.odimo.torch_layers import int8, ternary

torch = pytest.importorskip("torch")


def mapped():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(3, 5, 3, padding=1, stride=2)
    layer = layers.MappedConv2d(conv)
    with torch.no_grad():
        layer.theta.copy_(torch.randn(2, 5))
    return layer, torch.randn(2, 3, 8, 8)


def test_the_mixture_of_results():
    layer, x = mapped()
    results = [torch.nn.functional.conv2d(x, quantise(layer.weight), layer.bias, 2, 1) for quantise in (int8, ternary)]
    shares = layer.shares.reshape(2, 1, 5, 1, 1)
    assert torch.allclose(layer(x), (shares * torch.stack(results)).sum(0), atol=1e-5)
    assert torch.isclose(layer.counts.sum(), torch.tensor(5.0))


def test_temperature_hardens_the_shares():
    layer, _ = mapped()
    soft = layer.shares.amax(0)
    layer.temperature = 0.1
    assert (layer.shares.amax(0) > soft).all()


def test_a_fixed_choice_has_the_quantised_weights_themselves():
    layer, _ = mapped()
    chosen = torch.tensor([True, False, True, False, False])
    layer.assign(chosen)
    assert torch.equal(layer.effective()[0], ternary(layer.weight)[0])
    assert torch.equal(layer.effective()[1], int8(layer.weight)[1]) and layer.counts.tolist() == [3, 2]
    for whole, quantise in ((False, int8), (True, ternary)):
        layer.assign(torch.full((5,), whole))
        assert torch.equal(layer.effective(), quantise(layer.weight))


def test_dense_layers():
    torch.manual_seed(0)
    layer = layers.MappedLinear(torch.nn.Linear(4, 6))
    layer.assign(torch.zeros(6))
    x = torch.randn(3, 4)
    assert torch.allclose(layer(x), x @ int8(layer.weight).T + layer.bias, atol=1e-6)


def test_what_is_wanted_on_gemm_counts_undecided_channels():
    layer = layers.MappedLinear(torch.nn.Linear(4, 10))
    assert layer.wanted == 5
    with torch.no_grad():
        layer.theta[0] = 9.0
    assert 9.9 < layer.wanted < 10
