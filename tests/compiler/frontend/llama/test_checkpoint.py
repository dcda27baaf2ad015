"""compiler/frontend/llama/checkpoint.py: files of llama2.c, whole and damaged."""

import struct

import numpy as np
import pytest

from tilewright.compiler.frontend.llama.checkpoint import read_checkpoint
from tilewright.hw.errors import FileError

FLOATS = 40 * 16 + 2 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 3 * 16 * 24) + 16 + 2 * 12 * 2


def test_arrays_lie_in_the_order_of_llama2_c(llama):
    path = llama()
    content = path.read_bytes()
    assert len(content) == 28 + 4 * FLOATS
    numbers = np.arange(FLOATS, dtype="<f4")
    path.write_bytes(content[:28] + numbers.tobytes())
    model = read_checkpoint(path)
    assert (model.name, model.sizes.head, model.sizes.kv_width) == ("small", 4, 8)
    assert model.embedding[0, 0] == 0 and model.embedding.shape == (40, 16) and model.classifier is model.embedding
    at, second = 640, model.layers[1]
    for key, size in (("attention_norm", 16), ("queries", 256), ("keys", 128), ("values", 128), ("attention_out", 256)):
        assert getattr(second, key).reshape(-1)[0] == at + size, key
        at += 2 * size
    for key, size in (("hidden_norm", 16), ("gate", 384), ("hidden_out", 384), ("up", 384)):
        assert getattr(second, key).reshape(-1)[0] == at + size, key
        at += 2 * size
    assert model.norm[0] == at and second.hidden_out.shape == (16, 24)


def test_a_classifier_of_its_own_has_a_negative_number_of_words(llama):
    model = read_checkpoint(llama(own_classifier=True))
    assert model.sizes.words == 40 and not np.array_equal(model.classifier, model.embedding)


def changed(index, value):
    def change(content):
        header = list(struct.unpack_from("<7i", content))
        header[index] = value
        return struct.pack("<7i", *header) + content[28:]

    return change


NAN = struct.pack("<f", np.nan)
DAMAGED = [
    (lambda content: content[:20], "has 20 bytes, a checkpoint of llama2.c begins with 28"),
    (
        lambda content: content[:-4],
        "has .* bytes, a model of width 16, hidden 24, .* context 12 has .*; the file is damaged",
    ),
    (lambda content: content + b"\0", "the file is damaged"),
    (lambda content: content[:-4] + NAN, "its weights 'sines' hold values that are not finite"),
    (lambda content: struct.pack("<2I", 0x616B3432, 1) + content, "a checkpoint of a later version of llama2.c; "),
    (changed(0, 0), "width = 0, must be 1 to 16777215 in llama2.c's version 0"),
    (changed(6, -5), "context = -5, must be"),
    (changed(5, 1), "words = 1, must be 2 to"),
    (lambda content: struct.pack("<7i", *[1 << 22] * 3, 1, 1, 2, 1) + content[28:], r"has .* bytes, a model of .* has"),
    (changed(3, 3), "width = 16 is no multiple of heads = 3"),
    (changed(4, 3), "heads = 4 is no multiple of kv_heads = 3"),
    (changed(3, 16), "heads of 1 elements; must be even"),
]


@pytest.mark.parametrize("change, text", DAMAGED, ids=[text for _, text in DAMAGED])
def test_damaged_files_are_named(llama, change, text):
    path = llama()
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(FileError, match=text) as caught:
        read_checkpoint(path)
    assert len(str(caught.value)) < 300
