"""The bytes of a network's file, read once, so that the cache hashes the bytes that the importers parse.

Also the list of operators of Deeploy's dialect, and the test whether an ONNX file is in it.
"""

from __future__ import annotations

import hashlib
import io
import math
import mmap
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...hw.errors import FileError, InputError, UnsupportedError
from ...hw.foreign import default_limit, map_regular, open_regular, read_json, read_npz, read_regular, whole_number
from ...runtime.formats import ARRAYS, GGUF, ONNX, PT2, SAFETENSORS_FOLDER, TFLITE, check_format, recognise

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto


SINGLE = "single"  # rounding contract of networks of QuantizeLinear and DequantizeLinear: as onnxruntime's
_MOST_DIMS = 64  # as numpy
_MOST_BYTES = (1 << 31) - 1  # of an .onnx or .tflite file: protobuf and flatbuffers hold no more
INPUT_TYPES = ("int8", "uint8", "int32", "float32")  # of inputs of files in Deeploy's dialect
SUFFIXES = (".tflite", ".onnx", ".pt2", ".bin", ".npz", ".gguf")
FOLDER = ".safetensors"  # the kind of a folder as Hugging Face's, with a Llama
LLAMAS = (".bin", ".gguf", FOLDER)  # kinds of Llamas in float
# of formats known by their content
_SUFFIX_OF = {TFLITE: ".tflite", ONNX: ".onnx", PT2: ".pt2", ARRAYS: ".npz", GGUF: ".gguf"}
_SUFFIX_OF |= {SAFETENSORS_FOLDER: FOLDER}
_NETWORK = f"a network, {', '.join(SUFFIXES)}, or the folder of a Llama"
CONFIG = "config.json"  # what such a folder has, and the files of its weights
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_INDEX_BYTES = 1 << 26
_START = 1 << 12  # bytes that tell a GGUF file


@dataclass(frozen=True, eq=False)
class Source:
    """The file at `path`: its `content`, and `parts`, the data of an ONNX file's tensors that other files hold.

    Of a folder `content` is its config.json, and `parts` its files of weights, with these `names`; a Llama's are mapped
    to memory. `context` is the longest text that a Llama is wanted for, None for its own.

    `types` are the types of an ONNX file's inputs, by name, where the file does not say them: in Deeploy's dialect.
    `shapes` are those of inputs whose sizes the file leaves open, by name.
    """

    path: Path
    content: bytes
    parts: tuple[bytes, ...] = ()
    names: tuple[str, ...] = ()
    context: int | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of the file, as a suffix; empty if it is unknown."""
        return FOLDER if self.names else kind_of(self.path, self.content)

    @property
    def contract(self) -> str:
        """The rounding contract of the format."""
        return contract_of(self.path, self.content)

    @property
    def digest(self) -> bytes:
        """A digest of everything that an importer sees, the name of the network included."""
        total = hashlib.sha256()
        types = [f"{name} {kind}".encode() for name, kind in sorted(self.types.items())]
        types += [f"{name} {tuple(shape)}".encode() for name, shape in sorted(self.shapes.items())]
        types += [] if self.context is None else [f"context {self.context}".encode()]
        for piece in (self.path.name.encode(errors="surrogateescape"), self.content, *self.parts, *types):
            total.update(hashlib.sha256(piece).digest())
        return total.digest()

    def onnx(self) -> ModelProto:
        """A new ONNX model, with all its data and the sizes of `shapes`. Raises as `read_source`."""
        model = _whole(_parse(self.path, bytes(self.content)), self.parts)
        give_sizes(self.path, model, self.shapes)
        return model


def read_source(
    path: str | Path,
    input_types: Mapping[str, str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    context: int | None = None,
) -> Source:
    """Read the network at `path`, and the files that hold data of its tensors.

    `context` is how many positions a Llama in float gets, at most its own.

    Where an ONNX file may be in Deeploy's dialect, `input_types` gives the types of inputs by name; those of the others
    are taken from inputs.npz beside the file. `shapes` are those of inputs with open sizes, by name.

    Raises `FileError` where a file cannot be read, is damaged or too large, `InputError` for the type or shape of an
    input that there is not, and `UnsupportedError` for types of other files' inputs, shapes of formats without open
    sizes, and a context of other networks.
    """
    path = Path(path)
    check_kind(path)
    kind = kind_of(path)
    if context is not None and kind not in LLAMAS:
        raise UnsupportedError(f"{path}: a context is chosen for a Llama in float, {', '.join(LLAMAS)}; drop --context")
    if kind == FOLDER:
        source = replace(_read_folder(path), context=context)
    elif kind == ".gguf":
        source = Source(path, map_regular(path, "a network"), context=context)
    else:
        most = None if kind in (".bin", ".npz") else min(_MOST_BYTES, default_limit())
        source = Source(path, read_regular(path, "a network", most), shapes=shapes or {}, context=context)
    content, model = source.content, None
    if shapes and kind not in (".onnx", ".tflite"):
        raise UnsupportedError(f"{path}: has no inputs of open sizes; drop the shape of {', '.join(shapes)}")
    if kind == ".onnx":
        model = _parse(path, bytes(content))
        source = replace(source, parts=_parts(path, model))
        model = _whole(model, source.parts)
        give_sizes(path, model, source.shapes)
    if model is not None and in_dialect(model, None):
        return replace(source, types=_types(path, model) | _checked_types(path, model, input_types or {}))
    for name, given in (input_types or {}).items():
        raise UnsupportedError(f"{path}: the type {given} for input {name!r} is not needed: the file has it; drop it")
    return source


def _read_folder(path: Path) -> Source:
    """The folder of a Llama."""
    wanted, names = "the folder of a Llama, with its config.json", [_WEIGHTS]
    if (path / _INDEX).is_file():
        index = read_json(path / _INDEX, wanted, _INDEX_BYTES)
        parts = index.get("weight_map") if isinstance(index, dict) else None
        names = sorted(map(str, set(parts.values()))) if isinstance(parts, dict) else []
        if not names or any(Path(name).name != name for name in names):
            raise FileError(f"{path / _INDEX}: must say in which files of the folder the weights are; it is damaged")
    content = read_regular(path / CONFIG, wanted)
    return Source(path, content, tuple(map_regular(path / name, wanted) for name in names), tuple(names))


def give_sizes(path: str | Path, model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Give inputs of an ONNX model these shapes, and other inputs the sizes that have the same names in the file.

    What the file says of other tensors' shapes is dropped, as it may depend on these. Raises `InputError` for a shape
    that is not that of an input.
    """
    constants, named = {tensor.name for tensor in model.graph.initializer}, dict[str, int]()
    inputs = {value.name: value.type.tensor_type for value in model.graph.input if value.name not in constants}
    for name, shape in shapes.items():
        check_shape(path, name, shape, {key: open_shape(tensor) for key, tensor in inputs.items()})
        dims = inputs[name].shape.dim
        while len(dims) < len(shape):
            dims.add()
        for dim, size in zip(dims, shape):
            named.setdefault(dim.dim_param, size)
            dim.dim_value = size
    if not shapes:
        return
    for tensor in inputs.values():
        for dim in tensor.shape.dim:
            if dim.dim_param in named and dim.dim_param:
                dim.dim_value = named[dim.dim_param]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]


