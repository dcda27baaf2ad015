"""The bytes of a network's file, read once, so that the cache hashes the bytes that the importers parse.

Also the list of operators of Deeploy's dialect, and the test whether an ONNX file is in it.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...hw.errors import FileError, UnsupportedError
from ...hw.foreign import default_limit, open_regular, read_npz, read_regular, whole_number
from ...runtime.formats import ARRAYS, ONNX, PT2, TFLITE, check_format, recognise

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto


SINGLE = "single"  # rounding contract of networks of QuantizeLinear and DequantizeLinear: as onnxruntime's
_MOST_DIMS = 64  # as numpy
_MOST_BYTES = (1 << 31) - 1  # of an .onnx or .tflite file: protobuf and flatbuffers hold no more
SUFFIXES = (".tflite", ".onnx", ".pt2", ".bin", ".npz")
_SUFFIX_OF = {TFLITE: ".tflite", ONNX: ".onnx", PT2: ".pt2", ARRAYS: ".npz"}  # of formats known by their content
_NETWORK = f"a network, {', '.join(SUFFIXES)}"


@dataclass(frozen=True, eq=False)
class Source:
    """The file at `path`: its `content`, and `parts`, the data of an ONNX file's tensors that other files hold.

    `types` are the types of the arrays `input_0`, `input_1`, ... in an `inputs.npz` beside an ONNX file of Deeploy's:
    the narrowest of int8, uint8, int32 and float32 that holds the values. The file itself does not say them.
    """

    path: Path
    content: bytes
    parts: tuple[bytes, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of the file, as a suffix; empty if it is unknown."""
        return kind_of(self.path, self.content)

    @property
    def contract(self) -> str:
        """The rounding contract of the format."""
        return contract_of(self.path, self.content)

    @property
    def digest(self) -> bytes:
        """A digest of everything that an importer sees, the name of the network included."""
        total = hashlib.sha256()
        types = [name.encode() for name in self.types]
        for piece in (self.path.name.encode(errors="surrogateescape"), self.content, *self.parts, *types):
            total.update(hashlib.sha256(piece).digest())
        return total.digest()

    def onnx(self) -> ModelProto:
        """A new ONNX model, with all its data. Raises `FileError`."""
        return _whole(_parse(self.path, self.content), self.parts)


def read_source(path: str | Path) -> Source:
    """Read the network at `path`, and the files that hold data of its tensors.

    Where an ONNX file may be in Deeploy's dialect, the types of its inputs are read, too. Raises `FileError` where a
    file cannot be read, is damaged or too large.
    """
    path = Path(path)
    check_kind(path)
    kind = kind_of(path)
    content = read_regular(path, "a network", None if kind in (".bin", ".npz") else min(_MOST_BYTES, default_limit()))
    if kind != ".onnx":
        return Source(path, content)

    model = _parse(path, content)
    parts = _parts(path, model)
    types = _types(path, model) if in_dialect(_whole(model, parts), None) else ()
    return Source(path, content, parts, types)


def _whole(model: ModelProto, parts: Sequence[bytes]) -> ModelProto:
    """The model, with the `parts` as data of its tensors."""
    for tensor, part in zip(_outside(model), parts, strict=True):
        tensor.raw_data = part
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
    return model


def _types(path: Path, model: ModelProto) -> tuple[str, ...]:
    """Types of `input_0`, `input_1`, ... in inputs.npz; empty unless it holds just these, as large as inputs."""
    sizes = {
        _elements([max(1, d.dim_value) for d in value.type.tensor_type.shape.dim], f"{path}: input {value.name!r}")
        for value in model.graph.input
    }

    def fits(_: str, shape: tuple[int, ...]) -> bool:
        return math.prod(shape) in sizes or math.prod(shape[1:]) in sizes

    beside = path.with_name("inputs.npz")
    arrays = read_npz(beside, needed=fits) if beside.is_file() else {}
    names = [f"input_{k}" for k in range(len(arrays))]
    known = all(name in arrays and fits(name, arrays[name].shape) for name in names)
    return tuple(_type(arrays[name]) for name in names) if known else ()


def _type(array: np.ndarray) -> str:
    if array.dtype.kind not in "biuf":
        return "float32"
    low, high = (array.min(), array.max()) if array.size else (0, 0)
    ranges = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(1 << 31), (1 << 31) - 1)}
    names = (name for name, (least, most) in ranges.items() if least <= low and high <= most)
    return next(names, "float32") if np.array_equal(array, np.rint(array)) else "float32"


def check_kind(path: str | Path) -> None:
    """Raise `FileError` for a file that is missing or of another format, `UnsupportedError` for one of none known."""
    path = Path(path)
    if not path.exists():
        raise FileError(f"{path}: no such file; give {_NETWORK}")
    check_format(path, _NETWORK, *_SUFFIX_OF)
    if path.is_dir():
        raise FileError(f"{path}: is a folder; give {_NETWORK}")
    if not kind_of(path):
        raise UnsupportedError(f"{path}: unknown kind of network; must be one of {', '.join(SUFFIXES)}")


def kind_of(path: str | Path, content: bytes | None = None) -> str:
    """The kind of the network in a file, as a suffix, by its content, else by its name; empty if it is unknown.

    `content` is the content of the file where it has been read.
    """
    known = recognise(path, None if content is None else io.BytesIO(content))
    suffix = Path(path).suffix
    return _SUFFIX_OF.get(known, suffix if suffix in SUFFIXES else "")


def contract_of(path: str | Path, content: bytes | None = None) -> str:
    """The rounding contract of a file's format (hw/rounding.py): TensorFlow Lite rounds twice."""
    return SINGLE if kind_of(path, content) in (".onnx", ".pt2") else "double"


