"""runtime/vocabulary.py: codecs of GGUF files and tokenizer.json, against the package tokenizers on ten scripts."""

import json
import random

import pytest

from tests.compiler.frontend.llama.test_files import WORDS, gguf_file, weights
from tilewright.hw.errors import FileError, InputError, UnsupportedError
from tilewright.runtime.language import NOTHING, Tokenizer, codec_file, open_codec
from tilewright.runtime.pieces import Pieces
from tilewright.runtime.vocabulary import Vocabulary

gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")

# of each script some words, with digits and punctuation between them
SCRIPTS = [
    "The quick brown fox wasn't over the lazy dog; it'll jump 123 times, I'VE heard.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю 2026 раз.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, όχι;",
    "敏捷的棕色狐狸跳過懶狗。你好，世界！",
    "いろはにほへと ちりぬるを わかよたれそ、カタカナ。",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب ٣٤٥",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה.",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण १२",
    "นายสังฆภัณฑ์ เฮงพิทักษ์ฝั่ง ผู้เฒ่า é e\u0301 😀👍🏽",
]
NAMES = ["<unk>", "<s>", "</s>"]


def texts(count=1000, seed=4):
    """Words of the scripts in any order, with spaces of all kinds between them."""
    rng = random.Random(seed)
    words = [word for text in SCRIPTS for word in text.split()]
    spaces = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", " \n ", "\r\n", ""]
    for k in range(count):
        own = SCRIPTS[k % len(SCRIPTS)].split()
        parts = [
            rng.choice(own if rng.random() < 0.8 else words) + rng.choice(spaces) for _ in range(rng.randint(0, 9))
        ]
        yield rng.choice(["", " ", "\n"]) + "".join(parts)


def trained(pre, normalizer=None, size=700, merge_whole=False):
    """A tokenizer of byte pairs that the package itself trains; special tokens first."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=merge_whole))
    made.pre_tokenizer, made.decoder = pre, tokenizers.decoders.ByteLevel()
    if normalizer:
        made.normalizer = normalizer
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*NAMES, "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(SCRIPTS * 3, trainer)
    return made


def ordered(made):
    return sorted(made.get_vocab(), key=made.get_vocab().get)


def written(path, model, tokens, kinds=None, **facts):
    """A GGUF file without weights that has this vocabulary."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(
        [3 if token in (*NAMES, "<|im_end|>") else 1 for token in tokens] if kinds is None else kinds
    )
    for key, value in facts.items():
        getattr(writer, f"add_{key}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def pairs(made):
    return [" ".join(pair) for pair in json.loads(made.to_str())["model"]["merges"]]


SPLIT = tokenizers.pre_tokenizers.Split
BYTES = tokenizers.pre_tokenizers.ByteLevel
LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}NUMBER| ?[^\s\p{L}\p{N}]+[\r\n]*|"
LLAMA += r"\s*[\r\n]+|\s+(?!\S)|\s+"


def llama_like(number):
    pattern = tokenizers.Regex(LLAMA.replace("NUMBER", number))
    return tokenizers.pre_tokenizers.Sequence([SPLIT(pattern, "isolated"), BYTES(False, use_regex=False)])


# as tokenizer.json of GPT-2, SmolLM, Llama 3 and Qwen2 have them
PRE = {
    "gpt-2": (lambda: BYTES(False), None),
    "smollm": (
        lambda: tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.Digits(True), BYTES(False)]),
        None,
    ),
    "llama-bpe": (lambda: llama_like("{1,3}"), None),
    "qwen2": (lambda: llama_like(""), tokenizers.normalizers.NFC()),
}


@pytest.mark.parametrize("name", PRE)
def test_byte_pairs_of_a_gguf_file_are_those_of_tokenizer_json(tmp_path, name):
    pre, normalizer = PRE[name]
    made = trained(pre(), normalizer, merge_whole=name == "llama-bpe")
    tokens = ordered(made)
    facts = {"token_merges": pairs(made), "tokenizer_pre": name, "eos_token_id": 2, "bos_token_id": 1}
    path = written(
        tmp_path / "m.gguf", "gpt2", tokens, add_bos_token=name == "llama-bpe", chat_template="{{x}}", **facts
    )
    found = open_codec(path, None, len(tokens))
    assert isinstance(found, Vocabulary) and found.template == "{{x}}" and found.ends == {2, 3}
    assert found.begin == ((1,) if name == "llama-bpe" else ())
    count = 0
    for text in texts():
        ids = made.encode(text, add_special_tokens=False).ids
        assert found.encode(text) == ids, (name, text)
        assert found.decode(ids) == made.decode(ids) == (made.normalizer.normalize_str(text) if normalizer else text)
        count += len(ids)
    assert count > 20_000


