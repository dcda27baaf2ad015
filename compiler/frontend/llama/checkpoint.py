"""Reads a checkpoint of llama2.c (version 0, `.bin`): seven integers, then float32 weights in a fixed order."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....hw.errors import FileError
from ....runtime.language import BEGIN
from ..source import Source, as_source

_HEADER = struct.Struct("<7i")
_LATER = b"24ka"  # how files of later versions begin
_MOST = (1 << 24) - 1  # of every number in the header
_BASE = 10000.0  # of rotations, where a file does not say it
_LEAST = {"words": BEGIN + 1}  # where not 1


@dataclass(frozen=True, eq=False)
class Sizes:
    """Numbers of a Llama: width of the residual and of the hidden layer, layers, heads, words, longest context."""

    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    words: int
    context: int

    @property
    def head(self) -> int:
        """Elements of one head."""
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        """Elements of all heads of keys, or values."""
        return self.head * self.kv_heads


@dataclass(frozen=True, eq=False)
class Layer:
    """Weights of one layer, float32; matrices are (outputs, inputs).

    Pairs of a rotation are neighbouring rows of queries and keys. `biases` are those of queries, keys and values.
    """

    attention_norm: np.ndarray
    queries: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    attention_out: np.ndarray
    hidden_norm: np.ndarray
    gate: np.ndarray
    hidden_out: np.ndarray
    up: np.ndarray
    biases: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A Llama: embedding (words, width), layers, last norm, and the classifier, which may be the embedding.

    `rates` are float64 (head / 2,): the angle, in radians per position, by which the rotary embedding turns each pair.
    `epsilon` is what a norm adds to a mean square.
    """

    name: str
    sizes: Sizes
    embedding: np.ndarray
    layers: tuple[Layer, ...]
    norm: np.ndarray
    classifier: np.ndarray
    rates: np.ndarray
    epsilon: float = 1e-5


def rates_of(head: int, base: float = _BASE) -> np.ndarray:
    """float64 (head / 2,): the `rates` of a rotary embedding with this base."""
    return base ** -(np.arange(0, head, 2) / head)


def read_checkpoint(model: str | Path | Source) -> Checkpoint:
    """The model in a file. Raises `FileError` for one that is no such checkpoint, or truncated."""
    source = as_source(model)
    path, content = source.path, source.content
    if len(content) < _HEADER.size:
        raise FileError(f"{path}: has {len(content)} bytes, a checkpoint of llama2.c begins with {_HEADER.size}")
    if content.startswith(_LATER):
        raise FileError(f"{path}: a checkpoint of a later version of llama2.c; export it as version 0")
    width, hidden, layers, heads, kv_heads, words, context = _HEADER.unpack_from(content)
    sizes = Sizes(width, hidden, layers, heads, kv_heads, abs(words), context)
    check_sizes(path, sizes)
    wanted_shapes = shapes(sizes, own_classifier=words < 0)
    wanted = _HEADER.size + 4 * sum(map(math.prod, wanted_shapes.values()))
    if len(content) != wanted:
        numbers = ", ".join(f"{key} {value}" for key, value in vars(sizes).items())
        raise FileError(f"{path}: has {len(content):,} bytes, a model of {numbers} has {wanted:,}; the file is damaged")
    arrays, at = {}, _HEADER.size
    for key, shape in wanted_shapes.items():
        count = math.prod(shape)
        arrays[key] = np.frombuffer(content, "<f4", count, at).reshape(shape)
        at += 4 * count
        if not np.isfinite(arrays[key]).all():
            raise FileError(f"{path}: its weights {key!r} hold values that are not finite; the file is damaged")
    matrices = [key for key in Layer.__annotations__ if key in arrays]
    layers = tuple(Layer(**{key: arrays[key][k] for key in matrices}) for k in range(sizes.layers))
    embedding, rates = arrays["embedding"], _rates(arrays["cosines"], arrays["sines"], sizes.head)
    return Checkpoint(path.stem, sizes, embedding, layers, arrays["norm"], arrays.get("classifier", embedding), rates)


def _rates(cosines: np.ndarray, sines: np.ndarray, head: int) -> np.ndarray:
    """The rates of tables (context, head / 2); those of the usual base for tables that are no cosines and sines.

    llama2.c does not read its tables, so that a file may hold anything there. float32 tables of a base give that base,
    to six digits, and so its exact rates.
    """
    usual = rates_of(head)
    if len(cosines) < 2 or np.abs(np.hypot(cosines[:2].astype(float), sines[:2]) - 1).max() > 1e-3:
        return usual
    found = np.arctan2(sines[1], cosines[1]).astype(np.float64)
    if head == 2 or found[-1] <= 0:
        return usual
    base = float(f"{found[-1] ** (-head / (head - 2)):.6g}")
    exact = rates_of(head, base)
    return exact if np.allclose(found, exact, rtol=1e-4, atol=1e-6) else found


def check_sizes(path: Path, sizes: Sizes) -> None:
    """Raise `FileError` for numbers of which there is no model."""
    numbers = vars(sizes)
    for key, value in numbers.items():
        least = _LEAST.get(key, 1)
        if not least <= value <= _MOST:
            raise FileError(f"{path}: {key} = {value}, must be {least} to {_MOST} in llama2.c's version 0")
    for whole, part in (("width", "heads"), ("heads", "kv_heads")):
        if numbers[whole] % numbers[part]:
            raise FileError(f"{path}: {whole} = {numbers[whole]} is no multiple of {part} = {numbers[part]}")
    if sizes.head % 2:
        raise FileError(f"{path}: heads of {sizes.head} elements; must be even, for the rotary embedding")


def shapes(s: Sizes, own_classifier: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays in the order of the file; arrays per layer have the layer as their first dimension."""
    layers = {
        "attention_norm": (s.width,),
        "queries": (s.width, s.width),
        "keys": (s.kv_width, s.width),
        "values": (s.kv_width, s.width),
        "attention_out": (s.width, s.width),
        "hidden_norm": (s.width,),
        "gate": (s.hidden, s.width),
        "hidden_out": (s.width, s.hidden),
        "up": (s.hidden, s.width),
    }
    all_shapes: dict[str, tuple[int, ...]] = {"embedding": (s.words, s.width)}
    all_shapes |= {key: (s.layers, *shape) for key, shape in layers.items()}
    all_shapes |= {"norm": (s.width,), "cosines": (s.context, s.head // 2), "sines": (s.context, s.head // 2)}
    return all_shapes | ({"classifier": (s.words, s.width)} if own_classifier else {})
