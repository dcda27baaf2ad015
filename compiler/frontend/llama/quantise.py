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

import numpy as np

from ....hw.errors import FileError, UnsupportedError
from ....hw.foreign import npz_arrays
from ....runtime.files import atomic_write
from ..source import Source
from .checkpoint import Checkpoint, Sizes, check_sizes, shapes
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

    def save(self, path: str | Path) -> None:
        """Write the file; equal models give equal bytes. Raises `FileError` where it cannot be written."""
        arrays = {"kind": np.array(KIND), "sizes": np.array(astuple(self.sizes), np.int64), "embedding": self.embedding}
        for name, matrix in self.matrices.items():
            arrays |= {name: matrix.values, f"{name}.scales": matrix.scales}
        arrays |= {**self.gains, "rates": self.rates}
        for name, count in _counts(self.sizes).items():
            arrays[f"{name}.range"] = np.array([self.ranges[name, k] for k in range(count)])
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)


def _counts(sizes: Sizes) -> dict[str, int]:
    """How many ranges each name has."""
    return dict.fromkeys(ALONE, 1) | dict.fromkeys(OF_LAYERS, sizes.layers)


def read_integers(source: Source) -> Integers:
    """The model in a file that `Integers.save` wrote. Raises `FileError` for another, or a damaged one."""
    path = source.path
    arrays = npz_arrays(io.BytesIO(source.content), str(path))
    kind = arrays.pop("kind", None)
    if kind is None or kind.shape or str(kind) != KIND:
        raise FileError(f"{path}: holds no language model in integers; give what tilewright quantise wrote")

    def array(name: str, shape: tuple[int, ...], dtype: str, positive: bool = False) -> np.ndarray:
        if name not in arrays:
            raise FileError(f"{path}: has no {name!r}; the file is damaged")
        values = arrays.pop(name)
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

    sizes = Sizes(*array("sizes", (7,), "int64").tolist())
    check_sizes(path, sizes)
    wanted = shapes(sizes, own_classifier=True)
    matrices = {
        name: Matrix(array(name, wanted[name], "int8"), array(f"{name}.scales", wanted[name][:-1], "float32", True))
        for name in (*MATRICES, "classifier")
    }
    gains = {name: array(name, wanted[name], "float32") for name in (*GAINS, "norm")}
    magnitudes = {name: array(f"{name}.range", (count,), "float64", True) for name, count in _counts(sizes).items()}
    ranges = {(name, k): float(value) for name, values in magnitudes.items() for k, value in enumerate(values)}
    embedding = array("embedding", wanted["embedding"], "int8")
    rates = array("rates", (sizes.head // 2,), "float64", True)
    if arrays:
        raise FileError(f"{path}: has {min(arrays)[:40]!r}, which no such file has; the file is damaged")
    return Integers(path.stem, sizes, embedding, matrices, gains, ranges, rates)


TEXTS, LENGTH, PERCENTILE = 16, 256, 99.99  # of the calibration: texts, tokens of each, share of values in range
# whose largest elements count: the residual is in every later layer
WHOLE = ("middle", "end", "attention_out", "hidden_out", "logits")


def calibrate(model: Checkpoint, texts: Sequence[Sequence[int]] | None = None) -> dict[tuple[str, int], float]:
    """The magnitude that 99.99 % of the elements of each value stay within, or all, over `texts` of tokens.

    Without `texts` the model writes them. Raises `FileError` where float32 overflows.
    """
    magnitudes: dict[tuple[str, int], float] = {}
    texts = texts or [sample(model, min(LENGTH, model.sizes.context), seed) for seed in range(TEXTS)]
    for text in texts:

        def observe(name: str, layer: int, value: np.ndarray) -> None:
            share = 100.0 if name in WHOLE else PERCENTILE
            most = float(np.percentile(np.abs(value), share))
            magnitudes[name, layer] = max(magnitudes.get((name, layer), 1e-6), most)

        observe("logits", 0, FloatLlama(model, len(text), observe).logits(text))
    return magnitudes


def quantised(model: Checkpoint, ranges: Ranges) -> Integers:
    """The integers of a model whose values stay within `ranges`. Raises `UnsupportedError` for one with biases."""
    if any(layer.biases for layer in model.layers):
        raise UnsupportedError(f"{model.name}: queries, keys and values have biases, which its integers have not")

    def of_layers(name: str) -> np.ndarray:
        return np.stack([getattr(layer, name) for layer in model.layers])

    matrices = {name: Matrix.of(of_layers(name)) for name in MATRICES} | {"classifier": Matrix.of(model.classifier)}
    gains = {name: of_layers(name) for name in GAINS} | {"norm": model.norm}
    embedding = nearest(model.embedding, ranges["embedding", 0] / 127)
    return Integers(model.name, model.sizes, embedding, matrices, gains, dict(ranges), model.rates)
