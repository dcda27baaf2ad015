"""The bytes of a network's file, read once: what is hashed for the cache is what the importers parse."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...hw.errors import FileError, UnsupportedError

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

SINGLE = "single"  # rounding contract of networks of QuantizeLinear and DequantizeLinear: as onnxruntime's
SUFFIXES = (".tflite", ".onnx", ".pt2", ".bin", ".npz")
_TFLITE = slice(4, 8), b"TFL3"  # where a .tflite file has its identifier
# An ONNX file has no identifier: protobuf, version 1 to 15 as field 1, then a producer, a graph or an operator set
_ONNX_VERSION, _ONNX_NEXT = 0x08, (0x12, 0x22, 0x3A, 0x42)


@dataclass(frozen=True, eq=False)
class Source:
    """The file at `path`: its `content`, and `parts`, the data of an ONNX file's tensors that other files hold.

    `types` are those of the inputs that lie beside an ONNX file in `inputs.npz` as `input_0`, `input_1`, ...: the
    narrowest of int8, uint8, int32 and float32 that holds the values. Deeploy's networks have no others.
    """

    path: Path
    content: bytes
    parts: tuple[bytes, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What the file is, as a suffix; empty where that is not known."""
        return kind_of(self.path, self.content)

    @property
    def contract(self) -> str:
        """The rounding contract of the format."""
        return contract_of(self.path, self.content)

    @property
    def digest(self) -> bytes:
        """A digest of everything that an importer sees, the name of the network included."""
        found = hashlib.sha256()
        types = [name.encode() for name in self.types]
        for piece in (self.path.name.encode(errors="surrogateescape"), self.content, *self.parts, *types):
            found.update(hashlib.sha256(piece).digest())
        return found.digest()

    def onnx(self) -> ModelProto:
        """A new ONNX model, with all its data. Raises `FileError`."""
        model = _parse(self.path, self.content)
        for tensor, part in zip(_outside(model), self.parts, strict=True):
            tensor.raw_data = part
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
        return model


def read_source(path: str | Path) -> Source:
    """Read the network at `path`, and the files that hold data of its tensors, or types of its inputs.

    Raises `FileError` where one of them cannot be read or is damaged.
    """
    path = Path(path)
    content = read_file(path, "model")
    if kind_of(path, content) != ".onnx":
        return Source(path, content)
    return Source(path, content, _parts(path, content), _types(path.with_name("inputs.npz")))


def _types(path: Path) -> tuple[str, ...]:
    """The types of the arrays `input_0`, `input_1`, ... of an .npz file; none where there is no such file."""
    from ...runtime.files import read_npz

    arrays = read_npz(path) if path.is_file() else {}
    names = [f"input_{k}" for k in range(len(arrays))]
    return tuple(_type(arrays[name]) for name in names) if all(name in arrays for name in names) else ()


def _type(array: np.ndarray) -> str:
    if array.dtype.kind not in "biuf":
        return "float32"
    low, high = (array.min(), array.max()) if array.size else (0, 0)
    ranges = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(1 << 31), (1 << 31) - 1)}
    found = (name for name, (least, most) in ranges.items() if least <= low and high <= most)
    return next(found, "float32") if np.array_equal(array, np.rint(array)) else "float32"


def check_kind(path: str | Path) -> None:
    """Raise `UnsupportedError` for a file of no known kind of network."""
    if not kind_of(path):
        raise UnsupportedError(f"{path}: unknown kind of network; must be one of {', '.join(SUFFIXES)}")


def kind_of(path: str | Path, content: bytes | None = None) -> str:
    """The kind of the network in a file, as a suffix: by what it holds, else by its name; empty where neither says.

    `content` is what it holds, if that has been read.
    """
    path = Path(path)
    if content is None:
        content = b""
        with suppress(OSError, ValueError):
            if path.is_file():  # reading a pipe would wait
                with path.open("rb") as file:
                    content = file.read(8)
    where, identifier = _TFLITE
    if content[where] == identifier:
        return ".tflite"
    if path.suffix in SUFFIXES:
        return path.suffix
    first, version, then = (*content[:3], 0, 0, 0)[:3]
    return ".onnx" if first == _ONNX_VERSION and 0 < version < 16 and then in _ONNX_NEXT else ""


def contract_of(path: str | Path, content: bytes | None = None) -> str:
    """The rounding contract of a file's format (hw/rounding.py): TensorFlow Lite rounds twice."""
    return SINGLE if kind_of(path, content) in (".onnx", ".pt2") else "double"


def as_source(model: str | Path | Source) -> Source:
    """`model`, read where it is a path. Raises as `read_source`."""
    return model if isinstance(model, Source) else read_source(model)


def read_file(path: Path, what: str) -> bytes:
    """The bytes of a regular file, which errors call a `what` file. Raises `FileError`."""
    if not path.is_file():
        raise FileError(f"{path}: {'is a folder' if path.is_dir() else f'no such {what} file'}")
    try:
        return path.read_bytes()
    except OSError as exc:
        raise FileError(f"{path}: {exc.strerror}") from None


def one_line(exc: Exception) -> str:
    """The first line of an error of another library."""
    return next((line.strip() for line in str(exc).splitlines() if line.strip()), type(exc).__name__)


def _parse(path: Path, content: bytes) -> ModelProto:
    import onnx  # takes a quarter of a second

    try:
        return onnx.load_model_from_string(content)
    except Exception as exc:  # protobuf raises different ones
        raise FileError(f"{path}: not an ONNX model, or damaged ({one_line(exc)})") from None


def _outside(message: Any) -> Iterator[TensorProto]:
    """The tensors in `message`, at any depth, whose data is in another file, in order."""
    import onnx

    for _, value in message.ListFields():
        for item in [value] if hasattr(value, "ListFields") else value if hasattr(value, "append") else ():
            if isinstance(item, onnx.TensorProto):
                if item.data_location == onnx.TensorProto.EXTERNAL:
                    yield item
            elif hasattr(item, "ListFields"):
                yield from _outside(item)


def _parts(path: Path, content: bytes) -> tuple[bytes, ...]:
    """The data of tensors that other files hold; each of these is read once."""
    files: dict[str, bytes] = {}
    return tuple(_part(path, tensor, files) for tensor in _outside(_parse(path, content)))


def _part(path: Path, tensor: TensorProto, files: dict[str, bytes]) -> bytes:
    fields = {entry.key: entry.value for entry in tensor.external_data}
    place, what = fields.get("location", ""), f"{path}: tensor {tensor.name!r}"
    if place not in files:
        folder = path.parent.resolve()
        try:
            there = (folder / place).resolve()
        except (OSError, RuntimeError, ValueError) as exc:
            raise FileError(f"{what} has its data in {place!r} ({one_line(exc)})") from None
        if not place or not there.is_relative_to(folder):
            raise FileError(f"{what} has its data in {place!r}; only files in the model's folder are read")
        files[place] = read_file(there, "data")
    data = files[place]
    numbers = fields.get("offset", "0"), fields.get("length", str(len(data)))
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise FileError(f"{what} has its data at {numbers[0]!r}, {numbers[1]!r} bytes; both must be whole numbers")
    start, size = int(numbers[0]), int(numbers[1]) if "length" in fields else len(data) - int(numbers[0])
    if size < 0 or start + size > len(data):
        raise FileError(f"{what} has its data at bytes {start} to {start + size} of {place}, which has {len(data)}")
    return data[start : start + size]
