"""cli/remedy.py: what verbs say of networks that mostly run on the host."""

import html
import json
import re

import numpy as np
import pytest

from tests.cli import test_layers as layers
from tests.compiler import conftest
from tilewright.cli.remedy import remedy

pytest.importorskip("tvm")
onnx = pytest.importorskip("onnx")


def network(path, operators, weights=()):
    """An ONNX network of `operators`, (kind, inputs, outputs), from x (1, 4, 6, 6) to y."""
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy"]
    for size in (1, 4, 6, 6):
        tensors[0].type.tensor_type.shape.dim.add(dim_value=size)
    nodes = [onnx.helper.make_node(kind, [*inputs], [*outputs]) for kind, inputs, outputs in operators]
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in dict(weights).items()]
    graph = onnx.helper.make_graph(nodes, "g", tensors[:1], tensors[1:], constants)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    return path


tflite = conftest.tflite
WEIGHT = {"w": np.full((8, 4, 3, 3), 0.1, np.float32)}
CONV = [("Conv", "xw", "y")]
PARTLY = [("QuantizeLinear", "xsz", "q"), ("DequantizeLinear", "qsz", "d"), ("Conv", "dw", "y")]
SCALE = {"s": np.array(0.1, np.float32), "z": np.array(0, np.uint8)}


@pytest.fixture
def float_network(tmp_path):
    return network(tmp_path / "net.onnx", CONV, WEIGHT)


@pytest.mark.parametrize("verb", ["compile", "run", "assign", "explain", "report"])
def test_a_float_network_names_the_command(tilewright, float_network, tmp_path, verb):
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4, 6, 6), np.float32))
    more = {
        "compile": ("-o", tmp_path / "net.tw"),
        "run": ("--inputs", tmp_path / "x.npz"),
        "report": ("-o", tmp_path / "x.html"),
    }.get(verb, ())
    text = (
        f"0 % of the multiply-accumulates are on the device, as {float_network} is a float network: tilewright "
        f"quantise {float_network} --calibration DATA.npz"
    )
    assert tilewright(verb, float_network, *more).out.splitlines()[-1] == text
    facts = json.loads(tilewright(verb, float_network, *more, "--json").out)
    assert facts.get("placement", facts)["remedy"] == text
    if verb == "report":
        assert html.escape(text) in (tmp_path / "x.html").read_text()


def test_an_exploration_names_the_command(tilewright, float_network, tmp_path):
    pytest.importorskip("optuna")
    (tmp_path / "space.json").write_text('{"queue_depth": [8]}')
    study = ("--study", f"sqlite:///{tmp_path}/study.db", "--space", tmp_path / "space.json", "--trials", 1)
    run = ("explore", float_network, "--config", "tiny", *study)
    text = tilewright(*run).out.splitlines()[-1]
    assert text.endswith(f"is a float network: tilewright quantise {float_network} --calibration DATA.npz")
    assert json.loads(tilewright(*run, "--json").out)["remedies"] == {str(float_network): text}


def test_a_program_of_a_float_network_names_the_way(tilewright, float_network, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4, 6, 6), np.float32))
    assert tilewright("compile", float_network, "-o", tmp_path / "net.tw").status == 0
    last = tilewright("run", tmp_path / "net.tw", "--inputs", tmp_path / "x.npz").out.splitlines()[-1]
    assert last.endswith(
        "net.tw was compiled from a float network: quantise that, tilewright quantise NET.onnx --calibration DATA.npz"
    )


@pytest.mark.parametrize(
    ("operators", "weights", "text"),
    [
        (
            PARTLY,
            WEIGHT | SCALE,
            "is quantised in part (DequantizeLinear, QuantizeLinear): quantise the float network it was",
        ),
        ([("Relu", "x", "y")], {}, "no operator is on the device, as"),
    ],
)
def test_what_else_is_float(tilewright, tmp_path, operators, weights, text):
    path = network(tmp_path / "net.onnx", operators, weights)
    done = tilewright("compile", path, "-o", tmp_path / "net.tw")
    assert done.status == 0 and text in done.out.splitlines()[-1], done


def executable(device_macs, host_macs, contract: str | None = "single"):
    """A launch and a step of the host on integers."""
    found = layers.executable(device_macs, host_macs)
    found.contract = contract
    return found


def test_integers_on_the_host_and_enough_on_the_device():
    assert remedy("net.onnx", executable(1, 9)) == (
        "10 % of the multiply-accumulates are on the device, as the host computes 'flat' and others; tilewright assign "
        "net.onnx says why of each"
    )
    for enough in (executable(1, 1), executable(0, 0), executable(1, 9, contract=None)):
        assert remedy("net.onnx", enough) is None
    assert "NET, the network it was compiled from, says why" in str(remedy("net.tw", executable(1, 9)))


def test_nothing_to_tune(tilewright, float_network, tmp_path):
    run = ("tune", float_network, "--db", tmp_path / "tiles.db")
    text = tilewright(*run).out.splitlines()[-1]
    assert text.endswith(f"tilewright quantise {float_network} --calibration DATA.npz")
    assert json.loads(tilewright(*run, "--json").out)["remedy"] == text


def test_nothing_for_the_delegate(tilewright, tflite):
    pytest.importorskip("ai_edge_litert")
    m = tflite()
    m.output(m.node("RELU", [m.input((1, 4), None, dtype="FLOAT32")], [m.tensor((1, 4), dtype="FLOAT32")]))
    path = m.save()
    (result,) = json.loads(tilewright("diff", path, "--json").out)["networks"]
    assert re.match(rf"no operator is on the accelerator \(.+\); tilewright quantise {path} --cal", result["remedy"])
    assert result["remedy"] in tilewright("diff", path).out
