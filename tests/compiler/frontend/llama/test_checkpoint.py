"""Files of Llamas, in float32 as llama2.c has them and in integers: whole and damaged."""

import struct
from dataclasses import astuple

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.llama.checkpoint import read_checkpoint
from tilewright.compiler.frontend.llama.forms import read_integers
from tilewright.compiler.frontend.llama.quantise import Matrix, calibrate, quantised
from tilewright.compiler.frontend.source import read_source
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
    (changed(0, 0), "width = 0, must be 1 to 16777215"),
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


@pytest.fixture
def model(llama):
    return read_checkpoint(llama())


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


@pytest.fixture
def saved(llama, tmp_path):
    model = read_checkpoint(llama())
    path = tmp_path / "small.npz"
    quantised(model, calibrate(model)).save(path)
    return path


def test_a_file_gives_what_was_saved_and_is_the_same_every_time(llama, saved, tmp_path):
    found, again = read_integers(read_source(saved)), tmp_path / "again.npz"
    found.save(again)
    assert again.read_bytes() == saved.read_bytes() and found.name == "small"
    model = read_checkpoint(llama())
    assert astuple(found.sizes) == astuple(model.sizes) and found.ranges == pytest.approx(calibrate(model))
    assert np.array_equal(found.gains["hidden_norm"][1], model.layers[1].hidden_norm)


def test_rows_columns_and_signs():
    matrix = Matrix(np.array([[1, 2], [3, 4]], np.int8), np.array([0.5, 0.25], np.float32))
    lanes = np.array([1, -1, 0])
    assert matrix.rows(lanes).values.tolist() == [[3, 4], [0, 0], [1, 2]]
    assert matrix.rows(lanes).scales[[0, 2]].tolist() == [0.25, 0.5]
    assert matrix.columns(lanes).values.tolist() == [[2, 0, 1], [4, 0, 3]]
    assert matrix.signed(np.array([-0.5, 0])).values.tolist() == [[-1, 2], [-3, 4]]
    assert Matrix.of(np.zeros((2, 3), np.float32)).values.tolist() == [[0, 0, 0]] * 2


DAMAGED_INTEGERS = [
    ("kind", np.array("another"), "holds no language model in integers; give what tilewright quantise wrote"),
    ("sizes", np.array([16, 24, 2, 4, 2, 40, 0]), "context = 0, must be 1 to"),
    ("sizes", np.array([16, 24, 2, 3, 2, 40, 12]), "width = 16 is no multiple of heads = 3"),
    ("sizes", np.array([16, 24]), r"sizes is int64 \(2,\), must be int64 \(7,\); the file is damaged"),
    ("embedding", np.zeros((40, 15), np.int8), r"embedding is int8 \(40, 15\), must be int8 \(40, 16\)"),
    ("embedding", np.full((40, 16), -128, np.int8), "embedding holds -128, must be -127 to 127; the file is damaged"),
    ("up", np.full((2, 24, 16), -128, np.int8), "up holds -128, must be -127 to 127"),
    ("up", None, "has no 'up'; the file is damaged"),
    ("up.scales", np.zeros((2, 24), np.float32), "up.scales holds values that are not above 0 and finite"),
    ("gate.range", np.array([1.0, np.inf]), "gate.range holds values that are not above 0 and finite"),
    ("gate.range", np.array([1e-300, 1.0]), "gate.range holds values that are not above 0 and finite in float32"),
    ("gate.range", np.array([1.0, 1e300]), "gate.range holds values that are not above 0 and finite in float32"),
    ("norm", np.full(16, np.nan, np.float32), "norm holds values that are not finite"),
    ("other", np.zeros(3), "has 'other', which no such file has; the file is damaged"),
]


@pytest.mark.parametrize(
    "name, value, text", DAMAGED_INTEGERS, ids=[f"{row[0]}-{k}" for k, row in enumerate(DAMAGED_INTEGERS)]
)
def test_damaged_files_of_integers_are_named(saved, name, value, text):
    arrays = dict(np.load(saved))
    arrays.pop(name, None)
    np.savez(saved, **arrays | ({} if value is None else {name: value}))
    with pytest.raises(FileError, match=text) as caught:
        read_integers(read_source(saved))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("base", [10000.0, 100000.0, 1e6])
def test_the_files_own_cosines_and_sines_give_the_rates(llama, base):
    path = llama(width=32, heads=4)
    content = bytearray(path.read_bytes())
    rates = np.array([base ** (-k / 8) for k in (0, 2, 4, 6)])
    turned = np.arange(12)[:, None] * rates
    content[-2 * 12 * 4 * 4 :] = np.stack([np.cos(turned), np.sin(turned)]).astype("<f4").tobytes()
    path.write_bytes(content)
    assert np.array_equal(read_checkpoint(path).rates, rates)


def test_tables_that_are_no_cosines_give_the_usual_base(llama):
    assert np.allclose(read_checkpoint(llama()).rates, [1, 0.01])  # zeros, as llama2.c does not read them
