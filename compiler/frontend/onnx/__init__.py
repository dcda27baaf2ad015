"""Reads QDQ and QOperator ONNX files."""

from .importer import OPERATORS, import_onnx

__all__ = ["OPERATORS", "import_onnx"]
