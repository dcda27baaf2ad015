"""The kernels of the tutorial: alone on all devices, and for the operators of the network in the same file."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm")

from examples import kernels
from tilewright.cli.main import run as command
from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import Unfit
from tilewright.runtime.verify import verify

SOURCE = Path(kernels.__file__)
TINY = PRESETS["tiny"]
TINY = TINY.replace(name="tiny_tables", extensions=TINY.extensions | {"lookup", "lane_reduce"}, par_entries=64)


def softmax_of(*shape):
    return kernels.Softmax("s", (g.Tensor("x", shape, scale=1 / 16),), g.Tensor("y", shape, "int8", 1 / 256, -128))


def attention_of(*shape):
    tensors = [g.Tensor(name, shape, scale=1 / 32) for name in ("q", "k", "v", "y")]
    return kernels.Attention("a", tuple(tensors[:3]), tensors[3])


@pytest.mark.circuit
@pytest.mark.parametrize("on", ["model", "timing", "rtl"])
@pytest.mark.parametrize("kernel, op", [
    (kernels.softmax, softmax_of(1, 8, 3, 5)),
    (kernels.attention, attention_of(1, 8, 12, 1)),
])  # fmt: skip
def test_a_kernel_is_exact_on_every_device(kernel, op, on):
    if on == "rtl":
        pytest.importorskip("amaranth")
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-127, 128, t.shape).astype(np.int8) for t in op.inputs]
    found, stats = kernel.run(*arrays, op=op, config=TINY, on=on)
    np.testing.assert_array_equal(found, op.compute(*arrays))
    if on != "model":
        assert abs(stats.cycles - kernel.cycles(op=op, config=TINY)) < 0.05 * stats.cycles


@pytest.mark.parametrize("kernel, op", [
    (kernels.softmax, softmax_of(1, 64, 30, 30)),
    (kernels.attention, attention_of(1, 64, 160, 1)),
])  # fmt: skip
def test_larger_ones_go_through_in_parts_and_are_proved(kernel, op):
    rng = np.random.default_rng(4)
    arrays = [rng.integers(-127, 128, t.shape).astype(np.int8) for t in op.inputs]
    found, _ = kernel.run(*arrays, op=op, config=kernels.CONFIG)
    np.testing.assert_array_equal(found, op.compute(*arrays))
    (step,) = kernel.compile(op=op, config=kernels.CONFIG).launches
    assert verify(step.launch, memory=True).certificate is not None


def test_they_are_near_to_what_they_stand_for():
    op = softmax_of(1, 32, 4, 4)
    x = np.random.default_rng(5).integers(-128, 128, op.x.shape).astype(np.int8)
    exact = np.exp(x / 16)
    assert np.abs(op.compute(x) + 128.0 - 256 * exact / exact.sum(1, keepdims=True)).max() < 3
    op = attention_of(1, 16, 32, 1)
    q, k, v = (np.random.default_rng(n).integers(-60, 60, op.x.shape).astype(np.int8) for n in range(3))
    a, b, c = (each[0, :, :, 0] / 32 for each in (q, k, v))
    weights = np.exp(a.T @ b / 4)
    means = (weights / weights.sum(1, keepdims=True)) @ c.T
    assert np.abs(op.compute(q, k, v)[0, :, :, 0].T - 32 * means).max() < 3


def test_what_does_not_suit_them():
    assert kernels.softmax.why_not(op=softmax_of(1, 8, 4, 4)) == "it needs the extensions lane_reduce, lookup"
    assert "1 images of 10 channels: must be one of whole blocks of 4" in kernels.softmax.why_not(
        op=softmax_of(1, 10, 4, 4), config=TINY
    )
    with pytest.raises(Unfit, match="kernel attention: 16384 entries of ACC: they do not fit"):
        kernels.attention.compile(op=attention_of(1, 64, 4096, 1), config=kernels.CONFIG)


def test_the_command_runs_the_network_of_the_file_with_the_kernels_of_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kernels.py", str(tmp_path / "x.npz")])
    runpy.run_path(str(SOURCE), run_name="__main__")
    assert "attention: equal to NumPy" in capsys.readouterr().out
    model, given = f"{SOURCE}:network", ["--target", f"{SOURCE}:kernels", "--config", kernels.CONFIG]
    inputs = ["--inputs", str(tmp_path / "x.npz")]
    assert command(["run", model, *given, *inputs, "--on", "timing", "--check", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["check"]["equal"] and found["check"]["operators"] == 6
    assert [row["where"] for row in found["layers"][:2]] == ["host", "device"]
    assert command(["compile", model, *given, "-o", str(tmp_path / "x.tw")]) == 0
    assert command(["run", str(tmp_path / "x.tw"), *inputs, "-o", str(tmp_path / "y.npz")]) == 0
    expected = reference.run(kernels.network(), kernels.inputs())[0]["y"]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["outputs"], expected)
    capsys.readouterr()
    assert command(["assign", model, *given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernels"][1] == "kernel attention (Attention) computes attention"
    rows = {row["operator"]: row["module"] for row in found["operators"]}
    assert rows["attention"] == rows["softmax"] == rows["layer q"] == "accelerator"
    assert command(["explain", model, *given, "--operator", "attention"]) == 0
    assert command(["report", model, *given, "--json"]) == 0


@pytest.mark.parametrize("arguments, words", [
    ([":network"], "host: it has no kernel); name a kernel of it, --target FILE.py:KERNEL or target="),
    ([":network", "--target", f"{SOURCE}:inverse_sums"], "or write @tw.kernel(...) above a kernel"),
    ([":network", "--target", f"{SOURCE}:soft"], "its functions are exponentials, to_weights, inverse_sums, softmax, "),
    ([":network", "--target", "kernels.py"], "must be FILE.py:NAME, kernels of tw.kernel or modules"),
    ([":network", "--target", f"{SOURCE}:STEP"], "is float; must be a kernel that tw.kernel makes, an ExecModule"),
    ([":network", "--target", f"{SOURCE}:kernels", "--config", "vta"], "runs no kernels"),
    ([":STEP", "--target", f"{SOURCE}:kernels"], "is only for networks"),
])  # fmt: skip
def test_a_mistake_on_the_command_line_is_one_sentence(arguments, words, tmp_path, capsys):
    model, *others = arguments
    assert command(["compile", f"{SOURCE}{model}", *others, "-o", str(tmp_path / "x.tw")]) > 0
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