def test_names_of_special_tokens(tmp_path):
    made = trained(BYTES(False))
    tokens = ordered(made)
    path = written(tmp_path / "m.gguf", "gpt2", tokens, token_merges=pairs(made), tokenizer_pre="gpt-2")
    found = open_codec(path, None, len(tokens))
    text = "<s>a<|im_end|>\n"
    special, plain = found.encode(text, special=True), found.encode(text)
    assert special[0] == 1 and 3 in special and not {1, 3} & {*plain} and found.decode(plain) == text
    assert found.decode(special) == "a\n" and found.piece(NOTHING, 3) == b""
    with pytest.raises(InputError, match=r"the prompt holds '\\udcff', which is no character"):
        found.encode("a\udcff")


def scored(size=500):
    """Pieces of a vocabulary with scores, and the package's tokenizer of the same: merges of all pairs, best first."""
    model = tokenizers.models.BPE(byte_fallback=True, unk_token="<unk>")
    made = tokenizers.Tokenizer(model)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=[*NAMES, *(f"<0x{k:02X}>" for k in range(256))], show_progress=False
    )
    made.train_from_iterator([text.replace(" ", "▁") for text in SCRIPTS[:3] * 3], trainer)
    tokens = ordered(made)
    tokens = [*tokens, *(["▁"] if "▁" not in tokens else [])]
    at = {token: k for k, token in enumerate(tokens)}
    scores = [0.0 if k < 259 else -float(k) for k in range(len(tokens))]
    merges = [(t[:k], t[k:]) for t in tokens[259:] for k in range(1, len(t)) if t[:k] in at and t[k:] in at]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(at, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    made.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    made.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens(NAMES)
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    return made, tokens, scores, kinds


def test_scores_of_a_gguf_file_give_the_tokens_of_tokenizer_json(tmp_path):
    made, tokens, scores, kinds = scored()
    facts = {"token_scores": scores, "bos_token_id": 1, "eos_token_id": 2}
    path = written(tmp_path / "m.gguf", "llama", tokens, kinds, **facts)
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"eos_token_id": [2]}')
    found = open_codec(path, None, len(tokens))
    other = open_codec("model.npz", tmp_path / "tokenizer.json", len(tokens))
    assert isinstance(found, Pieces) and isinstance(other, Vocabulary)
    assert found.begin == other.begin == (1,) and found.ends == other.ends == {2}
    assert found.named == {"bos_token": "<s>", "eos_token": "</s>"}
    for text in texts():
        ids = found.encode(text)
        assert ids == other.encode(text) == made.encode(text, add_special_tokens=False).ids, text
        assert found.decode(ids) == other.decode(ids) == text
    special = found.encode("<s>a</s>", special=True)
    assert (special[0], special[-1]) == (1, 2) and len(special) > 2
    assert found.decode([2]) == "" and found.encode("<s>")[0] != 1


def test_the_tokens_of_a_users_own(tmp_path):
    _, tokens, scores, kinds = scored()
    at = len(tokens)
    facts = {"token_scores": [*scores, 0.0, 0.0], "add_space_prefix": False, "add_bos_token": False}
    path = written(tmp_path / "m.gguf", "llama", [*tokens, "<tool>", "<pad>"], [*kinds, 4, 5], **facts)
    found = open_codec(path, None, at + 2)
    assert found.begin == () and found.encode("<tool>")[:1] == [at] == found.encode("<tool>", special=True)
    assert at + 1 not in found.encode("<pad>", special=True) and found.decode([at]) == "<tool>"
    assert found.decode(found.encode(" a")) == " a"  # without a space of its own none is dropped


def test_characters_without_a_token_are_refused(tmp_path):
    made = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1, "</s>": 2}, []))
    made.post_processor = tokenizers.processors.TemplateProcessing("</s> $A </s>", None, [("</s>", 2)])
    made.save(str(tmp_path / "tokenizer.json"))
    found = open_codec("x", tmp_path / "tokenizer.json", 3)
    assert found.encode("ab") == [0, 1] and found.begin == (2,)
    for text in ("c", "acb", "ab日"):
        with pytest.raises(InputError, match="the prompt holds '[c日]', for which the tokenizer has no token"):
            found.encode(text)


