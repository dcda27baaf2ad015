"""runtime/c/language.py: the tables of words that C searches are those of the tokenizer."""

import ctypes
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.c import language
from tilewright.runtime.executable import Executable
from tilewright.runtime.language import Tokenizer
from tilewright.runtime.steps import HostStep, Tensor

SUPPORT = Path(language.__file__).parent / "support"
BYTES = [b"<0x%02X>" % byte for byte in range(256)]
WORDS = [b" ", b"a", b"b", b"c", b"ab", b"bc", b"abc", b" a", "ö".encode(), b"a", b" abc"]
WORDS += [b"<0xzz>", b"<0x+1>", b"<0x 1>", b"<0x41x", b"<0x4\xff>", b"<0x1_>"]  # these spell no byte
TEXTS = ["", "a", "abc", "ab bc abcabc", "öö", "é€😀", "<0x41>", "\n\t", "aabbcc" * 9, " a", "  "]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A file of pieces, two of which have equal scores, one of which comes twice."""
    pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *BYTES, *WORDS]
    scores = [0.0] * (3 + 256) + [-1.0, -2.0, -3.0, -4.0, 1.5, 1.5, 3.0, 0.5, -9.0, 7.0, 2.0, *[-9.0] * 6]
    data = b"".join(struct.pack("<fi", s, len(p)) + p for p, s in zip(pieces, scores))
    path = tmp_path_factory.mktemp("words") / "words.bin"
    path.write_bytes(struct.pack("<i", 7) + data)
    return path, len(pieces)


def model(words):
    """What looks like a step of a language model."""
    tensors = {
        "token": Tensor("token", (1,), "int32", "input"),
        "position": Tensor("position", (1,), "int32", "input"),
        "logits": Tensor("logits", (1, words), "float32", "output"),
    }
    name, keys = "0.keys.cache", np.zeros((1, 4, 32, 1), np.int8)
    tensors[name] = Tensor(name, keys.shape, "int8", "state", keys, name)
    tensors["table"] = Tensor("table", (32, words), "float32", "constant", np.zeros((32, words), np.float32))
    step = HostStep("logits", "gather", ["table", "token"], ["logits"], {"axis": 0})
    return Executable(PRESETS["tiny"], "model", tensors, [step])


@pytest.fixture(scope="module")
def library(gcc, tokenizer):
    """The words and the functions of tw_text.c."""
    path, size = tokenizer
    folder, found = path.parent, language.files(model(size), "net", path)
    (folder / "net_words.c").write_text(found["net_words.c"])
    flags = f"-std=c99 -O1 -Wall -Wextra -Wpedantic -Werror -shared -fPIC -I{SUPPORT} -fsanitize=undefined".split()
    out = folder / "words.so"
    subprocess.run(["gcc", *flags, "-o", out, folder / "net_words.c", SUPPORT / "tw_text.c"], check=True)
    return ctypes.CDLL(str(out)), Tokenizer(path, size)


def encoded(library, text, most=256):
    words, tokens = ctypes.byref(ctypes.c_char.in_dll(library, "net_words")), (ctypes.c_int32 * most)()
    count = library.tw_encode(words, text if isinstance(text, bytes) else text.encode(), tokens, most)
    return None if count < 0 else tokens[:count]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_to_tokens_and_back(text, library):
    functions, words = library
    tokens = [*words.begin, *words.encode(text)]
    assert encoded(functions, text) == tokens
    tokens += range(len(words.pieces))
    table = ctypes.byref(ctypes.c_char.in_dll(functions, "net_words"))
    byte, bytes_ = ctypes.c_uint8(), ctypes.c_void_p()
    for previous, token in zip(tokens, tokens[1:]):
        count = functions.tw_piece(table, previous, token, ctypes.byref(byte), ctypes.byref(bytes_))
        assert ctypes.string_at(bytes_.value or 0, count) == words.piece(previous, token)


def test_what_is_no_text_or_too_long_is_refused(library):
    functions, _ = library
    assert encoded(functions, b"\xff") is encoded(functions, b"a\xc3") is encoded(functions, b"\x80") is None
    assert encoded(functions, "c" * 20, most=10) is None
    assert encoded(functions, "", most=1) is None


def test_the_most_likely_is_the_first_of_the_largest(library):
    logits = (ctypes.c_float * 5)(-3, 2, 1, 2, 0)
    assert library[0].tw_most_likely(logits, 5) == 1


REFUSED = [*range(9), *range(11, 32), *range(0x7F, 0xA0), 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F)]
REFUSED += [*range(0x2060, 0x2070), 0xFEFF]


@pytest.mark.circuit
def test_only_characters_that_move_no_cursor_are_printed(library):
    def size(text):
        return library[0].tw_printable(text, len(text))

    shown = [c for c in map(chr, (*range(0x3000), *range(0xFE00, 0x10100), 0x10FFFF)) if size(c.encode()) != 0]
    assert all(size(c.encode()) == len(c.encode()) for c in shown)
    assert [ord(c) for c in map(chr, range(0x3000)) if c not in set(shown)] == REFUSED[:-1] and "\ufeff" not in shown
    assert [size("😀".encode()[:n]) for n in (1, 2, 3, 4)] == [-1, -1, -1, 4] and size("aé".encode()) == 1
    wrong = [b"\x9b", b"\xff", b"\xc0\x80", b"\xc3a", b"\xe0\x82\x9b", b"\xed\xa0\x80"]
    assert not any(map(size, [*wrong, b"\xf8\x90\x80\x80", b"\xf4\x90\x80\x80"]))


def test_the_example_has_the_names_of_the_network(tokenizer):
    found = language.files(model(tokenizer[1]), "story", tokenizer[0])
    assert set(found) == {"story_words.c", "main_generate.c"}
    assert '#include "story.h"' in found["main_generate.c"] and "tokens[32]" in found["main_generate.c"]
    assert "STORY_OUTPUT_LOGITS" in found["main_generate.c"] and "network" not in found["main_generate.c"]


def test_another_program_is_refused(tokenizer, cache):
    with pytest.raises(UnsupportedError, match="is no language model"):
        language.files(Executable.from_launch(cache().launch), "net", tokenizer[0])
