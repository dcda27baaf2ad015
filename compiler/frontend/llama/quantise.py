"""A Llama in integers: int8 matrices with a scale per row, and the ranges of its values; its file, an .npz.

Weights have a scale per output channel, activations one each, with zero point 0, so that the cache of keys and values
is int8, too. The scales come from texts that the model writes itself: nothing else is needed. Every machine makes the
same graph of the file: what depends on the order of float32 sums, the ranges, is in it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ....hw.errors import FileError, UnsupportedError
from ....hw.foreign import npz_arrays
from ....runtime.files import atomic_write
from ..source import Source
from .checkpoint import Checkpoint, Sizes, check_sizes, shapes, weight_count
from .floats import FloatLlama, sample

KIND = "a Llama in integers, 2"  # of the file's `kind`
MATRICES = ("queries", "keys", "values", "attention_out", "gate", "hidden_out", "up")  # of every layer
GAINS = ("attention_norm", "hidden_norm")
ALONE = ("embedding", "last", "logits")  # values that are not of a layer
OF_LAYERS = (
    *("attention_in", "queries", "keys", "values", "attention", "attention_out", "middle"),
    *("hidden_in", "gate", "up", "silu", "hidden", "hidden_out", "end"),
)
Ranges = Mapping[tuple[str, int], float]  # the largest magnitude of a value, by name and layer
_LEAST = 1e-9  # that a row's largest weight counts as
_REAL = np.finfo(np.float32)  # scales and ranges are float32's: float64 then holds the quotient of any two


@dataclass(frozen=True, eq=False)
class Matrix:
    """int8 `values` (outputs, inputs), and the float32 scale of each row; both may have the layer first."""

    values: np.ndarray
    scales: np.ndarray

    @classmethod
    def of(cls, weight: np.ndarray) -> Matrix:
        """The nearest to a float32 matrix, with values -127 to 127."""
        scales = (np.maximum(np.abs(weight).max(-1), _LEAST) / 127).astype(np.float32)
        return cls(nearest(weight, scales[..., None]), scales)

    def __getitem__(self, layer: int) -> Matrix:
        return Matrix(self.values[layer], self.scales[layer])

    def rows(self, lanes: np.ndarray) -> Matrix:
        """With rows in the order of `lanes`, of zeros where that is -1."""
        return Matrix(np.where(lanes[:, None] < 0, np.int8(0), self.values[lanes]), self.scales[lanes])

    def columns(self, lanes: np.ndarray) -> Matrix:
        """With columns in the order of `lanes`, of zeros where that is -1."""
        return Matrix(np.where(lanes < 0, np.int8(0), self.values[:, lanes]), self.scales)

    def signed(self, gain: np.ndarray) -> Matrix:
        """With the columns that meet a gain below 0 negated."""
        return Matrix(np.where(gain < 0, -self.values, self.values), self.scales)


def nearest(x: np.ndarray, scale: float | np.ndarray) -> np.ndarray:
    """int8 of `x / scale`, within -127 to 127."""
    return np.clip(np.round(x / scale), -127, 127).astype(np.int8)


@dataclass(frozen=True, eq=False)
class Integers:
    """A model: int8 `embedding` (words, width), its range as its scale; `matrices` and `gains`, float32, by name.

    Arrays per layer have the layer as their first dimension. `norm` is the gain of the last norm, `classifier` the
    matrix of the logits; `rates` are those of a `Checkpoint`.
    """

    name: str
    sizes: Sizes
    embedding: np.ndarray
    matrices: Mapping[str, Matrix]
    gains: Mapping[str, np.ndarray]
    ranges: Ranges
    rates: np.ndarray
    form: ClassVar[str] = "static"

    def save(self, path: str | Path) -> None:
        """Write the file; equal models give equal bytes. Raises `FileError` where it cannot be written."""
        arrays = {"embedding": self.embedding, **self.gains, "rates": self.rates}
        save_integers(path, KIND, self.sizes, self.matrices, self.ranges, arrays)


def save_integers(
    path: str | Path,
    kind: str,
    sizes: Sizes,
    matrices: Mapping[str, Matrix],
    ranges: Ranges,
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Write what `Stored` reads. Raises `FileError` where it cannot be written."""
    found = {"kind": np.array(kind), "sizes": np.array(astuple(sizes), np.int64), **arrays}
    for name, matrix in matrices.items():
        found |= {name: matrix.values, f"{name}.scales": matrix.scales}
    for name in sorted({name for name, _ in ranges}):
        values = [value for (key, _), value in sorted(ranges.items()) if key == name]
        found[f"{name}.range"] = np.array(values)
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **found)


def _counts(sizes: Sizes) -> dict[str, int]:
    """How many ranges each name has."""
    return dict.fromkeys(ALONE, 1) | dict.fromkeys(OF_LAYERS, sizes.layers)


