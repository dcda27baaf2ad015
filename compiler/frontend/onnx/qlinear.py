"""QOperator files as QDQ ones: QLinearConv and its family are DequantizeLinear, the operator, and QuantizeLinear."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from ..core import Node
from .nodes import Chain, Rewrite, Term


def _biases(c: Chain, bias: Term | None, x_scale: Term, w_scale: Term, alpha: object) -> list[Term]:
    """[the real values of int32 biases, in units of alpha * x_scale * w_scale]; empty where they are left out."""
    if bias is None or x_scale.value is None or w_scale.value is None:
        return []
    product = x_scale.value.astype(np.float32).reshape(-1)[:1] * w_scale.value.astype(np.float32).reshape(-1)
    product *= np.asarray(alpha, np.float32)
    return [bias.node("DequantizeLinear", product.reshape(()) if product.size == 1 else product, axis=0)]


def _quantised(c: Chain, op: str, inputs: Sequence[Term], attrs: dict, scale: Term | None, zero: Term | None) -> Term:
    """`op` on real `inputs`, with the node's name; without a `scale` its real result is the node's."""
    y = c.add(op, *inputs, **attrs)
    c.nodes[-1].name = c.node.name
    if scale is None:
        return y
    y = y.node("QuantizeLinear", scale, *([] if zero is None else [zero]))
    c.nodes[-1].name = f"{c.node.name}.quantize"
    return y


def _real(op: str, operands: int = 2, bias: int | None = None) -> Rewrite:
    """`op` on (operand, scale, zero point) * `operands`, scale and zero point of the result; input `bias` is int32."""

    def rewrite(c: Chain, *inputs: Term | None, channels_last: int = 0, **attrs: object) -> Term | None:
        x, x_scale, x_zero, *_ = terms = [*inputs, None, None]  # the last two may be left out
        assert x is not None and x_scale is not None
        rank = len(x.shape)
        image = x.transpose([0, rank - 1, *range(1, rank - 1)]) if channels_last else x
        real = [image.node("DequantizeLinear", x_scale, x_zero, axis=1)]
        if operands == 2:
            w, w_scale, w_zero = terms[3:6]
            assert w is not None and w_scale is not None
            axis = {"Conv": 0, "Gemm": 0 if attrs.get("transB", 0) else 1, "MatMul": len(w.shape) - 1}.get(op, 1)
            real.append(w.node("DequantizeLinear", w_scale, w_zero, axis=axis))
            real += (
                []
                if bias is None or bias >= len(inputs)
                else _biases(c, inputs[bias], x_scale, w_scale, attrs.get("alpha", 1.0))
            )
        end = 3 * operands + (bias == 3 * operands)
        if terms[end] is None and op != "Gemm":
            return None  # of a Gemm the result may be real
        y = _quantised(c, op, real, attrs, terms[end], terms[end + 1])
        return y.transpose([0, *range(2, rank), 1]) if channels_last else y

    return rewrite


def _softmax(c: Chain, x: Term, x_scale: Term, x_zero: Term | None, *result: Term, axis: int = -1, opset: int) -> Term:
    """Before opset 13 it is over all dimensions from the axis on."""
    shape, axis = x.shape, axis % len(x.shape)
    real = x.node("DequantizeLinear", x_scale, x_zero)
    if opset >= 13:
        return _quantised(c, "Softmax", [real], {"axis": axis}, *result)
    rows = real.reshape(math.prod(shape[:axis]), -1)
    return _quantised(c, "Softmax", [rows], {"axis": 1}, *result).reshape(*shape)


def _where(
    c: Chain, condition: Term, x: Term, x_scale: Term, x_zero: Term | None, y: Term, y_scale: Term,
    y_zero: Term | None, scale: Term, zero: Term | None = None,
) -> Term:  # fmt: skip
    real = x.node("DequantizeLinear", x_scale, x_zero), y.node("DequantizeLinear", y_scale, y_zero)
    return _quantised(c, "Where", [condition, *real], {}, scale, zero)


def _max_pool(c: Chain, x: Term, **attrs: object) -> Term:
    """NhwcMaxPool: the channels are the last dimension."""
    return x.transpose([0, 3, 1, 2]).node("MaxPool", **attrs).transpose([0, 2, 3, 1])


def _concat(c: Chain, scale: Term, zero: Term, *operands: Term, axis: int) -> Term:
    parts = zip(*(operands[k::3] for k in range(3)))
    return _quantised(
        c, "Concat", [c.add("DequantizeLinear", *part, axis=1) for part in parts], {"axis": axis}, scale, zero
    )


def _integer(op: str) -> Rewrite:
    """ConvInteger and MatMulInteger of known zero points, where the sums are quantised again: a layer of scale 1."""

    def rewrite(
        c: Chain, x: Term, w: Term, x_zero: Term | None = None, w_zero: Term | None = None, **attrs: object
    ) -> Term | None:
        if not c.reader.quantised_again(c.node.outputs[0]):
            return None  # their int32 values are read
        real = []
        for operand, zero, axis in ((x, x_zero, 1), (w, w_zero, 0 if op == "Conv" else 1)):
            points = None if zero is None else zero.value
            if zero is not None and points is None:
                return None
            ones = np.ones(() if points is None or points.size == 1 else points.shape, np.float32)
            real.append(operand.node("DequantizeLinear", ones, zero, axis=axis))
        return _quantised(c, op, real, attrs, None, None)

    return rewrite


def _integer_to_float(
    c: Chain, x: Term, w: Term, x_scale: Term, w_scale: Term, x_zero: Term | None = None, w_zero: Term | None = None,
    bias: Term | None = None,
) -> Term:  # fmt: skip
    """MatMulIntegerToFloat, onnxruntime's own."""
    y = x.node("MatMulInteger", w, x_zero, w_zero).node("Cast", to=TensorProto.FLOAT) * (x_scale * w_scale)
    return y if bias is None else y + bias


def dynamic_matmul(
    c: Chain, x: Term, w: Term, w_scale: Term, w_zero: Term | None = None, bias: Term | None = None
) -> Term:
    """DynamicQuantizeMatMul, onnxruntime's own."""
    name = f"{c.node.name}.{len(c.nodes)}"
    steps, *parts = (Term(c, c.reader.unused(f"{name}.{part}")) for part in ("steps", "scale", "zero_point"))
    outputs = [term.name for term in (steps, *parts)]
    c.nodes.append(Node("DynamicQuantizeLinear", name, [x.name], outputs))
    return _integer_to_float(c, steps, w, parts[0], w_scale, parts[1], w_zero, bias)


QLINEAR: dict[str, Rewrite] = {
    "ConvInteger": _integer("Conv"),
    "NhwcMaxPool": _max_pool,
    "DynamicQuantizeMatMul": dynamic_matmul,
    "MatMulInteger": _integer("MatMul"),
    "MatMulIntegerToFloat": _integer_to_float,
    "QGemm": _real("Gemm", bias=6),
    "QLinearAdd": _real("Add"),
    "QLinearAveragePool": _real("AveragePool", 1),
    "QLinearConcat": _concat,
    "QLinearConv": _real("Conv", bias=8),
    "QLinearGlobalAveragePool": _real("GlobalAveragePool", 1),
    "QLinearLeakyRelu": _real("LeakyRelu", 1),
    "QLinearMatMul": _real("MatMul"),
    "QLinearMul": _real("Mul"),
    "QLinearReduceMean": _real("ReduceMean", 1),
    "QLinearSigmoid": _real("Sigmoid", 1),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
}
