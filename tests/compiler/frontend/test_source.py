"""compiler/frontend/source.py: files of networks, and the files that hold their data."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.source import as_source, check_kind, contract_of, kind_of, read_source
from tilewright.hw.errors import FileError, UnsupportedError

VALUES = np.arange(24, dtype=np.int32).reshape(4, 6)


@pytest.fixture
def path(tmp_path):
    """A model of two constants, one of them that of a node; both are in the file `data`, from byte 8 on."""
    for tensor in (first := onnx.numpy_helper.from_array(VALUES, "first")), (second := onnx.TensorProto()):
        tensor.CopyFrom(first)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
    second.name = "second"
    point(first, location="data", offset="8", length="96")
    point(second, location="data", offset="104")
    (tmp_path / "data").write_bytes(bytes(8) + VALUES.tobytes() + (VALUES + 1).tobytes())
    node = onnx.helper.make_node("Constant", [], ["second"], value=second)
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [], [first])), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def point(tensor, **fields):
    tensor.ClearField("external_data")
    for key, value in fields.items():
        tensor.external_data.add(key=key, value=value)


def change(path, **fields):
    """Let the first constant of a model point elsewhere."""
    model = onnx.load(path, load_external_data=False)
    point(model.graph.initializer[0], **fields)
    path.write_bytes(model.SerializeToString())


def test_data_in_other_files_becomes_part_of_the_model(path):
    source = read_source(path)
    assert len(source.parts) == 2
    model = source.onnx()
    first, second = model.graph.initializer[0], model.graph.node[0].attribute[0].t
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(first), VALUES)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(second), VALUES + 1)


def test_the_digest_is_of_all_that_is_read(path):
    digests = [read_source(path).digest, read_source(path).digest]
    data = path.parent / "data"
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")
    digests.append(read_source(path).digest)
    path.rename(path.parent / "n.onnx")
    digests.append(read_source(path.parent / "n.onnx").digest)
    assert digests[0] == digests[1] and len(set(digests)) == 3


def test_a_source_stays_as_it_was_read(path):
    source = read_source(path)
    digest = source.digest
    path.unlink()
    (path.parent / "data").unlink()
    assert as_source(source) is source and source.digest == digest
    assert onnx.numpy_helper.to_array(source.onnx().graph.initializer[0])[3, 5] == 23


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"location": "../data"}, r"'first' has its data in '\.\./data'; only files in the model's folder are read"),
        ({"location": "/etc/hostname"}, "only files in the model's folder are read"),
        ({"location": ""}, "has its data in ''; only files in the model's folder"),
        ({}, "has its data in ''; only files in the model's folder"),
        ({"location": "link"}, "has its data in 'link'; only files in the model's folder"),
        ({"location": "none"}, "none: no such file"),
        ({"location": "a\0b"}, "has its data in"),
        ({"location": "pipe"}, "pipe: is not a regular file"),
        ({"location": "data", "offset": "-1"}, "has its data at -1; offset and length must be whole numbers"),
        ({"location": "data", "length": "many"}, "at 0, many; offset and length must be whole numbers"),
        ({"location": "data", "offset": "1" * 5000}, "at 1{40}; offset and length must be whole numbers"),
        ({"location": "data", "length": "100"}, "has 100 bytes of data; its shape and the memory allow 96"),
        ({"location": "large"}, "has 40,000,000,000 bytes of data; its shape and the memory allow 96"),
        ({"location": "data", "offset": "300"}, "has its data at bytes 300 to 200 of data, which has 200"),
        ({"location": "data", "offset": "8", "length": "193"}, "at bytes 8 to 201 of data, which has 200"),
    ],
)
def test_data_that_cannot_be_read_is_named(path, fields, text):
    os.mkfifo(path.parent / "pipe")
    (path.parent / "large").touch()
    os.truncate(path.parent / "large", 40_000_000_000)
    (path.parent / "link").symlink_to("/etc/hostname")
    change(path, **fields)
    with pytest.raises(FileError, match=text):
        read_source(path)


@pytest.mark.parametrize("dims", [[-1] + [1 << 62] * 400, [1 << 62] * 100_000, [4, -6]], ids=len)
def test_dimensions_are_looked_at_before_they_are_multiplied(path, dims):
    """The product of 100,000 takes half a minute, and has more digits than Python writes."""
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].dims[:] = dims
    path.write_bytes(model.SerializeToString())
    with pytest.raises(FileError, match=f"'first' has {len(dims):,} dimensions, the least of them .*; at most 64 are"):
        read_source(path)


@pytest.mark.parametrize("suffix", [".onnx", ".tflite", ".pt2", ".bin", ".npz"])
def test_files_that_are_no_models(tmp_path, suffix):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"large{suffix}").touch()
    os.truncate(tmp_path / f"large{suffix}", 40_000_000_000)
    for name, text in {"pipe": "is not a", "none": "no such", "large": "has 40,000,000,000 bytes; at most "}.items():
        with pytest.raises(FileError, match=f"{name}{suffix}: {text}"):
            read_source(tmp_path / f"{name}{suffix}")


def test_files_of_no_known_kind_and_damaged_ones(tmp_path):
    (tmp_path / "x.pb").write_bytes(b"\xff" * 30)
    with pytest.raises(UnsupportedError, match="x.pb: unknown kind of network; must be one of .tflite, .*.bin"):
        check_kind(tmp_path / "x.pb")
    (tmp_path / "x.onnx").write_bytes(b"\xff" * 30)
    with pytest.raises(FileError, match=r"x.onnx: not an ONNX model, or damaged \(.+\)"):
        read_source(tmp_path / "x.onnx")


ROOT = Path(__file__).parents[3]
FILES = {".tflite": ROOT / "tests/data/networks/classifier.tflite", ".onnx": ROOT / "examples/digits/digits.onnx"}


@pytest.mark.parametrize(
    "name, kind", [*((name, ".tflite") for name in ("x.lite", "x.bin", "x", "x.onnx")), ("digits.model", ".onnx")]
)
def test_a_file_is_known_by_its_content(tmp_path, name, kind):
    path = tmp_path / name
    path.write_bytes(FILES[kind].read_bytes())
    check_kind(path)
    assert kind_of(path) == kind and read_source(path).kind == kind and len(import_model(path).ops) > 3


@pytest.mark.parametrize("content", [b"", b"\x08", b"PK\x03\x04 a zip", b"no model", b"\x08\x00\x12\x00"])
def test_a_file_without_a_network_is_known_by_its_name(tmp_path, content):
    for name, kind in {"x.data": "", "x.pt2": ".pt2"}.items():
        (tmp_path / name).write_bytes(content)
        assert kind_of(tmp_path / name) == kind and kind_of(tmp_path / "none.tflite") == ".tflite"


@pytest.mark.parametrize(
    "array, found",
    [
        (np.array([-128, 127]), "int8"),
        (np.array([0.0, 255.0]), "uint8"),
        (np.array([-1, 255]), "int32"),
        (np.array([0, 256]), "int32"),
        (np.array([0.5]), "float32"),
        (np.array([1 << 40]), "float32"),
        (np.array([]), "int8"),
        (np.array(["text"]), "float32"),
    ],
)
def test_types_of_the_inputs_beside_a_file_of_deeploys(qdq, tmp_path, array, found):
    """Arrays of other sizes than the network's inputs are not unpacked."""
    tensor = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [max(1, array.size)])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [tensor], [])
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph), path)
    assert read_source(path).types == {}
    before = read_source(path).digest
    np.savez(path.with_name("inputs.npz"), input_0=np.zeros((3, 1000), np.int8))
    assert read_source(path).types == {}
    np.savez(path.with_name("inputs.npz"), input_0=array)
    assert read_source(path).types == {"x": found} and read_source(path).digest != before
    np.savez(path.with_name("inputs.npz"), x=array)
    assert read_source(path).types == {}
    path.with_name("inputs.npz").write_bytes(b"no archive")
    with pytest.raises(FileError, match="inputs.npz: not a readable .npz file"):
        read_source(path)
    assert read_source(qdq().dense()).types == {}  # another format, whose inputs have types: what is beside is not read


def test_inputs_of_too_many_dimensions(tmp_path):
    many = onnx.helper.make_tensor_value_info("many", onnx.TensorProto.FLOAT, [1 << 62] * 100_000)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["many"], ["y"])], "g", [many], [])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    with pytest.raises(FileError, match="input 'many' has 100,000 dimensions"):
        read_source(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    "name, contract", [("a.onnx", "single"), ("a.pt2", "single"), ("a.tflite", "double"), ("a.bin", "double")]
)
def test_formats_have_a_rounding_contract(name, contract):
    assert contract_of(name) == contract
