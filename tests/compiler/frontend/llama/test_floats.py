"""The Llama in float32 against one written out with loops, and what quantisation costs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.llama import measure
from tilewright.compiler.frontend.llama.checkpoint import read_checkpoint
from tilewright.compiler.frontend.llama.floats import FloatLlama, sample, silu_of, surprise
from tilewright.compiler.frontend.llama.measure import by_steps, perplexity
from tilewright.hw.errors import FileError, UnsupportedError

TOKENS = [1, 7, 39, 7, 20, 3, 3]


def plain(model, tokens):
    """Logits of the last token, in float64, with loops."""
    s = model.sizes

    def norm(x, gain):
        return x / np.sqrt(np.mean(x * x) + 1e-5) * gain

    def turned(x, position):
        y = x.copy()
        for k in range(0, s.head, 2):
            angle = position / 10000 ** (k / s.head)
            y[k] = x[k] * np.cos(angle) - x[k + 1] * np.sin(angle)
            y[k + 1] = x[k] * np.sin(angle) + x[k + 1] * np.cos(angle)
        return y

    rows = [model.embedding[token].astype(float) for token in tokens]
    for layer in model.layers:
        h = [norm(x, layer.attention_norm) for x in rows]
        q, k, v = ([matrix @ x for x in h] for matrix in (layer.queries, layer.keys, layer.values))
        for t, x in enumerate(rows):
            y = np.zeros(s.width)
            for head in range(s.heads):
                mine, its = slice(head * s.head, (head + 1) * s.head), head * s.kv_heads // s.heads
                shared = slice(its * s.head, (its + 1) * s.head)
                scores = [turned(q[t][mine], t) @ turned(k[u][shared], u) / s.head**0.5 for u in range(t + 1)]
                weights = np.exp(scores) / np.exp(scores).sum()
                y[mine] = sum(weight * v[u][shared] for u, weight in enumerate(weights))
            rows[t] = x + layer.attention_out @ y
        for t, x in enumerate(rows):
            h = norm(x, layer.hidden_norm)
            gate = layer.gate @ h
            rows[t] = x + layer.hidden_out @ (gate / (1 + np.exp(-gate)) * (layer.up @ h))
    return model.classifier @ norm(rows[-1], model.norm)


@pytest.mark.parametrize("own_classifier", [False, True])
def test_logits_are_those_of_the_plain_loops(llama, own_classifier):
    model = read_checkpoint(llama(own_classifier=own_classifier))
    at_once = FloatLlama(model, 12).logits(TOKENS)
    steps = FloatLlama(model, 12)
    for k, token in enumerate(TOKENS):
        one = steps.logits([token])[0]
        assert np.allclose(one, at_once[k], atol=1e-5)
        assert np.allclose(one, plain(model, TOKENS[: k + 1]), atol=1e-4)


def test_texts_are_fixed_by_their_seed_and_begin_with_the_first_token(llama):
    model = read_checkpoint(llama())
    texts = [sample(model, 12, seed) for seed in (3, 3, 4, 5)]
    assert texts[0] == texts[1] != texts[2] and {text[0] for text in texts} == {1}
    assert all(1 not in text[1:] and len(text) <= 12 for text in texts)


def test_texts_begin_and_end_with_the_models_tokens(llama):
    model = replace(read_checkpoint(llama()), begin=7, ends=frozenset({2, 9, 20}))
    texts = [sample(model, 12, seed) for seed in range(20)]
    assert {text[0] for text in texts} == {7} and not any({2, 9, 20} & {*text} for text in texts)
    assert any(1 in text[1:] for text in texts) and min(map(len, texts)) < 12


def test_silu_is_0_far_below_0_without_a_warning():
    x = np.array([-3e38, -1000, -89, -1, 0, 2, 1000, 3e38], np.float32)
    found = silu_of(x)
    assert found.dtype == np.float32 and np.allclose(found[3:6], [-0.268941, 0, 1.761594])
    assert (np.abs(found[1:3]) < 1e-30).all() and abs(found[0]) < 10 and (found[6:] == x[6:]).all()


def test_weights_that_overflow_are_named(llama):
    path = llama()
    content = path.read_bytes()
    path.write_bytes(content[:28] + (np.frombuffer(content[28:], "<f4") * np.float32(1e37)).tobytes())
    with pytest.raises(FileError, match="small: its values overflow float32; the weights are too large, or damaged"):
        sample(read_checkpoint(path), 12, 0)


def test_surprise_is_the_negative_log_of_the_probability():
    logits = np.log(np.array([[0.25, 0.5, 0.25], [0.1, 0.1, 0.8], [1.0, 1.0, 1.0]])) + 5
    assert np.allclose(surprise(logits, [0, 1, 2]), -np.log([0.5, 0.8]))


SHARED = Path(__file__).parents[5] / "shared" / "models" / "stories260K" / "stories260K.bin"


def test_perplexities_are_of_texts_of_the_model(llama):
    path = llama()
    model = read_checkpoint(path)
    found = perplexity(model, import_model(path), 3)
    logs, same, steps = [], [], by_steps(import_model(path))
    for seed in (1000, 1001, 1002):
        text = sample(model, 12, seed)
        scores = FloatLlama(model, 12).logits(text).astype(float)
        shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        logs += [np.log(shares[k, token]) for k, token in enumerate(text[1:])]
        same += [a == b for a, b in zip(scores.argmax(1)[:-1], steps(text).argmax(1))]
    assert found.float32 == pytest.approx(np.exp(-np.mean(logs)))
    assert found.integers == pytest.approx(found.float32, rel=0.1) and found.agreement == np.mean(same)


def test_texts_that_end_at_once_have_no_perplexity(llama, monkeypatch):
    path = llama()
    model, graph = read_checkpoint(path), import_model(path)
    monkeypatch.setattr(measure, "own_texts", lambda model, seed, count: [[1]] * count)
    with pytest.raises(UnsupportedError, match="small: all its texts end with their first token"):
        perplexity(model, graph, 2)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_file(), reason="../shared/models/stories260K is missing")
def test_a_real_model_loses_little():
    found = perplexity(read_checkpoint(SHARED), import_model(SHARED), 16)
    assert found.float32 == pytest.approx(3.673, abs=0.001)  # as measured with another implementation
    assert found.integers <= 3.85
