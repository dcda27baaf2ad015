"""Reads Llamas in GGUF files of llama.cpp; the package gguf turns their blocks of few bits into float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....hw.errors import FileError, UnsupportedError
from ....hw.needs import need
from ....runtime.gguf import Gguf, Place, read_gguf
from ..source import Source
from .checkpoint import Description, Sizes, check_sizes, linear_rates, rates_of

# whether rows of queries and keys are paired by halves of a head
_FAMILIES = {"llama": False, "qwen2": True}
_ALONE = {"embedding": "token_embd.weight", "norm": "output_norm.weight", "classifier": "output.weight"}
_OF_LAYER = {
    "attention_norm": "attn_norm.weight",
    "queries": "attn_q.weight",
    "keys": "attn_k.weight",
    "values": "attn_v.weight",
    "attention_out": "attn_output.weight",
    "hidden_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "hidden_out": "ffn_down.weight",
    "up": "ffn_up.weight",
    "queries.bias": "attn_q.bias",
    "keys.bias": "attn_k.bias",
    "values.bias": "attn_v.bias",
}
_FACTORS = "rope_freqs.weight"  # by which the rates of a rotation are divided, as Llama 3 has them


def describe_gguf(source: Source) -> Description:
    """The model in a GGUF file. Raises as `describe`, and `UnsupportedError` where the package gguf is missing."""
    path, content = source.path, source.content
    head = read_gguf(path, content)
    family = head.fact("general.architecture", str, "")
    if family not in _FAMILIES:
        known = " and ".join(_FAMILIES)
        raise UnsupportedError(
            f"{path}: a model of the family {family!r:.60}; {known} are read (Llama, SmolLM, TinyLlama, Qwen2)"
        )
    need(f"{path}", "language", "gguf")
    sizes = _sizes(head, family)
    biases, own_classifier = f"blk.0.{_OF_LAYER['queries.bias']}" in head.tensors, _ALONE["classifier"] in head.tensors
    _check_tensors(head, sizes, biases)
    blocks = {place.kind: _block(head, place.kind) for place in head.tensors.values()}

    def read(key: str, layer: int | None) -> np.ndarray:
        return _array(head, content, _ALONE[key] if layer is None else f"blk.{layer}.{_OF_LAYER[key]}", blocks)

    rates = _rates(head, family, sizes.head)
    if _FACTORS in head.tensors:
        factors = _array(head, content, _FACTORS, blocks)
        if factors.shape != rates.shape or not (factors > 0).all():
            raise FileError(f"{path}: {_FACTORS} must be {len(rates)} numbers above 0; the file is damaged")
        rates = rates / factors
    epsilon = _above_0(head, f"{family}.attention.layer_norm_rms_epsilon", 1e-5)
    return Description(path.stem, sizes, rates, read, epsilon, own_classifier, biases, halves=_FAMILIES[family])


def _sizes(head: Gguf, family: str) -> Sizes:
    def size(key: str, default: int | None = None) -> int:
        found = head.fact(f"{family}.{key}", int, default)
        if found is None:
            raise FileError(f"{head.path}: has no {family}.{key}; the file is damaged")
        return found

    if experts := size("expert_count", 0):
        raise UnsupportedError(f"{head.path}: a mixture of {experts} experts; only models without are read")
    if (parts := head.fact("split.count", int, 1)) > 1:
        raise UnsupportedError(
            f"{head.path}: one of {parts} parts of a model; merge them with llama-gguf-split --merge"
        )
    embedding = head.tensors.get(_ALONE["embedding"])
    if embedding is None:
        raise FileError(f"{head.path}: has no {_ALONE['embedding']}; the file holds no whole model")
    width, heads = size("embedding_length"), size("attention.head_count")
    sizes = Sizes(
        width,
        size("feed_forward_length"),
        size("block_count"),
        heads,
        size("attention.head_count_kv", heads),
        embedding.shape[0],
        size("context_length"),
    )
    check_sizes(head.path, sizes)
    for key in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        if (found := size(key, sizes.head)) != sizes.head:
            raise UnsupportedError(f"{head.path}: {family}.{key} = {found}; must be width / heads = {sizes.head}")
    return sizes


def _check_tensors(head: Gguf, sizes: Sizes, biases: bool) -> None:
    """Raise `UnsupportedError` for a tensor that these families have not: the model would compute something else."""
    of_layer = {name for key, name in _OF_LAYER.items() if biases or not key.endswith(".bias")}
    for name in head.tensors:
        start, _, rest = name.partition(".")
        number, _, rest = rest.partition(".")
        if name in (*_ALONE.values(), _FACTORS):
            continue
        if start != "blk" or rest not in of_layer or not number.isdecimal() or int(number[:9]) >= sizes.layers:
            raise UnsupportedError(f"{head.path}: has a tensor {name[:60]!r}, which a Llama or Qwen2 has not")


def _rates(head: Gguf, family: str, width: int) -> np.ndarray:
    """The rates of the rotary embedding, without `_FACTORS`."""
    rates = rates_of(width, _above_0(head, f"{family}.rope.freq_base", 10000.0))
    kind, factor = head.fact(f"{family}.rope.scaling.type", str, "none"), f"{family}.rope.scaling.factor"
    if kind == "none":
        kind, factor = "linear", f"{family}.rope.scale_linear"  # of old files
    return linear_rates(head.path, rates, kind, _above_0(head, factor, 1.0))


def _above_0(head: Gguf, key: str, default: float) -> float:
    found = head.fact(key, float, default)
    if not 0 < found < math.inf:
        raise FileError(f"{head.path}: {key} = {found}, must be above 0 and finite; the file is damaged")
    return found


def _block(head: Gguf, kind: int) -> tuple[Any, int, int]:
    """The type of tensors with number `kind`, and how many elements are how many bytes of it."""
    import gguf

    try:
        known = gguf.GGMLQuantizationType(kind)
    except ValueError:
        raise UnsupportedError(f"{head.path}: a tensor of type {kind}, which the package gguf does not know") from None
    count, size = gguf.GGML_QUANT_SIZES[known]
    try:
        gguf.dequantize(np.zeros((1, size), np.uint8), known)
    except NotImplementedError:
        raise UnsupportedError(
            f"{head.path}: a tensor of type {known.name}, which the package gguf does not dequantise"
        ) from None
    return known, count, size


def _array(head: Gguf, content: Any, name: str, blocks: dict[int, tuple[Any, int, int]]) -> np.ndarray:
    """float32: the tensor `name`."""
    import gguf

    place: Place | None = head.tensors.get(name)
    if place is None:
        raise FileError(f"{head.path}: has no tensor {name}; the file holds no whole model")
    kind, block, size = blocks[place.kind]
    row = place.shape[-1] // block * size
    nbytes = math.prod(place.shape[:-1]) * row
    if place.shape[-1] % block or place.start + nbytes > len(content):
        stated = f"{place.start:,} to {place.start + nbytes:,} of {len(content):,}"
        raise FileError(f"{head.path}: tensor {name} has its data at bytes {stated}; the file is truncated or damaged")
    data = np.frombuffer(content, np.uint8, nbytes, place.start).reshape(*place.shape[:-1], row)
    return gguf.dequantize(data, kind).reshape(place.shape)
