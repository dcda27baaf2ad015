"""Codecs of a model's own vocabulary: tokenizer.json and GGUF files, by the package tokenizers.

A GGUF file with scores (SentencePiece's) needs no package: `Pieces` merges by them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ..hw.errors import FileError, InputError, UnsupportedError
from ..hw.foreign import TEXT_BYTES, map_regular, read_json, read_regular
from ..hw.needs import need
from .gguf import MAGIC, Gguf, read_gguf
from .pieces import NOTHING, Pieces, TextCodec, spelled

TOKENIZER = "tokenizer.json"
_SPACE = "▁"  # in place of a space in SentencePiece's pieces
# of special tokens that end a text, whatever else a file says
_ENDS = ("</s>", "<|endoftext|>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>")
_CONTROL, _USER, _UNUSED = 3, 4, 5  # kinds of tokens in a GGUF file
_PADDED = 512  # a model may have more words than its tokenizer, up to the next multiple
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# how GGUF's names of pre-tokenizers cut a text, one pattern after another
_CUTS = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3,),
    "qwen2": (_LLAMA3.replace("{1,3}", ""),),
}


def read_codec(path: Path, words: int) -> TextCodec:
    """The codec in a GGUF file, a tokenizer.json, or a folder with one. Raises as `open_codec`."""
    if path.is_dir():
        path = path / TOKENIZER
        if not path.is_file():
            raise FileError(f"{path}: no such file; give the model's tokenizer with --tokenizer")
    content = map_regular(path, "a tokenizer")
    if content[: len(MAGIC)] == MAGIC:
        return _of_gguf(read_gguf(path, content), words)
    return _of_json(path, words)


class Vocabulary(TextCodec):
    """A `TextCodec` of the package tokenizers: `made` is its tokenizer, of a model of `words`."""

    def __init__(
        self,
        path: Path,
        made: Any,
        words: int,
        begin: Sequence[int],
        ends: Collection[int],
        template: str | None,
        named: Mapping[str, str],
    ):
        self._made, self.begin, self.template, self.named = made, tuple(begin), template, named
        known = made.get_vocab(with_added_tokens=True)
        most = max(known.values(), default=-1) + 1
        if not most <= words <= -(-most // _PADDED) * _PADDED:
            raise FileError(f"{path}: has {most:,} tokens, the model {words:,} words; give the model's own tokenizer")
        special = {token: added.special for token, added in made.get_added_tokens_decoder().items()}
        names = {token: name for name, token in known.items()}
        self.ends = frozenset(ends) | {known[name] for name in _ENDS if special.get(known.get(name, -1))}
        spell = _of_bytes if _is_byte_level(made) else _of_spaces
        self._pieces = [
            (b"" if special[k] else names[k].encode()) if k in special else spell(names.get(k, ""))
            for k in range(words)
        ]
        self._strips = spell is _of_spaces
        # whether the package leaves out characters that are no piece
        self._drops = self._strips and not (made.model.unk_token or made.model.byte_fallback)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """As of `TextCodec`. Raises `InputError` for characters without a token."""
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            wrong = text[exc.start]
            raise InputError(f"the prompt holds {wrong!r}, which is no character; give a text in UTF-8") from None
        self._made.encode_special_tokens = not special
        with _named("the text has no tokens"):
            found = self._made.encode(text, add_special_tokens=False)
        end = 0
        for first, last in [*found.offsets, (len(text), len(text))] if self._drops else []:
            if lost := text[end:first].strip():
                wrong = next((c for c in text if self._made.token_to_id(c) is None and c.strip()), lost[0])
                raise InputError(f"the prompt holds {wrong!r}, for which the tokenizer has no token")
            end = max(end, last)
        return found.ids

    def piece(self, previous: int, token: int) -> bytes:
        """As of `TextCodec`. The first piece of a text loses a space that SentencePiece puts before a text."""
        piece = self._pieces[token]
        return piece.removeprefix(b" ") if self._strips and previous in (*self.begin[-1:], NOTHING) else piece


def _is_byte_level(made: Any) -> bool:
    """Whether pieces are bytes, each spelled as a character, as GPT-2's."""
    return "ByteLevel" in f"{made.decoder!r} {made.pre_tokenizer!r}"


