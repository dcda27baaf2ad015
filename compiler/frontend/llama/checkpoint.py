"""A Llama in float32, from a file of any format: llama2.c's, GGUF, or a Hugging Face folder.

Each format gives a `Description` first, which takes no memory; the weights follow one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....hw.errors import CapacityError, FileError, InputError, UnsupportedError
from ....hw.foreign import machine_memory
from ....runtime.language import BEGIN
from ..source import Source, as_source

_MOST = (1 << 24) - 1  # of every size
_BASE = 10000.0  # of rotations, where a file does not say it
_LEAST = {"words": BEGIN + 1}  # where not 1
LONGEST = 2048  # context by default, where a file allows more: the caches of 131,072 positions fit no board
_FAMILIES = ("llama", "qwen2")
_BIASES = ("queries", "keys", "values")


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

    `rates` are float64 (head / 2,): the angle, in radians per position, of each pair of the rotary embedding.
    `epsilon` is what a norm adds to a mean square. `begin` is the token before a text, `ends` are those that end one.
    """

    name: str
    sizes: Sizes
    embedding: np.ndarray
    layers: tuple[Layer, ...]
    norm: np.ndarray
    classifier: np.ndarray
    rates: np.ndarray
    epsilon: float = 1e-5
    begin: int = BEGIN
    ends: frozenset[int] = frozenset({BEGIN})


def rates_of(head: int, base: float = _BASE) -> np.ndarray:
    """float64 (head / 2,): the `rates` of a rotary embedding with this base."""
    return base ** -(np.arange(0, head, 2) / head)


def linear_rates(path: Path, rates: np.ndarray, kind: str, factor: float) -> np.ndarray:
    """`rates` with a scaling of this kind. Raises `UnsupportedError` for another than none and linear."""
    if kind not in ("none", "linear"):
        raise UnsupportedError(f"{path}: a rotary embedding scaled by {kind!r:.40}; linear and llama3 are read")
    return rates / factor if kind == "linear" else rates


@dataclass(frozen=True, eq=False)
class Description:
    """What a file says of its Llama, and how its weights are read.

    `read` gives the array of a name of `shapes`, or of queries.bias, keys.bias and values.bias, in a layer, with the
    file's shape: any numbers. With `halves` the file pairs row k of a head of queries and keys with row k + head / 2 in
    a rotation, else with the next row.
    """

    name: str
    sizes: Sizes
    rates: np.ndarray
    read: Callable[[str, int | None], np.ndarray]
    epsilon: float = 1e-5
    own_classifier: bool = False
    biases: bool = False
    halves: bool = False
    begin: int = BEGIN
    ends: frozenset[int] = frozenset({BEGIN})


def check_family(path: Path, family: str) -> None:
    """Raise `UnsupportedError` for a family that is not read."""
    if family not in _FAMILIES:
        known = " and ".join(_FAMILIES)
        raise UnsupportedError(
            f"{path}: a model of the family {family!r:.60}; {known} are read (Llama, SmolLM, TinyLlama, Qwen2)"
        )


def check_tensors(
    path: Path, names: Iterable[str], alone: Collection[str], prefix: str, of_layer: Mapping[str, str], layers: int
) -> bool:
    """Whether a file with tensors of these names has biases: those of `of_layer`, by the keys of `Description.read`.

    A name is one of `alone`, or the prefix, the layer's number, a dot and a name of a layer. Raises `UnsupportedError`
    for another, which these families have not: the model would compute something else.
    """
    names = list(names)
    biases = f"{prefix}0.{of_layer['queries.bias']}" in names
    known = {name for key, name in of_layer.items() if biases or not key.endswith(".bias")}
    for name in names:
        layer, _, rest = name.removeprefix(prefix).partition(".")
        inside = name.startswith(prefix) and rest in known and layer.isdecimal() and int(layer[:9]) < layers
        if name not in alone and not inside:
            raise UnsupportedError(f"{path}: has a tensor {name[:60]!r}, which a Llama or Qwen2 has not")
    return biases


def text_tokens(path: Path, words: int, begin: Any, ends: Iterable[Any]) -> tuple[int, frozenset[int]]:
    """(the token before a text, those that end one), from what a file states: None where it does not.

    Without a first token a text begins as after another one. Raises `FileError` for what is none of the `words`.
    """
    known = [token for token in ends if token is not None]
    first = begin if begin is not None else known[0] if known else BEGIN
    for token in (first, *known):
        if type(token) is not int or not 0 <= token < words:
            raise FileError(
                f"{path}: {token!r:.40} begins or ends texts, must be a token below {words:,}; it is damaged"
            )
    return first, frozenset(known or [first])


