"""runtime/language.py: byte pairs by score, files of the wrong size, programs that are no language models."""

import random
import struct

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError, InputError, UnsupportedError
from tilewright.runtime.executable import Executable, HostStep, Tensor
from tilewright.runtime.language import NOTHING, LanguageModel, Tokenizer, language_model
from tilewright.runtime.steps import When

PIECES = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % k for k in range(256))]
PIECES += [b" ", b"a", b"b", b"ab", b"ba", b" ab", "é".encode(), b"aba"]
SCORES = {b"ab": 3.0, b"ba": 5.0, b" ab": 9.0, b"aba": 1.0}
AT = {piece: k for k, piece in enumerate(PIECES)}


def tokenizer_bytes(pieces=PIECES):
    entries = [struct.pack("<fi", SCORES.get(piece, 0.0), len(piece)) + piece for piece in pieces]
    return struct.pack("<i", 8) + b"".join(entries)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "tok.bin").write_bytes(tokenizer_bytes())
    return tmp_path / "tok.bin"


def test_pairs_merge_by_the_highest_score_first(path):
    tokenizer = Tokenizer(path, len(PIECES))
    assert tokenizer.encode("ab") == [AT[b" ab"]]  # "ab" first, then " ab"
    assert tokenizer.encode("aba") == [AT[b" "], AT[b"aba"]]  # "ba" before "ab", so that " ab" is none
    assert tokenizer.encode("bab") == [AT[b" "], AT[b"ba"], AT[b"b"]]
    assert tokenizer.encode("") == []


def test_bytes_stand_for_what_has_no_piece(path):
    tokenizer = Tokenizer(path, len(PIECES))
    assert tokenizer.encode("éü") == [AT[b" "], AT["é".encode()], 3 + 0xC3, 3 + 0xBC]
    for text in ("ab aba", "üaé", "\0\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode([3 + 0xC3, AT[b"a"]]) == "�a"  # half of a character


@pytest.mark.parametrize("piece", [b"<0xzz>", b"<0x+1>", b"<0x 1>", b"<0x1_>", b"<0x41x"])
def test_only_two_digits_spell_a_byte(tmp_path, piece):
    (tmp_path / "t.bin").write_bytes(tokenizer_bytes([piece, b"<0x4a>"]))
    assert Tokenizer(tmp_path / "t.bin", 2).decode([0, 1]) == piece.decode() + "J"


def test_only_the_first_piece_loses_its_space(path):
    tokenizer = Tokenizer(path, len(PIECES))
    assert tokenizer.decode([AT[b" ab"], AT[b" ab"]]) == "ab ab"
    assert tokenizer.piece(NOTHING, AT[b" ab"]) == b"ab" and tokenizer.piece(AT[b"a"], AT[b" ab"]) == b" ab"


def test_a_byte_without_a_token_is_an_error(tmp_path):
    (tmp_path / "t.bin").write_bytes(tokenizer_bytes(PIECES[:100]))
    with pytest.raises(InputError, match="the prompt holds 'ü', for which the tokenizer has no token"):
        Tokenizer(tmp_path / "t.bin", 100).encode("ü")
    with pytest.raises(InputError, match=r"the prompt holds '\\udcff', which is no character; give a text in UTF-8"):
        Tokenizer(tmp_path / "t.bin", 100).encode("\udcff")


def one_by_one(tokenizer, tokens):
    """Merges as llama2.c does: it looks at all pairs again after each."""
    while True:
        pairs = [tokenizer.pieces[a] + tokenizer.pieces[b] for a, b in zip(tokens, tokens[1:])]
        known = [(-SCORES.get(piece, 0.0), k, AT[piece]) for k, piece in enumerate(pairs) if piece in AT]
        if not known:
            return tokens
        _, k, token = min(known)
        tokens = [*tokens[:k], token, *tokens[k + 2 :]]


def test_merges_are_those_of_looking_at_all_pairs_each_time(path):
    tokenizer, rng = Tokenizer(path, len(PIECES)), random.Random(5)
    for length in (1, 2, 3, *[40] * 20):
        text = "".join(rng.choice("ab  éü") for _ in range(length))
        tokens = []
        for character in " " + text:
            encoded = character.encode()
            tokens += [AT[encoded]] if encoded in AT else [3 + byte for byte in encoded]
        assert tokenizer.encode(text) == one_by_one(tokenizer, tokens), text


@pytest.mark.parametrize(
    "content, text",
    [
        (tokenizer_bytes(PIECES[:-1]), f"holds {len(PIECES) - 1} pieces, the model has {len(PIECES)} words"),
        (tokenizer_bytes([*PIECES, b"x"]), f"holds more than the {len(PIECES)} words of the model"),
        (tokenizer_bytes()[:-1], f"piece {len(PIECES) - 1} has 3 bytes, of which 2 are there"),
        (struct.pack("<ifi", 8, 0.0, -4), "piece 0 has -4 bytes"),
        (struct.pack("<ifi", 8, float("nan"), 1) + b"a", "the score of piece 0 is not a number; the file is damaged"),
        (b"", "holds 0 pieces"),
    ],
)
def test_files_of_another_model_are_named(tmp_path, content, text):
    (tmp_path / "t.bin").write_bytes(content)
    with pytest.raises(FileError, match=text):
        Tokenizer(tmp_path / "t.bin", len(PIECES))
    with pytest.raises(FileError, match="absent.bin: no such file"):
        Tokenizer(tmp_path / "absent.bin", 4)


def program(cache="0.keys.cache", token="token", shape=(1, 4, 9, 1), more=()):
    tensors = [Tensor(token, (1,), "int32", "input"), Tensor("position", (1,), "int32", "input")]
    tensors += [Tensor("table", (3, 7), "float32", "constant", np.ones((3, 7), np.float32))]
    tensors += [Tensor("logits", (1, 7), "float32", "output")]
    tensors += [Tensor(cache, shape, "int8", "state", np.zeros(shape, np.int8), cache)]
    step = HostStep("rows", "gather", ["table", token], ["logits"], {"axis": 0})
    if more:
        tensors += [Tensor(name, shape, "int32", "input") for name, shape in zip(("tokens", "block"), more)]
        tensors += [Tensor("first", (1, 7), "float32", "constant", np.ones((1, 7), np.float32))]
        step.when = When("position", 0, 9)
        last = HostStep("last", "gather", ["table", "block"], ["logits"], {"axis": 0}, when=When("block", 0, 3))
        used = HostStep("used", "gather", ["table", "tokens"], ["t"], {"axis": 0}, when=When("block", 0, 3))
        tensors += [Tensor("t", (*more[0], 7), "float32")]
        return Executable(PRESETS["tiny"], "m", {t.name: t for t in tensors}, [step, used, last])
    return Executable(PRESETS["tiny"], "m", {t.name: t for t in tensors}, [step])


def test_a_program_that_is_no_language_model_is_named():
    assert language_model(program()) == (9, 7, 1, 1)
    assert language_model(program(more=((3,), (1,)))) == LanguageModel(9, 7, 3)
    for wrong in (program(cache="x"), program(token="image"), program(shape=(9,))):
        with pytest.raises(UnsupportedError, match="program 'm' is no language model: its inputs must be"):
            language_model(wrong)