def _byte_characters() -> dict[str, int]:
    """The byte that each character of GPT-2's pieces stands for: itself where it is printed, else the next free one."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(0x100 + k): byte for k, byte in enumerate(others)}


_BYTES = _byte_characters()


def _of_bytes(piece: str) -> bytes:
    """The bytes of one of GPT-2's pieces."""
    found = [_BYTES.get(character) for character in piece]
    return piece.encode() if None in found else bytes(byte for byte in found if byte is not None)


def _of_spaces(piece: str) -> bytes:
    """The bytes of one of SentencePiece's pieces."""
    return spelled(piece.replace(_SPACE, " ").encode())


@contextlib.contextmanager
def _named(what: str) -> Generator[None, None, None]:
    """Raise `FileError`, which says `what`, for errors of the package tokenizers: `Exception` itself, and panics."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as exc:
        raise FileError(f"{what} ({type(exc).__name__}: {exc!s:.80})".replace("\n", " ")) from None


def _of_json(path: Path, words: int) -> Vocabulary:
    """The codec of a tokenizer.json; what begins and ends texts, and the template, are in files beside it."""
    need(f"{path}", "language", "tokenizers")
    import tokenizers

    data = read_regular(path, "a tokenizer.json", TEXT_BYTES)
    with _named(f"{path}: no tokenizer.json that the package tokenizers reads"):
        made = tokenizers.Tokenizer.from_buffer(data)
        made.no_truncation()
        made.no_padding()
        ids, plain = (made.encode("a", add_special_tokens=special).ids for special in (True, False))
    at = next((k for k in range(len(ids)) if ids[k : k + len(plain)] == plain), 0)
    begin = ids[:at]
    ends, facts = set[int](), dict[str, Any]()
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        facts = _object(path.parent / name)
        given: Any = facts.get("eos_token_id")
        listed = cast("list[Any]", given if isinstance(given, list) else [given])
        ends |= {token for token in listed if type(token) is int}
    named = {key: _content(facts.get(key)) for key in ("bos_token", "eos_token")}
    token = made.token_to_id(named["eos_token"]) if named["eos_token"] else None
    ends |= set() if token is None else {token}
    return Vocabulary(path, made, words, begin, ends, _template(path.parent, facts), named)


def _content(given: Any) -> str:
    """How a text writes a special token of tokenizer_config.json; empty without one."""
    found = cast("dict[str, Any]", given).get("content") if isinstance(given, dict) else given
    return found if isinstance(found, str) else ""


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, {} where there is none."""
    if not path.is_file():
        return {}
    found = read_json(path, "a JSON object", TEXT_BYTES)
    if not isinstance(found, dict):
        raise FileError(f"{path}: must be a JSON object")
    return cast("dict[str, Any]", found)


def _template(folder: Path, facts: dict[str, Any]) -> str | None:
    """The chat template beside a tokenizer.json: in a file of its own, or in tokenizer_config.json, alone or named."""
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        return read_regular(alone, "a chat template", TEXT_BYTES).decode(errors="replace")
    found: Any = facts.get("chat_template")
    if isinstance(found, list):
        named = (cast("dict[str, Any]", each) for each in cast("list[Any]", found) if isinstance(each, dict))
        found = next((each.get("template") for each in named if each.get("name") == "default"), None)
    return found if isinstance(found, str) else None


