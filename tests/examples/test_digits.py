"""The committed network on the committed images: exact on the model. `make sim` runs all of them."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw

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
    *_, cycles, us, _, _ = next(line for line in out.splitlines() if "one image" in line).split()
    assert float(us) == pytest.approx(int(cycles.replace(",", "")) / 100)
    alone = tw.load(FOLDER / "digits.onnx", tw.load_config(others[1] if others else "pynq_z1"))
    with np.load(FOLDER / "inputs.npz") as data:
        alone = alone.run(data["inputs"][0], on="timing")[1].cycles
    found = re.search(r"an image takes (.*) cycles, (.*) us if the circuit closes at 100 MHz\n", out)
    assert found
    assert float(found[1].replace(",", "")) == pytest.approx(alone, rel=1e-3)  # buffers lie elsewhere
    assert float(found[2]) == pytest.approx(float(found[1].replace(",", "")) / 100, rel=1e-3)
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


@pytest.mark.circuit
def test_a_reader_that_ends_early_is_no_error():
    command = [sys.executable, str(FOLDER / "run.py"), "--images", "1"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout and run.stderr
    run.stdout.close()
    assert run.wait(120) == 141
    assert run.stderr.read() == b""
    run.stderr.close()