def test_what_stands_beside_tokenizer_json(tmp_path):
    made = trained(BYTES(False))
    made.save(str(tmp_path / "tokenizer.json"))
    words = made.get_vocab_size()
    assert open_codec("x", tmp_path / "tokenizer.json", words).ends == {2, 3}  # known names
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7}')
    config = {"eos_token": {"content": "<unk>"}, "chat_template": [{"name": "default", "template": "one"}]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    found = open_codec(tmp_path, None, words)
    assert found.ends == {0, 2, 3, 7} and found.template == "one" and found.begin == ()
    assert found.named == {"bos_token": "", "eos_token": "<unk>"}
    (tmp_path / "chat_template.jinja").write_text("two")
    assert open_codec(tmp_path, None, words).template == "two"
    assert open_codec(tmp_path, None, words + 100).piece(NOTHING, words + 99) == b""  # words of padding
    for wrong in (words - 1, 1025):
        with pytest.raises(FileError, match=f"has {words} tokens, the model {wrong:,} words; give the model's own"):
            open_codec(tmp_path, None, wrong)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(FileError, match="tokenizer_config.json: must be a JSON object"):
        open_codec(tmp_path, None, words)
    panics = json.loads(made.to_str())
    panics["model"]["continuing_subword_prefix"] = "int32"  # longer than the pieces: the package panics
    for content in ("{}", json.dumps(panics)):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(FileError, match="tokenizer.json: no tokenizer.json that the package tokenizers reads"):
            open_codec(tmp_path, None, words)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(FileError, match="tokenizer.json: no such file; give the model's tokenizer with --tokenizer"):
        open_codec(tmp_path, None, words)


def test_models_without_a_tokenizer_are_named(tmp_path):
    (tmp_path / "m.bin").write_bytes(bytes(400))
    for wrong, text in (
        (None, "m.bin: brings no tokenizer; give the model's own with --tokenizer"),
        ("t", "t: no such"),
    ):
        with pytest.raises(FileError, match=text):
            codec_file(tmp_path / "m.bin", None if wrong is None else tmp_path / wrong)
    with pytest.raises(
        UnsupportedError, match="a tokenizer of kind 'none'; must be gpt2 or llama, or give --tokenizer"
    ):
        open_codec(gguf_file(tmp_path / "m.gguf", weights()), None, 0)
    with pytest.raises(FileError, match=f"has 0 tokens, the model {WORDS} words"):
        open_codec(tmp_path / "m.gguf", None, WORDS)
    assert isinstance(open_codec("x", llama2c_file(tmp_path), 1), Tokenizer)


def llama2c_file(folder):
    (folder / "tok.bin").write_bytes(b"\x08\0\0\0" + b"\0\0\0\0\x01\0\0\0a")
    return folder / "tok.bin"


@pytest.mark.parametrize(
    "facts, text",
    [
        ({"model": "rwkv"}, "a tokenizer of kind 'rwkv'; must be gpt2 or llama"),
        ({"tokenizer_pre": "tekken"}, "a pre-tokenizer 'tekken'; must be gpt-2, smollm, llama-bpe, qwen2, or give"),
        ({"token_merges": ["a b"]}, "its merges do not fit its tokens"),
        ({"eos_token_id": 9}, "eos_token_id or .* is not among its 3 tokens"),
        ({"kinds": [1, 1]}, "its tokens are no texts, or 2 of them have a type; the file is damaged"),
        ({"model": "llama", "token_scores": [0.0]}, "3 tokens need as many scores, all numbers; the file is damaged"),
        ({"model": "llama", "token_scores": [0.0, 1.0, float("nan")]}, "3 tokens need as many scores, all numbers"),
        ({"model": "llama", "add_space_prefix": "x"}, "tokenizer.ggml.add_space_prefix is str, must be bool"),
    ],
)
def test_damaged_vocabularies_are_named(tmp_path, facts, text):
    facts = {"model": "gpt2", "tokenizer_pre": "gpt-2", "token_merges": []} | facts
    model, merges, prefix = facts.pop("model"), facts.pop("token_merges"), facts.pop("add_space_prefix", None)
    writer = gguf.GGUFWriter
    if merges:
        facts["token_merges"] = merges
    if model == "llama":
        facts.setdefault("token_scores", [0.0, 0.0, 0.0])
    path = written(tmp_path / "m.gguf", model, ["x", "y", "z"], **facts)
    if prefix is not None:
        made = writer(path, "llama")
        made.add_tokenizer_model("llama")
        made.add_token_list(["x", "y", "z"])
        made.add_token_scores([0.0, 0.0, 0.0])
        made.add_string("tokenizer.ggml.add_space_prefix", prefix)
        made.write_header_to_file()
        made.write_kv_data_to_file()
        made.close()
    with pytest.raises((FileError, UnsupportedError), match=text) as caught:
        open_codec(path, None, 3)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)
