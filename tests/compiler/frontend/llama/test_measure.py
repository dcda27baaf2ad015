"""compiler/frontend/llama/measure.py: what quantisation costs."""

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.llama import measure
from tilewright.compiler.frontend.llama.checkpoint import read_checkpoint
from tilewright.compiler.frontend.llama.floats import FloatLlama, sample
from tilewright.compiler.frontend.llama.measure import perplexity
from tilewright.hw.errors import UnsupportedError


def test_perplexities_are_of_texts_of_the_model(llama):
    path = llama()
    model = read_checkpoint(path)
    found = perplexity(model, import_model(path), 3)
    logs = []
    for seed in (1000, 1001, 1002):
        text = sample(model, 12, seed)
        scores = FloatLlama(model, 12).logits(text).astype(float)
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        logs += [np.log(shares[k, token]) for k, token in enumerate(text[1:])]
    assert found["float32"] == pytest.approx(np.exp(-np.mean(logs)))
    assert found["int8"] == pytest.approx(found["float32"], rel=0.1)


def test_texts_that_end_at_once_have_no_perplexity(llama, monkeypatch):
    path = llama()
    model, graph = read_checkpoint(path), import_model(path)
    monkeypatch.setattr(measure, "sample", lambda model, length, seed: [1])
    with pytest.raises(UnsupportedError, match="small: all its texts end with their first token"):
        perplexity(model, graph, 2)
