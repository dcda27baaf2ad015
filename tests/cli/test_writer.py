"""cli/writer.py: what is printed of a text, what its runs take, and the comparison with the interpreter."""

from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import pytest

from tests.cli.speech import WORDS, Follows, writer_of
from tests.runtime.test_language import PIECES, tokenizer_bytes
from tilewright.cli.generate import Speech, write_text
from tilewright.runtime.language import Tokenizer
from tilewright.runtime.sampling import Sampling

most_likely = Sampling().chooser(0)


def written(tmp_path, tokens, count, graph=None, stops=()):
    (tmp_path / "tok.bin").write_bytes(tokenizer_bytes())
    writer = writer_of(Follows(tokens), Tokenizer(tmp_path / "tok.bin", WORDS), graph=graph)
    speech = Speech(count, Sampling(), None, stops, False, None, None, None, None)
    return writer, write_text(writer, speech, "", echo=True)


def test_a_character_is_printed_once_it_is_whole(tmp_path, capsys):
    writer, facts = written(tmp_path, [3 + 0xC3, 3 + 0xBC, PIECES.index(b"a")], 4)
    assert capsys.readouterr().out == "üa\n" and (facts["text"], facts["finish"]) == ("üa", "length")
    found = writer.result(1e8)
    assert (found["cycles_per_token"], found["tokens_per_second"]) == ([50] * 3, 2e6) and "wrong_positions" not in found
    assert found["host_seconds"] == 0.75 and found["host_tokens_per_second"] == 4


def test_the_end_of_a_text_and_half_a_character(tmp_path, capsys):
    _, facts = written(tmp_path, [PIECES.index(b"b"), 3 + 0xC3, 1], 9)
    assert capsys.readouterr().out == "b�\n" and facts["tokens"] == [1, PIECES.index(b"b"), 3 + 0xC3]
    assert facts["finish"] == "stop"


def test_a_stop_text_is_not_printed_in_part(tmp_path, capsys):
    tokens = [PIECES.index(piece) for piece in (b"a", b"b", b"ba", b"a")]
    _, facts = written(tmp_path, tokens, 9, stops=("bba", "x"))
    assert capsys.readouterr().out == "a\n" and (facts["text"], facts["finish"]) == ("a", "stop")
    assert facts["tokens"] == [1, *tokens[:3]]


@pytest.mark.parametrize(
    "text, shown", [("\x1b\x07\n\ta\x9b", r"\x1b\x07 a\x9b"), ("\u202e\u2066\xa0", r"\u202e\u2066\xa0")]
)
def test_pieces_do_not_move_the_cursor(tmp_path, capsys, text, shown):
    """ESC, BEL, C1 and changes of the writing direction are escaped on the terminal; newlines, tabs, spaces pass."""
    _, facts = written(tmp_path, [3 + byte for byte in text.encode()], len(text.encode()) + 1)
    shown = shown.replace(" ", "\n\t").replace(r"\xa0", "\xa0")
    assert capsys.readouterr().out == f"{shown}\n" and facts["text"] == text


class Golden:
    """An interpreter whose most likely token is always the same; it keeps what it was given."""

    texts: ClassVar[list[list[int]]] = []

    def __init__(self, graph):
        self.state = {}
        self.texts.append([])

    def logits(self, token):
        self.texts[-1].append(token)
        return np.eye(WORDS, dtype=np.float32)[ord("a")]


def test_logits_that_differ_are_counted(monkeypatch):
    monkeypatch.setattr("tilewright.cli.writer.Steps", Golden)
    monkeypatch.setattr(Golden, "texts", [])
    writer = writer_of(Follows(b"abaaab"), graph="some")
    "".join(writer.answer([256, 1], most_likely, 5)[1])  # the first run chooses nothing, and has its logits, too
    assert writer.wrong == [1]
    kept, answer = writer.answer([256, 1, ord("c")], most_likely, 5)
    assert kept == 2 and "".join(answer) == "ab" and writer.wrong == [1, 3]
    # a text that begins as the one before is given to the interpreter from its beginning on
    assert Golden.texts == [[256, 1, ord("b"), ord("a")], [256, 1, ord("c"), ord("a")]]


def test_a_prompt_has_a_progress_display(monkeypatch):
    """Of the tokens that go in; it ends before the first token of the answer."""
    seen = []

    @contextmanager
    def progress(what, total):
        seen.append((what, total))
        yield lambda steps: seen.append(steps)
        seen.append("end")

    monkeypatch.setattr("tilewright.cli.report.progress", progress)
    writer = writer_of(Follows(b"abcde"))
    assert "".join(writer.answer([256, 1, 2], most_likely, 5)[1]) == "cd"
    assert seen == [("reading the prompt", 3), 1, 1, 1, "end"]
    assert "".join(writer.answer([256, 1, 2, 3], most_likely, 5)[1]) == "e"
    assert seen[5:] == [("reading the prompt", 1), 1, "end"]
