"""Deeploy's dialect of ONNX: its operators, and which files are in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import ModelProto

DOMAINS = (
    "",
    "ai.onnx",
    "PACTOps",
)  # of operators that need no other name; the last is that of Deeploy's
# Deeploy's own, whose results have the shape of their first input, but for means
DEEPLOY = ("DebugPrint", "ITAMax", "ITAPartialMax", "IntegerDiv", "IntegerMean", "RequantShift", "TrueIntegerDiv")
DEEPLOY += ("iGELU", "iHardswish", "iLayerNorm", "iNoNorm", "iRMSNorm", "iSoftmax")
# several of these, or one of ONNX and a RequantShift, in one
DEEPLOY += ("RQIntegerDiv", "RequantizedConv", "RequantizedGemm", "RequantizediGELU", "RequantizediHardswish")
_LAYERS = ("Conv", "Gemm", "MatMul")
# with a layer of whole numbers before or behind them, they compute these
_ON_INTEGERS = (*_LAYERS, "Add", "Concat", "Constant", "Flatten", "Gather", "Identity", "MaxPool", "Mul", "Pad", "Relu")
_ON_INTEGERS += ("ReduceMean", "ReduceSum", "Reshape", "Slice", "Split", "Squeeze", "Sub", "Transpose", "Unsqueeze")


def in_dialect(model: ModelProto, types: Sequence[str] | None) -> bool:
    """True if the model has operators of Deeploy, whose tensors hold integers as float32, or computes such integers.

    `types` are those of its inputs, as far as they are known; with None it is whether they could make it one.
    """
    nodes = model.graph.node
    return any(node.domain in DOMAINS and node.op_type in DEEPLOY for node in nodes) or _of_integers(model, types)


def _of_integers(model: ModelProto, types: Sequence[str] | None) -> bool:
    """True if all layers have weights of whole numbers in float32, and all else keeps whole numbers.

    If there is no layer, the inputs must be known as integers.
    """
    constants = {i.name: i for i in model.graph.initializer}
    inputs = [v for v in model.graph.input if v.name not in constants]
    nodes = model.graph.node
    if any(n.domain not in DOMAINS or n.op_type not in _ON_INTEGERS for n in nodes):
        return False
    if any(v.type.tensor_type.elem_type != onnx.TensorProto.FLOAT for v in inputs):
        return False
    names = {t for n in nodes for t in n.input if n.op_type in _LAYERS} & constants.keys()
    try:
        arrays = [onnx.numpy_helper.to_array(constants[name]) for name in names]
    except Exception:  # of many kinds: a damaged file, which is refused later
        return False
    largest = [np.abs(a).max() for a in arrays if a.size and a.dtype == np.float32 and (a == np.rint(a)).all()]
    known = types is None or (len(types) == len(inputs) and "float32" not in types and bool(types))
    return len(largest) == len(arrays) and (max(largest, default=0) > 1 or known)
