"""Reads and checks the contents of a .tflite file: tensors, constants and operators as plain values.

The schema is that of ai_edge_litert, through its object API. An operator's code is the larger of two fields: old files
set only the deprecated one, new files may omit it.

Files of the earlier generation quantise in uint8: `relabelled` makes that int8, values and zero points less 128. An
operator's integers depend on values only less their zero points, which stay; where a kernel's rounding depends on more,
`Info.unsigned` says that the file has uint8. Inputs and outputs of the network stay uint8 under the file's names: the
graph recodes there. Tensors without quantisation are numbers, and stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from flatbuffers import flexbuffers

from ....hw.errors import FileError, UnsupportedError
from ...graph import Names
from ..source import Source, as_source, check_shape

try:
    from ai_edge_litert import schema_py_generated as schema
except ImportError as exc:
    raise UnsupportedError(
        f"reading .tflite needs ai-edge-litert ({exc}); pip install 'tilewright[compiler]'"
    ) from None

Flat: TypeAlias = Any  # an object of the schema, or a list of its numbers
IDENTIFIER = b"TFL3"
# element types whose constants are read; flatbuffers are little-endian
_DTYPES = {"FLOAT32": "<f4", "INT32": "<i4", "INT64": "<i8", "INT8": "i1", "UINT8": "u1", "INT16": "<i2", "BOOL": "?"}
_DTYPES |= {"FLOAT16": "<f2"}
_PACKED = {"INT4": 4, "INT2": 2}  # signed types of several elements per byte -> bits; they are widened to int8


def _names(enum: type) -> dict[int, str]:
    return {value: name for name, value in vars(enum).items() if isinstance(value, int)}


WITHOUT_OUTPUT = ("ASSIGN_VARIABLE", "CALL_ONCE")
_TYPES = _names(schema.TensorType)
_OPERATORS = _names(schema.BuiltinOperator)
OPERATOR_NAMES = frozenset(_OPERATORS.values())


@dataclass(frozen=True, eq=False)
class Info:
    """A tensor of the file, in the file's layout.

    `type` is the schema's name, `signature` the shape with -1 for open sizes, `scale` and `zero_point` float32 and
    int64 arrays that are empty without quantisation, `axis` their dimension, `data` the value of a constant. A
    `variable` keeps its values from one inference to the next. What the file has in uint8 and is relabelled as int8
    (unsigned.py) is `unsigned`.
    """

    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    type: str
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int
    data: np.ndarray | None
    variable: bool = False
    unsigned: bool = False


@dataclass(frozen=True, eq=False)
class FileNode:
    """An operator of the file: `kind` is the schema's name, `name` that and its position, `tensor` its output's name.

    `inputs`, `outputs` and `intermediates` are tensor numbers; -1 stands for an omitted input. `code` is the number of
    the kind in the schema.
    """

    kind: str
    name: str
    tensor: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Flat
    intermediates: tuple[int, ...] = ()
    code: int = 0

    def option(self, name: str, default: Flat) -> Flat:
        """A field of the options table, or `default` where the file has no such table."""
        return getattr(self.options, name, default)


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Tensors and operators that belong together."""

    tensors: list[Info]
    nodes: list[FileNode]


@dataclass(frozen=True, eq=False)
class ModelFile(Subgraph):
    """A file: its first subgraph, and the `others`, which operators name by their number, from 1 on."""

    path: Path
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    others: tuple[Subgraph, ...] = ()


def read(model: str | Path | Source) -> ModelFile:
    """Parse a file; inputs have the shapes that the source gives them.

    Raises `FileError` if it is missing, not a .tflite file, truncated or inconsistent, `InputError` for a shape that is
    not that of an input.
    """
    source = as_source(model)
    path, data = source.path, source.content
    if data[4:8] != IDENTIFIER:
        raise FileError(f"{path}: not a .tflite model: bytes 4 to 7 are {data[4:8]!r}, expected {IDENTIFIER!r}")
    try:
        file = _parse(path, schema.ModelT.InitFromPackedBuf(data, 0))
    except FileError:
        raise
    except Exception as exc:  # damaged offsets make the reader raise errors of any kind
        text = " ".join(str(exc).split()) or type(exc).__name__
        raise FileError(f"{path}: a truncated or damaged .tflite model ({text})") from None
    inputs = {file.tensors[k].name: k for k in file.inputs}
    for name, shape in source.shapes.items():
        known = {each: tuple(d if d >= 0 else None for d in file.tensors[k].signature) for each, k in inputs.items()}
        check_shape(path, name, shape, known)
        sizes = tuple(shape)
        file.tensors[inputs[name]] = replace(file.tensors[inputs[name]], shape=sizes, signature=sizes)
    return file