def as_source(model: str | Path | Source) -> Source:
    """`model`, read where it is a path. Raises as `read_source`."""
    return model if isinstance(model, Source) else read_source(model)


def one_line(exc: Exception) -> str:
    """The first line of an error of another library."""
    return next((line.strip() for line in str(exc).splitlines() if line.strip()), type(exc).__name__)


def _parse(path: Path, content: bytes) -> ModelProto:
    import onnx  # takes a quarter of a second

    try:
        return onnx.load_model_from_string(content)
    except Exception as exc:  # protobuf raises errors of many classes
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


def _parts(path: Path, model: ModelProto) -> tuple[bytes, ...]:
    """The data of tensors that other files hold."""
    parts, left = list[bytes](), default_limit()
    for tensor in _outside(model):
        parts.append(_part(path, tensor, left))
        left -= len(parts[-1])
    return tuple(parts)


def _part(path: Path, tensor: TensorProto, most: int) -> bytes:
    """The data of one tensor: no more than its shape asks for, and `most` bytes."""
    fields = {entry.key: entry.value for entry in tensor.external_data}
    relative, what = fields.get("location", ""), f"{path}: tensor {tensor.name!r}"
    folder = path.parent.resolve()
    try:
        file_path = (folder / relative).resolve()
    except (OSError, RuntimeError, ValueError) as exc:
        raise FileError(f"{what} has its data in {relative!r} ({one_line(exc)})") from None
    if not relative or not file_path.is_relative_to(folder):
        raise FileError(f"{what} has its data in {relative!r}; only files in the model's folder are read")
    with open_regular(file_path, "the data of the model's tensors") as file:
        held = os.fstat(file.fileno()).st_size
        numbers = fields.get("offset", "0"), fields.get("length")
        start, size = (0 if text is None else whole_number(text) for text in numbers)
        if start is None or size is None:
            shown = ", ".join(f"{text:.40}" for text in numbers if text is not None)
            raise FileError(f"{what} has its data at {shown}; offset and length must be whole numbers")
        size = held - start if numbers[1] is None else size
        if size < 0 or start + size > held:
            raise FileError(f"{what} has its data at bytes {start} to {start + size} of {relative}, which has {held}")
        if size > (most := min(most, _nbytes(tensor, what))):
            raise FileError(f"{what} has {size:,} bytes of data; its shape and the memory allow {most:,}")
        file.seek(start)
        return file.read(size)


def _nbytes(tensor: TensorProto, what: str) -> int:
    """Bytes of the tensor's data, at most: types of four bits take half of it."""
    import onnx

    try:
        return _elements(tensor.dims, what) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError:  # a type that does not exist, which is refused when the model is checked
        return 0


def _elements(dims: Sequence[int], what: str) -> int:
    """The product of `dims`, which numpy would refuse, too, where they are too many: theirs would take minutes."""
    if len(dims) > _MOST_DIMS or min(dims, default=0) < 0:
        stated = f"{len(dims):,} dimensions, the least of them {min(dims)}"
        raise FileError(f"{what} has {stated}; at most {_MOST_DIMS} are allowed, of 0 or more")
    return math.prod(dims)


DOMAINS = ("", "ai.onnx", "PACTOps")  # whose operators are known by name alone; PACTOps is Deeploy's
# Deeploy's own operators; their results, except means, have the shape of their first input
DEEPLOY = ("DebugPrint", "ITAMax", "ITAPartialMax", "IntegerDiv", "IntegerMean", "RequantShift", "TrueIntegerDiv")
DEEPLOY += ("iGELU", "iHardswish", "iLayerNorm", "iNoNorm", "iRMSNorm", "iSoftmax")
# an operator and a RequantShift in one node
DEEPLOY += ("RQIntegerDiv", "RequantizedConv", "RequantizedGemm", "RequantizediGELU", "RequantizediHardswish")
_LAYERS = ("Conv", "Gemm", "MatMul")
# operators of ONNX that keep integers integers
_ON_INTEGERS = (*_LAYERS, "Add", "Concat", "Constant", "Flatten", "Gather", "Identity", "MaxPool", "Mul", "Pad", "Relu")
_ON_INTEGERS += ("ReduceMean", "ReduceSum", "Reshape", "Slice", "Split", "Squeeze", "Sub", "Transpose", "Unsqueeze")


def in_dialect(model: ModelProto, types: Sequence[str] | None) -> bool:
    """True for a model in Deeploy's dialect: with its operators, or with layers of integers in float32.

    `types` are the known types of the inputs; with None the answer is whether some types could make it one.
    """
    nodes = model.graph.node
    return any(node.domain in DOMAINS and node.op_type in DEEPLOY for node in nodes) or _of_integers(model, types)


def _of_integers(model: ModelProto, types: Sequence[str] | None) -> bool:
    """True if all layers have weights of whole numbers in float32, and all else keeps whole numbers.

    If there is no layer, the inputs must be known as integers.
    """
    import onnx

    constants = {i.name: i for i in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name not in constants]
    nodes = model.graph.node
    if any(n.domain not in DOMAINS or n.op_type not in _ON_INTEGERS for n in nodes):
        return False
    if any(v.type.tensor_type.elem_type != onnx.TensorProto.FLOAT for v in inputs):
        return False
    names = {t for n in nodes for t in n.input if n.op_type in _LAYERS} & constants.keys()
    try:
        arrays = [onnx.numpy_helper.to_array(constants[name]) for name in names]
    except Exception:  # of many kinds: a damaged file, which is refused later
        return False
    largest = [np.abs(a).max() for a in arrays if a.size and a.dtype == np.float32 and (a == np.rint(a)).all()]
    known = types is None or (len(types) == len(inputs) and "float32" not in types and bool(types))
    return len(largest) == len(arrays) and (max(largest, default=0) > 1 or known)
