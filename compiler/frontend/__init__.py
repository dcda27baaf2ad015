"""Reads quantised networks of every format into the graph of compiler/graph/."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..graph import Graph
from .source import LLAMAS, Source, as_source

if TYPE_CHECKING:
    from .onnx import import_onnx

__all__ = ["import_model", "import_onnx"]


def import_model(model: str | Path | Source, contract: str | None = None) -> Graph:
    """Read a quantised network: int8 .tflite, QDQ .onnx or PyTorch's .pt2, by its content, else by its name.

    A Llama (llama2.c's .bin, GGUF, a Hugging Face folder) is in float: it is quantised here; an .npz is one that has
    been (`tilewright quantise`). `contract` overrules the rounding contract of the format. Raises as `read_source` and
    the importers.
    """
    return _imported(as_source(model)).under(contract)


def _imported(source: Source) -> Graph:
    if source.kind == ".pt2":
        from .torch import import_torch

        return import_torch(source)
    if source.kind in LLAMAS:
        from .llama.forms import import_llama

        return import_llama(source)
    if source.kind == ".npz":
        from .llama.forms import import_integers

        return import_integers(source)
    if source.kind == ".tflite":
        from .tflite import import_tflite

        return import_tflite(source)
    from .onnx import import_onnx

    return import_onnx(source)


def __getattr__(name: str) -> Any:
    if name == "import_onnx":  # which needs a package that other formats do not
        from .onnx import import_onnx

        return import_onnx
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
