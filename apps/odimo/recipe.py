"""What a training is given beside the network: examples, and the numbers of its phases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Examples:
    """Float32 images (N, C, H, W) and integer labels (N,)."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Recipe:
    """Numbers of the training: epochs of the phases, learning rates, annealing, the size of a batch."""

    warm_up: int = 30
    search: int = 40
    final: int = 30
    rate: float = 2e-3
    warm_up_rate: float = 3e-3
    theta_rate: float = 2e-2
    decay: float = 1e-4
    batch: int = 64
    cooling: float = 0.96
    coldest: float = 0.2

    def temperature(self, epoch: int) -> float:
        """Of the shares in an epoch of the search."""
        return max(self.coldest, self.cooling**epoch)
