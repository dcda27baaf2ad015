"""runtime/formats.py: files of other formats, which every verb names with what to do about them."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tilewright.runtime import formats

ROOT = Path(__file__).parents[2]
DIGITS = (ROOT / "examples/digits/digits.onnx").read_bytes()
TFLITE = (ROOT / "tests/data/networks/classifier.tflite").read_bytes()


def packed(*members):
    """A ZIP archive with these members."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for member in members:
            archive.writestr(member, b"content")
    return data.getvalue()


def picture(kind):
    data = io.BytesIO()
    Image.new("RGB", (4, 4)).save(data, kind)
    return data.getvalue()


def arrays(save, *args, **kwargs):
    data = io.BytesIO()
    save(data, *args, **kwargs)
    return data.getvalue()


def taken(mode):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as archive:
        archive.addfile(tarfile.TarInfo("net.onnx"))
    return data.getvalue()


def field(number, content):
    """A field of a protobuf message: a number, or bytes of up to 127."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    key = number << 3 | 2
    return (bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])) + bytes([len(content)]) + content


NODE = field(1, field(1, b"x") + field(2, b"Placeholder"))
# file -> (content, the format's name, what to do)
FILES = {
    "llama.ggml": (b"lmgg" + bytes(64), "a GGML file", "llama2.c"),
    "weights.pt": (packed("w/data.pkl", "w/data/0"), "a PyTorch checkpoint", "torch.onnx.export"),
    "old.pth": (pickle.dumps(0x1950A86A20F9469CFC6C, 2), "a PyTorch checkpoint of before", "torch.onnx.export"),
    "script.pt": (packed("s/data.pkl", "s/code/m.py", "s/constants.pkl"), "a TorchScript module", "torch.jit.load"),
    "m.safetensors": (struct.pack("<Q", 20) + b'{"w":{"dtype":"F32"}}', "a safetensors file", "give its folder"),
    "saved_model.pb": (field(1, 1) + field(2, field(1, b"meta")), "a TensorFlow SavedModel", "tf2onnx"),
    "frozen.pb": (NODE * 3 + field(4, b"\x08\x1b"), "a frozen TensorFlow graph", "--graphdef"),
    "checkpoint": (b'model_checkpoint_path: "model.ckpt-1"\n', "a TensorFlow checkpoint", "tf.saved_model.save"),
    "model.ckpt.index": (bytes(60) + b"\x57\xfb\x80\x8b\x24\x75\x47\xdb", "a TensorFlow checkpoint", "saved_model"),
    "model.json": (b'{"format": "graph-model", "modelTopology": {}}', "a TensorFlow.js network", "--tfjs"),
    "model.h5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "an HDF5 file", "--keras"),
    "model.keras": (packed("metadata.json", "config.json", "model.weights.h5"), "a Keras model", "model.export"),
    "net.mlmodel": (field(1, 5) + field(2, b"x") + b"\xa2\x1f\x01x", "a Core ML model", "the ONNX file"),
    "net.pdmodel": (field(1, b"\x08\x00\x10\x7f"), "a Paddle network", "paddle2onnx"),
    "net.prototxt": (b'name: "LeNet"\nlayer {\n}\n', "a Caffe network", "to ONNX"),
    "net.caffemodel": (field(1, b"net") + b"\xa2\x06\x01x", "a Caffe network", "to ONNX"),
    "net.cfg": (b"[net]\nbatch=1\n", "a Darknet configuration", "to ONNX"),
    "symbol.json": (b'{\n  "nodes": [\n', "a network of MXNet or TVM", "to ONNX"),
    "net.param": (b"7767517\n75 83\nInput data 0 1 data\n", "a network of ncnn", "the ONNX file"),
    "net.xml": (b'<?xml version="1.0"?>\n<net name="x" version="11">\n', "an OpenVINO network", "the ONNX file"),
    "net.engine": (b"ftrt" + bytes(64), "a TensorRT engine", "the ONNX file"),
    "net.rknn": (b"RKNN" + bytes(64), "an RKNN network", "the ONNX file"),
    "net.ort": (b"\x10\0\0\0ORTM" + bytes(64), "an ORT-format network", "the ONNX file"),
    "net.pte": (b"\x10\0\0\0ET12" + bytes(64), "an ExecuTorch program", "torch.onnx.export"),
    "model.pkl": (pickle.dumps({"w": [1.0]}), "a Python pickle", "may run code"),
    "model.joblib": (pickle.dumps([1], 4), "a Python pickle", "as ONNX"),
    "files.zip": (packed("net.onnx"), "a ZIP archive", "unpack it"),
    "tf.zip": (packed("m/saved_model.pb"), "a ZIP archive of a TensorFlow SavedModel", "unpack it"),
    "net.onnx.gz": (gzip.compress(DIGITS), "a gzip archive", "unpack it"),
    "net.tar": (taken("w:"), "a tar archive", "unpack it"),
    "net.tar.bz2": (taken("w:bz2"), "a bzip2 archive", "unpack it"),
    "net.tar.xz": (taken("w:xz"), "an xz archive", "unpack it"),
    "array.npy": (arrays(np.save, np.ones(3)), "one array (.npy)", "give a"),
    "cat.png": (picture("PNG"), "a PNG picture", "give a"),
    "cat.jpg": (picture("JPEG"), "a JPEG picture", "give a"),
    "cat.gif": (picture("GIF"), "a GIF picture", "PNG"),
    "paper.pdf": (b"%PDF-1.7\n", "a PDF document", "give a"),
    "net.so": (b"\x7fELF\2\1\1" + bytes(64), "a compiled library or command", "give a"),
    "page.onnx": (b"\n<!DOCTYPE html>\n<html></html>", "a web page", "raw link"),
    "lfs.onnx": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer", "git lfs pull"),
    "empty.onnx": (b"", "an empty file", "download or copy"),
    "config.json": (b'{"name": "tiny"}', "a JSON text", "give a"),
    "config.yaml": (b"model:\n  - x\n", "a YAML text", "give a"),
    "notes.tflite": ("Ein Satz über Netze.\n".encode() * 400, "a text", "give a"),
    "cut.onnx": (DIGITS[:-100], "the first 22,325 bytes of an ONNX network", "download or copy"),
    "program.bin": (packed("manifest.json", "data/0.npy"), "a compiled program (.tw)", ".tw"),
    "tiles.db": (b"SQLite format 3\0" + bytes(64), "an SQLite database", "--tiles"),
    "table.parquet": (b"PAR1" + bytes(64), "a Parquet table", ".npy or .npz"),
}
FOLDERS = {
    "savedmodel": ("saved_model.pb", "the folder of a TensorFlow SavedModel", "--saved-model"),
    "net.mlpackage": ("Data/com.apple.CoreML/model.mlmodel", "the folder of a Core ML model", "the ONNX file"),
    "empty": ("x", "a folder", "give a network"),
}


@pytest.fixture(params=[*FILES, *FOLDERS])
def foreign(request, tmp_path):
    """(a file or folder, the name of its format, what to do)."""
    path = tmp_path / request.param
    if request.param in FOLDERS:
        member, *texts = FOLDERS[request.param]
        (path / member).parent.mkdir(parents=True)
        (path / member).touch()
        return path, *texts
    content, *texts = FILES[request.param]
    path.write_bytes(content)
    return path, *texts


@pytest.mark.parametrize("verb", ["compile", "quantise", "assign", "diff", "tune"])
def test_what_is_no_network_is_named_with_what_to_do(tilewright, foreign, tmp_path, verb):
    pytest.importorskip("tvm")
    path, name, remedy = foreign
    more = {"compile": ("-o", tmp_path / "out.tw"), "tune": ("--db", tmp_path / "results.db")}.get(verb, ())
    done = tilewright(verb, path, *more)
    assert (done.status, done.out, done.err.count("\n")) == (6, "", 1), done
    assert done.err.startswith(f"tilewright: error: {path}: is {name}") and remedy in done.err, done.err
    assert not (tmp_path / "out.tw").exists()


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("net.bin", DIGITS, formats.ONNX),
        ("net", TFLITE, formats.TFLITE),
        ("net.zip", packed("p/models/model.json", "p/archive_format"), formats.PT2),
        ("data.zip", arrays(np.savez, x=np.ones(2)), formats.ARRAYS),
        ("net.npz", (ROOT / "tests/data/networks/classifier.npz").read_bytes()[:-20], None),
        ("text.onnx", b"\xffno text", None),
        ("zeros", bytes(5000), None),
    ],
)
def test_files_that_are_read_are_known_under_any_name(tmp_path, name, content, kind):
    (tmp_path / name).write_bytes(content)
    assert formats.recognise(tmp_path / name) is kind
    formats.check_format(tmp_path / name, "a network", *filter(None, [kind]))


def test_a_program_is_wanted(refused, tmp_path):
    (tmp_path / "net.tw").write_bytes(DIGITS)
    for verb in ("verify", "disasm"):
        refused(
            6,
            "net.tw: is an ONNX network; give a compiled program, .tw (tilewright compile)",
            verb,
            tmp_path / "net.tw",
        )