def open_shape(tensor: Any) -> tuple[int | None, ...] | None:
    """The shape of an input in an ONNX model, None for open sizes, and for a shape without a known rank."""
    if not tensor.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim)


def check_shape(
    path: str | Path, name: str, shape: Sequence[int], inputs: Mapping[str, tuple[int | None, ...] | None]
) -> None:
    """Raise `InputError` for a `shape` that is not one of the input `name`; `inputs` are their shapes, open as None."""
    if name not in inputs:
        raise InputError(f"{path}: has no input {name!r}; its inputs are {', '.join(inputs)}")
    known = inputs[name]
    if known is not None and (
        len(known) != len(shape) or any(want not in (None, given) for want, given in zip(known, shape))
    ):
        sizes = ", ".join("any" if size is None else str(size) for size in known)
        raise InputError(f"{path}: input {name!r} has shape ({sizes}), which {tuple(shape)} is not; give another")


def _whole(model: ModelProto, parts: Sequence[bytes]) -> ModelProto:
    """The model, with the `parts` as data of its tensors."""
    for tensor, part in zip(_outside(model), parts, strict=True):
        tensor.raw_data = bytes(part)
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
    return model


def _inputs(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs that are no constants, by name; an open batch is 1."""
    constants = {i.name for i in model.graph.initializer}
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    return {name: (*(max(1, n) for n in s[:1]), *s[1:]) for name, s in shapes.items() if name not in constants}


def _checked_types(path: Path, model: ModelProto, types: Mapping[str, str]) -> dict[str, str]:
    """The types that the user gives. Raises `InputError`."""
    for name, given in types.items():
        if name not in (known := _inputs(model)):
            raise InputError(f"{path}: has no input {name!r} that could be {given}; its inputs are {', '.join(known)}")
        if given not in INPUT_TYPES:
            raise InputError(
                f"{path}: input {name!r} cannot be {given}; its type must be one of {', '.join(INPUT_TYPES)}"
            )
    return dict(types)


def counted_arrays(held: Collection[str], count: int, kind: str) -> list[str]:
    """The names in `held` of a file's first `count` arrays of a `kind`, input or output; empty where it counts none.

    They are `input_0`, `input_1`, ..., and for inputs `arr_0`, `arr_1`, ..., as numpy.savez names them, or `_0`, ....
    """
    starts = ("input_", "arr_", "_") if kind == "input" else (f"{kind}_",)
    counted = ([f"{start}{k}" for k in range(count)] for start in starts)
    return next((names for names in counted if {*names} <= {*held}), [])


def _types(path: Path, model: ModelProto) -> dict[str, str]:
    """The types of the inputs by the arrays of inputs.npz: the narrowest of `INPUT_TYPES` that holds the values.

    The arrays have the names of the inputs, are counted (then arrays of the file's weights may follow), or are as many
    as the inputs, and in their order. Empty inputs may be left out. Where the model alone does not show that it is in
    the dialect, only counted arrays do: `input_0`, ... by their values, others by their types.
    """
    sizes = {name: _elements(shape, f"{path}: input {name!r}") for name, shape in _inputs(model).items()}
    beside = path.with_name("inputs.npz")
    if not beside.is_file():
        return {}

    def fits(size: int, shape: tuple[int, ...]) -> bool:
        return size in (math.prod(shape), math.prod(shape[1:]))

    arrays = read_npz(beside, needed=lambda _, shape: any(fits(size, shape) for size in sizes.values()))
    for names in ([*sizes], [name for name, size in sizes.items() if size]):
        counted = counted_arrays(arrays, len(names), "input")
        for keys in (names, counted, [*arrays]):
            given = [arrays[key] for key in keys if key in arrays]
            if len(given) != len(names) or not all(fits(sizes[k], a.shape) for k, a in zip(names, given)):
                continue
            integers = "input_0" in counted or all(array.dtype.kind in "iu" for array in given)
            if (keys is counted and integers) or in_dialect(model, {}):
                return {name: _type(array) for name, array in zip(names, given)}
    return {}


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
    if path.is_dir() and kind_of(path) != FOLDER:
        raise FileError(f"{path}: is a folder; give {_NETWORK}")
    if not kind_of(path):
        raise UnsupportedError(f"{path}: unknown kind of network; must be one of {', '.join(SUFFIXES)}")


def kind_of(path: str | Path, content: bytes | None = None) -> str:
    """The kind of the network in a file, as a suffix, by its content, else by its name; empty if it is unknown.

    `content` is the content of the file where it has been read.
    """
    start = content[:_START] if isinstance(content, mmap.mmap) else content  # of which no copy is made
    known = recognise(path, None if start is None else io.BytesIO(start))
    suffix = Path(path).suffix
    if known in _SUFFIX_OF:
        return _SUFFIX_OF[known]
    return suffix if suffix in SUFFIXES else ""


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


# whose operators are known by name alone; Deeploy's exporters write the last two
DOMAINS = ("", "ai.onnx", "PACTOps", "ai.onnx.contrib")
# Deeploy's own operators; their results, except means, have the shape of their first input
DEEPLOY = ("DebugPrint", "ITAMax", "ITAPartialMax", "IntegerDiv", "IntegerMean", "RequantShift", "TrueIntegerDiv")
DEEPLOY += ("iGELU", "iHardswish", "iLayerNorm", "iNoNorm", "iRMSNorm", "iSoftmax")
# an operator and a RequantShift in one node
DEEPLOY += ("RQIntegerDiv", "RequantizedConv", "RequantizedGemm", "RequantizediGELU", "RequantizediHardswish")
_LAYERS = ("Conv", "Gemm", "MatMul")
# operators of ONNX that keep integers integers
_ON_INTEGERS = (*_LAYERS, "Add", "Concat", "Constant", "Flatten", "Gather", "Identity", "MaxPool", "Mul", "Pad", "Relu")
_ON_INTEGERS += ("ReduceMean", "ReduceSum", "Reshape", "Slice", "Split", "Squeeze", "Sub", "Transpose", "Unsqueeze")


def in_dialect(model: ModelProto, types: Mapping[str, str] | None) -> bool:
    """True for a model in Deeploy's dialect: with its operators, or with layers of integers in float32.

    `types` are the known types of the inputs, by name; with None the answer is whether some types could make it one.
    """
    nodes = model.graph.node
    return any(node.domain in DOMAINS and node.op_type in DEEPLOY for node in nodes) or _of_integers(model, types)


def _of_integers(model: ModelProto, types: Mapping[str, str] | None) -> bool:
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
    known = types is None or (bool(inputs) and all(types.get(v.name, "float32") != "float32" for v in inputs))
    return len(largest) == len(arrays) and (max(largest, default=0) > 1 or known)
