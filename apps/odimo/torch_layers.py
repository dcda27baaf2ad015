"""Layers of PyTorch whose output channels choose a compute unit or a type of layer while they are trained.

Weights are int8 with a scale per channel, or ternary; gradients pass the rounding as if it were not there. A layer's
result is the mixture of both sides by the shares of its channels, until `assign` fixes the choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ...hw.errors import UnsupportedError
from .mapping import UNITS

if TYPE_CHECKING:  # torch is not installed for type checks
    torch = F = cast(Any, ...)
else:
    try:
        import torch
        import torch.fx
        import torch.nn.functional as F
    except ImportError as exc:
        raise UnsupportedError(f"training needs torch ({exc}); pip install 'tilewright[train]'") from None

Tensor: TypeAlias = Any  # torch.Tensor
Module: TypeAlias = Any  # torch.nn.Module

INT8_MOST = 127
KEPT = 0.7  # of the mean magnitude: smaller ternary weights become zero
LEAST_SCALE = 1e-8  # of a channel whose weights are all zero
FIRST_CLIP = 6.0
DECAY = 0.95  # per batch, of the largest magnitude seen
ACTIVATION_STEPS = 255


def int8_scale(weight: Tensor) -> Tensor:
    """(O, 1, ...): the largest magnitude of each channel as 127 steps."""
    return (_flat(weight).abs().amax(1) / INT8_MOST).clamp(min=LEAST_SCALE).reshape(_per_channel(weight))


def ternary_parts(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(the weights' signs in {-1, 0, 1}, the scale of each channel (O, 1, ...)).

    A weight is kept above `KEPT` times its channel's mean magnitude; the scale is the mean magnitude of those.
    """
    magnitude = _flat(weight).abs()
    kept = magnitude > KEPT * magnitude.mean(1, keepdim=True)
    scale = (magnitude * kept).sum(1) / kept.sum(1).clamp(min=1)
    signs = torch.sign(weight) * kept.reshape(weight.shape)
    return signs, scale.clamp(min=LEAST_SCALE).reshape(_per_channel(weight))


def through(weight: Tensor, quantised: Tensor) -> Tensor:
    """`quantised`, with the gradient of `weight`."""
    return weight + (quantised - weight).detach()


def int8(weight: Tensor) -> Tensor:
    """Float weights on the int8 grid of each channel."""
    scale = int8_scale(weight).detach()
    return through(weight, torch.round(weight / scale) * scale)


def ternary(weight: Tensor) -> Tensor:
    """Float weights in {-s, 0, s} of each channel."""
    signs, scale = ternary_parts(weight.detach())
    return through(weight, signs * scale)


def int8_integers(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(integers (O, ...), scales (O,)) of weights that are all int8."""
    scale = int8_scale(weight)
    return torch.round(weight / scale), scale.flatten()


def weight_integers(weight: Tensor, is_ternary: Tensor) -> tuple[Tensor, Tensor]:
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
    def scale(self) -> Tensor:
        """Real value of one step of the grid."""
        return self.clip.abs().clamp(min=LEAST_SCALE) / ACTIVATION_STEPS

    def forward(self, x: Tensor) -> Tensor:
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
    def scale(self) -> Tensor:
        """Real value of one step of the grid."""
        return self.peak.clamp(min=LEAST_SCALE) / INT8_MOST

    def forward(self, x: Tensor) -> Tensor:
        """Round `x`, and clip it to the range; in training the range follows the values."""
        if self.training:
            self.peak = torch.maximum(self.peak * DECAY, x.detach().abs().amax())
        scale = self.scale
        return through(x, torch.clamp(torch.round(x / scale), -INT8_MOST - 1, INT8_MOST) * scale)


def _flat(weight: Tensor) -> Tensor:
    return weight.reshape(weight.shape[0], -1)


def _per_channel(weight: Tensor) -> tuple[int, ...]:
    return (weight.shape[0], *(1,) * (weight.ndim - 1))


class Mapped(torch.nn.Module):
    """Base of layers with a choice: weights (O, ...), an optional bias (O,), and theta (2, O), which makes the shares.

    Shares are the softmax of theta by `temperature`, or, once `assign` was called, ones and zeros. A class without a
    choice is not `free`; the channels of a `grouped` one are ordered by their choice.
    """

    free = grouped = True

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight.detach().clone())
        self.bias = None if bias is None else torch.nn.Parameter(bias.detach().clone())
        self.theta = torch.nn.Parameter(torch.zeros(len(UNITS), len(weight)))
        self.temperature = 1.0
        self.chosen: Tensor = None

    @property
    def shares(self) -> Tensor:
        """(2, O): the share of each unit in each channel; a channel's shares sum to 1."""
        if self.chosen is None:
            return torch.softmax(self.theta / self.temperature, 0)
        return torch.stack([~self.chosen, self.chosen]).to(self.weight.dtype)

    @property
    def counts(self) -> Tensor:
        """(2,): the number of channels on each unit, not necessarily whole."""
        return self.shares.sum(1)

    @property
    def preference(self) -> Tensor:
        """(O,): above 0 for the ternary unit."""
        return self.theta[1] - self.theta[0]

    @property
    def wanted(self) -> float:
        """The number of channels on GEMM as the cost counts them, undecided ones by their shares."""
        return float(self.counts[0].detach())

    def assign(self, chosen: Tensor) -> None:
        """Fix the choice: bool (O,), True for channels on the ternary unit."""
        self.chosen = torch.as_tensor(chosen, dtype=torch.bool)

    def effective(self) -> Tensor:
        """The quantised weights of the layer's result: a mixture of both sides by the shares."""
        if self.chosen is not None and not self.chosen.any():
            return int8(self.weight)
        if self.chosen is not None and self.chosen.all():
            return ternary(self.weight)
        digital, two_bits = (share.reshape(-1, *(1,) * (self.weight.ndim - 1)) for share in self.shares)
        return digital * int8(self.weight) + two_bits * ternary(self.weight)

    def integers(self) -> tuple[Tensor, Tensor]:
        """(integers (O, ...), scales (O,)) of the chosen weights."""
        return weight_integers(self.weight, self.chosen)


class MappedConv2d(Mapped):
    """A convolution with its output channels on two units, made of a `torch.nn.Conv2d` of one group."""

    def __init__(self, conv: Module) -> None:
        super().__init__(conv.weight, conv.bias)
        self.stride, self.padding, self.dilation = conv.stride, conv.padding, conv.dilation

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) -> (N, O, H', W')."""
        return F.conv2d(x, self.effective(), self.bias, self.stride, self.padding, self.dilation)


class MappedLinear(Mapped):
    """A dense layer with its outputs on two units, made of a `torch.nn.Linear`."""

    def __init__(self, linear: Module) -> None:
        super().__init__(linear.weight, linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (N, I) -> (N, O)."""
        return F.linear(x, self.effective(), self.bias)


