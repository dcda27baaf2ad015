"""The float32 form of an ONNX network of float16, or whose weights alone are integers.

Of dynamic quantisation (DynamicQuantizeLinear with MatMulInteger or ConvInteger) the weights become float32 again, and
the activations are not quantised; of DequantizeLinear on constants the constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_LAYERS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}


def float_form(model: ModelProto) -> ModelProto:
    """The network in float32: the same model where it is that already."""
    import onnx

    kinds = {node.op_type for node in model.graph.node}
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    if "DynamicQuantizeLinear" in kinds:
        _without_dynamic_scales(changed.graph)
    if "QuantizeLinear" not in kinds:
        _dequantise_constants(changed.graph)
    _widen(changed)
    return changed


def _constants(graph: GraphProto) -> dict[str, np.ndarray]:
    from onnx import numpy_helper

    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def _along(values: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """Scales or zero points of one axis, or of the whole tensor, in a shape that broadcasts."""
    return (
        values.reshape([-1 if k == axis % rank else 1 for k in range(rank)]) if values.size > 1 else values.reshape(())
    )


def _without_dynamic_scales(graph: GraphProto) -> None:
    """Give layers float weights, scaled, and their inputs as they are; all scales behind them become 1."""
    from onnx import helper, numpy_helper

    arrays, one, nodes = _constants(graph), np.ones((), np.float32), list(graph.node)
    for node in nodes:
        if node.op_type == "DynamicQuantizeLinear":
            value, scale, zero_point = node.output
            graph.node.append(helper.make_node("Identity", [node.input[0]], [value]))
            graph.initializer.append(numpy_helper.from_array(one, scale))
            graph.initializer.append(numpy_helper.from_array(np.zeros((), np.uint8), zero_point))
            graph.node.remove(node)
    inputs = {name for node in nodes if node.op_type == "DynamicQuantizeLinear" for name in node.output[1:2]}
    for node in nodes:
        if node.op_type not in _LAYERS or node.input[1] not in arrays:
            continue
        weight = arrays[node.input[1]].astype(np.float32)
        axis = -1 if node.op_type == "MatMulInteger" else 0
        if len(node.input) > 3 and node.input[3] in arrays:
            weight = weight - _along(arrays[node.input[3]].astype(np.float32), weight.ndim, axis)
        for product, scale in _scaled(node, nodes, inputs):
            weight = weight * _along(arrays[scale], weight.ndim, axis)
            product.op_type = "Identity"
            del product.input[1]
        name = f"{node.output[0]}_float"
        graph.initializer.append(numpy_helper.from_array(np.asarray(weight, np.float32), name))
        node.op_type = _LAYERS[node.op_type]
        node.input[:] = [node.input[0], name]
    ordered = sorted(graph.node, key=lambda node: node.op_type != "Identity")
    _sort(graph, ordered)


def _scaled(layer: NodeProto, nodes: list[NodeProto], scales: set[str]) -> Iterator[tuple[NodeProto, str]]:
    """The product of a layer's result, a number of steps, and its constant scale, together with the input's scale."""
    casts = {node.output[0] for node in nodes if node.op_type == "Cast" and node.input[0] == layer.output[0]}
    products = {node.output[0]: node for node in nodes if node.op_type == "Mul"}
    for node in products.values():
        value, factor = sorted(node.input, key=lambda name: name not in casts)
        if value in casts and factor in products:
            node.input[:] = [value, factor]
            yield from ((node, name) for name in products[factor].input if name not in scales)


def _sort(graph: GraphProto, nodes: list[NodeProto]) -> None:
    """Store `nodes` in an order in which each comes after those that make its inputs."""
    made = {name for node in nodes for name in node.output}
    left, ordered, known = list(nodes), [], set[str]()
    while left:
        ready = [node for node in left if not {*node.input} & made - known] or left  # a loop is refused later
        ordered += ready
        known.update(name for node in ready for name in node.output)
        left = [node for node in left if node not in ready]
    copies = [type(node).FromString(node.SerializeToString()) for node in ordered]
    del graph.node[:]
    graph.node.extend(copies)


def _dequantise_constants(graph: GraphProto) -> None:
    from onnx import numpy_helper

    arrays = _constants(graph)
    for node in [node for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] in arrays]:
        x, scale, *zero_point = (arrays[name] for name in node.input if name in arrays)
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        steps = x.astype(np.float32)
        if zero_point:
            steps = steps - _along(zero_point[0].astype(np.float32), x.ndim, axis)
        value = np.asarray(steps * _along(scale.astype(np.float32), x.ndim, axis), np.float32)
        graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
        graph.node.remove(node)


def _widen(model: ModelProto) -> None:
    """Float32 in place of float16, in inputs and outputs, too."""
    from onnx import TensorProto, numpy_helper

    graph = model.graph
    tensors = [*graph.initializer, *(a.t for n in graph.node for a in n.attribute if a.name == "value")]
    for tensor in tensors:
        if tensor.data_type == TensorProto.FLOAT16:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT16:
                attribute.i = TensorProto.FLOAT
