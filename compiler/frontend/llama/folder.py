"""Reads Llamas in folders as Hugging Face's: config.json and weights in files of safetensors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from ....hw.errors import FileError, UnsupportedError
from ....hw.foreign import parse_json
from ..source import CONFIG, Source
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

_ALONE = {"embedding": "model.embed_tokens.weight", "norm": "model.norm.weight", "classifier": "lm_head.weight"}
_OF_LAYER = {
    "attention_norm": "input_layernorm.weight",
    "queries": "self_attn.q_proj.weight",
    "keys": "self_attn.k_proj.weight",
    "values": "self_attn.v_proj.weight",
    "attention_out": "self_attn.o_proj.weight",
    "hidden_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "hidden_out": "mlp.down_proj.weight",
    "up": "mlp.up_proj.weight",
    "queries.bias": "self_attn.q_proj.bias",
    "keys.bias": "self_attn.k_proj.bias",
    "values.bias": "self_attn.v_proj.bias",
}
_UNUSED = "rotary_emb.inv_freq"  # a table that follows from config.json
_MOST_DIMS = 4  # of a tensor
_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_MOST_HEADER = 1 << 26  # bytes of a file's JSON


def describe_folder(source: Source) -> Description:
    """The model in a folder. Raises as `describe`."""
    path = source.path
    config = parse_json(bytes(source.content), path / CONFIG, "the configuration of a Llama")
    if not isinstance(config, dict):
        raise FileError(f"{path / CONFIG}: must be a JSON object")
    facts = _Facts(path / CONFIG, config)
    check_family(path, facts.get("model_type", str, ""))
    sizes = _sizes(facts)
    tensors = dict[str, tuple[Any, dict[str, Any], int]]()
    for name, content in zip(source.names, source.parts):
        tensors |= _tensors(path / name, content)
    unused = [name for name in tensors if name.endswith(_UNUSED)]
    own = not facts.get("tie_word_embeddings", bool, False) and _ALONE["classifier"] in tensors
    biases = check_tensors(path, tensors, {*_ALONE.values(), *unused}, "model.layers.", _OF_LAYER, sizes.layers)

    def read(key: str, layer: int | None) -> np.ndarray:
        name = _ALONE[key] if layer is None else f"model.layers.{layer}.{_OF_LAYER[key]}"
        if name not in tensors:
            raise FileError(f"{path}: has no tensor {name}; the folder holds no whole model")
        return _array(path, name, *tensors[name])

    rates, epsilon = _rates(facts, sizes.head), facts.above_0("rms_norm_eps", 1e-6)
    begin, ends = config.get("bos_token_id"), config.get("eos_token_id")
    tokens = text_tokens(path, sizes.words, begin, ends if isinstance(ends, list) else [ends])
    return Description(path.resolve().name, sizes, rates, read, epsilon, own, biases, True, *tokens)


class _Facts:
    """Values of the JSON object `values`, which is in the file `path`, checked for their types."""

    def __init__(self, path: Path, values: dict[str, Any]):
        self.path, self.values = path, values

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """The value of `key`, or `default` where it is missing or null. Raises `FileError` for another type."""
        found = self.values.get(key)
        if found is None:
            if default is None:
                raise FileError(f"{self.path}: has no {key!r}")
            return default
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind:
            raise FileError(f"{self.path}: {key} = {found!r:.40}, must be {kind.__name__}")
        return found

    def above_0(self, key: str, default: float | None = None) -> float:
        """A number above 0."""
        if not 0 < (found := self.get(key, float, default)) < math.inf:
            raise FileError(f"{self.path}: {key} = {found}, must be above 0")
        return found


def _sizes(facts: _Facts) -> Sizes:
    path = facts.path
    if "quantization_config" in facts.values:
        given = facts.values["quantization_config"]
        method = str(given.get("quant_method", "unknown") if isinstance(given, dict) else given)
        raise UnsupportedError(f"{path}: weights quantised by {method:.40}; give the folder in float, or a GGUF file")
    if (activation := facts.get("hidden_act", str, "silu")) != "silu":
        raise UnsupportedError(f"{path}: hidden_act = {activation!r:.40}; must be 'silu'")
    if (share := facts.above_0("partial_rotary_factor", 1.0)) != 1:
        raise UnsupportedError(f"{path}: partial_rotary_factor = {share}; only whole heads are rotated")
    if facts.get("use_sliding_window", bool, False):
        raise UnsupportedError(f"{path}: use_sliding_window; attention over a window of positions is not supported")
    width, heads = facts.get("hidden_size", int), facts.get("num_attention_heads", int)
    sizes = Sizes(
        width,
        facts.get("intermediate_size", int),
        facts.get("num_hidden_layers", int),
        heads,
        facts.get("num_key_value_heads", int, heads),
        facts.get("vocab_size", int),
        facts.get("max_position_embeddings", int),
    )
    check_sizes(path, sizes)
    if (head := facts.get("head_dim", int, sizes.head)) != sizes.head:
        raise UnsupportedError(f"{path}: head_dim = {head}; must be hidden_size / num_attention_heads = {sizes.head}")
    return sizes


def _rates(facts: _Facts, width: int) -> np.ndarray:
    """The rates of the rotary embedding, by `rope_scaling`, or by `rope_parameters`, as newer files have it."""
    path, values = facts.path, facts.values
    scaling = values.get("rope_scaling") or values.get("rope_parameters") or {}
    if not isinstance(scaling, dict):
        raise FileError(f"{path}: rope_scaling must be a JSON object")
    inner = _Facts(path, scaling)
    base = inner.above_0("rope_theta") if "rope_theta" in scaling else facts.above_0("rope_theta", 10000.0)
    kind = inner.get("rope_type" if "rope_type" in scaling else "type", str, "default")
    rates = rates_of(width, base)
    if kind == "llama3":
        return _llama3(inner, rates)
    if kind == "default":
        return rates
    return linear_rates(path, rates, kind, inner.above_0("factor") if kind == "linear" else 1.0)


def _llama3(scaling: _Facts, rates: np.ndarray) -> np.ndarray:
    """Rates by Llama 3's rule: turns longer than the original context are slowed by a factor, short ones not at all."""
    factor, low, high = (scaling.above_0(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    if high <= low:
        raise FileError(f"{scaling.path}: high_freq_factor = {high}, must be above low_freq_factor = {low}")
    turns = scaling.above_0("original_max_position_embeddings") * rates / (2 * np.pi)  # within the original context
    share = np.clip((turns - low) / (high - low), 0, 1)
    return rates * (share + (1 - share) / factor)


def _tensors(path: Path, content: Any) -> dict[str, tuple[Any, dict[str, Any], int]]:
    """(content, what the file says of it, byte where the data of all begin) of each tensor of a file, by name."""
    size = int.from_bytes(content[:8], "little")
    if not 8 + size <= len(content) or size > _MOST_HEADER:
        raise FileError(f"{path}: has {len(content):,} bytes, its header {size:,}; the file is truncated or damaged")
    found = parse_json(content[8 : 8 + size], path)
    if not isinstance(found, dict):
        raise FileError(f"{path}: its header must be a JSON object; the file is damaged")
    return {name: (content, facts, 8 + size) for name, facts in found.items() if name != "__metadata__"}


def _array(path: Path, name: str, content: Any, facts: dict[str, Any], start: int) -> np.ndarray:
    """The tensor `name`, float32 or float16. Raises `FileError` where what the file says of it is wrong."""
    kind, shape, ends = (
        (facts.get(key) for key in ("dtype", "shape", "data_offsets")) if isinstance(facts, dict) else [None] * 3
    )
    if not isinstance(kind, str) or kind not in _TYPES:
        raise UnsupportedError(
            f"{path}: tensor {name} is {kind!r:.20}; must be {', '.join(_TYPES)}, or give a GGUF file"
        )
    shape, ends = (found if isinstance(found, list) else [-1] for found in (shape, ends))
    whole = all(type(n) is int for n in [*shape, *ends])
    if len(ends) != 2 or len(shape) > _MOST_DIMS or not whole or min(shape, default=1) < 1 or min(ends) < 0:
        raise FileError(f"{path}: tensor {name} has a shape or a place that are no numbers; the file is damaged")
    dtype, (first, last) = np.dtype(_TYPES[kind]), ends
    if last - first != math.prod(shape) * dtype.itemsize or start + last > len(content):
        raise FileError(f"{path}: tensor {name} lies at bytes {first} to {last}, which do not fit; the file is damaged")
    values = np.frombuffer(content, dtype, math.prod(shape), start + first).reshape(shape)
    return (values.astype("<u4") << 16).view("<f4") if kind == "BF16" else values
