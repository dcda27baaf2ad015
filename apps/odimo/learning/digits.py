"""The network and data that `tilewright odimo` takes without a hook: handwritten digits of 8x8 pixels.

The images come with scikit-learn: 1,200 train, 597 test. Noise makes the task hard enough for eight channels.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ....hw.errors import UnsupportedError

WIDTH = 8
TRAIN = 1200
NOISE = 0.1
STEP = 64  # the images are multiples of its reciprocal
LABELS = 10


def model(width: int = WIDTH) -> Any:
    """Four convolutions of `width` channels, the last two with stride 2, a mean and a dense layer."""
    from .backend import torch

    nn = torch.nn

    def convolution(inputs: int, stride: int) -> list[Any]:
        conv = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        return [conv, nn.BatchNorm2d(width), nn.ReLU()]

    layers = [
        layer
        for inputs, stride in ((1, 1), (width, 1), (width, 2), (width, 2))
        for layer in convolution(inputs, stride)
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, LABELS))


def data() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """((training images, labels), (test images, labels)): float32 (N, 1, 8, 8), always the same."""
    try:
        load_digits = importlib.import_module("sklearn.datasets").load_digits
    except ImportError as exc:
        raise UnsupportedError(f"the digits come with scikit-learn ({exc}); pip install 'tilewright[train]'") from None
    digits = load_digits()
    rng = np.random.RandomState(0)
    images = digits.images / 16 + NOISE * rng.standard_normal(digits.images.shape)
    images = (np.round(images * STEP) / STEP).astype(np.float32)[:, None]
    order = rng.permutation(len(images))
    images, labels = images[order], digits.target[order]
    return (images[:TRAIN], labels[:TRAIN]), (images[TRAIN:], labels[TRAIN:])
