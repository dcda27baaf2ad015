"""Nodes of Deeploy's dialect that are others in a row, or have as attributes what ONNX has as inputs today."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from ..nodes import Node, Reader, Rewrite
from ..rewrites.chain import Chain, as_float


def _number(node: Node, name: str) -> float:
    value = node.attrs[name]
    return float(np.asarray(value if isinstance(value, (int, float)) else numpy_helper.to_array(value)).item())


def _pad(reader: Reader, node: Node) -> list[Node] | None:
    if "pads" not in node.attrs:
        return None
    pads = reader.constant(np.array(node.attrs["pads"], np.int64))
    value = reader.constant(as_float(node.attrs.get("value", 0.0)))
    mode = {"mode": node.attrs["mode"]} if "mode" in node.attrs else {}
    return [Node("Pad", node.name, [node.inputs[0], pads, value], node.outputs, mode)]


def _slice(reader: Reader, node: Node) -> list[Node] | None:
    if "starts" not in node.attrs:
        return None
    lists = (node.attrs[key] for key in ("starts", "ends", "axes") if key in node.attrs)
    given = [reader.constant(np.array(values, np.int64)) for values in lists]
    return [Node("Slice", node.name, [node.inputs[0], *given], node.outputs)]


def _clip(reader: Reader, node: Node) -> list[Node] | None:
    if not {"min", "max"} & set(node.attrs):
        return None
    bounds = [reader.constant(as_float(_number(node, key))) if key in node.attrs else "" for key in ("min", "max")]
    return [Node("Clip", node.name, [node.inputs[0], *bounds], node.outputs)]


def _gemm(reader: Reader, node: Node) -> list[Node] | None:
    """A matrix product and a sum, but for a row of biases and constant weights, which a layer takes as they are."""
    x, y, *bias = node.inputs
    shapes, attrs = reader.shapes, node.attrs
    factors = [attrs.get(key, 1.0) for key in ("alpha", "beta")]
    constant = all(t in reader.constants for t in (y, *bias))
    row = not bias or np.prod(shapes[bias[0]]) == (shapes[bias[0]] or (1,))[-1]
    if constant and row and len(shapes[x]) == 2 and not attrs.get("transA", 0) and factors == [1.0, 1.0]:
        return None
    chain = Chain(reader, node)
    turned = [*range(len(shapes[x]) - 2), len(shapes[x]) - 1, len(shapes[x]) - 2]
    if attrs.get("transA", 0):
        x = chain.add("Transpose", x, perm=turned)
    if attrs.get("transB", 0):
        y = chain.add("Transpose", y, perm=turned)
    found = chain.add("MatMul", x, y)
    if factors[0] != 1.0:
        found = chain.add("Mul", found, as_float(factors[0]))
    for other in bias:
        scaled = chain.add("Mul", other, as_float(factors[1])) if factors[1] != 1.0 else other
        found = chain.add("Add", found, scaled)
    return chain.finish()


def _shifted(op: str, logarithm: bool = False) -> Rewrite:
    """`op` and a RequantShift in one: its factor, offset and divisor are attributes, or the last inputs.

    The divisor may be an attribute alone; where `logarithm`, an input or the attribute `shift` is its logarithm.
    """

    def rewrite(reader: Reader, node: Node) -> list[Node] | None:
        attrs, inputs = node.attrs, node.inputs
        if "mul" in attrs:
            numbers = [as_float(_number(node, name)) for name in ("mul", "add")]
        else:
            count = 2 if "div" in attrs else 3
            inputs, numbers = inputs[:-count], [reader.value(t) for t in inputs[-count:]]
        if any(array is None for array in numbers):
            return None
        known = [key for key in ("div", "shift") if key in attrs]
        divisor = _number(node, known[0]) if known else np.asarray(numbers[2]).item()
        if "div" not in known and logarithm:
            divisor = 2.0**divisor
        levels = attrs.get("n_levels_out", attrs.get("n_levels", 256))
        chain = Chain(reader, node)
        y = chain.add(op, *inputs, **{k: v for k, v in attrs.items() if k not in _SHIFTS})
        factor, offset = map(as_float, numbers[:2])
        shift = {"div": int(divisor), "n_levels_out": levels, "signed": attrs.get("signed", 1)}
        chain.add("RequantShift", y, factor, offset, **shift)
        return chain.finish()

    return rewrite


_SHIFTS = ("mul", "add", "shift", "div", "n_levels", "n_levels_out", "signed")

FORMS: dict[str, Rewrite] = {
    "Clip": _clip,
    "DebugPrint": lambda reader, node: [Node("Identity", node.name, node.inputs[:1], node.outputs[:1])],
    "Gemm": _gemm,
    "Pad": _pad,
    "RQIntegerDiv": _shifted("IntegerDiv"),
    "RequantizedConv": _shifted("Conv"),
    "RequantizedGemm": _shifted("Gemm"),
    "RequantizediGELU": _shifted("iGELU", logarithm=True),
    "RequantizediHardswish": _shifted("iHardswish", logarithm=True),
    "Slice": _slice,
}
