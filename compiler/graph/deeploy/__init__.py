"""Operators of Deeploy's dialect of ONNX."""
