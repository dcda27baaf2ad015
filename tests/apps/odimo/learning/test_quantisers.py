"""apps/odimo/learning/quantisers.py: grids of weights and activations, and their gradients."""

import pytest

from tilewright.apps.odimo import torch_layers as q

torch = pytest.importorskip("torch")


@pytest.fixture
def weight():
    torch.manual_seed(0)
    return torch.randn(6, 3, 3, 3)


def test_int8_has_a_scale_per_channel(weight):
    steps = q.int8(weight) / q.int8_scale(weight)
    assert torch.allclose(steps, steps.round(), atol=1e-4) and (steps.abs().flatten(1).amax(1).round() == 127).all()
    assert (q.int8(weight) - weight).abs().max() <= q.int8_scale(weight).max() / 2 + 1e-6


def test_ternary_keeps_large_weights_at_their_mean(weight):
    signs, scale = q.ternary_parts(weight)
    assert set(signs.unique().tolist()) == {-1.0, 0.0, 1.0}
    one, large = weight[0], weight[0].abs() > 0.7 * weight[0].abs().mean()
    assert torch.equal(signs[0] != 0, large) and torch.isclose(scale[0].squeeze(), one[large].abs().mean())
    assert torch.allclose(q.ternary(weight), signs * scale)


def test_gradients_pass_straight_through(weight):
    for quantise in (q.int8, q.ternary):
        w = weight.clone().requires_grad_()
        (quantise(w) * 3).sum().backward()
        assert torch.equal(w.grad, torch.full_like(w, 3))


def test_integers_are_those_of_training(weight):
    is_ternary = torch.tensor([True, False] * 3)
    integers, scales = q.weight_integers(weight, is_ternary)
    values = integers * scales.reshape(-1, 1, 1, 1)
    assert torch.allclose(values[0], q.ternary(weight)[0]) and torch.allclose(values[1], q.int8(weight)[1], atol=1e-6)
    assert integers.abs().max() == 127 and integers[0].abs().max() == 1


def test_a_channel_of_zeros_has_a_scale():
    integers, scales = q.weight_integers(torch.zeros(2, 3), torch.tensor([True, False]))
    assert not integers.any() and (scales > 0).all()


def test_the_clip_is_learned_from_what_exceeds_it():
    clip = q.Unsigned()
    x = torch.tensor([-1.0, 0.0, 2.0, 7.0, 9.0], requires_grad=True)
    y = clip(x)
    assert y.tolist() == pytest.approx([0, 0, 2, 6, 6], abs=6 / 255)
    y.sum().backward()
    assert clip.clip.grad == 2 and x.grad.tolist() == [0, 0, 1, 0, 0]


def test_signed_activations_follow_the_largest_magnitude():
    signed = q.Signed()
    x = torch.tensor([-3.0, 1.0])
    assert torch.allclose(signed(x), x, atol=3 / 127) and signed.peak == 3
    signed(x / 3)
    assert signed.peak == pytest.approx(3 * q.DECAY)
    signed.eval()
    assert signed(torch.tensor([10.0])) == pytest.approx(float(signed.peak)) and signed.peak == pytest.approx(2.85)
