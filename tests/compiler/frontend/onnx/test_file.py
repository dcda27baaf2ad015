"""What is checked of a file before its nodes are read."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.frontend.onnx.file import unsupported
from tilewright.compiler.graph import reference
from tilewright.hw.errors import FileError, UnsupportedError


def small(qdq):
    m = qdq()
    w, scale = m.weights(3, 4)
    m.output(m.quantise(m.node("Gemm", m.quantise(m.input("x", ["N", 4])), w, m.bias(scale), transB=1, name="same")))
    return m


def saved(m, change):
    model = m.proto()
    change(model)
    onnx.save(model, m.folder / "changed.onnx")
    return m.folder / "changed.onnx"


def test_refusals_are_grouped():
    text = str(unsupported(Path("m.onnx"), [("Sin", str(k), "is not supported") for k in range(1000)]))
    assert text == "m.onnx: 1000 unsupported operators: Sin '0' (and 999 more) is not supported"


def test_weights_may_be_inputs_too(qdq):
    def change(model):
        for i in model.graph.initializer:
            model.graph.input.append(onnx.helper.make_tensor_value_info(i.name, i.data_type, i.dims))

    assert [t.name for t in import_onnx(saved(small(qdq), change)).inputs] == ["x"]


def test_names_and_output_shapes_may_be_left_out(qdq):
    def change(model):
        for node in model.graph.node:
            node.name = ""
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")

    assert [op.name for op in import_onnx(saved(small(qdq), change)).layers] == ["gemm_4"]


def test_equal_names_are_told_apart(qdq):
    def change(model):
        for node in model.graph.node:
            node.name = "same"

    names = [op.name for op in import_onnx(saved(small(qdq), change)).ops]
    assert len({*names}) == len(names)


def in_opset(path, version):
    """A file in which amounts of padding and bounds are attributes."""
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes = [node("Pad", ["x"], ["p"], pads=[0, 0, 1, 2, 0, 0, 0, 1], value=0.5)]
    nodes += [node("Clip", ["p"], ["y"], min=-0.5, max=1.0)]
    x, y = info("x", onnx.TensorProto.FLOAT, [1, 2, 4, 4]), info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph(nodes, "old", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)], ir_version=5), path)
    return path


def test_older_opsets_are_converted(tmp_path):
    graph = import_onnx(in_opset(tmp_path / "old.onnx", 10))
    given = np.random.default_rng(1).normal(0, 2, (1, 2, 4, 4)).astype(np.float32)
    (found,) = reference.run(graph, {"x": given})[0].values()
    padded = np.pad(given, ((0, 0), (0, 0), (1, 0), (2, 1)), constant_values=0.5)
    np.testing.assert_array_equal(found, np.clip(padded, -0.5, 1))


def test_older_opsets_that_cannot_be_converted(tmp_path, monkeypatch):
    def fails(*args):
        raise RuntimeError("no adapter")

    monkeypatch.setattr(onnx.version_converter, "convert_version", fails)
    with pytest.raises(UnsupportedError, match=r"opset 9; must be 11 or later, and onnx cannot convert it \(no adapt"):
        import_onnx(in_opset(tmp_path / "old.onnx", 9))


@pytest.mark.parametrize("opset", [11, 13, 15, 19, 21, 22])
def test_opsets(m, compared, opset):
    w, _ = m.weights(4, 3, axis=1, per_channel=opset >= 13)
    y = m.quantise(m.node("MatMul", m.quantise(m.input("x", [1, 4])), w), 0.1)
    if opset < 13:
        for node in m.nodes:
            del node.attribute[:]
    m.output(m.node("Clip", y, m.const(np.float32(-9))))
    compared(m, 1.001, 0.1, 0.1, opset=opset)


@pytest.mark.parametrize("text", [b"QuantizeLinear", b"same"])
def test_names_that_are_no_text(qdq, text):
    m = small(qdq)
    path = m.folder / "changed.onnx"
    path.write_bytes(m.proto().SerializeToString().replace(text, b"\xff" + text[1:]))
    with pytest.raises(FileError, match=r"damaged \(name b'.xff.* is no UTF-8\)"):
        import_onnx(path)


@pytest.mark.parametrize("change", [{"data_type": 70}, {"dims": [1, 3, 3]}])
def test_constants_that_are_none(qdq, change):
    """onnx's checker lets both pass: a type that does not exist, and data for another shape."""
    m = small(qdq)
    model = m.proto()
    tensor = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    for name, value in change.items():
        if name == "dims":
            tensor.dims[:] = value
        else:
            setattr(tensor, name, value)
    (m.folder / "changed.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileError, match="damaged"):
        import_onnx(m.folder / "changed.onnx")


@pytest.mark.parametrize("where", ["input", "output"])
def test_types_that_do_not_exist(qdq, where):
    m = small(qdq)
    model = m.proto()
    getattr(model.graph, where)[0].type.tensor_type.elem_type = 111
    (m.folder / "changed.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileError, match="damaged"):
        import_onnx(m.folder / "changed.onnx")
