"""Reads quantised networks of every format into the graph of compiler/graph/."""

from __future__ import annotations

from pathlib import Path

from ...hw.errors import UnsupportedError
from ..graph import Graph
from .onnx import import_onnx

__all__ = ["import_model", "import_onnx"]


def import_model(path: str | Path) -> Graph:
    """Read a quantised network: int8 .tflite, QDQ .onnx or PyTorch's .pt2, by the name's ending.

    Raises as `import_tflite`, `import_onnx` and `import_torch`, and `UnsupportedError` for other names.
    """
    suffix = Path(path).suffix
    if suffix == ".pt2":
        from .torch import import_torch

        return import_torch(path)
    if suffix == ".tflite":
        from .tflite import import_tflite

        return import_tflite(path)
    if suffix != ".onnx":
        raise UnsupportedError(f"{path}: unknown kind of network; must be one of .tflite, .onnx and .pt2")
    return import_onnx(path)