class PlainConv2d(MappedConv2d):
    """A convolution in int8 without a choice."""

    free = grouped = False

    def __init__(self, conv: Module) -> None:
        super().__init__(conv)
        self.theta = None
        self.assign([False] * len(self.weight))


class PlainLinear(MappedLinear):
    """A dense layer in int8 without a choice."""

    free = grouped = False

    def __init__(self, linear: Module) -> None:
        super().__init__(linear)
        self.theta = None
        self.assign([False] * len(self.weight))


class TypedConv2d(MappedConv2d):
    """A convolution of as many inputs as outputs; shares and counts have rows (standard, depthwise).

    `theta` (O,) are the mean of the first and last channel's preference for depthwise, and how much, by magnitude and
    in units of 1 / O, it rises from each channel to the next.
    """

    grouped = False

    def __init__(self, conv: Module) -> None:
        super().__init__(conv)
        own = torch.nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size, groups=conv.in_channels)
        self.depthwise = torch.nn.Parameter(own.weight.detach().clone())
        theta = torch.ones(len(self.weight))
        theta[0] = 0.0
        self.theta = torch.nn.Parameter(theta)

    @property
    def preference(self) -> Tensor:
        """(O,): above 0 for depthwise; it never falls."""
        rises = self.theta[1:].abs() / len(self.theta)
        height = torch.cat([torch.zeros(1), torch.cumsum(rises, 0)])
        return self.theta[0] + height - height[-1] / 2

    @property
    def wanted(self) -> float:
        """Channels that prefer the standard type: a range, however undecided they are."""
        return float((self.preference <= 0).sum())

    @property
    def shares(self) -> Tensor:
        """(2, O): the share of each type in each channel; a channel's shares sum to 1."""
        if self.chosen is None:
            depthwise = torch.sigmoid(self.preference / self.temperature)
            return torch.stack([1 - depthwise, depthwise])
        return super().shares

    def effective(self) -> Tensor:
        """The quantised weights of the layer's result: a mixture of both sides by the shares."""
        standard, depthwise = (share.reshape(-1, 1, 1, 1) for share in self.shares)
        return standard * int8(self.weight) + depthwise * self._spread(int8(self.depthwise))

    def integers(self) -> tuple[Tensor, Tensor]:
        """(integers (O, C, KH, KW), scales (O,)) of the chosen types."""
        (standard, first), (depthwise, last) = int8_integers(self.weight), int8_integers(self.depthwise)
        chosen = self.chosen.reshape(-1, 1, 1, 1)
        return torch.where(chosen, self._spread(depthwise), standard), torch.where(self.chosen, last, first)

    @property
    def last_depthwise(self) -> int:
        """The number of channels that were chosen to be depthwise."""
        return int(self.chosen.sum())

    def _spread(self, own: Tensor) -> Tensor:
        """Depthwise weights (O, 1, KH, KW) as a standard convolution (O, O, KH, KW), zero off the diagonal."""
        return own * torch.eye(len(own)).reshape(len(own), len(own), 1, 1)


def typed(conv: Module) -> Module:
    """The layer for a `torch.nn.Conv2d` of one group: with a choice if its kernel has several taps, and as many inputs
    as outputs.
    """
    several = tuple(conv.kernel_size) != (1, 1)
    return TypedConv2d(conv) if several and conv.in_channels == conv.out_channels > 1 else PlainConv2d(conv)


TYPES = {torch.nn.Conv2d: typed, torch.nn.Linear: PlainLinear}