def _parse(path: Path, model: Flat) -> ModelFile:
    if not model.subgraphs:
        raise FileError(f"{path}: the model has no subgraph")
    graph, *others = model.subgraphs
    first = _subgraph(path, model, graph)
    inputs, outputs = _ints(graph.inputs), _ints(graph.outputs)
    if not outputs or not all(0 <= k < len(first.tensors) for k in inputs + outputs):
        raise FileError(f"{path}: the model's inputs or outputs are tensors that the file does not have")
    parts = tuple(_subgraph(path, model, other) for other in others)
    return ModelFile(first.tensors, first.nodes, path, inputs, tuple(dict.fromkeys(outputs)), parts)


def _subgraph(path: Path, model: Flat, graph: Flat) -> Subgraph:
    names = _unique([_text(t.name or b"") for t in _list(graph.tensors)])
    tensors = [_tensor(path, model, t, name) for t, name in zip(_list(graph.tensors), names)]
    nodes = []
    for number, op in enumerate(_list(graph.operators)):
        code = model.operatorCodes[op.opcodeIndex]
        kind = _kind(code)
        inputs, outputs, between = _ints(op.inputs), _ints(op.outputs), _ints(op.intermediates)
        known = range(len(tensors))
        there = all(k in known for k in outputs) and all(k == -1 or k in known for k in inputs + between)
        if not there or (not outputs and kind not in WITHOUT_OUTPUT):
            raise FileError(f"{path}: operator {number} ({kind}) names tensors that the file does not have")
        options = _custom(op.customOptions) if kind.startswith("CUSTOM") else op.builtinOptions
        tensor = next((tensors[k].name for k in outputs + inputs if k >= 0), "")
        name = f"{kind.lower().replace(' ', '_')}_{number}"
        nodes.append(FileNode(kind, name, tensor, inputs, outputs, options, between, _number(code)))
    return Subgraph(tensors, nodes)


def _list(values: Flat) -> list:
    return [] if values is None else list(values)


def _ints(values: Flat) -> tuple[int, ...]:
    return () if values is None else tuple(int(v) for v in values)


def _text(name: bytes) -> str:
    """A name as printable text."""
    return "".join(letter if letter.isprintable() else "?" for letter in name.decode(errors="replace"))


def _unique(names: list[str]) -> list[str]:
    """The names, with a number appended where one is missing or repeated."""
    taken, first = Names(names), dict(zip(reversed(names), reversed(range(len(names)))))
    return [
        name if name and first[name] == number else taken.unused(f"{name or 'tensor'}:{number}")
        for number, name in enumerate(names)
    ]


def _custom(data: Flat) -> Flat:
    """The options of a custom operator, by name; None where they are not a map."""
    try:
        values = flexbuffers.Loads(bytes(bytearray(data)))
    except Exception:  # what they are is for each operator to say
        return None
    return SimpleNamespace(**values) if isinstance(values, dict) else None


def _number(code: Flat) -> int:
    return max(code.builtinCode, code.deprecatedBuiltinCode)


def _kind(code: Flat) -> str:
    number = _number(code)
    if number == schema.BuiltinOperator.CUSTOM:
        return f"CUSTOM {(code.customCode or b'').decode(errors='replace')}".strip()
    return _OPERATORS.get(number, f"operator code {number}")


def _tensor(path: Path, model: Flat, t: Flat, name: str) -> Info:
    shape, kind = _ints(t.shape), _TYPES.get(t.type, f"type {t.type}")
    q = t.quantization
    scale = np.array([] if q is None or q.scale is None else q.scale, np.float32)
    zero = np.array([] if q is None or q.zeroPoint is None else q.zeroPoint, np.int64)
    if zero.size < scale.size:  # missing zero points are 0
        zero = np.resize(zero, scale.size) if zero.size else np.zeros(scale.size, np.int64)
    signature = _ints(t.shapeSignature) or shape
    data = _constant(path, model, t, name, shape, kind)
    kind = "INT8" if kind in _PACKED and data is not None else kind
    return Info(name, shape, signature, kind, scale, zero, q.quantizedDimension if q else 0, data, bool(t.isVariable))


