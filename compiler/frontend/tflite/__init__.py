"""Reads int8 .tflite files: the flatbuffer, its operators, and the graph that they become."""

from .importer import import_tflite

__all__ = ["import_tflite"]
