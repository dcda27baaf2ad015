"""compiler/frontend/llama/integers.py: the file, whole and damaged."""

from dataclasses import astuple

import numpy as np
import pytest

from tilewright.compiler.frontend.llama.checkpoint import read_checkpoint
from tilewright.compiler.frontend.llama.quantise import Matrix, calibrate, quantised, read_integers
from tilewright.compiler.frontend.source import read_source
from tilewright.hw.errors import FileError


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


DAMAGED = [
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
]


def test_members_that_no_such_file_has(saved):
    np.savez(saved, **np.load(saved), other=np.zeros(3))
    with pytest.raises(FileError, match="has 'other', which no such file has; the file is damaged"):
        read_integers(read_source(saved))


@pytest.mark.parametrize("name, value, text", DAMAGED, ids=[f"{row[0]}-{k}" for k, row in enumerate(DAMAGED)])
def test_damaged_files_are_named(saved, name, value, text):
    arrays = dict(np.load(saved))
    arrays.pop(name)
    np.savez(saved, **arrays | ({} if value is None else {name: value}))
    with pytest.raises(FileError, match=text) as caught:
        read_integers(read_source(saved))
    assert len(str(caught.value)) < 300


def test_what_is_no_archive_is_named(saved):
    saved.write_bytes(saved.read_bytes()[:-9])
    with pytest.raises(FileError, match="small.npz: not a readable .npz file"):
        read_integers(read_source(saved))
