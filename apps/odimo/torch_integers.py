"""From a trained network to integers (`integers`), and graphs of integers computed by PyTorch (`scores`).

Both follow the arithmetic of the device exactly: the scores of a point equal those of its program. Graphs may have the
operators of trained networks only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...compiler import graph as g
from ...compiler.graph.elementwise import ADD_SHIFT
from ...hw.errors import UnsupportedError
from .integers import IntegerNetwork, IntegerNode
from .torch_layers import F, Mapped, MappedConv2d, Tensor, TypedConv2d, Unsigned, torch
from .torch_network import FLATTEN, LAYER, MappedNetwork, Node

FLAT = 1e-6  # a smaller factor of batch normalisation makes a channel constant
LARGEST = 2**30  # of a bias, so that no sum of products leaves int32


def integers(network: MappedNetwork, input_shape: tuple[int, ...]) -> IntegerNetwork:
    """The network's integers; every layer's choice must be fixed.

    Raises `UnsupportedError` for a bias that does not fit.
    """
    network.eval()
    with torch.no_grad():
        nodes = tuple(_node(network, node) for node in network.nodes)
    return IntegerNetwork(input_shape, network.input_scale, nodes)


def _node(network: MappedNetwork, node: Node) -> IntegerNode:
    scale, zero_point = _step(network, node.name), _zero_point(network, node.name)
    rectified = node.part in network.activations and isinstance(network.activations[node.part], Unsigned)
    given: dict[str, Any] = {"low": zero_point if rectified else -128}
    if node.kind == LAYER:
        given |= _layer(network, node)
    elif node.kind != FLATTEN and node.window != (1, 1):
        given |= {"window": _window(network, node), "strides": node.stride}
    return IntegerNode(node.name, node.kind, node.inputs, node.shape, scale, zero_point, **given)


def _window(network: MappedNetwork, node: Node) -> tuple[int, int]:
    """The pooling's window; (0, 0) stands for the whole image."""
    if any(node.window):
        return node.window
    _, height, width = network.node(node.inputs[0]).shape
    return height, width


def _layer(network: MappedNetwork, node: Node) -> dict[str, np.ndarray]:
    """Weights, scales and biases of a layer, its batch normalisation folded in."""
    layer: Mapped = network.layers[node.part]
    assert layer.chosen is not None
    weight, scale = layer.integers()
    factor = torch.ones(len(weight))
    offset = torch.zeros(len(weight)) if layer.bias is None else layer.bias
    if node.part in network.norms:
        norm = network.norms[node.part]
        factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        offset = norm.bias + (offset - norm.running_mean) * factor
    constant = factor.abs() < FLAT
    signs = torch.where(constant, 0.0, torch.sign(factor)).reshape(-1, *(1,) * (weight.ndim - 1))
    scale = torch.where(constant, torch.ones_like(scale), scale * factor.abs()).double()
    bias = torch.round(offset.double() / (scale * _step(network, node.inputs[0])))
    if bias.abs().max() > LARGEST:
        raise UnsupportedError(
            f"layer {node.name!r}: a bias of {bias.abs().max():.3g} steps does not fit; train longer"
        )
    found = {
        "weight": (weight * signs).to(torch.int8).numpy(),
        "weight_scale": scale.float().numpy(),
        "bias": bias.to(torch.int32).numpy(),
    }
    if isinstance(layer, TypedConv2d):
        found["depthwise"] = layer.last_depthwise
    if isinstance(layer, MappedConv2d):
        found |= {"strides": layer.stride, "pads": layer.padding, "dilations": layer.dilation}
    return found


def _step(network: MappedNetwork, name: str) -> float:
    return float(np.float32(network.scale_of(name).item()))


def _zero_point(network: MappedNetwork, name: str) -> int:
    if name == "input":
        return 0
    node = network.node(name)
    if node.part in network.activations:
        return network.activations[node.part].zero_point
    return _zero_point(network, node.inputs[0])


BITS = 31


def scores(graph: g.Graph, images: np.ndarray) -> np.ndarray:
    """The outputs (N, ...) of a graph of one input and one output for float32 images (N, C, H, W).

    Raises `UnsupportedError` for operators that no trained network has.
    """
    values = {graph.inputs[0].name: torch.from_numpy(images)}
    for op in graph.ops:
        compute = _OPERATORS.get(type(op))
        if compute is None:
            raise UnsupportedError(f"operator {op.name!r}: a {type(op).__name__} is none of a trained network")
        values[op.output.name] = compute(op, *(values[t.name] for t in op.inputs))
    return values[graph.outputs[0].name].numpy()


