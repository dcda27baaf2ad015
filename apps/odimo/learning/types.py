"""Convolutions whose output channels choose a type of layer while they are trained: standard or depthwise.

A depthwise channel is a standard one whose weights are zero for all inputs but its own: so the mixture of both results
is one convolution, as with compute units. Since a depthwise channel reads the input channel of its own number, the
channels cannot be regrouped afterwards. Instead the preference never falls with the channel's number: the first
channels are standard, the last depthwise, whatever is learned.
"""

from __future__ import annotations

from typing import Any

from .backend import torch
from .layers import MappedConv2d, MappedLinear
from .quantisers import int8, int8_integers


class PlainConv2d(MappedConv2d):
    """A convolution in int8 without a choice."""

    free = grouped = False

    def __init__(self, conv: Any) -> None:
        super().__init__(conv)
        self.theta = None
        self.assign([False] * len(self.weight))


class PlainLinear(MappedLinear):
    """A dense layer in int8 without a choice."""

    free = grouped = False

    def __init__(self, linear: Any) -> None:
        super().__init__(linear)
        self.theta = None
        self.assign([False] * len(self.weight))


class TypedConv2d(MappedConv2d):
    """A convolution of as many inputs as outputs; shares and counts have rows (standard, depthwise).

    `theta` (O,) are the mean of the first and last channel's preference for depthwise, and how much, by magnitude and
    in units of 1 / O, it rises from each channel to the next.
    """

    grouped = False

    def __init__(self, conv: Any) -> None:
        super().__init__(conv)
        own = torch.nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel_size, groups=conv.in_channels)
        self.depthwise = torch.nn.Parameter(own.weight.detach().clone())
        theta = torch.ones(len(self.weight))
        theta[0] = 0.0
        self.theta = torch.nn.Parameter(theta)

    @property
    def preference(self) -> Any:
        """(O,): above 0 for depthwise; it never falls."""
        rises = self.theta[1:].abs() / len(self.theta)
        height = torch.cat([torch.zeros(1), torch.cumsum(rises, 0)])
        return self.theta[0] + height - height[-1] / 2

    @property
    def wanted(self) -> float:
        """Channels that prefer the standard type: a range, however undecided they are."""
        return float((self.preference <= 0).sum())

    @property
    def shares(self) -> Any:
        """(2, O): the share of each type in each channel; a channel's shares sum to 1."""
        if self.chosen is None:
            depthwise = torch.sigmoid(self.preference / self.temperature)
            return torch.stack([1 - depthwise, depthwise])
        return super().shares

    def effective(self) -> Any:
        """The weights that are computed with."""
        standard, depthwise = (share.reshape(-1, 1, 1, 1) for share in self.shares)
        return standard * int8(self.weight) + depthwise * self._spread(int8(self.depthwise))

    def integers(self) -> tuple[Any, Any]:
        """(integers (O, C, KH, KW), scales (O,)) of the chosen types."""
        (standard, first), (depthwise, last) = int8_integers(self.weight), int8_integers(self.depthwise)
        chosen = self.chosen.reshape(-1, 1, 1, 1)
        return torch.where(chosen, self._spread(depthwise), standard), torch.where(self.chosen, last, first)

    @property
    def last_depthwise(self) -> int:
        """The number of channels that were chosen to be depthwise."""
        return int(self.chosen.sum())

    def _spread(self, own: Any) -> Any:
        """Depthwise weights (O, 1, KH, KW) as those of a standard convolution, zero beside the diagonal."""
        return own * torch.eye(len(own)).reshape(len(own), len(own), 1, 1)


def typed(conv: Any) -> Any:
    """The layer for a `torch.nn.Conv2d` of one group: with a choice if its kernel has several taps, and as many inputs
    as outputs.
    """
    several = tuple(conv.kernel_size) != (1, 1)
    return TypedConv2d(conv) if several and conv.in_channels == conv.out_channels > 1 else PlainConv2d(conv)


TYPES = {torch.nn.Conv2d: typed, torch.nn.Linear: PlainLinear}
