"""Operators of .tflite files on plain numbers: float32 and integers between, before and behind the quantised ones."""

from __future__ import annotations

from dataclasses import replace

from ... import graph as g
from .elementwise import Handler, operand
from .file import FileNode, schema
from .importer import Refused, TfliteImporter

NUMBERS = ("FLOAT32", "INT32", "INT64")
_ACTIVATION = schema.ActivationFunctionType
_ACTIVATIONS = {
    _ACTIVATION.RELU: "relu",
    _ACTIVATION.RELU6: "relu6",
    _ACTIVATION.RELU_N1_TO_1: "relu_n1_to_1",
}


def are_numbers(imp: TfliteImporter, node: FileNode) -> bool:
    """Whether the first input is float32 or integers."""
    return imp.info(node, 0).type in NUMBERS


def function(name: str) -> Handler:
    """A function of one value."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x, y = imp.activation(node, 0, dtype=None), imp.result(node)
        imp.emit(node, g.NumberFunction(node.name, (x,), y, name))

    return convert


def binary(name: str) -> Handler:
    """A function of two operands, with its fused activation."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        y = imp.result(node)
        operands = tuple(operand(imp, node, k, len(y.shape), dtype=None) for k in (0, 1))
        kind = node.option("fusedActivationFunction", _ACTIVATION.NONE)
        if kind == _ACTIVATION.NONE:
            imp.emit(node, g.NumberBinary(node.name, operands, y, name))
            return
        if kind not in _ACTIVATIONS:
            raise Refused(f"has fused activation {kind}; only none, RELU, RELU6 and RELU_N1_TO_1 are supported")
        part = replace(y, name=imp.unused(f"{node.name}.linear"))
        imp.ops.append(g.NumberBinary(part.name, operands, part, name))
        imp.emit(node, g.NumberFunction(node.name, (part,), y, _ACTIVATIONS[kind]))

    return convert


def cast(imp: TfliteImporter, node: FileNode) -> None:
    """CAST of the values as the file has them, without their quantisation."""
    raw, y = imp.outside(node.inputs[0]), imp.result(node, plain=True)
    if raw is None and imp.info(node, 0).unsigned:
        raise Refused("casts a quantised uint8 tensor, which is not supported")
    x = raw or imp.activation(node, 0, plain=True, dtype=None)
    imp.emit(node, g.Cast(node.name, (x,), y), plain=True)


def gather(imp: TfliteImporter, node: FileNode) -> None:
    """GATHER of computed positions along one axis."""
    x, where = (imp.activation(node, k, plain=True, dtype=None) for k in (0, 1))
    axis = node.option("axis", 0) % len(x.shape)
    if not imp.info(node, 1).shape:  # one position: its dimension goes
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        part = replace(imp.result(node, plain=True), name=imp.unused(f"{node.name}.row"), shape=shape)
        imp.ops.append(g.Gather(part.name, (x, where), part, axis))
        imp.emit(node, g.Reshape(node.name, (part,), imp.result(node, plain=True)), plain=True)
        return
    imp.emit(node, g.Gather(node.name, (x, where), imp.result(node, plain=True), axis), plain=True)


def gather_nd(imp: TfliteImporter, node: FileNode) -> None:
    """GATHER_ND."""
    x, where = (imp.activation(node, k, plain=True, dtype=None) for k in (0, 1))
    imp.emit(node, g.GatherNd(node.name, (x, where), imp.result(node, plain=True)), plain=True)
