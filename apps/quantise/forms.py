"""Equal forms of a float ONNX network that quantise better.

`equalise` moves scale between two layers so that the channels between them have like ranges (Nagel et al., "Data-Free
Quantization Through Weight Equalization and Bias Correction", 2019, section 4.1). `correct` takes a measured mean error
off the biases (section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_ROUNDS = 10  # of all pairs: scale moves one layer further with each


class _Weights:
    """Constants of a network as arrays, by name, and which of them a single operator reads."""

    def __init__(self, model: ModelProto):
        from onnx import numpy_helper

        self.arrays = {c.name: numpy_helper.to_array(c) for c in model.graph.initializer}
        uses = [name for node in model.graph.node for name in node.input]
        self.own = {name for name in self.arrays if uses.count(name) == 1}

    def store(self, model: ModelProto) -> None:
        """Write the arrays back."""
        from onnx import numpy_helper

        for constant in model.graph.initializer:
            constant.CopyFrom(numpy_helper.from_array(self.arrays[constant.name], constant.name))


def equalise(model: ModelProto) -> tuple[ModelProto, int]:
    """(the network with scales moved between convolutions that follow each other, the number of such pairs).

    Between the two there is nothing, or a ReLU, which a positive factor per channel passes unchanged.
    """
    import onnx

    found = onnx.ModelProto()
    found.CopyFrom(model)
    weights = _Weights(found)
    pairs = _pairs(found, weights)
    for _ in range(_ROUNDS):
        for first, second in pairs:
            _equalise_pair(first, second, weights.arrays)
    weights.store(found)
    return found, len(pairs)


def _pairs(model: ModelProto, weights: _Weights) -> list[tuple[NodeProto, NodeProto]]:
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    results = {output.name for output in model.graph.output}
    found = []
    for first in model.graph.node:
        if first.op_type != "Conv" or not {*first.input[1:]} <= weights.own:
            continue
        last = first
        while len(readers.get(last.output[0], ())) == 1 and last.output[0] not in results:
            last = readers[last.output[0]][0]
            if last.op_type != "Relu":
                break
        if last is not first and last.op_type == "Conv" and last.input[1] in weights.own:
            found.append((first, last))
    return found


def _equalise_pair(first: NodeProto, second: NodeProto, arrays: dict[str, np.ndarray]) -> None:
    before, after = arrays[first.input[1]], arrays[second.input[1]]
    channels = len(before)
    depthwise = after.shape[1] == 1 and len(after) == channels
    if not depthwise and after.shape[1] != channels:  # other groups read several channels each
        return
    inputs = after.reshape(channels, -1) if depthwise else after.swapaxes(0, 1).reshape(channels, -1)
    ranges = abs(before.reshape(channels, -1)).max(axis=1), abs(inputs).max(axis=1)
    used = (ranges[0] > 0) & (ranges[1] > 0)
    scale = np.ones(channels, before.dtype)
    scale[used] = np.sqrt(ranges[0][used] / ranges[1][used])
    arrays[first.input[1]] = before / scale.reshape(-1, *[1] * (before.ndim - 1))
    if len(first.input) == 3:
        arrays[first.input[2]] = arrays[first.input[2]] / scale
    shape = (-1, *[1] * (after.ndim - 1)) if depthwise else (1, -1, *[1] * (after.ndim - 2))
    arrays[second.input[1]] = after * scale.reshape(shape)


def correct(model: ModelProto, int8: ModelProto, means: Mapping[str, np.ndarray]) -> ModelProto:
    """The network with the mean error that rounded weights make taken off the biases.

    `int8` is the quantised network, and `means` are the means of the layers' inputs by channel: a layer's result is off
    by the error of its weights times these.
    """
    import onnx

    found = onnx.ModelProto()
    found.CopyFrom(model)
    weights, rounded = _Weights(found), _Weights(int8).arrays
    for node in found.graph.node:
        if node.op_type not in ("Conv", "Gemm") or node.input[0] not in means or node.input[1] not in weights.arrays:
            continue
        weight, values = weights.arrays[node.input[1]], rounded.get(f"{node.input[1]}_quantized")
        if values is None:
            continue
        transposed = node.op_type == "Gemm" and not any(a.name == "transB" and a.i for a in node.attribute)
        axis = 1 if transposed else 0
        scale = rounded[f"{node.input[1]}_scale"]
        shape = [1] * weight.ndim
        shape[axis] = -1
        error = values * scale.reshape(shape if scale.ndim else ()) - weight
        by_channel = np.moveaxis(error, axis, 0).reshape(
            *(weight.shape[:2] if not transposed else weight.shape[::-1]), -1
        )
        shift = _times(by_channel.sum(axis=2, dtype=np.float64), means[node.input[0]])
        if len(node.input) == 3 and node.input[2] in weights.own and weights.arrays[node.input[2]].shape == shift.shape:
            bias = weights.arrays[node.input[2]]
            weights.arrays[node.input[2]] = (bias - shift).astype(bias.dtype)
    weights.store(found)
    return found


def _times(errors: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Sums over the input channels of each output channel: `errors` is (outputs, inputs of its group)."""
    outputs, inputs = errors.shape
    groups = max(1, len(means) // inputs)
    grouped = errors.reshape(groups, outputs // groups, inputs) * means.reshape(groups, 1, inputs)
    return grouped.sum(axis=2).reshape(-1)
