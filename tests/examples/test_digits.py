"""The committed network on the committed images: exact on the model. `make sim` runs all of them."""

import runpy
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(FOLDER / "run.py"))


def test_committed_files_are_small():
    assert sum((FOLDER / name).stat().st_size for name in ("digits.onnx", "inputs.npz")) <= 200_000


@pytest.mark.parametrize("images, others", [(12, []), (4, ["--config", "vta", "--contract", "single"])])
def test_a_few_images_are_exact(example, capsys, images, others):
    assert example["main"](["--images", str(images), *others]) == 0
    out = capsys.readouterr().out
    assert "100.0 % of the multiply-accumulates ran on the device; 4 programs proved free" in out
    assert out.count(" equal") == 6 and "WRONG" not in out
    for layer in ("conv1", "conv2", "conv3", "gemm"):
        assert f"int32 accumulators of {layer}" in out
    assert f"accuracy 100.00 %: {images} of {images} held-out digits" in out


def test_one_wrong_bit_is_seen(example):
    of = example["Comparison"].of
    expected = np.array([0.0, 1.0, np.nan], np.float32)
    assert of("x", expected.copy(), expected).holds
    assert of("x", np.array([-0.0, 1.0, np.nan], np.float32), expected).equal == 2
    assert of("x", expected[:2], expected).equal == 0


def test_mistakes_are_one_line(example, capsys):
    assert example["main"](["--config", "moon"]) == 3
    assert capsys.readouterr().err.startswith("error: unknown preset 'moon'")
