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
    """Weights of one layer, float32; matrices are (outputs, inputs)."""

    attention_norm: np.ndarray
    queries: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    attention_out: np.ndarray
    hidden_norm: np.ndarray
    gate: np.ndarray
    hidden_out: np.ndarray
    up: np.ndarray


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A Llama: embedding (words, width), layers, last norm, and the classifier, which may be the embedding."""

    name: str
    sizes: Sizes
    embedding: np.ndarray
    layers: tuple[Layer, ...]
    norm: np.ndarray
    classifier: np.ndarray


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
    layers = tuple(Layer(**{key: arrays[key][k] for key in Layer.__annotations__}) for k in range(sizes.layers))
    embedding = arrays["embedding"]
    return Checkpoint(path.stem, sizes, embedding, layers, arrays["norm"], arrays.get("classifier", embedding))


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
