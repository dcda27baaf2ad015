"""compiler/frontend/llama/few_bits.py: weights on the grid of 4 bits, with less error than plain rounding."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.frontend.llama.checkpoint import read_checkpoint
from tilewright.compiler.frontend.llama.few_bits import few_bit_matrices, rounded
from tilewright.compiler.frontend.llama.floats import FloatLlama, sample
from tilewright.compiler.frontend.llama.forms import integers_of, logits_of, step_of
from tilewright.compiler.graph import IntegerConv2d, Linear
from tilewright.hw.errors import FileError

NATURAL = np.arange(64).reshape(4, 16)


def on_grid(values, groups):
    """Whether each group of inputs, int8 (outputs, inputs), is an integer from 1 to 15 times -8 to 7."""
    padded = np.pad(values.astype(int), ((0, 0), (0, 1)))  # input -1 is 0
    for group in groups:
        rows = padded[:, group]
        fits = [(rows % s == 0).all(1) & (rows >= -8 * s).all(1) & (rows <= 7 * s).all(1) for s in range(1, 16)]
        if not np.any(fits, 0).all():
            return False
    return True


def correlated(seed, tokens=400):
    """Weights (40, 64), and inputs (tokens, 64) of which many move together, as activations do."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(0, 1, (tokens, 8)) @ rng.normal(0, 1, (8, 64)) + rng.normal(0, 0.3, (tokens, 64))
    return rng.normal(0, 1, (40, 64)).astype(np.float32), inputs.astype(np.float32)


def plain(weight):
    """Each weight rounded alone, with the real scale that each group of 16 would like best: (outputs, inputs)."""
    grouped = weight.reshape(len(weight), -1, 16)
    scale = np.maximum(grouped.max(-1) / 7, grouped.min(-1) / -8)[..., None]
    return (np.clip(np.round(grouped / scale), -8, 7) * scale).reshape(weight.shape)


@pytest.mark.parametrize("seed", range(3))
def test_the_outputs_are_closer_than_those_of_plain_rounding(seed):
    weight, inputs = correlated(seed)
    found = rounded(weight, inputs.T @ inputs, NATURAL, np.ones(64, np.int64))
    assert found.values.dtype == np.int8 and found.scales.shape == (40,) and on_grid(found.values, NATURAL)
    compensated, alone = found.values * found.scales[:, None], plain(weight)
    real = inputs.astype(np.float64) @ weight.T
    errors = [np.mean((inputs @ rows.T - real) ** 2) for rows in (compensated, alone)]
    assert errors[0] < 0.5 * errors[1]  # although its scales have 4 bits


def test_groups_and_signs_are_those_asked_for():
    weight, inputs = correlated(5)
    rng = np.random.default_rng(6)
    groups = np.append(rng.permutation(64), [-1] * 16).reshape(16, 5).T
    signs = rng.choice([-1, 1], 64)
    found = rounded(weight, inputs.T @ inputs, groups, signs)
    assert on_grid(found.values * signs, groups) and not on_grid(found.values, NATURAL)
    assert np.corrcoef((found.values * found.scales[:, None]).ravel(), weight.ravel())[0, 1] > 0.9


def test_rows_of_zeros_stay_zeros():
    weight, inputs = correlated(7)
    weight[3], inputs[:, 5] = 0, 0
    found = rounded(weight, inputs.T @ inputs, NATURAL, np.ones(64, np.int64))
    assert not found.values[3].any() and (found.scales > 0).all() and np.isfinite(found.scales).all()


@pytest.fixture
def model(llama):
    return read_checkpoint(llama(width=32, hidden=40, heads=4, kv_heads=2, context=48))


@pytest.fixture
def texts(model):
    return [sample(model, 48, seed) for seed in range(4)]


def test_products_that_overflow_are_named(model, texts):
    """Of two values that float32 holds."""
    layers = tuple(
        replace(layer, up=layer.up * np.float32(1e21), hidden_out=layer.hidden_out / np.float32(1e21))
        for layer in model.layers
    )
    model = replace(model, layers=layers)
    assert np.isfinite(FloatLlama(model, 48).logits(texts[0])).all()
    with pytest.raises(FileError, match="its values overflow float32; the weights are too large, or damaged"):
        few_bit_matrices(model, texts, static=False)


@pytest.mark.parametrize("form", ["static", "wide"])
def test_weights_of_the_graph_lie_on_the_grid(model, texts, form):
    """Also behind gains below 0, and where the static form changes the order of attention's outputs."""
    gains = np.where(np.arange(32) % 3 == 0, -1, 1).astype(np.float32)
    layers = tuple(replace(layer, attention_norm=layer.attention_norm * gains) for layer in model.layers)
    model = replace(model, layers=layers)
    integers = integers_of(model, texts, form, 4)
    graph = step_of(integers)
    layers_seen = [op for op in graph.ops if isinstance(op, (Linear, IntegerConv2d)) and "logits" not in op.name]
    assert len(layers_seen) >= 8
    for op in layers_seen:
        values = op.weight.reshape(op.weight.shape[0], -1)
        groups = np.arange(-(-values.shape[1] // 16) * 16).reshape(-1, 16)
        groups = np.where(groups < values.shape[1], groups, -1)
        assert on_grid(values, groups), op.name
    text = texts[0][:10]
    found, real = logits_of(integers, 48)(text), FloatLlama(model, 48).logits(text)
    assert np.sqrt(np.mean((found - real) ** 2)) < 0.5 * real.std()
    assert np.abs(integers.matrices["classifier"].values).max() == 127  # it keeps its 8 bits
