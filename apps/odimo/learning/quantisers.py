"""Quantisers of weights and activations, with straight-through gradients: what training sees of the integers.

Weights have their output channel first, and a scale for each. `weight_integers` are the same integers for the export,
so that what is trained is what runs.
"""

from __future__ import annotations

from typing import Any

from .backend import torch

INT8_MOST = 127
KEPT = 0.7  # of the mean magnitude: smaller ternary weights become zero
LEAST_SCALE = 1e-8  # of a channel whose weights are all zero
FIRST_CLIP = 6.0
DECAY = 0.95  # per batch, of the largest magnitude seen
ACTIVATION_STEPS = 255


def int8_scale(weight: Any) -> Any:
    """(O, 1, ...): the largest magnitude of each channel as 127 steps."""
    return (_flat(weight).abs().amax(1) / INT8_MOST).clamp(min=LEAST_SCALE).reshape(_per_channel(weight))


def ternary_parts(weight: Any) -> tuple[Any, Any]:
    """(the weights' signs in {-1, 0, 1}, the scale of each channel (O, 1, ...)).

    A weight is kept above `KEPT` times its channel's mean magnitude; the scale is the mean magnitude of those.
    """
    magnitude = _flat(weight).abs()
    kept = magnitude > KEPT * magnitude.mean(1, keepdim=True)
    scale = (magnitude * kept).sum(1) / kept.sum(1).clamp(min=1)
    signs = torch.sign(weight) * kept.reshape(weight.shape)
    return signs, scale.clamp(min=LEAST_SCALE).reshape(_per_channel(weight))


def through(weight: Any, quantised: Any) -> Any:
    """`quantised`, with the gradient of `weight`."""
    return weight + (quantised - weight).detach()


def int8(weight: Any) -> Any:
    """Float weights on the int8 grid of each channel."""
    scale = int8_scale(weight).detach()
    return through(weight, torch.round(weight / scale) * scale)


def ternary(weight: Any) -> Any:
    """Float weights in {-s, 0, s} of each channel."""
    signs, scale = ternary_parts(weight.detach())
    return through(weight, signs * scale)


def int8_integers(weight: Any) -> tuple[Any, Any]:
    """(integers (O, ...), scales (O,)) of weights that are all int8."""
    scale = int8_scale(weight)
    return torch.round(weight / scale), scale.flatten()


def weight_integers(weight: Any, is_ternary: Any) -> tuple[Any, Any]:
    """(integers (O, ...), scales (O,)) of trained weights; `is_ternary` (O,) says which channels are."""
    signs, ternary_scale = ternary_parts(weight)
    scale = int8_scale(weight)
    chosen = is_ternary.reshape(_per_channel(weight))
    integers = torch.where(chosen, signs, torch.round(weight / scale))
    return integers, torch.where(chosen, ternary_scale, scale).flatten()


class Unsigned(torch.nn.Module):
    """Clipped rectifier in 8 bits: 0..clip in 255 steps, the clip is learned."""

    zero_point = -128

    def __init__(self) -> None:
        super().__init__()
        self.clip = torch.nn.Parameter(torch.tensor(FIRST_CLIP))

    @property
    def scale(self) -> Any:
        """The step."""
        return self.clip.abs().clamp(min=LEAST_SCALE) / ACTIVATION_STEPS

    def forward(self, x: Any) -> Any:
        """Clip and round; values beyond the clip pass their gradient on to it."""
        scale = self.scale
        most = scale * ACTIVATION_STEPS
        clipped = torch.where(x > most, most, torch.relu(x))
        return through(clipped, torch.round(clipped / scale) * scale)


class Signed(torch.nn.Module):
    """8 bits without a rectifier: the largest magnitude seen in training is 127 steps."""

    zero_point = 0

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("peak", torch.tensor(0.0))

    @property
    def scale(self) -> Any:
        """The step."""
        return self.peak.clamp(min=LEAST_SCALE) / INT8_MOST

    def forward(self, x: Any) -> Any:
        """Round, and clip what exceeds the range; in training the range follows the values."""
        if self.training:
            self.peak = torch.maximum(self.peak * DECAY, x.detach().abs().amax())
        scale = self.scale
        return through(x, torch.clamp(torch.round(x / scale), -INT8_MOST - 1, INT8_MOST) * scale)


def _flat(weight: Any) -> Any:
    return weight.reshape(weight.shape[0], -1)


def _per_channel(weight: Any) -> tuple[int, ...]:
    return (weight.shape[0], *(1,) * (weight.ndim - 1))
