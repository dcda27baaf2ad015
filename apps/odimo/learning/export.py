"""Trained networks to integers: batch normalisation folds into scales and biases, weights are those of training."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....hw.errors import UnsupportedError
from ..integers import IntegerNetwork, IntegerNode
from .backend import torch
from .layers import Mapped, MappedConv2d
from .network import FLATTEN, LAYER, MappedNetwork, Node
from .quantisers import Unsigned
from .types import TypedConv2d

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


def _layer(network: MappedNetwork, node: Node) -> dict[str, Any]:
    """Weights, scales and biases of a layer with the batch normalisation behind it."""
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
