"""Formats of files, recognised by content: what a file is that a user gives in place of another, and what to do.

A file is recognised by its first bytes, by the members of its zip archive, by the fields of its protobuf message, or as
text. At most the first `_HEAD` and the last `_TAIL` bytes of it are read, and nothing of it is executed or unpacked.
Sources of the signatures: the formats' own specifications, and the table of the command `file`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..hw.errors import FileError
from ..hw.foreign import MANIFEST

_HEAD = 4096
_TAIL = 1 << 20  # holds the directory of an archive of about 10,000 members
_FIELDS = 4096  # of a protobuf message that are looked at


@dataclass(frozen=True)
class Format:
    """A kind of file: its `name` with an article, and the `remedy`, what to do with it, where `{path}` is the file.

    Without a remedy it is a file of its own use, in the wrong place.
    """

    name: str
    remedy: str = ""


_AS_ONNX = "then tilewright quantise NET.onnx"
_FROM_TORCH = f"load it in PyTorch and export the module with torch.onnx.export as NET.onnx, {_AS_ONNX}"
_FROM_TENSORFLOW = "convert it with python -m tf2onnx.convert {option} --output NET.onnx, " + _AS_ONNX
_ORIGINAL = f"it is made for one runtime; give the ONNX file it was made from, {_AS_ONNX}"
_WEIGHTS = (
    f"it holds weights without the network; load them into the module in PyTorch and call torch.onnx.export, {_AS_ONNX}"
)
_UNPACK = "unpack it, and give a file of it"
_DOWNLOAD = "download or copy the file itself again"
_LANGUAGE = "language models are read as GGUF, folders of safetensors or llama2.c's .bin (docs/language.md); give one"


def _tensorflow(option: str) -> str:
    return _FROM_TENSORFLOW.replace("{option}", option)


TFLITE = Format("a .tflite network")
ONNX = Format("an ONNX network")
PT2 = Format("an exported PyTorch program (.pt2)")
PROGRAM = Format("a compiled program (.tw)", "give the network it was made of, or to run it a name that ends in .tw")
ARRAYS = Format("a file of arrays (.npz)")
ARRAY = Format("one array (.npy)")
PICTURES = tuple(Format(f"a {kind} picture") for kind in ("PNG", "JPEG", "BMP", "WebP"))
_PNG, _JPEG, _BMP, _WEBP = PICTURES
SAVED_MODEL = Format("a TensorFlow SavedModel", _tensorflow("--saved-model FOLDER"))
TORCH_WEIGHTS = Format("a PyTorch checkpoint", _WEIGHTS)
GGUF = Format("a GGUF file of llama.cpp")
SAFETENSORS = Format("a safetensors file", f"of a language model give its folder, with config.json; else {_WEIGHTS}")
SAFETENSORS_FOLDER = Format("a folder of safetensors files")
KERAS = Format(
    "a Keras model (.keras)", "save it with model.export(FOLDER), and " + _tensorflow("--saved-model FOLDER")
)
CORE_ML = Format("a Core ML model", _ORIGINAL)
GIT_LFS = Format("a Git LFS pointer, not the file itself", "fetch the file with git lfs pull")
TENSORFLOW_CHECKPOINT = Format(
    "a TensorFlow checkpoint", "save the model with tf.saved_model.save, and " + _tensorflow("--saved-model FOLDER")
)

# (offset, bytes at it, format); the first that fits counts
_SIGNATURES: tuple[tuple[int, bytes, Format], ...] = (
    (4, b"TFL3", TFLITE),
    (4, b"ORTM", Format("an ORT-format network of onnxruntime", _ORIGINAL)),
    (
        4,
        b"ET12",
        Format("an ExecuTorch program (.pte)", f"export the module with torch.onnx.export instead, {_AS_ONNX}"),
    ),
    (0, b"GGUF", GGUF),
    (0, b"lmgg", Format("a GGML file of llama.cpp", _LANGUAGE)),
    (0, b"tjgg", Format("a GGML file of llama.cpp", _LANGUAGE)),
    (0, b"\x89HDF\r\n\x1a\n", Format("an HDF5 file, as Keras saves models (.h5)", _tensorflow("--keras {path}"))),
    (0, b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19", Format("a PyTorch checkpoint of before version 1.6", _WEIGHTS)),
    (0, b"ftrt", Format("a TensorRT engine", _ORIGINAL)),
    (0, b"ptrt", Format("a TensorRT engine", _ORIGINAL)),
    (0, b"RKNN", Format("an RKNN network", _ORIGINAL)),
    (0, b"\x01HEF", Format("a Hailo program (.hef)", _ORIGINAL)),
    (0, b"\x93NUMPY", ARRAY),
    (0, b"\x89PNG\r\n\x1a\n", _PNG),
    (0, b"\xff\xd8\xff", _JPEG),
    (0, b"GIF8", Format("a GIF picture", "convert it to PNG")),
    (0, b"II*\x00", Format("a TIFF picture", "convert it to PNG")),
    (0, b"MM\x00*", Format("a TIFF picture", "convert it to PNG")),
    (8, b"WEBP", _WEBP),
    (8, b"WAVE", Format("a sound file (.wav)", "give its samples as an array, .npy or .npz")),
    (0, b"%PDF", Format("a PDF document")),
    (0, b"\x7fELF", Format("a compiled library or command (ELF)")),
    (0, b"MZ\x90\x00", Format("a Windows library or command")),
    (0, b"\xcf\xfa\xed\xfe", Format("a macOS library or command")),
    (0, b"\x1f\x8b", Format("a gzip archive", _UNPACK)),
    (0, b"BZh", Format("a bzip2 archive", _UNPACK)),
    (0, b"\xfd7zXZ\x00", Format("an xz archive", _UNPACK)),
    (0, b"(\xb5/\xfd", Format("a Zstandard archive", _UNPACK)),
    (0, b"7z\xbc\xaf'\x1c", Format("a 7z archive", _UNPACK)),
    (0, b"Rar!\x1a\x07", Format("a RAR archive", _UNPACK)),
    (257, b"ustar", Format("a tar archive", _UNPACK)),
    (0, b"SQLite format 3\x00", Format("an SQLite database, as --tiles takes it")),
    (0, b"PAR1", Format("a Parquet table", "save its numbers as an array, .npy or .npz")),
    (0, b"MATLAB 5.0", Format("a MATLAB file", "save its arrays as .npz, with scipy.io.loadmat and numpy.savez")),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05][\x00-\xff]")
_PICKLED = Format(
    "a Python pickle, which is not opened as it may run code", "export the network as ONNX, or save arrays as .npz"
)

# (pattern of a member's name, format); the first pattern that any member has counts
_MEMBERS: tuple[tuple[str, Format], ...] = (
    (re.escape(MANIFEST), PROGRAM),
    (r"(.*/)?(serialized_exported_program\.json|models/[^/]*\.json|exported_program\.json)", PT2),
    (
        r"(.*/)?code/.*|(.*/)?constants\.pkl",
        Format("a TorchScript module", f"load it with torch.jit.load and call torch.onnx.export, {_AS_ONNX}"),
    ),
    (r"(.*/)?data\.pkl", TORCH_WEIGHTS),
    (r"model\.weights\.h5", KERAS),
    (
        r"(.*/)?saved_model\.pb",
        Format("a ZIP archive of a TensorFlow SavedModel", "unpack it, and " + _tensorflow("--saved-model FOLDER")),
    ),
    (r".*\.mlpackage/.*|Data/com\.apple\.CoreML/.*", CORE_ML),
    (r"META-INF/.*", Format("a Java archive (.jar)", _UNPACK)),
)
_ZIP = Format("a ZIP archive", _UNPACK)

# (pattern at the begin of a text, format); the first that fits counts
_TEXTS: tuple[tuple[str, Format], ...] = (
    (r"version https://git-lfs", GIT_LFS),
    (r"(?i)<!doctype html|<html", Format("a web page, not the file itself", _DOWNLOAD + ", by its raw link")),
    (r"(<\?xml[^>]*>\s*)?<net ", Format("an OpenVINO network (.xml)", _ORIGINAL)),
    (r"<", Format("an XML text")),
    (r"7767517\s", Format("a network of ncnn (.param)", _ORIGINAL)),
    (r"\[net(work)?\]", Format("a Darknet configuration (.cfg)", f"convert network and weights to ONNX, {_AS_ONNX}")),
    (r"(name|input)\s*:\s*\"|layers?\s*\{", Format("a Caffe network (.prototxt)", f"convert it to ONNX, {_AS_ONNX}")),
    (r"model_checkpoint_path:", TENSORFLOW_CHECKPOINT),
    (r"\{[\s\S]*\"(modelTopology|weightsManifest)\"", Format("a TensorFlow.js network", _tensorflow("--tfjs {path}"))),
    (r"\{\s*\"nodes\"\s*:", Format("a network of MXNet or TVM (.json)", f"convert it to ONNX, {_AS_ONNX}")),
    (r"[\[{]", Format("a JSON text")),
    (r"(---\s|[\w-]+:(\s|$))", Format("a YAML text")),
    (r"", Format("a text")),
)
_TABLE_END = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"  # of the index of a TensorFlow checkpoint
EMPTY = Format("an empty file", _DOWNLOAD)

# (file in the folder, format)
_FOLDERS: tuple[tuple[str, Format], ...] = (
    ("saved_model.pb", Format("the folder of a TensorFlow SavedModel", _tensorflow("--saved-model {path}"))),
    ("Data/com.apple.CoreML", Format("the folder of a Core ML model (.mlpackage)", _ORIGINAL)),
    ("checkpoint", TENSORFLOW_CHECKPOINT),
    ("*.ckpt.index", TENSORFLOW_CHECKPOINT),
    ("*.safetensors", SAFETENSORS_FOLDER),
    ("pytorch_model*.bin", Format("a folder of a PyTorch checkpoint", _WEIGHTS)),
    ("data.pkl", Format("an unpacked PyTorch checkpoint", _WEIGHTS)),
)


@dataclass(frozen=True)
class _Field:
    """A field of a protobuf message: its number, and its value, or the first bytes of what it holds."""

    number: int
    value: int
    start: bytes = b""


def _is_onnx(fields: list[_Field], numbers: set[int]) -> bool:
    # ModelProto: ir_version comes first, then names, a graph (7) and operator sets (8)
    return (
        fields[0].number == 1
        and 0 < fields[0].value < 64
        and 7 in numbers
        and numbers <= {*range(1, 9), 14, 20, 25, 26}
    )


# (test of the fields and the set of their numbers, format); the first that fits counts
_MESSAGES: tuple[tuple[Callable[[list[_Field], set[int]], bool], Format], ...] = (
    (_is_onnx, ONNX),
    (lambda fields, numbers: fields[0].number == 1 and numbers >= {1, 2} and max(numbers) >= 200, CORE_ML),
    (lambda fields, numbers: numbers == {1, 2} and fields[0] == _Field(1, 1), SAVED_MODEL),
    # GraphDef: nodes, which begin with a name and an operator
    (
        lambda fields, numbers: numbers <= {1, 2, 3, 4, 5} and re.match(rb"\n.[ -~]+\x12", fields[0].start) is not None,
        Format("a frozen TensorFlow graph (.pb)", _tensorflow("--graphdef {path} --inputs X:0 --outputs Y:0")),
    ),
    # ProgramDesc: blocks, which begin with their number and that of their parent
    (
        lambda fields, numbers: 1 in numbers and re.match(rb"\x08\x00\x10", fields[0].start) is not None,
        Format("a Paddle network (.pdmodel)", f"convert it with paddle2onnx, {_AS_ONNX}"),
    ),
    (
        lambda fields, numbers: 100 in numbers and numbers <= {1, 3, 4, 5, 6, 7, 8, 100},
        Format("a Caffe network (.caffemodel)", f"convert it to ONNX, {_AS_ONNX}"),
    ),
)


_TABLES = (_SIGNATURES, _MEMBERS, _MESSAGES, _TEXTS, _FOLDERS)
FORMATS = tuple(dict.fromkeys([*(row[-1] for table in _TABLES for row in table), _PICKLED, _ZIP, EMPTY]))


def recognise(path: str | Path, file: IO[bytes] | None = None) -> Format | None:
    """The format of the file or folder `path`; None if it is not known or cannot be read.

    `file` is the open file, or its content in memory, where the caller has one. Pipes and devices are not read.
    """
    if file is not None:
        return _of_file(file)
    path = Path(path)
    try:
        if path.is_dir():
            return next((kind for name, kind in _FOLDERS if any(path.glob(name))), None)
        if path.is_file():
            with path.open("rb") as opened:
                return _of_file(opened)
    except (OSError, ValueError):
        pass  # who reads the whole file says why it cannot be read
    return None


def check_format(path: str | Path, wanted: str, *allowed: Format) -> None:
    """Raise `FileError` for a file or folder of a known format that is none of `allowed`; `wanted` says what to give.

    A file of no known format passes: its reader says what is wrong with it.
    """
    kind = recognise(path)
    if kind is not None and kind not in allowed:
        raise FileError(f"{path}: is {kind.name}; {kind.remedy.replace('{path}', str(path)) or f'give {wanted}'}")


def _of_file(file: IO[bytes]) -> Format | None:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(_HEAD)
    if not head:
        return EMPTY
    for offset, signature, kind in _SIGNATURES:
        if head.startswith(signature, offset):
            return kind
    if head.startswith(b"PK\x03\x04"):
        return _of_archive(file, size)
    file.seek(max(0, size - len(_TABLE_END)))
    if file.read() == _TABLE_END:
        return TENSORFLOW_CHECKPOINT
    return _of_message(file, size) or _of_bytes(head, size)


def _of_archive(file: IO[bytes], size: int) -> Format | None:
    """By the names in the directory at the archive's end; None where that is missing: the archive is damaged."""
    file.seek(max(0, size - _TAIL))
    tail, names = file.read(_TAIL), list[str]()
    for entry in re.finditer(rb"PK\x01\x02", tail if b"PK\x05\x06" in tail else b""):
        start = entry.start()
        length = int.from_bytes(tail[start + 28 : start + 30], "little")
        names.append(tail[start + 46 : start + 46 + length].decode(errors="replace"))
    if not names:
        return None
    if all(name.endswith(".npy") for name in names):
        return ARRAYS
    return next((kind for name, kind in _MEMBERS if any(re.fullmatch(name, each) for each in names)), _ZIP)


