"""cli/generate/writing.py: pieces of characters, and what differs from the interpreter."""

import numpy as np
import pytest

from tests.runtime.language.test_tokenizer import PIECES, tokenizer_bytes
from tilewright.cli.generate import writing
from tilewright.cli.generate.writing import Writer
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import Stats
from tilewright.runtime.executable import Executable, HostStep, Tensor
from tilewright.runtime.language import Tokenizer

WORDS = len(PIECES)


class Follows:
    """A program whose most likely tokens are those given, one after another."""

    def __init__(self, tokens):
        self.tokens, self.stats = iter(tokens), Stats(cycles=50)

    def run(self, inputs):
        return {"logits": np.eye(WORDS, dtype=np.float32)[[next(self.tokens)]]}


def executable():
    tensors = [Tensor(name, (1,), "int32", "input") for name in ("token", "position")]
    tensors += [Tensor("table", (3, WORDS), "float32", "constant", np.ones((3, WORDS), np.float32))]
    tensors += [Tensor("logits", (1, WORDS), "float32", "output")]
    tensors += [Tensor("0.keys.cache", (1, 4, 9, 1), "int8", "state", np.zeros((1, 4, 9, 1), np.int8), "0.keys.cache")]
    step = HostStep("rows", "gather", ["table", "token"], ["logits"], {"axis": 0})
    return Executable(PRESETS["tiny"], "m", {t.name: t for t in tensors}, [step])


def written(tmp_path, tokens, count, graph=None):
    (tmp_path / "tok.bin").write_bytes(tokenizer_bytes())
    writer = Writer(Tokenizer(tmp_path / "tok.bin", WORDS), graph, echo=True)
    writer.write(Follows(tokens), executable(), "", count, lambda logits: int(logits.argmax()))
    return writer


def test_a_character_is_printed_once_it_is_whole(tmp_path, capsys):
    writer = written(tmp_path, [3 + 0xC3, 3 + 0xBC, PIECES.index(b"a")], 4)
    assert capsys.readouterr().out == "üa\n" and writer.text == "üa"
    found = writer.result(1e8)
    assert (found["cycles_per_token"], found["tokens_per_second"]) == ([50] * 3, 2e6) and "wrong_positions" not in found


def test_the_end_of_a_text_and_half_a_character(tmp_path, capsys):
    writer = written(tmp_path, [PIECES.index(b"b"), 3 + 0xC3, 1], 9)
    assert capsys.readouterr().out == "b�\n" and writer.tokens == [1, PIECES.index(b"b"), 3 + 0xC3]


@pytest.mark.parametrize(
    "text, shown", [("\x1b\x07\n\ta\x9b", r"\x1b\x07 a\x9b"), ("\u202e\u2066\xa0", r"\u202e\u2066\xa0")]
)
def test_pieces_do_not_move_the_cursor(tmp_path, capsys, text, shown):
    """ESC, BEL, C1 and changes of the writing direction are escaped on the terminal; newlines, tabs, spaces pass."""
    writer = written(tmp_path, [3 + byte for byte in text.encode()], len(text.encode()) + 1)
    shown = shown.replace(" ", "\n\t").replace(r"\xa0", "\xa0")
    assert capsys.readouterr().out == f"{shown}\n" and writer.text == text


def test_logits_that_differ_are_counted(tmp_path, monkeypatch):
    class Golden:
        def logits(self, token):
            return np.eye(WORDS, dtype=np.float32)[PIECES.index(b"a")]

    monkeypatch.setattr(writing.Writer, "_golden", lambda self: Golden())
    tokens = [PIECES.index(b"a"), PIECES.index(b"b"), PIECES.index(b"a")]
    assert written(tmp_path, tokens, 4, graph="some").wrong == [1]
