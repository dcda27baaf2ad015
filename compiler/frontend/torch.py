"""Reads quantised networks of PyTorch: torch.export programs with quantized_decomposed operators -> compiler/graph/.

torch's own exporter makes an ONNX model of the program, which compiler/frontend/onnx/ reads as any other.
This module imports torch, which slows the import of TVM: the compiler imports it for such programs alone.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import re
import warnings
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...hw.errors import FileError, UnsupportedError
from ...hw.needs import need
from .. import graph as g
from .onnx import import_onnx
from .source import Source, as_source, one_line

if TYPE_CHECKING:  # torch is not installed for type checks
    import onnx

    torch: Any
else:
    try:
        import torch
    except ImportError as exc:
        raise UnsupportedError(
            f"reading PyTorch programs needs torch ({exc}); pip install 'tilewright[torch]'"
        ) from None
    # Registers the quantized_decomposed operators with torch: a loaded program refers to them
    importlib.import_module("torch.ao.quantization.fx._decomposed")

_OPSET = 21  # the first with all types of QuantizeLinear that torch's quantisers give
_RANGES = {"int8": (-128, 127), "uint8": (0, 255)}  # of activations, where nothing is clamped
_UNKNOWN = re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'")


def import_torch(program: Any, name: str = "program") -> g.Graph:
    """Import a torch.export.ExportedProgram, or the `.pt2` file that holds one; see `torch.export.save`.

    A file is given as a path or a `Source`. Sizes are fixed. Activations pass quantized_decomposed.quantize_per_tensor
    and dequantize_per_tensor of int8 or uint8; convolutions and dense layers take their weights from
    dequantize_per_tensor or dequantize_per_channel of integer buffers. Other operators compute in float32, on the host.
    Raises `FileError` for an unreadable file, `UnsupportedError` for a module, and that names what is not supported.
    """
    path = Path(name)
    if isinstance(program, torch.nn.Module):
        raise UnsupportedError(
            f"a module ({type(program).__name__}) is no exported program; quantise it with tw.quantise(module, data), "
            "or give torch.export.export(module, inputs) of one that PT2E quantised"
        )
    if isinstance(program, (str, Path, Source)):
        source = as_source(program)
        path, program = source.path, read_program(source)
    graph = import_onnx(Source(path, as_onnx(program, str(path)).SerializeToString()))
    # torch multiplies by the reciprocal of a scale: that decides ties, which means of images have
    ops = (replace(op, reciprocal=True) if isinstance(op, g.Quantize) else op for op in graph.ops)
    return replace(graph, ops=tuple(ops))


def read_program(source: Source) -> Any:
    """The torch.export.ExportedProgram in a file. Raises `FileError`."""
    try:
        return torch.export.load(io.BytesIO(source.content))
    except Exception as exc:  # zip, json and torch raise errors of many classes
        raise FileError(f"{source.path}: not an exported program, or damaged ({one_line(exc)})") from None


def as_onnx(program: Any, name: str) -> onnx.ModelProto:
    """A torch.export.ExportedProgram as an ONNX model; `name` is for messages.

    Raises `UnsupportedError` for open sizes, scales that are computed in each run, activations of other types than int8
    and uint8, and operators that ONNX does not have.
    """
    need("reading PyTorch programs", "torch", "onnxscript")
    if program.range_constraints:
        sizes = ", ".join(map(str, program.range_constraints))
        raise UnsupportedError(f"{name}: the program has open sizes ({sizes}); export it without dynamic_shapes")
    for node in program.graph.nodes:
        _check(node, name)
    try:
        with _quiet():
            exported = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=_OPSET,
                verbose=False,
                custom_translation_table={torch.ops.quantized_decomposed.quantize_per_tensor.default: _quantize},
            )
    except Exception as exc:  # the exporter raises errors of many classes
        unknown = _UNKNOWN.search(str(exc))
        why = f"ONNX has no {unknown[1]}" if unknown else one_line(_cause(exc))
        raise UnsupportedError(f"{name}: torch cannot export the program to ONNX: {why}") from None
    assert exported is not None
    return exported.model_proto


def _check(node: Any, name: str) -> None:
    """Raise `UnsupportedError` for a quantised activation that the exporter does not express."""
    operator = str(node.target)
    if "quantized_decomposed.choose_qparams" in operator:
        raise UnsupportedError(
            f"{name}: {node.name!r} computes a scale in each run; prepare the network with is_dynamic=False"
        )
    if "quantized_decomposed.quantize_per_tensor" not in operator:
        return
    dtype = str(node.args[-1]).removeprefix("torch.")
    if dtype not in _RANGES:
        raise UnsupportedError(
            f"{name}: {node.name!r} is of type {dtype}; only {' and '.join(_RANGES)} are supported for activations"
        )


def _quantize(x: Any, scale: float, zero_point: int, low: int, high: int, dtype: int) -> Any:
    """QuantizeLinear of `dtype`, a number of ONNX, clamped to `low` and `high`, as torch's exporter does not clamp."""
    op = importlib.import_module("onnxscript").opset21
    zero = op.Cast(op.Constant(value_int=zero_point), to=dtype)
    if (low, high) not in _RANGES.values():
        ends = (op.Constant(value_float=(end - zero_point) * scale) for end in (low, high))
        x = op.Clip(x, *ends)
    return op.QuantizeLinear(x, op.Constant(value_float=scale), zero)


def _cause(exc: BaseException) -> Any:
    while exc.__cause__ is not None:
        exc = exc.__cause__
    return exc


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Without the exporter's reports on its steps, and what it says of packages that are not installed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