def rescaled(acc: Tensor, multiplier: Tensor, exponent: Tensor) -> Tensor:
    """int64 `acc * multiplier * 2**(exponent - 31)`, rounded twice: ties up, then away from zero."""
    multiplier, exponent = (torch.as_tensor(v, dtype=torch.int64) for v in (multiplier, exponent))
    left, right = exponent.clamp(min=0), (-exponent).clamp(min=0)
    high = (_wrapped(acc << left) * multiplier + (1 << (BITS - 1))) >> BITS
    mask = (torch.ones_like(right) << right) - 1
    above = (high & mask) > ((mask >> 1) + (high < 0).long())
    return (high >> right) + above.long()


def _wrapped(acc: Tensor) -> Tensor:
    return ((acc + (1 << BITS)) & ((1 << (BITS + 1)) - 1)) - (1 << BITS)


def _stored(op: g.Linear | g.Add | g.AveragePool, acc: Tensor, multipliers: tuple[Tensor, Tensor]) -> Tensor:
    """The output's int8 values of accumulators, as int64."""
    return (rescaled(acc, *multipliers) + op.output.zero_point).clamp(op.low, op.high)


def _linear(op: g.Linear, x: Tensor) -> Tensor:
    shape = (1, -1, *(1,) * (x.ndim - 2))
    centred, weight = (x - op.x.zero_point).double(), torch.from_numpy(op.weight.astype(np.float64))
    if isinstance(op, g.QConv2d):
        top, left, bottom, right = op.pads
        padded = F.pad(centred, (left, right, top, bottom))
        acc = F.conv2d(padded, weight, None, op.strides, 0, op.dilations, op.groups)
    else:
        acc = F.linear(centred, weight)
    acc = acc.long() + torch.from_numpy(op.bias.astype(np.int64)).reshape(shape)
    multiplier, exponent = (torch.from_numpy(v).reshape(shape) for v in op.multipliers)
    return _stored(op, acc, (multiplier, exponent))


def _add(op: g.Add, x: Tensor, y: Tensor) -> Tensor:
    total: Tensor = 0
    for value, tensor, parameters in zip((x, y), op.inputs, op.multipliers):
        total = total + rescaled((value - tensor.zero_point) << ADD_SHIFT, *parameters)
    return _stored(op, total, op.multipliers[2])


def _mean(op: g.AveragePool, x: Tensor) -> Tensor:
    ones = torch.ones((x.shape[1], 1, *op.kernel), dtype=torch.float64)
    acc = F.conv2d((x - op.x.zero_point).double(), ones, None, op.strides, groups=x.shape[1]).long()
    return _stored(op, acc, op.multipliers)


def _max(op: g.MaxPool, x: Tensor) -> Tensor:
    return F.max_pool2d(x.double(), op.kernel, op.strides).long()


def _quantize(op: g.Quantize, x: Tensor) -> Tensor:
    return (torch.round(x / op.output.scale) + op.output.zero_point).clamp(-128, 127).long()


def _dequantize(op: g.Dequantize, x: Tensor) -> Tensor:
    return (x - op.x.zero_point).float() * torch.tensor(op.x.scale, dtype=torch.float32)


def _cut(op: g.StridedSlice, x: Tensor) -> Tensor:
    ends = (first + n for first, n in zip(op.begin, op.output.shape))
    return x[(slice(None), *(slice(*pair) for pair in list(zip(op.begin, ends))[1:]))]


def _join(op: g.Concat, *x: Tensor) -> Tensor:
    return torch.cat(x, op.axis)


def _reshape(op: g.Reshape, x: Tensor) -> Tensor:
    return x.reshape(len(x), *op.output.shape[1:])


_OPERATORS: dict[type, Callable[..., Tensor]] = {
    g.Add: _add,
    g.AveragePool: _mean,
    g.Concat: _join,
    g.Dequantize: _dequantize,
    g.MaxPool: _max,
    g.QConv2d: _linear,
    g.QDense: _linear,
    g.Quantize: _quantize,
    g.Reshape: _reshape,
    g.StridedSlice: _cut,
}
