"""Reads int8 .tflite files: flatbuffer, operators, and their graph."""

from .importer import import_tflite

__all__ = ["import_tflite"]
