"""Llamas in files of llama2.c, GGUF and Hugging Face folders: logits of a computation of its own, mistakes, sizes."""

import json
import struct

import numpy as np
import pytest

from tilewright.compiler.frontend.llama.checkpoint import LONGEST, describe, device_bytes, rates_of, read_checkpoint
from tilewright.compiler.frontend.llama.floats import FloatLlama
from tilewright.compiler.frontend.source import read_source
from tilewright.hw import foreign
from tilewright.hw.errors import CapacityError, FileError, InputError, UnsupportedError

gguf = pytest.importorskip("gguf")
safetensors = pytest.importorskip("safetensors.numpy")

WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, WORDS, CONTEXT, HEAD = 32, 64, 2, 4, 2, 50, 24, 8
TOKENS = [3, 17, 42, 5, 5, 29]
BASE = 500.0
LAYER = {
    "input_layernorm.weight": (WIDTH,),
    "self_attn.q_proj.weight": (WIDTH, WIDTH),
    "self_attn.k_proj.weight": (KV_HEADS * HEAD, WIDTH),
    "self_attn.v_proj.weight": (KV_HEADS * HEAD, WIDTH),
    "self_attn.o_proj.weight": (WIDTH, WIDTH),
    "post_attention_layernorm.weight": (WIDTH,),
    "mlp.gate_proj.weight": (HIDDEN, WIDTH),
    "mlp.down_proj.weight": (WIDTH, HIDDEN),
    "mlp.up_proj.weight": (HIDDEN, WIDTH),
}
BIASES = {f"self_attn.{name}_proj.bias": (rows,) for name, rows in (("q", WIDTH), ("k", 16), ("v", 16))}
GGUF_LAYER = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_down ffn_up".split()
NAMES = {key: f"{name}.weight" for key, name in zip(LAYER, GGUF_LAYER)}
NAMES |= {key: f"attn_{key[10]}.bias" for key in BIASES}


def weights(biases=False, own=False):
    """A random model by the names of Hugging Face, whose rotations pair the halves of a head."""
    rng, found = np.random.default_rng(7), {}
    shapes = {"model.embed_tokens.weight": (WORDS, WIDTH), "model.norm.weight": (WIDTH,)}
    for k in range(LAYERS):
        shapes |= {f"model.layers.{k}.{key}": shape for key, shape in (LAYER | (BIASES if biases else {})).items()}
    shapes |= {"lm_head.weight": (WORDS, WIDTH)} if own else {}
    for name, shape in shapes.items():
        values = rng.uniform(0.5, 1.5, shape) if "norm" in name else rng.normal(0, shape[-1] ** -0.5, shape)
        found[name] = values.astype(np.float32)
    return found