class Stored:
    """The arrays of a file of integers, each of which `array` takes out once; `kind` says what they are.

    Raises `FileError` for a file that is damaged.
    """

    def __init__(self, source: Source):
        self.path = source.path
        self._arrays = npz_arrays(io.BytesIO(source.content), str(self.path))
        kind = self._arrays.pop("kind", None)
        self.kind = "" if kind is None or kind.shape else str(kind)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def array(self, name: str, shape: tuple[int, ...], dtype: str, positive: bool = False) -> np.ndarray:
        """One of the arrays. Raises `FileError` for other shapes, types or values."""
        path = self.path
        if name not in self._arrays:
            raise FileError(f"{path}: has no {name!r}; the file is damaged")
        values = self._arrays.pop(name)
        if (values.shape, str(values.dtype)) != (shape, dtype):
            stored = f"{values.dtype} {values.shape}"
            raise FileError(f"{path}: {name} is {stored}, must be {dtype} {shape}; the file is damaged")
        if dtype == "int8" and values.min() == -128:  # its negative is no int8: see `Matrix.signed`
            raise FileError(f"{path}: {name} holds -128, must be -127 to 127; the file is damaged")
        if positive and not ((values >= _REAL.tiny) & (values <= _REAL.max)).all():
            wrong = "not above 0 and finite in float32"
        elif dtype == "float32" and not np.isfinite(values).all():
            wrong = "not finite"
        else:
            return values
        raise FileError(f"{path}: {name} holds values that are {wrong}; the file is damaged")

    def sizes(self) -> Sizes:
        """The numbers of the model."""
        sizes = Sizes(*self.array("sizes", (7,), "int64").tolist())
        check_sizes(self.path, sizes)
        return sizes

    def matrix(self, name: str, shape: tuple[int, ...]) -> Matrix:
        """A matrix with its scales."""
        return Matrix(self.array(name, shape, "int8"), self.array(f"{name}.scales", shape[:-1], "float32", True))

    def ranges(self, counts: Mapping[str, int]) -> Ranges:
        """The ranges of values, of which there are `counts`."""
        found = {name: self.array(f"{name}.range", (count,), "float64", True) for name, count in counts.items()}
        return {(name, k): float(value) for name, values in found.items() for k, value in enumerate(values)}

    def check_empty(self) -> None:
        """Raise `FileError` for an array that was not taken out."""
        if self._arrays:
            raise FileError(f"{self.path}: has {min(self._arrays)[:40]!r}, which no such file has; the file is damaged")


def static_integers(stored: Stored) -> Integers:
    """The model in a file that `Integers.save` wrote. Raises `FileError` for a damaged one."""
    sizes = stored.sizes()
    wanted = shapes(sizes, own_classifier=True)
    matrices = {name: stored.matrix(name, wanted[name]) for name in (*MATRICES, "classifier")}
    gains = {name: stored.array(name, wanted[name], "float32") for name in (*GAINS, "norm")}
    ranges = stored.ranges(_counts(sizes))
    embedding = stored.array("embedding", wanted["embedding"], "int8")
    rates = stored.array("rates", (sizes.head // 2,), "float64", True)
    stored.check_empty()
    return Integers(stored.path.stem, sizes, embedding, matrices, gains, ranges, rates)


TEXTS, LENGTH, PERCENTILE = 16, 256, 99.99  # of the calibration: texts, tokens of each, share of values in range
# whose largest elements count: the residual is in every later layer
WHOLE = ("middle", "end", "attention_out", "hidden_out", "logits")
_WORK = (
    4e10  # weights times tokens of the texts that a model writes itself: those of large models are fewer and shorter
)
_FEWEST = 4  # of these texts


def own_texts(model: Checkpoint, first_seed: int = 0, most: int = TEXTS, work: int = 1) -> list[list[int]]:
    """Texts of tokens that the model writes itself, at most `most`. Raises `FileError` where float32 overflows.

    Those of large models have few tokens; `work` times as many where it is above 1.
    """
    tokens = max(_FEWEST * 16, int(work * _WORK / weight_count(model.sizes, own_classifier=False)))
    count = min(most, max(_FEWEST, tokens // LENGTH))
    length = min(LENGTH, tokens // count, model.sizes.context)
    return [sample(model, length, seed) for seed in range(first_seed, first_seed + count)]


def calibrate(
    model: Checkpoint, texts: Sequence[Sequence[int]] | None = None, share: float = PERCENTILE
) -> dict[tuple[str, int], float]:
    """The magnitude that `share` % of the elements of each value stay within, or all, over `texts` of tokens.

    Without `texts` the model writes them. Raises `FileError` where float32 overflows.
    """
    magnitudes: dict[tuple[str, int], float] = {}
    for text in texts or own_texts(model):

        def observe(name: str, layer: int, value: np.ndarray) -> None:
            sizes = np.abs(value)
            most = float(sizes.max() if name in WHOLE or share == 100 else np.percentile(sizes, share))
            magnitudes[name, layer] = max(magnitudes.get((name, layer), 1e-6), most)

        observe("logits", 0, FloatLlama(model, len(text), observe).logits(text))
    return magnitudes


_MOST_EPSILON = 1e-4  # that norms may leave out: far below the mean squares of Llamas


def unfit(model: Checkpoint) -> str:
    """What the static form has not of a model; empty where it has all."""
    if any(layer.biases for layer in model.layers):
        return "queries, keys and values have biases"
    return f"norms add an epsilon of {model.epsilon:g}" if model.epsilon > _MOST_EPSILON else ""


def quantised(model: Checkpoint, ranges: Ranges) -> Integers:
    """The integers of a model whose values stay within `ranges`. Raises `UnsupportedError` where `unfit` says why."""
    if why := unfit(model):
        raise UnsupportedError(f"{model.name}: {why}, which the static form has not; give --form wide")

    def of_layers(name: str) -> np.ndarray:
        return np.stack([getattr(layer, name) for layer in model.layers])

    matrices = {name: Matrix.of(of_layers(name)) for name in MATRICES} | {"classifier": Matrix.of(model.classifier)}
    gains = {name: of_layers(name) for name in GAINS} | {"norm": model.norm}
    embedding = nearest(model.embedding, ranges["embedding", 0] / 127)
    return Integers(model.name, model.sizes, embedding, matrices, gains, dict(ranges), model.rates)