def describe(model: str | Path | Source) -> Description:
    """What a file says of its model, whose context is at most the source's, else `LONGEST`.

    A file of llama2.c has its whole context by default. Raises `FileError` for one that is no checkpoint, truncated or
    damaged, `UnsupportedError` for a family, a rotary embedding or a quantisation that is not read, `InputError` for a
    context that the model has not.
    """
    source = as_source(model)
    if source.kind == ".gguf":
        from .gguf import describe_gguf as describe_file
    elif source.kind == ".safetensors":
        from .folder import describe_folder as describe_file
    else:
        from .llama2c import describe_llama2c as describe_file
    found = describe_file(source)
    longest, context = found.sizes.context, source.context
    if context is None:
        context = longest if source.kind == ".bin" else min(longest, LONGEST)
    elif context > longest:
        raise InputError(f"{source.path}: a context of {context} positions; the model has at most {longest}")
    return replace(found, sizes=replace(found.sizes, context=context))


def read_checkpoint(model: str | Path | Source) -> Checkpoint:
    """The model in a file. Raises as `describe`, and `CapacityError` for one beyond this machine's memory."""
    source = as_source(model)
    found = describe(source)
    path, s = source.path, found.sizes
    count, room = weight_count(s, found.own_classifier), machine_memory()
    if 4 * count > room:
        raise CapacityError(
            f"{path}: its {count:,} weights take {4 * count >> 20:,} MiB as float32; this machine has {room >> 20:,}"
        )
    wanted = shapes(s, found.own_classifier) | {f"{key}.bias": (s.layers, n) for key, n in _bias_sizes(s).items()}

    def array(key: str, layer: int | None = None) -> np.ndarray:
        shape = wanted[key] if layer is None else wanted[key][1:]
        values = found.read(key, layer)
        where = f"{path}: its weights {key!r}{'' if layer is None else f' of layer {layer}'}"
        if values.shape != shape:
            raise FileError(f"{where} have shape {values.shape}, must be {shape}; the file is damaged")
        values = values.astype(np.float32, copy=False)
        if not np.isfinite(values).all():
            raise FileError(f"{where} hold values that are not finite; the file is damaged")
        if found.halves and key.split(".")[0] in ("queries", "keys"):
            values = values.reshape(-1, 2, s.head // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
        return values

    keys = [key for key in Layer.__annotations__ if key in wanted]
    layers = []
    for k in range(s.layers):
        query, key, value = (array(f"{name}.bias", k) if found.biases else None for name in _BIASES)
        biases = None if query is None or key is None or value is None else (query, key, value)
        layers.append(Layer(**{name: array(name, k) for name in keys}, biases=biases))
    embedding = array("embedding")
    classifier = array("classifier") if found.own_classifier else embedding
    facts = {key: getattr(found, key) for key in ("rates", "epsilon", "begin", "ends")}
    return Checkpoint(found.name, s, embedding, tuple(layers), array("norm"), classifier, **facts)


def _bias_sizes(s: Sizes) -> dict[str, int]:
    return dict(zip(_BIASES, (s.width, s.kv_width, s.kv_width)))


def device_bytes(s: Sizes, wide: bool) -> tuple[int, int]:
    """Bytes of the int8 weights, with a classifier of its own, and of the caches of keys and values on a board.

    Caches are int16 in the wide form, else int8.
    """
    return weight_count(s, own_classifier=True), (2 if wide else 1) * 2 * s.layers * s.kv_width * s.context


def weight_count(s: Sizes, own_classifier: bool) -> int:
    """How many weights a model has, without biases."""
    return sum(math.prod(shape) for shape in shapes(s, own_classifier).values())


def check_sizes(path: Path, sizes: Sizes) -> None:
    """Raise `FileError` for numbers of which there is no model."""
    numbers = vars(sizes)
    for key, value in numbers.items():
        least = _LEAST.get(key, 1)
        if not least <= value <= _MOST:
            raise FileError(f"{path}: {key} = {value}, must be {least} to {_MOST}")
    for whole, part in (("width", "heads"), ("heads", "kv_heads")):
        if numbers[whole] % numbers[part]:
            raise FileError(f"{path}: {whole} = {numbers[whole]} is no multiple of {part} = {numbers[part]}")
    if sizes.head % 2:
        raise FileError(f"{path}: heads of {sizes.head} elements; must be even, for the rotary embedding")


def shapes(s: Sizes, own_classifier: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays; those of layers have the layer as their first dimension."""
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
    all_shapes |= {"norm": (s.width,)}
    return all_shapes | ({"classifier": (s.words, s.width)} if own_classifier else {})
