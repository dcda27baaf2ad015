"""What is trained: a torch model and its data, from a file of the user's or the digits, and the recipe's numbers."""

from __future__ import annotations

import hashlib
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...hw.errors import InputError, TilewrightError, UnsupportedError
from ...hw.foreign import TEXT_BYTES, read_regular
from ...runtime.schema import shown
from .alternatives import ALTERNATIVES, UNIT
from .recipe import Examples, Recipe

FUNCTIONS = ("model", "data")


@dataclass(frozen=True)
class Task:
    """The hook, a Python file with functions `model` and `data`, or the digits with layers of `width` channels.

    `choice` is what their output channels choose between, a key of `ALTERNATIVES`. Raises `InputError` for another one.
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
        """Of the network."""
        network = Path(self.hook).stem if self.hook else "digits"
        return network if self.choice == UNIT else f"{network}-{self.choice}"

    @property
    def facts(self) -> list[Any]:
        """All that results depend on; of a hook the digest of its file."""
        source = hashlib.sha256(_source(self.hook)).hexdigest() if self.hook else ""
        return [source, 0 if self.hook else self.width, vars(self.recipe), self.choice]

    def model(self) -> Any:
        """A new model, untrained."""
        from .learning import digits

        return self._call("model") if self.hook else digits.model(self.width)

    def data(self) -> tuple[Examples, Examples]:
        """(training examples, test examples). Raises `InputError` where the hook gives something else."""
        from .learning import digits

        given = self._call("data") if self.hook else digits.data()
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
