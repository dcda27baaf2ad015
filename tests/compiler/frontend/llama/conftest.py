"""A small Llama with random weights, as a file of llama2.c."""

import struct

import numpy as np
import pytest

SEED = 11
SIZES = {"width": 16, "hidden": 24, "layers": 2, "heads": 4, "kv_heads": 2, "words": 40, "context": 12}


def llama_bytes(own_classifier=False, **changes):
    """The file of a random model; `changes` are of `SIZES`."""
    s = SIZES | changes
    rng = np.random.default_rng(SEED)
    width, hidden, layers, words = (s[key] for key in ("width", "hidden", "layers", "words"))
    head = width // s["heads"]
    kv = head * s["kv_heads"]

    def matrices(*shape):
        return rng.normal(0, shape[-1] ** -0.5, shape)

    def gains(*shape):
        return rng.uniform(0.5, 1.5, shape)

    parts = [rng.normal(0, 0.2, (words, width)), gains(layers, width), matrices(layers, width, width)]
    parts += [matrices(layers, kv, width), matrices(layers, kv, width), matrices(layers, width, width)]
    parts += [gains(layers, width), matrices(layers, hidden, width), matrices(layers, width, hidden)]
    parts += [matrices(layers, hidden, width), gains(width), np.zeros((2, s["context"], head // 2))]
    parts += [matrices(words, width)] if own_classifier else []
    header = [*(s[key] for key in SIZES)]
    header[5] = -words if own_classifier else words
    return struct.pack("<7i", *header) + b"".join(part.astype("<f4").tobytes() for part in parts)


@pytest.fixture
def llama(tmp_path):
    """A function that writes such a file and gives its path."""

    def written(**facts):
        path = tmp_path / "small.bin"
        path.write_bytes(llama_bytes(**facts))
        return path

    return written