def _of_message(file: IO[bytes], size: int) -> Format | None:
    fields, end = _fields(file, size)
    if not fields:
        return None
    numbers = {field.number for field in fields}
    for fits, kind in _MESSAGES:
        if fits(fields, numbers):
            cut = Format(f"the first {size:,} bytes of {kind.name}, which has at least {end:,}", _DOWNLOAD)
            return kind if end <= size else cut
    return None


def _fields(file: IO[bytes], size: int) -> tuple[list[_Field], int]:
    """The fields of a protobuf message and where the last one ends, behind the file's end if that was cut off.

    No fields where the file holds no message. Fields are skipped by their length, so that weights are not read.
    """
    fields, position = list[_Field](), 0
    while position < size:
        file.seek(position)
        chunk = file.read(64)
        key, used = _varint(chunk)
        number, wire = key >> 3, key & 7
        if not used or not 0 < number < 1 << 29 or wire not in (0, 1, 2, 5) or len(fields) > _FIELDS:
            return [], 0
        value, length = (0, 4 if wire == 5 else 8) if wire in (1, 5) else _varint(chunk[used:])
        if not length:
            return [], 0
        used += length
        fields.append(_Field(number, 0, chunk[used:]) if wire == 2 else _Field(number, value))
        position += used + (value if wire == 2 else 0)
    return fields, position


def _varint(data: bytes) -> tuple[int, int]:
    """(the number at the begin of `data`, the bytes it takes; 0 if it does not end)."""
    value = 0
    for k, byte in enumerate(data[:10]):
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return value, k + 1
    return 0, 0


def _of_bytes(head: bytes, size: int) -> Format | None:
    """safetensors, a pickle or a text."""
    if int.from_bytes(head[:8], "little") <= size and head[8:9] == b"{":
        return SAFETENSORS
    if _PICKLE.match(head):
        return _PICKLED
    try:
        text = head.decode("utf-8-sig").lstrip()
    except UnicodeDecodeError as exc:
        if size <= len(head) or exc.start < len(head) - 3:  # else a character was cut in two
            return None
        text = head[: exc.start].decode("utf-8-sig").lstrip()
    if any(not c.isprintable() and not c.isspace() for c in text):
        return None
    return next(kind for pattern, kind in _TEXTS if re.match(pattern, text))
