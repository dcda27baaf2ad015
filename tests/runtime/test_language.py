"""runtime/language.py: byte pairs by score, files of the wrong size; the loop with a program that counts."""

import random
import struct

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError, InputError, UnsupportedError
from tilewright.runtime.executable import Executable, HostStep, Tensor
from tilewright.runtime.language import (
    NOTHING,
    LanguageModel,
    Tokenizer,
    language_model,
    most_likely,
    sampler,
    write,
)
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


class Counter:
    """The token behind k is k + 2; it keeps what it was given."""

    def __init__(self):
        self.given = []

    def run(self, inputs):
        if "tokens" in inputs:
            token = int(inputs["tokens"][-1])
            self.given.append((*inputs["tokens"].tolist(), "block", int(inputs["block"][0])))
        else:
            token = int(inputs["token"][0])
            self.given.append((token, int(inputs["position"][0])))
        assert {x.dtype for x in inputs.values()} == {np.dtype("int32")}
        return {"logits": np.eye(20, dtype=np.float32)[[(token + 2) % 20]]}


MODEL = LanguageModel(10, 20, 1)


def test_the_prompt_goes_in_first_then_what_was_chosen():
    program = Counter()
    steps = list(write(program, MODEL, [1, 8, 4], 6, most_likely))
    assert program.given == [(1, 0), (8, 1), (4, 2), (6, 3), (8, 4)]
    assert [(*step.tokens, step.following) for step in steps] == [(1, 8), (8, 4), (4, 6), (6, 8), (8, 10)]
    assert steps[0].logits[3] == 1


def test_a_text_ends_where_the_next_begins():
    program = Counter()
    steps = list(write(program, MODEL, [1, 17], 9, most_likely))
    assert [step.following for step in steps] == [17, 19, None] and program.given[-1] == (19, 2)
    steps = list(write(Counter(), MODEL, [1, 17], 9, most_likely, ends={5, 3}))
    assert [step.following for step in steps] == [17, 19, 1, None]


@pytest.mark.parametrize(
    "prompt, count, runs",
    [
        ([1, 8, 4], 5, [(1, 8, 4, "block", 0), (6, 3)]),
        ([1, 8, 4, 2, 3, 5, 9], 9, [(1, 8, 4, "block", 0), (2, 3, 5, "block", 1), (9, 6), (11, 7)]),
        ([1, 8], 4, [(1, 0), (8, 1), (10, 2)]),
        ([1, 8, 1, 6], 5, [(1, 8, 1, "block", 0), (6, 3)]),  # only a token that is chosen ends a text
    ],
)
def test_whole_blocks_of_the_prompt_go_in_together(prompt, count, runs):
    program = Counter()
    steps = list(write(program, MODEL._replace(block=3), prompt, count, most_likely))
    assert program.given == runs
    assert [step.position for step in steps] == [3 * run[-1] if "block" in run else run[-1] for run in runs]
    alone = list(write(Counter(), MODEL, prompt, count, most_likely))
    assert sum((step.tokens for step in steps), ()) == sum((step.tokens for step in alone), ())
    assert steps[-1].following == alone[-1].following


@pytest.mark.parametrize(
    "prompt, count, text",
    [
        ([1, 2, 3], 3, "the prompt has 3 tokens, 3 are wanted in all; ask for at least 4"),
        ([], 3, "the prompt has no tokens, and the model none that begins a text; give a prompt"),
        ([1] * 10, 10, "the prompt has 10 tokens, the context 10; shorten the prompt"),
        ([1], 11, "11 tokens do not fit the context of 10; ask for fewer"),
    ],
)
def test_what_does_not_fit_is_refused(prompt, count, text):
    program = Counter()
    with pytest.raises(InputError, match=text):
        list(write(program, MODEL, prompt, count, most_likely))
    assert not program.given


def test_samples_follow_the_probabilities():
    logits = np.log(np.array([0.5, 0.25, 0.25], np.float32))
    choose, again, other = sampler(1.0, 5), sampler(1.0, 5), sampler(1.0, 6)
    found = [choose(logits) for _ in range(4000)]
    assert found == [again(logits) for _ in range(4000)] != [other(logits) for _ in range(4000)]
    assert np.allclose(np.bincount(found) / 4000, [0.5, 0.25, 0.25], atol=0.03)
    for temperature in (0.05, 1e-323):
        cold = sampler(temperature, 5)
        assert {cold(logits) for _ in range(200)} == {0}
    hot = sampler(1e308, 5)
    assert {hot(logits) for _ in range(200)} == {0, 1, 2}
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="must be a finite number above 0; leave it out"):
            sampler(wrong, 0)


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
    assert language_model(program()) == (9, 7, 1)
    assert language_model(program(more=((3,), (1,)))) == LanguageModel(9, 7, 3)
    for wrong in (program(cache="x"), program(token="image"), program(shape=(9,))):
        with pytest.raises(UnsupportedError, match="program 'm' is no language model: its inputs must be"):
            language_model(wrong)
