"""Layers whose output channels choose a compute unit while they are trained.

A channel's weights are a mixture of its int8 and its ternary form, `sum over units j of share[j] * Q_j(W)`: since a
convolution is linear, one convolution with the mixture equals the mixture of the units' results. `theta` (2, O) holds
what is learned about the choice; rows are in the order of `UNITS`.
"""

from __future__ import annotations

from typing import Any

from ..mapping import GEMM, TERNARY, UNITS
from .backend import F, torch
from .quantisers import int8, ternary, weight_integers

__all__ = ["GEMM", "TERNARY", "UNITS", "Mapped", "MappedConv2d", "MappedLinear"]


class Mapped(torch.nn.Module):
    """Base: weights (O, ...), an optional bias (O,), theta (2, O), and what the shares are made of.

    Shares are the softmax of theta by `temperature`, or, once `assign` was called, ones and zeros. A class whose layers
    have no choice is not `free`; `grouped` are those whose channels are brought into an order by their choice.
    """

    free = grouped = True

    def __init__(self, weight: Any, bias: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight.detach().clone())
        self.bias = None if bias is None else torch.nn.Parameter(bias.detach().clone())
        self.theta = torch.nn.Parameter(torch.zeros(len(UNITS), len(weight)))
        self.temperature = 1.0
        self.chosen: Any = None

    @property
    def shares(self) -> Any:
        """(2, O): the share of each unit in each channel; a channel's shares sum to 1."""
        if self.chosen is None:
            return torch.softmax(self.theta / self.temperature, 0)
        return torch.stack([~self.chosen, self.chosen]).to(self.weight.dtype)

    @property
    def counts(self) -> Any:
        """(2,): the number of channels on each unit, not necessarily whole."""
        return self.shares.sum(1)

    @property
    def preference(self) -> Any:
        """(O,): above 0 for the ternary unit."""
        return self.theta[1] - self.theta[0]

    @property
    def wanted(self) -> float:
        """Channels on GEMM as the cost counts them: undecided channels, too, are part of what the search has found."""
        return float(self.counts[0].detach())

    def assign(self, chosen: Any) -> None:
        """Fix the choice: bool (O,), True for channels on the ternary unit."""
        self.chosen = torch.as_tensor(chosen, dtype=torch.bool)

    def effective(self) -> Any:
        """The weights that are computed with."""
        if self.chosen is not None and not self.chosen.any():
            return int8(self.weight)
        if self.chosen is not None and self.chosen.all():
            return ternary(self.weight)
        digital, two_bits = (share.reshape(-1, *(1,) * (self.weight.ndim - 1)) for share in self.shares)
        return digital * int8(self.weight) + two_bits * ternary(self.weight)

    def integers(self) -> tuple[Any, Any]:
        """(integers (O, ...), scales (O,)) of the chosen weights."""
        return weight_integers(self.weight, self.chosen)


class MappedConv2d(Mapped):
    """A convolution with its output channels on two units, made of a `torch.nn.Conv2d` of one group."""

    def __init__(self, conv: Any) -> None:
        super().__init__(conv.weight, conv.bias)
        self.stride, self.padding, self.dilation = conv.stride, conv.padding, conv.dilation

    def forward(self, x: Any) -> Any:
        """Images (N, C, H, W) -> (N, O, H', W')."""
        return F.conv2d(x, self.effective(), self.bias, self.stride, self.padding, self.dilation)


class MappedLinear(Mapped):
    """A dense layer with its outputs on two units, made of a `torch.nn.Linear`."""

    def __init__(self, linear: Any) -> None:
        super().__init__(linear.weight, linear.bias)

    def forward(self, x: Any) -> Any:
        """Vectors (N, I) -> (N, O)."""
        return F.linear(x, self.effective(), self.bias)
