"""runtime/language/tokenizer.py: byte pairs by score, bytes for what has no piece, files of the wrong size."""

import random
import struct

import pytest

from tilewright.hw.errors import FileError, InputError
from tilewright.runtime.language import Tokenizer

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
    assert tokenizer.encode("ab") == [1, AT[b" ab"]]  # "ab" first, then " ab"
    assert tokenizer.encode("aba") == [1, AT[b" "], AT[b"aba"]]  # "ba" before "ab", so that " ab" is none
    assert tokenizer.encode("bab") == [1, AT[b" "], AT[b"ba"], AT[b"b"]]
    assert tokenizer.encode("") == [1]


def test_bytes_stand_for_what_has_no_piece(path):
    tokenizer = Tokenizer(path, len(PIECES))
    assert tokenizer.encode("éü") == [1, AT[b" "], AT["é".encode()], 3 + 0xC3, 3 + 0xBC]
    for text in ("ab aba", "üaé", "\0\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode([1, 3 + 0xC3, AT[b"a"]]) == "�a"  # half of a character


@pytest.mark.parametrize("piece", [b"<0xzz>", b"<0x+1>", b"<0x 1>", b"<0x1_>", b"<0x41x"])
def test_only_two_digits_spell_a_byte(tmp_path, piece):
    (tmp_path / "t.bin").write_bytes(tokenizer_bytes([piece, b"<0x4a>"]))
    assert Tokenizer(tmp_path / "t.bin", 2).decode([1, 0, 1]) == piece.decode() + "J"


def test_only_the_first_piece_loses_its_space(path):
    tokenizer = Tokenizer(path, len(PIECES))
    assert tokenizer.decode([1, AT[b" ab"], AT[b" ab"]]) == "ab ab"


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
        tokens = [1]
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
