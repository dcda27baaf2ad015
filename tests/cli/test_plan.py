"""cli/plan.py on the example network; plans themselves are tested in tests/compiler/test_memory.py."""

from pathlib import Path

import pytest

pytest.importorskip("onnx")
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def test_table_and_picture(tilewright, tmp_path):
    pytest.importorskip("matplotlib")
    done = tilewright("plan", DIGITS, "-o", tmp_path / "plan.svg")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split() == ["buffer", "bytes", "first", "last", "address", "end"]
    assert lines[-1].startswith("lower bound ")
    assert (tmp_path / "plan.svg").read_text().startswith("<?xml")


def test_json(printed):
    found = printed("plan", DIGITS, "--in-place")
    assert found["network"] == "digits" and found["bound"] == found["bytes"] <= found["greedy"]
    conv1 = next(row for row in found["buffers"] if row["buffer"] == "conv1")
    assert conv1["bytes"] == conv1["end"] - conv1["address"] == 16 * 8 * 8


def test_too_little_memory(tilewright):
    done = tilewright("plan", DIGITS, "--capacity", 1000)
    assert done.status == 7 and done.err.count("\n") == 1
    assert "the capacity is 1,000" in done.err and "'conv1'" in done.err


def test_other_files(refused, tmp_path):
    (tmp_path / "x.tw").write_bytes(b"\xff" * 30)
    refused(5, "unknown kind of network; must be one of .tflite, .onnx, .pt2, .bin", "plan", tmp_path / "x.tw")