def logits_of(w, rates, epsilon=1e-5):
    """float64 (tokens, words): the logits of all `TOKENS` together, rotated by halves as Hugging Face does."""
    w = {name: values.astype(np.float64) for name, values in w.items()}
    count = len(TOKENS)
    angles = np.concatenate([np.arange(count)[:, None] * rates] * 2, 1)

    def norm(x, gain):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * gain

    def heads(x, key, prefix):
        y = x @ w[f"{prefix}.{key}_proj.weight"].T + w.get(f"{prefix}.{key}_proj.bias", 0)
        return y.reshape(count, -1, HEAD).transpose(1, 0, 2)

    def rotated(x):
        half = np.concatenate([-x[..., HEAD // 2 :], x[..., : HEAD // 2]], -1)
        return x * np.cos(angles) + half * np.sin(angles)

    x = w["model.embed_tokens.weight"][TOKENS]
    for k in range(LAYERS):
        start = f"model.layers.{k}"
        h, attention, mlp = norm(x, w[f"{start}.input_layernorm.weight"]), f"{start}.self_attn", f"{start}.mlp"
        q, key = rotated(heads(h, "q", attention)), rotated(heads(h, "k", attention))
        key, value = (np.repeat(y, HEADS // KV_HEADS, 0) for y in (key, heads(h, "v", attention)))
        scores = q @ key.transpose(0, 2, 1) / np.sqrt(HEAD) + np.triu(np.full((count, count), -np.inf), 1)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        y = (share / share.sum(-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(count, WIDTH)
        x = x + y @ w[f"{attention}.o_proj.weight"].T
        h = norm(x, w[f"{start}.post_attention_layernorm.weight"])
        gate = h @ w[f"{mlp}.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[f"{mlp}.up_proj.weight"].T)) @ w[f"{mlp}.down_proj.weight"].T
    return norm(x, w["model.norm.weight"]) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


PIECES = ["<unk>", "<s>", "</s>", "▁", *map(chr, range(ord("a"), ord("z") + 1))]
PIECES += [f"<x{k}>" for k in range(WORDS - len(PIECES))]


def check_logits(model, w, rates=None, epsilon=1e-5, close=1e-4):
    found = FloatLlama(read_checkpoint(model), len(TOKENS)).logits(TOKENS)
    assert np.abs(found - logits_of(w, rates_of(HEAD, BASE) if rates is None else rates, epsilon)).max() < close


CONFIG = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": WORDS,
    "max_position_embeddings": CONTEXT,
    "rope_theta": BASE,
    "rms_norm_eps": 1e-5,
}


def folder(path, w, parts=1, **config):
    """A folder as Hugging Face's, its weights in so many files."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG | {"tie_word_embeddings": "lm_head.weight" not in w} | config))
    names = ["model.safetensors"] if parts == 1 else [f"model-{k}.safetensors" for k in range(parts)]
    for k, name in enumerate(names):
        safetensors.save_file({key: w[key] for key in list(w)[k::parts]}, path / name)
    if parts > 1:
        index = {key: names[k % parts] for k, key in enumerate(w)}
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return path


def paired(values, heads):
    """Rows of `values` as the converter of llama.cpp orders those of a Llama: neighbours are a pair."""
    return values.reshape(heads, 2, HEAD // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def gguf_file(path, w, family="llama", kind="F32", more=(), words=(), **facts):
    """A GGUF file of the package's writer; matrices have the type `kind`. `words` are pieces, merged in no order."""
    writer = gguf.GGUFWriter(path, family)
    if words:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(words)
        writer.add_token_scores([0.0] * len(words))
        writer.add_token_types([3 if word in ("<s>", "</s>") else 1 for word in words])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
    for key, value in (
        ("block_count", LAYERS),
        ("context_length", CONTEXT),
        ("embedding_length", WIDTH),
        ("feed_forward_length", HIDDEN),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV_HEADS),
    ):
        writer.add_uint32(f"{family}.{key}", facts.pop(key, value))
    writer.add_float32(f"{family}.rope.freq_base", BASE)
    writer.add_float32(f"{family}.attention.layer_norm_rms_epsilon", 1e-5)
    for key, value in facts.items():
        add = writer.add_string if isinstance(value, str) else writer.add_float32
        add(f"{family}.{key}", value)
    alone = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    tensors = dict(more)
    for name, values in w.items():
        _, _, layer, rest = name.split(".", 3) if "layers" in name else ("", "", "", "")
        if family == "llama" and "q_proj" in name or family == "llama" and "k_proj" in name:
            values = paired(values, HEADS if "q_proj" in name else KV_HEADS)
        key = f"blk.{layer}.{NAMES[rest]}" if layer else alone.get(name, "output.weight")
        tensors[key] = values
    type_ = gguf.GGMLQuantizationType[kind]
    for key, values in tensors.items():
        if values.ndim > 1 and kind != "F32":
            writer.add_tensor(key, gguf.quantize(values, type_), raw_dtype=type_)
        else:
            writer.add_tensor(key, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("biases, own", [(False, False), (True, True)])
def test_logits_of_every_format(tmp_path, biases, own):
    w = weights(biases, own)
    check_logits(folder(tmp_path / "one", w), w)
    check_logits(folder(tmp_path / "several", w, parts=3, model_type="qwen2"), w)
    check_logits(gguf_file(tmp_path / "llama.gguf", w), w)
    check_logits(gguf_file(tmp_path / "qwen2.gguf", w, "qwen2"), w)
    model = read_checkpoint(tmp_path / "one")
    assert (model.name, model.sizes.context, model.classifier is model.embedding) == ("one", CONTEXT, not own)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_weights_are_what_the_package_dequantises(tmp_path, kind):
    w = weights()
    type_ = gguf.GGMLQuantizationType[kind]
    rounded = {
        key: gguf.dequantize(gguf.quantize(values, type_), type_) if values.ndim > 1 else values
        for key, values in w.items()
    }
    check_logits(gguf_file(tmp_path / "m.gguf", w, "qwen2", kind), rounded)
    assert any((rounded[key] != w[key]).any() for key in w)


def test_few_bits_in_blocks_of_256(tmp_path):
    """Q4_K and Q6_K, which the package does not write: blocks of random bytes, with scales of float16."""
    rng, kinds = np.random.default_rng(3), {"Q4_K": (144, (0, 2)), "Q6_K": (210, (208,))}
    for kind, (size, scales) in kinds.items():
        blocks = rng.integers(0, 256, (256, size), np.uint8)
        for at in scales:
            blocks[:, at : at + 2] = np.full((256, 1), 1e-3, "<f2").view(np.uint8)
        writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
        type_ = gguf.GGMLQuantizationType[kind]
        facts = {"block_count": 1, "context_length": 8, "attention.head_count": 4}
        for key, value in (facts | {"embedding_length": 256, "feed_forward_length": 256}).items():
            writer.add_uint32(f"llama.{key}", value)
        for name in [name for name in GGUF_LAYER if "norm" not in name]:
            writer.add_tensor(f"blk.0.{name}.weight", blocks, raw_dtype=type_)
        for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
            writer.add_tensor(f"{name}.weight", np.ones(256, np.float32))
        writer.add_tensor("token_embd.weight", blocks, raw_dtype=type_)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        model = read_checkpoint(tmp_path / "m.gguf")
        wanted = gguf.dequantize(blocks, type_)
        assert np.array_equal(model.layers[0].gate, wanted) and np.array_equal(model.embedding, wanted), kind


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_folders_in_half_precision(tmp_path, kind):
    w = weights()
    halves = {key: values.astype(np.float16) for key, values in w.items()}
    path = folder(tmp_path / "m", halves)
    if kind == "bfloat16":  # which numpy has not: the upper halves of float32
        upper = {key: (values.view(np.uint32) >> 16).astype(np.uint16) for key, values in w.items()}
        safetensors.save_file(upper, path / "model.safetensors")
        content = (path / "model.safetensors").read_bytes()
        (path / "model.safetensors").write_bytes(content.replace(b'"U16"', b'"BF16"').replace(b"{", b"{", 1))
        size = int.from_bytes(content[:8], "little")
        head = content[8 : 8 + size].replace(b'"U16"', b'"BF16"')
        (path / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + content[8 + size :])
        halves = {key: (values.astype(np.uint32) << 16).view(np.float32) for key, values in upper.items()}
    check_logits(path, halves)


def test_what_begins_and_ends_a_text_is_the_files(tmp_path):
    """llama2.c's token 1 where the file does not say; without one that begins a text, one that ends it."""

    def found(path):
        model = read_checkpoint(path)
        return model.begin, set(model.ends)

    w = weights()
    assert found(gguf_file(tmp_path / "m.gguf", w)) == (1, {1})
    assert found(gguf_file(tmp_path / "m.gguf", w, words=PIECES)) == (1, {2})
    assert found(folder(tmp_path / "m", w, bos_token_id=5, eos_token_id=[6, 7])) == (5, {6, 7})
    assert found(folder(tmp_path / "m", w, eos_token_id=9)) == (9, {9})
    assert found(folder(tmp_path / "m", w, bos_token_id=3)) == (3, {3})
    for wrong in (WORDS, -1, "<s>", True):
        with pytest.raises(FileError, match=f"m: {wrong!r} begins or ends texts, must be a token below 50; it is dam"):
            read_checkpoint(folder(tmp_path / "m", w, bos_token_id=wrong))


def llama3(factor, low, high, original):
    """The rates of Llama 3.1 as its authors state them, one by one."""
    found = []
    for rate in rates_of(HEAD, BASE):
        length = 2 * np.pi / rate
        if length < original / high:
            found.append(rate)
        elif length > original / low:
            found.append(rate / factor)
        else:
            smooth = (original / length - low) / (high - low)
            found.append((1 - smooth) * rate / factor + smooth * rate)
    return np.array(found)


def test_scaled_rotations(tmp_path):
    w, slowed = weights(), rates_of(HEAD, BASE) / 4
    rule = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rule["original_max_position_embeddings"] = 200
    wanted = llama3(8.0, 1.0, 4.0, 200)
    assert len({*(wanted / rates_of(HEAD, BASE)).round(6)}) == 3  # one is kept, one is between, one is slowed
    check_logits(folder(tmp_path / "linear", w, rope_scaling={"type": "linear", "factor": 4.0}), w, slowed)
    check_logits(folder(tmp_path / "llama3", w, rope_scaling=rule), w, wanted)
    check_logits(
        folder(tmp_path / "newer", w, rope_theta=None, rope_parameters={**rule, "rope_theta": BASE}), w, wanted
    )
    scaling = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    check_logits(gguf_file(tmp_path / "linear.gguf", w, **scaling), w, slowed)
    factors = (rates_of(HEAD, BASE) / wanted).astype(np.float32)
    check_logits(gguf_file(tmp_path / "llama3.gguf", w, more={"rope_freqs.weight": factors}.items()), w, wanted)


def llama2c(w, version, group=16):
    """A file of llama2.c, version 1 or 2."""
    layers = [{key: w[f"model.layers.{k}.{key}"] for key in LAYER} for k in range(LAYERS)]
    numbers = (WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, WORDS, CONTEXT)
    own = "lm_head.weight" in w
    header = struct.pack("<Ii7iB", 0x616B3432, version, *numbers, not own) + struct.pack("<i", group) * (version == 2)
    norms = [layer[name] for name in list(LAYER)[::5] for layer in layers] + [w["model.norm.weight"]]
    matrices = [w["model.embed_tokens.weight"]]
    for key in [key for key in LAYER if "norm" not in key]:
        heads = {"self_attn.q_proj.weight": HEADS, "self_attn.k_proj.weight": KV_HEADS}.get(key)
        matrices += [paired(layer[key], heads) if heads else layer[key] for layer in layers]
    matrices += [w["lm_head.weight"]] if own else []
    parts = [values.tobytes() for values in norms]
    for values in matrices:
        if version == 1:
            parts.append(values.tobytes())
            continue
        groups = values.reshape(-1, group)
        scales = (np.abs(groups).max(-1) / 127).astype(np.float32)
        parts += [np.round(groups / scales[:, None]).astype(np.int8).tobytes(), scales.tobytes()]
    return header.ljust(256, b"\0") + b"".join(parts)


@pytest.mark.parametrize("own", [False, True])
def test_later_versions_of_llama2_c(tmp_path, own):
    w, path = weights(own=own), tmp_path / "m.bin"
    path.write_bytes(llama2c(w, 1))
    check_logits(path, w, rates_of(HEAD))
    path.write_bytes(llama2c(w, 2))
    check_logits(path, w, rates_of(HEAD), close=0.2)
    model, first = read_checkpoint(path), w["model.layers.1.mlp.down_proj.weight"]
    assert 0 < np.abs(model.layers[1].hidden_out - first).max() < np.abs(first).max() / 250


def edited(content, at, value):
    return content[:at] + struct.pack("<i", value) + content[at + 4 :]


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda c: edited(c, 4, 3), "version 3 of llama2.c's checkpoints; must be 0, 1 or 2"),
        (lambda c: c[:100], "has 100 bytes, its header alone 256; the file is truncated"),
        (lambda c: c[:-1], "the file is damaged"),
        (lambda c: c[:37] + struct.pack("<i", 7) + c[41:], "groups of 7 weights in rows of 32 and 64, which must be"),
        (lambda c: c[:-4] + struct.pack("<f", -1), "a scale of its weights 'up' is below 0, or no number"),
        (lambda c: edited(c, 16, 1 << 24), "layers = 16777216, must be 1 to 16777215"),
        (lambda c: edited(c, 16, (1 << 24) - 1), "the file is damaged"),
    ],
)
def test_damage_of_later_versions_is_named(tmp_path, change, text):
    path = tmp_path / "m.bin"
    path.write_bytes(change(llama2c(weights(), 2)))
    with pytest.raises((FileError, UnsupportedError), match=text):
        read_checkpoint(path)


@pytest.mark.parametrize(
    "config, text",
    [
        ({"model_type": "gemma3"}, "a model of the family 'gemma3'; llama and qwen2 are read"),
        ({"model_type": 3}, "model_type = 3, must be str"),
        ({"hidden_size": None}, "has no 'hidden_size'"),
        ({"num_attention_heads": 3}, "width = 32 is no multiple of heads = 3"),
        ({"num_attention_heads": 0}, "heads = 0, must be 1"),
        ({"head_dim": 16}, "head_dim = 16; must be hidden_size / num_attention_heads = 8"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'; must be 'silu'"),
        ({"use_sliding_window": True}, "attention over a window of positions is not supported"),
        ({"quantization_config": {"quant_method": "gptq"}}, "weights quantised by gptq; give the folder in float"),
        ({"quantization_config": "awq"}, "weights quantised by awq; give the folder in float"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5; only whole heads are rotated"),
        ({"rope_scaling": {"type": "linear"}}, "has no 'factor'"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "a rotary embedding scaled by 'yarn'; linear and llama3"),
        ({"rope_scaling": {"type": "linear", "factor": -1.0}}, "factor = -1.0, must be above 0"),
        ({"rope_scaling": 3}, "rope_scaling must be a JSON object"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "has no 'low_freq_factor'"),
        ({"vocab_size": 49}, r"its weights 'embedding' have shape \(50, 32\), must be \(49, 32\); the file is damaged"),
        ({"num_hidden_layers": 1}, "has a tensor 'model.layers.1.* which a Llama or Qwen2 has not"),
        ({"num_hidden_layers": 3}, "has no tensor model.layers.2.input_layernorm.weight; the folder holds no whole"),
    ],
)
def test_folders_of_other_models_are_named(tmp_path, config, text):
    path = folder(tmp_path / "m", weights(), **config)
    with pytest.raises((FileError, UnsupportedError), match=text) as caught:
        read_checkpoint(path)
    assert len(str(caught.value)) < 300


def test_damaged_folders_are_named(tmp_path):
    w, path = weights(), tmp_path / "m"
    file = folder(path, w) / "model.safetensors"
    whole = file.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    for content, text in (
        (whole[:-8], "which do not fit; the file is damaged"),
        (whole[:9], "the file is truncated or damaged"),
        (b"", "has 0 bytes"),
        (struct.pack("<Q", 2) + b"[]", "its header must be a JSON object"),
        (whole.replace(b'"F32"', b'"I32"'), "is 'I32'; must be F32, F16, BF16"),
        (whole.replace(b'"F32"', b'["f"]'), "is .'f'.; must be F32, F16, BF16"),
        (whole.replace(b'"shape":[50,32]', b'"shape":[-5,32]'), "a shape or a place that are no numbers"),
        (whole.replace(b'"shape":[50,32]', b'"shape":[0, 77]'), "a shape or a place that are no numbers"),
        (whole[: 8 + size] + np.full(1 << 16, np.nan, "<f4").tobytes(), "hold values that are not finite"),
    ):
        file.write_bytes(content)
        with pytest.raises((FileError, UnsupportedError), match=text):
            read_checkpoint(path)
    (path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../b"}}')
    with pytest.raises(FileError, match="must say in which files of the folder the weights are"):
        read_source(path)
    (path / "config.json").write_text("[]")
    (path / "model.safetensors.index.json").unlink()
    with pytest.raises(FileError, match="config.json: must be a JSON object"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    "family, facts, text",
    [
        ("gemma3", {}, "a model of the family 'gemma3'; llama and qwen2 are read"),
        ("llama", {"block_count": 1}, "has a tensor 'blk.1.* which a Llama or Qwen2 has not"),
        ("llama", {"block_count": 3}, "has no tensor blk.2.attn_norm.weight; the file holds no whole model"),
        ("llama", {"rope.scaling.type": "yarn"}, "a rotary embedding scaled by 'yarn'; linear and llama3 are read"),
        ("llama", {"attention.head_count": 3}, "width = 32 is no multiple of heads = 3"),
        ("llama", {"attention.head_count": 0}, "heads = 0, must be 1 to"),
        ("llama", {"embedding_length": 64}, r"'attention_norm' of layer 0 have shape \(32,\), must be \(64,\)"),
        ("llama", {"rope.scale_linear": -1.0}, "llama.rope.scale_linear = -1.0, must be above 0 and finite"),
        ("llama", {"expert_count": "8"}, "llama.expert_count is str, must be int"),
    ],
)
def test_gguf_files_of_other_models_are_named(tmp_path, family, facts, text):
    path = gguf_file(tmp_path / "m.gguf", weights(), family, **facts)
    with pytest.raises((FileError, UnsupportedError), match=text) as caught:
        read_checkpoint(path)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_damaged_gguf_files_are_named(tmp_path):
    path = gguf_file(tmp_path / "m.gguf", weights())
    whole = path.read_bytes()
    for content, text in (
        (whole[:-100], "the file is truncated or damaged"),
        (whole[:30], "the file is truncated"),
        (whole[:4] + struct.pack("<I", 1) + whole[8:], "version 1 of GGUF; must be 2 or 3"),
        (whole[:16] + struct.pack("<Q", 1 << 60) + whole[24:], "the file is truncated|GGUF has not|has the fact|UTF-8"),
        (whole[:8] + struct.pack("<Q", 1 << 60) + whole[16:], "the file is truncated|dimensions|UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises((FileError, UnsupportedError), match=text):
            read_checkpoint(path)
    at = whole.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 16
    for kind, text in ((200, "of type 200, which the package gguf does not know"), (24, "a tensor of type I8, which")):
        path.write_bytes(edited(whole, at, kind))
        with pytest.raises(UnsupportedError, match=text):
            read_checkpoint(path)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    path = gguf_file(tmp_path / "m.gguf", weights())
    monkeypatch.setattr("tilewright.hw.needs._is_there", lambda module: False)
    with pytest.raises(
        UnsupportedError, match=r"needs gguf, which is not installed; pip install 'tilewright\[language\]'"
    ):
        read_checkpoint(path)


def test_the_context_is_chosen(tmp_path, monkeypatch):
    path = gguf_file(tmp_path / "m.gguf", weights(), context_length=131072)
    assert describe(path).sizes.context == LONGEST == 2048
    assert describe(read_source(path, context=100)).sizes.context == 100
    assert describe(read_source(path, context=5000)).sizes.context == 5000
    with pytest.raises(InputError, match="a context of 200000 positions; the model has at most 131072"):
        describe(read_source(path, context=200000))
    assert len({read_source(path, context=n).digest for n in (None, 100, 200)}) == 3
    with pytest.raises(UnsupportedError, match="a context is chosen for a Llama in float"):
        read_source("examples/digits/digits.onnx", context=5)
    sizes = describe(path).sizes
    count = 2 * WORDS * WIDTH + LAYERS * sum(int(np.prod(shape)) for shape in LAYER.values()) + WIDTH
    caches = 2 * LAYERS * KV_HEADS * HEAD * 2048
    assert [device_bytes(sizes, wide) for wide in (False, True)] == [(count, caches), (count, 2 * caches)]
    monkeypatch.setattr("tilewright.compiler.frontend.llama.checkpoint.machine_memory", lambda: 1 << 14)
    with pytest.raises(CapacityError, match=r"weights take \d+ MiB as float32; this machine has 0"):
        read_checkpoint(path)
    assert foreign.machine_memory() > 1 << 14
