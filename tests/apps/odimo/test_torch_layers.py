"""apps/odimo/torch_layers.py: grids of weights and activations, and layers whose channels choose a unit or a type."""

import numpy as np
import pytest

pytest.importorskip("torch")

from tilewright.apps.odimo import torch_layers as layers
from tilewright.apps.odimo.mapping import nearest, preferred
from tilewright.apps.odimo.task import TYPE
from tilewright.apps.odimo.torch_layers import torch
from tilewright.apps.odimo.torch_network import trace


@pytest.fixture
def weight():
    torch.manual_seed(0)
    return torch.randn(6, 3, 3, 3)


def test_int8_has_a_scale_per_channel(weight):
    steps = layers.int8(weight) / layers.int8_scale(weight)
    assert torch.allclose(steps, steps.round(), atol=1e-4) and (steps.abs().flatten(1).amax(1).round() == 127).all()
    assert (layers.int8(weight) - weight).abs().max() <= layers.int8_scale(weight).max() / 2 + 1e-6


def test_ternary_keeps_large_weights_at_their_mean(weight):
    signs, scale = layers.ternary_parts(weight)
    assert set(signs.unique().tolist()) == {-1.0, 0.0, 1.0}
    one, large = weight[0], weight[0].abs() > 0.7 * weight[0].abs().mean()
    assert torch.equal(signs[0] != 0, large) and torch.isclose(scale[0].squeeze(), one[large].abs().mean())
    assert torch.allclose(layers.ternary(weight), signs * scale)


def test_gradients_pass_straight_through(weight):
    for quantise in (layers.int8, layers.ternary):
        w = weight.clone().requires_grad_()
        (quantise(w) * 3).sum().backward()
        assert torch.equal(w.grad, torch.full_like(w, 3))


def test_integers_are_those_of_training(weight):
    is_ternary = torch.tensor([True, False] * 3)
    integers, scales = layers.weight_integers(weight, is_ternary)
    values = integers * scales.reshape(-1, 1, 1, 1)
    assert torch.allclose(values[0], layers.ternary(weight)[0]) and torch.allclose(
        values[1], layers.int8(weight)[1], atol=1e-6
    )
    assert integers.abs().max() == 127 and integers[0].abs().max() == 1


def test_a_channel_of_zeros_has_a_scale():
    integers, scales = layers.weight_integers(torch.zeros(2, 3), torch.tensor([True, False]))
    assert not integers.any() and (scales > 0).all()


def test_the_clip_is_learned_from_what_exceeds_it():
    clip = layers.Unsigned()
    x = torch.tensor([-1.0, 0.0, 2.0, 7.0, 9.0], requires_grad=True)
    y = clip(x)
    assert y.tolist() == pytest.approx([0, 0, 2, 6, 6], abs=6 / 255)
    y.sum().backward()
    assert clip.clip.grad == 2 and x.grad.tolist() == [0, 0, 1, 0, 0]


def test_signed_activations_follow_the_largest_magnitude():
    signed = layers.Signed()
    x = torch.tensor([-3.0, 1.0])
    assert torch.allclose(signed(x), x, atol=3 / 127) and signed.peak == 3
    signed(x / 3)
    assert signed.peak == pytest.approx(3 * layers.DECAY)
    signed.eval()
    assert signed(torch.tensor([10.0])) == pytest.approx(float(signed.peak)) and signed.peak == pytest.approx(2.85)


def mapped():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(3, 5, 3, padding=1, stride=2)
    layer = layers.MappedConv2d(conv)
    with torch.no_grad():
        layer.theta.copy_(torch.randn(2, 5))
    return layer, torch.randn(2, 3, 8, 8)


def test_the_mixture_of_results():
    layer, x = mapped()
    results = [
        torch.nn.functional.conv2d(x, quantise(layer.weight), layer.bias, 2, 1)
        for quantise in (layers.int8, layers.ternary)
    ]
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
    assert torch.equal(layer.effective()[0], layers.ternary(layer.weight)[0])
    assert torch.equal(layer.effective()[1], layers.int8(layer.weight)[1]) and layer.counts.tolist() == [3, 2]
    for whole, quantise in ((False, layers.int8), (True, layers.ternary)):
        layer.assign(torch.full((5,), whole))
        assert torch.equal(layer.effective(), quantise(layer.weight))


def test_dense_layers():
    torch.manual_seed(0)
    layer = layers.MappedLinear(torch.nn.Linear(4, 6))
    layer.assign(torch.zeros(6))
    x = torch.randn(3, 4)
    assert torch.allclose(layer(x), x @ layers.int8(layer.weight).T + layer.bias, atol=1e-6)


def test_what_is_wanted_on_gemm_counts_undecided_channels():
    layer = layers.MappedLinear(torch.nn.Linear(4, 10))
    assert layer.wanted == 5
    with torch.no_grad():
        layer.theta[0] = 9.0
    assert 9.9 < layer.wanted < 10


@pytest.fixture
def layer():
    torch.manual_seed(0)
    found = layers.typed(torch.nn.Conv2d(8, 8, 3, 2, 1))
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
    standard = conv(x, layers.int8(layer.weight), None, 2, 1)
    depthwise = conv(x, layers.int8(layer.depthwise), None, 2, 1, groups=8)
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
    assert isinstance(layers.typed(torch.nn.Conv2d(4, 4, 1)), layers.PlainConv2d)
    assert len(network.split_parameters()[1]) == 1
    assert all(not p.dim() or p.isfinite().all() for p in network.parameters())