def _of_gguf(file: Gguf, words: int) -> TextCodec:
    """The codec in a GGUF file."""
    path, kind = file.path, file.fact("tokenizer.ggml.model", str, "none")
    tokens, kinds = file.fact("tokenizer.ggml.tokens", list, []), file.fact("tokenizer.ggml.token_type", list, [])
    kinds = kinds or [1] * len(tokens)
    if len(tokens) != words:
        raise FileError(
            f"{path}: has {len(tokens):,} tokens, the model {words:,} words; give the model's own tokenizer"
        )
    if len(kinds) != words or not all(isinstance(each, str) for each in tokens):
        raise FileError(f"{path}: its tokens are no texts, or {len(kinds)} of them have a type; the file is damaged")

    def numbers(*keys: str) -> list[int]:
        found = [file.fact(f"tokenizer.ggml.{key}", int, -1) for key in keys]
        if any(token >= words for token in found):
            raise FileError(f"{path}: {' or '.join(keys)} is not among its {words:,} tokens; the file is damaged")
        return [token for token in found if token >= 0]

    if kind not in ("gpt2", "llama"):
        raise UnsupportedError(f"{path}: a tokenizer of kind {kind!r:.40}; must be gpt2 or llama, or give --tokenizer")
    begins = file.fact("tokenizer.ggml.add_bos_token", bool, kind == "llama")
    begin = tuple(numbers("bos_token_id")) if begins else ()
    ends = frozenset(numbers("eos_token_id", "eot_token_id", "eom_token_id"))
    template = file.fact("tokenizer.chat_template", str)
    named = {f"{key}_token": tokens[token] for key in ("bos", "eos") for token in numbers(f"{key}_token_id")}
    if kind == "llama":
        return _scored(file, tokens, kinds, begin, ends, template, named)
    return Vocabulary(path, _byte_pairs(file, tokens, kinds), words, begin, ends, template, named)


def _scored(
    file: Gguf,
    tokens: list[str],
    kinds: list[int],
    begin: tuple[int, ...],
    ends: frozenset[int],
    template: str | None,
    named: Mapping[str, str],
) -> Pieces:
    """The codec of a vocabulary with scores."""
    scores = file.fact("tokenizer.ggml.scores", list, [])
    if len(scores) != len(tokens) or not all(isinstance(s, float) and not math.isnan(s) for s in scores):
        raise FileError(f"{file.path}: {len(tokens):,} tokens need as many scores, all numbers; the file is damaged")
    names = {name: k for k, (name, kind) in enumerate(zip(tokens, kinds)) if kind in (_CONTROL, _USER)}
    always = [name for name, k in names.items() if kinds[k] == _USER]
    apart = {*names.values(), *(k for k, kind in enumerate(kinds) if kind == _UNUSED)}
    hidden = {k for k, kind in enumerate(kinds) if kind == _CONTROL}
    pieces = [b"" if k in hidden else name.replace(_SPACE, " ").encode() for k, name in enumerate(tokens)]
    ends |= {names[name] for name in _ENDS if name in names}
    spaced = file.fact("tokenizer.ggml.add_space_prefix", bool, True)
    return Pieces(pieces, scores, begin, ends, template, names, always, apart, spaced, named)


def _byte_pairs(file: Gguf, tokens: list[str], kinds: list[int]) -> Any:
    """A tokenizer of the package tokenizers: GPT-2's byte pairs, cut as the file's pre-tokenizer does."""
    need(f"{file.path}", "language", "tokenizers")
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    cut = file.fact("tokenizer.ggml.pre", str, "none")
    if cut not in _CUTS:
        known = ", ".join(_CUTS)
        raise UnsupportedError(
            f"{file.path}: a pre-tokenizer {cut!r:.40}; must be {known}, or give tokenizer.json with --tokenizer"
        )
    parts = (str(pair).partition(" ") for pair in file.fact("tokenizer.ggml.merges", list, []))
    merges = [(first, second) for first, _, second in parts]
    vocabulary = {name: k for k, name in enumerate(tokens)}
    with _named(f"{file.path}: its merges do not fit its tokens"):
        made: Any = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=cut == "llama-bpe"))
    if cut == "qwen2":
        made.normalizer = normalizers.NFC()
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in _CUTS[cut]]
    made.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    for k, kind in enumerate(kinds):
        if kind in (_CONTROL, _USER):
            made.add_tokens([AddedToken(tokens[k], special=kind == _CONTROL, normalized=False)])
    return made
