"""compiler/frontend/llama/quantise.py: ranges of values, and the integers that they give."""

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.llama.checkpoint import read_checkpoint
from tilewright.compiler.frontend.llama.floats import FloatLlama, sample
from tilewright.compiler.frontend.llama.quantise import calibrate, quantised


@pytest.fixture
def model(llama):
    return read_checkpoint(llama())


def test_ranges_are_of_the_texts(model):
    text = sample(model, 12, 0)
    ranges, twice = calibrate(model, [text]), calibrate(model, [text, text])
    assert ranges == twice and ranges["logits", 0] == np.abs(FloatLlama(model, 12).logits(text)).max()
    assert calibrate(model)["logits", 0] > ranges["logits", 0]


def test_weights_are_close_to_the_real_ones(model):
    ranges = calibrate(model)
    found = quantised(model, ranges)
    for name, matrix in found.matrices.items():
        real = model.classifier if name == "classifier" else np.stack([getattr(each, name) for each in model.layers])
        errors = np.abs(matrix.values * matrix.scales[..., None] - real)
        assert (errors <= matrix.scales[..., None] * 0.501).all() and (np.abs(matrix.values).max(-1) == 127).all()
    scale = ranges["embedding", 0] / 127
    assert np.abs(found.embedding * scale - np.clip(model.embedding, -127 * scale, 127 * scale)).max() <= scale * 0.501


def test_integers_in_a_file_make_the_same_graph(llama, model, tmp_path):
    quantised(model, calibrate(model)).save(tmp_path / "small.npz")
    first, second = import_model(llama()), import_model(tmp_path / "small.npz")
    assert [(op.name, op.output) for op in first.ops] == [(op.name, op.output) for op in second.ops]
    for one, other in zip(first.layers, second.layers, strict=True):
        assert np.array_equal(one.weight, other.weight) and np.array_equal(one.scales, other.scales)
    assert (first.name, first.inputs, first.outputs) == (second.name, second.inputs, second.outputs)
