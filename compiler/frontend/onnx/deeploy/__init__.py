"""Reads networks in Deeploy's dialect of ONNX: integers in float32, and operators of its own."""
