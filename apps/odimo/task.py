"""The subject of training: a torch model and its data, from a Python file of the user or the digits of scikit-learn.

`Recipe` has epochs, batch and rates of the phases; `ALTERNATIVES` the two sides between which channels choose.
"""

from __future__ import annotations

import hashlib
import importlib
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...hw.errors import InputError, TilewrightError, UnsupportedError
from ...hw.foreign import TEXT_BYTES, read_regular
from ...runtime.schema import shown
from .mapping import UNITS


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
        """Temperature of the softmax of the shares in an epoch of the search."""
        return max(self.coldest, self.cooling**epoch)


UNIT, TYPE = "unit", "type"
MIN_COST = "min-cost"


@dataclass(frozen=True)
class Alternatives:
    """A choice: `names` of the two sides, and the fixed choices with which searches are compared.

    The first of `baselines` has every channel on the first side, the second on the second.
    """

    names: tuple[str, str]
    baselines: tuple[str, ...]


ALTERNATIVES = {
    UNIT: Alternatives((UNITS[0], UNITS[1]), ("all-8bit", "all-ternary", "io-8bit", MIN_COST)),
    TYPE: Alternatives(("conv", "depthwise"), ("all-conv", "all-depthwise", MIN_COST)),
}


FUNCTIONS = ("model", "data")


@dataclass(frozen=True)
class Task:
    """The hook, a Python file with functions `model` and `data`, or the digits with layers of `width` channels.

    `choice` is a key of `ALTERNATIVES`, the sides of output channels. Raises `InputError` for another one.
    """

    hook: str = ""
    width: int = 8
    recipe: Recipe = Recipe()
    choice: str = UNIT

    def __post_init__(self) -> None:
        if self.choice not in ALTERNATIVES:
            raise InputError(f"Task.choice = {shown(self.choice)}: must be one of {', '.join(ALTERNATIVES)}")

    @property
    def name(self) -> str:
        """Name of the network, and of the files of its results."""
        network = Path(self.hook).stem if self.hook else "digits"
        return network if self.choice == UNIT else f"{network}-{self.choice}"

    @property
    def facts(self) -> list[Any]:
        """The facts on which results depend; a hook counts by the digest of its file."""
        source = hashlib.sha256(_source(self.hook)).hexdigest() if self.hook else ""
        return [source, 0 if self.hook else self.width, vars(self.recipe), self.choice]

    def model(self) -> Any:
        """A new untrained model, a module of torch."""
        return self._call("model") if self.hook else digits_model(self.width)

    def data(self) -> tuple[Examples, Examples]:
        """(training examples, test examples). Raises `InputError` where the hook gives something else."""
        given = self._call("data") if self.hook else digits_data()
        try:
            train, test = (Examples(np.asarray(images), np.asarray(labels)) for images, labels in given)
        except (TypeError, ValueError):
            raise InputError(f"{self.hook}: data() must return (images, labels) to train with, and to test") from None
        for examples in (train, test):
            shape, count = examples.images.shape, len(examples.labels)
            if len(shape) != 4 or examples.images.dtype != np.float32 or shape[0] != count or not count:
                raise InputError(
                    f"{self.hook}: data() gives {examples.images.dtype} images {shape} and {count} labels; images must "
                    "be float32 (N, C, H, W), with a label for each"
                )
        if len(train.labels) < self.recipe.batch:
            raise InputError(
                f"{self.hook}: data() gives {len(train.labels)} images to train with; a batch has {self.recipe.batch}, "
                "so give as many at least"
            )
        return train, test

    def _call(self, name: str) -> Any:
        return hook_functions(self.hook)[name]()


def hook_functions(path: str) -> dict[str, Callable[[], Any]]:
    """`model` and `data` of a Python file. Raises `FileError` where it cannot be read, `InputError` where they lack."""
    _source(path)
    try:
        names = runpy.run_path(path)
    except TilewrightError:
        raise
    except Exception as exc:  # the user's code raises errors of any kind
        raise UnsupportedError(f"{path}: {type(exc).__name__}: {str(exc)[:150]}; the file must run by itself") from None
    missing = [name for name in FUNCTIONS if not callable(names.get(name))]
    if missing:
        raise InputError(f"{path}: has no function {missing[0]}(); it must have model() and data()")
    return {name: names[name] for name in FUNCTIONS}


def _source(path: str) -> bytes:
    return read_regular(path, "a Python file with model() and data()", TEXT_BYTES)


WIDTH = 8
TRAIN = 1200
NOISE = 0.1
STEP = 64  # the images are multiples of its reciprocal
LABELS = 10


def digits_model(width: int = WIDTH) -> Any:
    """Four convolutions of `width` channels, the last two with stride 2, a mean and a dense layer."""
    from .torch_layers import torch

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


def digits_data() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
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
