"""`tilewright quantise`: files of integers, and mistakes."""

import json

import pytest

from tests.compiler.frontend.llama.conftest import llama_bytes
from tests.runtime.test_language import PIECES, tokenizer_bytes


@pytest.fixture
def small(tmp_path):
    """The path of a small model with random weights."""
    (tmp_path / "tok.bin").write_bytes(tokenizer_bytes())
    path = tmp_path / "small.bin"
    path.write_bytes(llama_bytes(words=len(PIECES), layers=1))
    return path


def test_a_text_of_the_integers_is_that_of_the_checkpoint(tilewright, small, tmp_path):
    path = tmp_path / "small.npz"
    found = json.loads(tilewright("quantise", small, "-o", path, "--texts", 1, "--json").out)
    assert found["bytes"] == path.stat().st_size and set(found["perplexity"]) == {"float32", "int8"}
    rest = ("--tokenizer", tmp_path / "tok.bin", "--config", "tiny", "--tokens", 6, "--json")
    texts = [json.loads(tilewright("generate", model, *rest).out) for model in (small, path)]
    assert texts[0]["tokens"] == texts[1]["tokens"] and 0 < texts[1]["host_share"] <= 1
    done = tilewright("generate", path, *rest, "--texts", 1)
    assert done.status == 5 and "--texts compares with the float32 model; give the checkpoint, .bin" in done.err


def test_scales_are_those_of_the_lines_of_a_file(tilewright, small, tmp_path):
    (tmp_path / "text").write_text("ab ab\n\n" + "ba " * 99 + "\n")  # the second is cut to the context
    given = ("--tokenizer", tmp_path / "tok.bin", "--calibration", tmp_path / "text", "--texts", 0)
    done = tilewright("quantise", small, "-o", tmp_path / "a.npz", *given)
    assert done.status == 0 and done.out.endswith(" kB\n") and "perplexity" not in done.out
    assert tilewright("quantise", small, "-o", tmp_path / "b.npz", "--texts", 0).status == 0
    assert (tmp_path / "a.npz").read_bytes() != (tmp_path / "b.npz").read_bytes()


def test_mistakes_are_one_line(tilewright, small, tmp_path):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "cut.bin").write_bytes(small.read_bytes()[:-5])
    (tmp_path / "other.bin").write_bytes(tokenizer_bytes(PIECES[:-1]))
    tokenizer = ("--tokenizer", tmp_path / "tok.bin")
    out = ("-o", tmp_path / "x.npz")
    for arguments, status, text in (
        ((small, "-o", tmp_path / "x.tw"), 6, "must end in .npz"),
        ((tmp_path / "cut.bin", *out), 6, "the file is damaged"),
        (
            (small, *out, "--tokenizer", tmp_path / "other.bin", "--calibration", tmp_path / "empty"),
            6,
            f"holds {len(PIECES) - 1} pieces",
        ),
        ((small, *out, *tokenizer), 2, "tok.bin is for the texts of --calibration; give both or neither"),
        ((small, *out, "--calibration", tmp_path / "empty"), 5, "give the model's tokens with --tokenizer"),
        ((small, *out, *tokenizer, "--calibration", tmp_path / "empty"), 6, "holds no text"),
        ((small, *out, *tokenizer, "--calibration", tmp_path / "none"), 6, "no such file"),
    ):
        done = tilewright("quantise", *arguments)
        assert text in done.err and done.err.count("\n") == 1 and len(done.err) < 400 and done.status == status
    assert not (tmp_path / "x.npz").exists()
