"""Reads Llamas in GGUF files of llama.cpp; the package gguf turns their blocks of few bits into float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....hw.errors import FileError, UnsupportedError
from ....hw.needs import need
from ....runtime.gguf import Gguf, TensorInfo, read_gguf
from ..source import Source
from .checkpoint import (
    Description,
    Sizes,
    check_family,
    check_sizes,
    check_tensors,
    linear_rates,
    rates_of,
    text_tokens,
)

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
    file = read_gguf(path, content)
    family = file.fact("general.architecture", str, "")
    check_family(path, family)
    need(f"{path}", "language", "gguf")
    sizes = _sizes(file, family)
    known = (*_ALONE.values(), _FACTORS)
    biases = check_tensors(path, file.tensors, known, "blk.", _OF_LAYER, sizes.layers)
    blocks = {tensor.kind: _block(file, tensor.kind) for tensor in file.tensors.values()}

    def read(key: str, layer: int | None) -> np.ndarray:
        return _array(file, content, _ALONE[key] if layer is None else f"blk.{layer}.{_OF_LAYER[key]}", blocks)

    rates = _rates(file, family, sizes.head)
    if _FACTORS in file.tensors:
        factors = _array(file, content, _FACTORS, blocks)
        if factors.shape != rates.shape or not (factors > 0).all():
            raise FileError(f"{path}: {_FACTORS} must be {len(rates)} numbers above 0; the file is damaged")
        rates = rates / factors
    epsilon = _above_0(file, f"{family}.attention.layer_norm_rms_epsilon", 1e-5)
    begin, *ends = (file.fact(f"tokenizer.ggml.{key}_token_id", int) for key in ("bos", "eos", "eot", "eom"))
    tokens = text_tokens(path, sizes.words, begin, ends)
    own, halves = _ALONE["classifier"] in file.tensors, family == "qwen2"  # rows of queries and keys: see `Description`
    return Description(path.stem, sizes, rates, read, epsilon, own, biases, halves, *tokens)


def _sizes(file: Gguf, family: str) -> Sizes:
    def size(key: str, default: int | None = None) -> int:
        found = file.fact(f"{family}.{key}", int, default)
        if found is None:
            raise FileError(f"{file.path}: has no {family}.{key}; the file is damaged")
        return found

    if experts := size("expert_count", 0):
        raise UnsupportedError(f"{file.path}: a mixture of {experts} experts; only models without are read")
    if (parts := file.fact("split.count", int, 1)) > 1:
        raise UnsupportedError(
            f"{file.path}: one of {parts} parts of a model; merge them with llama-gguf-split --merge"
        )
    embedding = file.tensors.get(_ALONE["embedding"])
    if embedding is None:
        raise FileError(f"{file.path}: has no {_ALONE['embedding']}; the file holds no whole model")
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
    check_sizes(file.path, sizes)
    for key in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        if (found := size(key, sizes.head)) != sizes.head:
            raise UnsupportedError(f"{file.path}: {family}.{key} = {found}; must be width / heads = {sizes.head}")
    return sizes


def _rates(file: Gguf, family: str, width: int) -> np.ndarray:
    """The rates of the rotary embedding, without `_FACTORS`."""
    rates = rates_of(width, _above_0(file, f"{family}.rope.freq_base", 10000.0))
    kind, factor = file.fact(f"{family}.rope.scaling.type", str, "none"), f"{family}.rope.scaling.factor"
    if kind == "none":
        kind, factor = "linear", f"{family}.rope.scale_linear"  # of old files
    return linear_rates(file.path, rates, kind, _above_0(file, factor, 1.0))


def _above_0(file: Gguf, key: str, default: float) -> float:
    found = file.fact(key, float, default)
    if not 0 < found < math.inf:
        raise FileError(f"{file.path}: {key} = {found}, must be above 0 and finite; the file is damaged")
    return found


def _block(file: Gguf, kind: int) -> tuple[Any, int, int]:
    """The type of tensors with number `kind`, and how many elements are how many bytes of it."""
    import gguf

    try:
        known = gguf.GGMLQuantizationType(kind)
    except ValueError:
        raise UnsupportedError(f"{file.path}: a tensor of type {kind}, which the package gguf does not know") from None
    count, size = gguf.GGML_QUANT_SIZES[known]
    try:
        gguf.dequantize(np.zeros((1, size), np.uint8), known)
    except NotImplementedError:
        raise UnsupportedError(
            f"{file.path}: a tensor of type {known.name}, which the package gguf does not dequantise"
        ) from None
    return known, count, size


def _array(file: Gguf, content: Any, name: str, blocks: dict[int, tuple[Any, int, int]]) -> np.ndarray:
    """float32: the tensor `name`."""
    import gguf

    tensor: TensorInfo | None = file.tensors.get(name)
    if tensor is None:
        raise FileError(f"{file.path}: has no tensor {name}; the file holds no whole model")
    kind, block, size = blocks[tensor.kind]
    row = tensor.shape[-1] // block * size
    nbytes = math.prod(tensor.shape[:-1]) * row
    if tensor.shape[-1] % block or tensor.start + nbytes > len(content):
        stated = f"{tensor.start:,} to {tensor.start + nbytes:,} of {len(content):,}"
        raise FileError(f"{file.path}: tensor {name} has its data at bytes {stated}; the file is truncated or damaged")
    data = np.frombuffer(content, np.uint8, nbytes, tensor.start).reshape(*tensor.shape[:-1], row)
    return gguf.dequantize(data, kind).reshape(tensor.shape)
