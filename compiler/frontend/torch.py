"""Reads quantised networks of PyTorch: torch.export programs with quantized_decomposed operators -> compiler/graph/.

The program goes through TVM's Relax, with converters for those operators added, and from there on through
compiler/frontend/relax.py.
This module imports torch, which slows the import of TVM: no other module of tilewright does.
"""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...hw.errors import FileError, UnsupportedError
from .. import graph as g
from .source import Source, as_source, one_line

if TYPE_CHECKING:  # torch is not installed for type checks
    torch: Any
else:
    try:
        import torch
    except ImportError as exc:
        raise UnsupportedError(
            f"reading PyTorch programs needs torch ({exc}); pip install 'tilewright[torch]'"
        ) from None
from ..advice import shortened
from ..tvm_compat import torch_frontend
from .relax import import_relax


def import_torch(program: Any, name: str = "") -> g.Graph:
    """Import a torch.export.ExportedProgram, or the `.pt2` file that holds one; see `torch.export.save`.

    A file is given as a path or a `Source`. Inputs are float32 with fixed sizes. Convolutions and dense layers take
    their weights from quantized_decomposed.dequantize_per_tensor or dequantize_per_channel of int8 buffers, every
    activation passes quantize_per_tensor and dequantize_per_tensor. Operators have Relax's names, numbered. Raises
    `FileError` for an unreadable file, `UnsupportedError` that names what is not supported.
    """
    if isinstance(program, (str, Path, Source)):
        source = as_source(program)
        name = name or source.path.stem
        program = _load(source)
    _fixed_sizes(program)
    converters = _Converters(program)
    try:
        function = torch_frontend().from_exported_program(program, custom_convert_map=converters.map())["main"]
    except UnsupportedError:
        raise
    except Exception as exc:  # the importer raises errors of many kinds
        text = next((line.strip() for line in reversed(str(exc).splitlines()) if line.strip()), type(exc).__name__)
        raise UnsupportedError(f"{name or 'program'}: TVM's importer refuses the program: {shortened(text)}") from None
    outputs = [str(output) for output in program.graph_signature.user_outputs]
    return import_relax(function, outputs, name or "program")


def _load(source: Source) -> Any:
    _register()
    try:
        return torch.export.load(io.BytesIO(source.content))
    except Exception as exc:  # zip, json and torch raise errors of many classes
        raise FileError(f"{source.path}: not an exported program, or damaged ({one_line(exc)})") from None


def _register() -> None:
    """Register the quantized_decomposed operators with torch: a loaded program refers to them."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")


def _fixed_sizes(program: Any) -> None:
    if program.range_constraints:
        sizes = ", ".join(map(str, program.range_constraints))
        raise UnsupportedError(f"the program has open sizes ({sizes}); export it without dynamic_shapes")


class _Converters:
    """Converts quantized_decomposed operators to Relax's, and the program's parameters to constants."""

    def __init__(self, program: Any):
        signature = program.graph_signature
        held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        held |= signature.inputs_to_lifted_tensor_constants
        values = {**program.constants, **program.state_dict}
        self.values = {node: values[key] for node, key in held.items()}

    def map(self) -> dict[str, Any]:
        """The converter map of `from_exported_program`."""
        return {
            "quantize_per_tensor.default": self.quantize,
            "dequantize_per_tensor.default": self.dequantize,
            "dequantize_per_channel.default": self.dequantize_per_channel,
        }

    def quantize(self, node: Any, importer: Any) -> Any:
        """relax.quantize of an activation."""
        x, scale, zero, *limits, dtype = node.args
        self._check(node, dtype, limits)
        scale, zero = self._constant(scale, "float32"), self._constant(zero, _name(dtype))
        return self._emit(importer, "quantize", importer.env[x], scale, zero, 1, _name(dtype))

    def dequantize(self, node: Any, importer: Any) -> Any:
        """relax.dequantize of an activation, or of weights with one scale."""
        x, scale, zero, *limits, dtype = node.args
        return self._dequantized(node, importer, x, scale, zero, 0, limits, dtype)

    def dequantize_per_channel(self, node: Any, importer: Any) -> Any:
        """relax.dequantize of weights with one scale per index of an axis."""
        x, scale, zero, axis, *limits, dtype = node.args
        return self._dequantized(node, importer, x, scale, zero, axis, limits, dtype)

    def _dequantized(
        self, node: Any, importer: Any, x: Any, scale: Any, zero: Any, axis: int, limits: list, dtype: Any
    ) -> Any:
        self._check(node, dtype, limits)
        scale, zero = self._constant(scale, "float32"), self._constant(zero, _name(dtype))
        return self._emit(importer, "dequantize", self._operand(x, importer), scale, zero, axis, "float32")

    def _emit(self, importer: Any, op: str, x: Any, scale: Any, zero: Any, axis: int, dtype: str) -> Any:
        call = getattr(torch_frontend(), op)(x, scale, zero, axis=axis, out_dtype=dtype)
        return importer.block_builder.emit(call)

    def _operand(self, node: Any, importer: Any) -> Any:
        value = self.values.get(node.name)
        return importer.env[node] if value is None else torch_frontend().const(value.detach().numpy())

    def _constant(self, value: Any, dtype: str) -> Any:
        if isinstance(value, torch.fx.Node):
            if value.name not in self.values:
                raise UnsupportedError(
                    f"scale or zero point {value.name!r} is not constant; only constants are supported"
                )
            value = self.values[value.name].detach().numpy()
        return torch_frontend().const(np.asarray(value, dtype))

    def _check(self, node: Any, dtype: Any, limits: list) -> None:
        """Raise `UnsupportedError` for other types, and for activations clamped to part of their type's range."""
        activation = node.target.__name__.startswith("quantize")
        allowed = ("int8", "uint8") if activation else ("int8", "uint8", "int32")
        if _name(dtype) not in allowed:
            raise UnsupportedError(f"{node.name!r} is of type {_name(dtype)}; only {', '.join(allowed)} are supported")
        low = -128 if dtype == torch.int8 else 0
        if activation and limits != [low, low + 255]:
            raise UnsupportedError(f"{node.name!r} clamps to {limits}; only {[low, low + 255]} is supported")


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
