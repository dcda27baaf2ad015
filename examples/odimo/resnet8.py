"""A hook for `tilewright odimo`: ResNet-8 on images of CIFAR-10's shape.

    tilewright odimo --model examples/odimo/resnet8.py --config pynq_z1_two --seeds 1 --epochs 2,4,2

The images are made up, a pattern per label with noise: cycles are those of any images of this size, accuracies mean
nothing. For a network of your own, return your module and your images.
"""

# pyright: reportMissingImports=false
# Only training needs PyTorch.

from __future__ import annotations

import numpy as np
import torch
from torch import nn

LABELS = 10
TRAIN, TEST = 256, 16
NOISE = 0.5


class Block(nn.Module):
    """Two convolutions and a shortcut around them, which is a convolution where the number of channels changes."""

    def __init__(self, inputs: int, channels: int):
        super().__init__()
        stride = 1 if inputs == channels else 2
        self.first = nn.Sequential(convolution(inputs, channels, 3, stride), nn.ReLU())
        self.second = convolution(channels, channels, 3, 1)
        self.shortcut = nn.Identity() if inputs == channels else convolution(inputs, channels, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (N, inputs, H, W) -> (N, channels, H / stride, W / stride)."""
        return torch.relu(self.second(self.first(x)) + self.shortcut(x))


def convolution(inputs: int, channels: int, kernel: int, stride: int) -> nn.Sequential:
    """A convolution that keeps the size but for the stride, with batch normalisation."""
    conv = nn.Conv2d(inputs, channels, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels))


def model() -> nn.Sequential:
    """ResNet-8: blocks of 16, 32 and 64 channels."""
    first = convolution(3, 16, 3, 1)
    blocks = Block(16, 16), Block(16, 32), Block(32, 64)
    return nn.Sequential(first, nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, LABELS))


def data() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """((training images, labels), (test images, labels)): float32 (N, 3, 32, 32)."""
    rng = np.random.default_rng(0)
    patterns = rng.normal(size=(LABELS, 3, 8, 8)).repeat(4, 2).repeat(4, 3)
    labels = rng.integers(0, LABELS, TRAIN + TEST)
    images = (patterns[labels] + NOISE * rng.normal(size=(len(labels), 3, 32, 32))).astype(np.float32)
    return (images[:TRAIN], labels[:TRAIN]), (images[TRAIN:], labels[TRAIN:])
