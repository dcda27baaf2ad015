"""Channels on two compute units: the table of `assign`, and --mapping, with a network whose weights are ternary."""

import json

import numpy as np
import pytest

from tilewright.cli.assign import UNIT_COLUMNS, unit_rows
from tilewright.compiler.frontend import import_model
from tilewright.compiler.mapping import ChannelMapping, read_mapping, write_mapping
from tilewright.hw.config import PRESETS


@pytest.fixture
def ternary_onnx(tmp_path):
    """The path of a network x (1, 4, 6, 6) -> first (8 channels) -> second (8) -> scores (5 classes).

    All weights of `first` and `scores` are ternary, of `second` those of the even channels.
    """
    pytest.importorskip("onnx")
    pytest.importorskip("tvm")
    from tests.compiler.conftest import QdqModel

    m = QdqModel(tmp_path)

    def layer(kind, name, x, weight, **attributes):
        scale = m.const(m.rng.uniform(0.1, 0.3, len(weight)).astype(np.float32))
        w = m.node("DequantizeLinear", m.const(weight), scale, m.const(np.zeros(len(weight), np.int8)), axis=0)
        return m.quantise(m.node(kind, x, w, name=name, **attributes))

    first, second, scores = (
        m.rng.integers(-1, 2, shape).astype(np.int8) for shape in ((8, 4, 3, 3), (8, 8, 3, 3), (5, 72))
    )
    second[1::2] = m.rng.integers(-9, 9, second[1::2].shape)
    x = layer("Conv", "first", m.quantise(m.input("x", [1, 4, 6, 6])), first, pads=[1] * 4)
    x = layer("Conv", "second", x, second, pads=[1] * 4, strides=[2, 2])
    m.output(layer("Gemm", "scores", m.node("Flatten", x), scores, transB=1))
    return m.save("ternary.onnx")


TINY = PRESETS["tiny_two"]


@pytest.fixture
def mapping(ternary_onnx, tmp_path):
    names = [op.name for op in import_model(ternary_onnx).layers]
    layers = dict(
        zip(names, ({"gemm": [1, 2, 3], "ternary": [0, 4, 5, 6, 7]}, {"gemm": [0, 1, 3, 5, 7], "ternary": [2, 4, 6]}))
    )
    write_mapping(ChannelMapping(layers), tmp_path / "mapping.json")
    return tmp_path / "mapping.json"


def test_rows(ternary_onnx, mapping):
    graph = import_model(ternary_onnx)
    rows = unit_rows(graph, TINY, read_mapping(mapping))
    assert [list(row) for row in rows] == [list(UNIT_COLUMNS)] * 3
    assert [(row["channels"], row["capable"], row["ternary"]) for row in rows] == [(8, 8, 5), (8, 4, 3), (5, 5, 0)]
    for row in rows:
        assert row["cycles"] >= max(row["gemm_cycles"], row["ternary_cycles"]) > 0
        assert row["bound"] in ("gemm", "ternary", "transfers")
        assert row["cheapest_cycles"] <= row["ternary_alone"] <= row["gemm_alone"]
        assert 0 <= row["cheapest"] <= row["channels"]
    assert rows[2]["ternary_cycles"] == 0 and rows[2]["cycles"] == rows[2]["gemm_alone"]
    assert unit_rows(graph, PRESETS["tiny"]) == []


@pytest.mark.parametrize("device", ["spec", "model"])
def test_run(tilewright, ternary_onnx, mapping, tmp_path, device):
    x = np.random.default_rng(0).normal(size=(2, 1, 4, 6, 6)).astype(np.float32)
    np.savez(tmp_path / "x.npz", inputs=x)
    found = []
    for options in ([], ["--mapping", mapping]):
        out = tmp_path / f"y{len(found)}.npz"
        given = ["--inputs", tmp_path / "x.npz", "-o", out, "--config", "tiny_two", "--on", device, "--check"]
        done = tilewright("run", ternary_onnx, *given, *options)
        assert done.status == 0, done.err + done.out
        found.append(np.load(out)["outputs"])
    assert np.array_equal(*found)


def test_compile(tilewright, ternary_onnx, mapping, tmp_path):
    done = tilewright("compile", ternary_onnx, "-o", tmp_path / "x.tw", "--config", "tiny_two", "--mapping", mapping)
    assert done.status == 0 and "verified" in done.out, done.err
    assert "TERNARY" in tilewright("disasm", tmp_path / "x.tw").out


@pytest.mark.circuit
def test_assign(tilewright, printed, ternary_onnx, mapping, tmp_path):
    done = tilewright("assign", ternary_onnx, "--config", "tiny_two", "--mapping", mapping)
    assert done.status == 0, done.err
    assert any(line.split()[:1] == ["layer"] and "bound by" in line for line in done.out.splitlines())
    chosen = tmp_path / "min.json"
    found = printed("assign", ternary_onnx, "--config", "tiny_two", "--min-cost", chosen)
    layers = read_mapping(chosen).layers
    assert {row["layer"]: row["ternary"] for row in found["layers"] if row["ternary"]} == {
        name: len(split["ternary"]) for name, split in layers.items() if split["ternary"]
    }
    assert all(row["cycles"] <= row["gemm_alone"] for row in found["layers"])
    assert json.loads(tilewright("assign", ternary_onnx, "--config", "tiny", "--json").out)["layers"] == []


def test_refusals(tilewright, refused, ternary_onnx, mapping, tmp_path, double_py):
    refused(6, "x.npz", "run", ternary_onnx, "--inputs", "x.npz", "--mapping", mapping, "--config", "tiny")
    done = tilewright("assign", ternary_onnx, "--mapping", mapping, "--config", "tiny")
    assert done.status == 5 and "is mapped to unit ternary, which configuration tiny lacks" in done.err
    done = tilewright("compile", f"{double_py}:double", "-o", tmp_path / "x.tw", "--mapping", mapping)
    assert done.status == 5 and "--mapping" in done.err and "is only for networks" in done.err
    refused(5, "--min-cost", "assign", ternary_onnx, "--mapping", mapping, "--min-cost", tmp_path / "min.json")
    done = tilewright("compile", ternary_onnx, "-o", tmp_path / "x.tw", "--mapping", tmp_path / "none.json")
    assert done.status == 6 and "none.json: no such file" in done.err
    name = import_model(ternary_onnx).layers[1].name
    write_mapping(ChannelMapping({name: {"gemm": range(1, 8), "ternary": [0]}}), tmp_path / "one.json")
    done = tilewright(
        "compile", ternary_onnx, "-o", tmp_path / "x.tw", "--mapping", tmp_path / "one.json", "--config", "tiny_two"
    )
    assert done.status == 0, done.err
    write_mapping(ChannelMapping({name: {"gemm": range(1, 8), "ternary": [1]}}), tmp_path / "one.json")
    done = tilewright(
        "compile", ternary_onnx, "-o", tmp_path / "x.tw", "--mapping", tmp_path / "one.json", "--config", "tiny_two"
    )
    assert done.status == 9 and done.err.count("\n") == 1 and "mapped more than once" in done.err