def _constant(path: Path, model: Flat, t: Flat, name: str, shape: tuple[int, ...], kind: str) -> np.ndarray | None:
    buffer = model.buffers[t.buffer]
    if buffer.offset > 1 or t.externalBuffer:
        raise UnsupportedError(f"{path}: tensor {name!r} is stored outside the flatbuffer, which is not supported")
    if buffer.data is None or not len(buffer.data) or kind not in (*_DTYPES, *_PACKED):
        return None
    raw, dtype = np.asarray(buffer.data, np.uint8), np.dtype(_DTYPES.get(kind, "i1"))
    count = math.prod(shape) if t.sparsity is None else None
    if bits := _PACKED.get(kind):  # the first of a byte's elements in the low bits
        parts = [raw << 8 - bits - first for first in range(0, 8, bits)]
        raw = np.stack(parts, -1).view(np.int8).reshape(-1)[:count] >> 8 - bits
    what = f"{path}: constant {name!r}"
    if count is None:
        return _dense(what, t.sparsity, raw.view(dtype), shape).astype(dtype.newbyteorder("="))
    if raw.size != count * dtype.itemsize:
        wanted = count * dtype.itemsize
        raise FileError(f"{what} has {raw.size} bytes; {kind} of shape {shape} takes {wanted}")
    return raw.view(dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _dense(what: str, sparsity: Flat, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array of `shape` whose elements other than 0 are `values`, in the format of TACO.

    The levels of `sparsity` are dimensions, then blocks within some of them, in its order of traversal. A dense level
    has all of its indices, a compressed one lists those of each index of the level before. Raises `FileError`.
    """
    order, blocks, levels = _ints(sparsity.traversalOrder), _ints(sparsity.blockMap), _list(sparsity.dimMetadata)
    known = sorted(order) == [*range(len(shape) + len(blocks))] and len(levels) == len(order)
    if not known or not {*blocks} <= {*range(len(shape))}:
        raise FileError(f"{what} of shape {shape} is sparse with levels {order} and blocks of dimensions {blocks}")
    places: list[np.ndarray] = []  # the index of each value in the levels so far
    count = 1
    for level in levels:
        if level.format == schema.DimensionType.DENSE:
            if not 0 <= count * level.denseSize <= math.prod(shape):
                raise FileError(f"{what} of shape {shape} is sparse with {count} times {level.denseSize} places")
            parents, indices = np.repeat(np.arange(count), level.denseSize), np.tile(np.arange(level.denseSize), count)
        else:
            starts = np.asarray(level.arraySegments.values, np.int64)
            indices = np.asarray(level.arrayIndices.values, np.int64)
            if len(starts) != count + 1 or starts[0] or (np.diff(starts) < 0).any() or starts[-1] != len(indices):
                raise FileError(f"{what} is sparse with segments that do not fit its {len(indices)} indices")
            parents = np.repeat(np.arange(count), np.diff(starts))
        places, count = [*(place[parents] for place in places), indices], len(indices)
    sizes = [levels[order.index(len(shape) + k)].denseSize for k in range(len(blocks))]
    where = [places[order.index(k)] for k in range(len(shape))]
    for k, dimension in enumerate(blocks):
        where[dimension] = where[dimension] * sizes[k] + places[order.index(len(shape) + k)]
    if len(values) < count or any(i.size and not 0 <= i.min() <= i.max() < n for i, n in zip(where, shape)):
        raise FileError(f"{what} of shape {shape} is sparse with {len(values)} values at places that it does not have")
    dense = np.zeros(shape, values.dtype)
    dense[tuple(where)] = values[:count]
    return dense


def relabelled(file: ModelFile) -> tuple[ModelFile, dict[int, str]]:
    """The file with int8 tensors only, and the names of the inputs and outputs that are uint8 outside, by number."""
    ends = {k: file.tensors[k].name for k in (*file.inputs, *file.outputs) if _is_unsigned(file.tensors[k])}
    names = Names(t.name for t in file.tensors)
    tensors = []
    for k, info in enumerate(file.tensors):
        name = info.name
        if k in ends:
            name = names.unused(f"{name}.int8")
        tensors.append(_signed(info, name) if _is_unsigned(info) else info)
    return replace(file, tensors=tensors), ends


def _is_unsigned(info: Info) -> bool:
    return info.type == "UINT8" and info.scale.size == 1


def _signed(info: Info, name: str) -> Info:
    data = None if info.data is None else (info.data ^ np.uint8(128)).view(np.int8)
    return replace(info, name=name, type="INT8", zero_point=info.zero_point - 128, data=data, unsigned=True)
