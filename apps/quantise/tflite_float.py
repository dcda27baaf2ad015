"""The float32 form of a .tflite network whose constants alone are float16 or integers, with fixed sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiler.frontend.source import Source
from ...compiler.frontend.tflite.file import ModelFile, read
from ...compiler.frontend.tflite.shapes import fold_constants, resolved
from ...hw.errors import UnsupportedError

_SIGNATURE = "serving_default"
_INTEGERS = ("INT8", "UINT8", "INT16", "INT4")


def float_form(source: Source) -> bytes:
    """The file with float32 constants in place of float16 ones and of integers with scales, and with a signature.

    Such are files with float16 weights, and those of dynamic-range quantisation (int8 weights, float32 activations).
    Tensors have the shapes that follow from those of the source's inputs. Raises `FileError` for damaged files,
    `InputError` for a shape that is not that of an input, and `UnsupportedError` for a network with quantised
    activations.
    """
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.tools import flatbuffer_utils

    file = resolved(read(source)) if source.shapes else read(source)
    for info in file.tensors:
        if info.data is None and info.type in _INTEGERS and info.scale.size:
            raise UnsupportedError(
                f"{source.path}: is quantised already ({info.name!r} is {info.type.lower()}); compile it as it is"
            )
    model: Any = flatbuffer_utils.read_model_from_bytearray(bytearray(source.content))
    graph = model.subgraphs[0]
    for tensor, info in zip(graph.tensors, file.tensors if source.shapes else ()):
        tensor.shape, tensor.shapeSignature = np.array(info.shape, np.int32), None
    folded = dict(_folded(file))
    for k, value in folded.items():
        buffer: Any = schema.BufferT()
        buffer.data = np.frombuffer(value.astype("<f4").tobytes(), np.uint8)
        model.buffers.append(buffer)
        graph.tensors[k].buffer, graph.tensors[k].quantization = len(model.buffers) - 1, None
        graph.tensors[k].type = schema.TensorType.FLOAT32
    graph.operators = [op for op in graph.operators if not {*op.outputs} <= folded.keys()]
    if not model.signatureDefs:
        model.signatureDefs = [_signature(graph, schema)]
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def _folded(file: ModelFile) -> Any:
    """(number of a tensor, its float32 values) of constants with scales, and of results of DEQUANTIZE on constants."""
    for k, info in enumerate(file.tensors):
        if info.data is not None and info.type in _INTEGERS and info.scale.size:
            along = [1] * info.data.ndim
            if info.scale.size > 1:
                along[info.axis] = info.scale.size
            steps = info.data.astype(np.float32) - info.zero_point.reshape(along).astype(np.float32)
            yield k, steps * info.scale.reshape(along)
    for node in file.nodes:
        if node.kind == "DEQUANTIZE" and (value := fold_constants(node, file.tensors)) is not None:
            yield node.outputs[0], value


def _signature(graph: Any, schema: Any) -> Any:
    """Names of inputs and outputs, by which ai-edge-quantizer gives data: those of their tensors."""
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = _SIGNATURE, 0
    ends = []
    for numbers in (graph.inputs, graph.outputs):
        ends.append([])
        for k in numbers:
            entry = schema.TensorMapT()
            entry.name, entry.tensorIndex = graph.tensors[k].name, int(k)
            ends[-1].append(entry)
    signature.inputs, signature.outputs = ends
    return signature
