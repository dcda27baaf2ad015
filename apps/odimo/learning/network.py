"""A network in training: nodes in order, with mapped layers, batch normalisation and quantised activations.

Its nodes are what the export turns into operators, one by one, so that training and integers compute the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .backend import F, torch
from .layers import Mapped
from .quantisers import INT8_MOST

LAYER, ADD, MAX_POOL, MEAN_POOL, FLATTEN = "layer", "add", "max_pool", "mean_pool", "flatten"
INPUT = "input"


@dataclass
class Node:
    """An operation `kind` on the results of `inputs` (names of nodes, or `INPUT`), with its shape (C, H, W) or (C,).

    Layers and sums are followed by an activation, which quantises them. `window` and `stride` are those of a pooling.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    window: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    shape: tuple[int, ...] = ()
    part: str = field(default="")  # the key of its modules


class MappedNetwork(torch.nn.Module):
    """The nodes of a network and their modules: `layers`, `norms` (batch normalisation) and `activations`.

    `input_scale` is the step of the input's int8 values, zero point 0. The last node is the output.
    """

    def __init__(self, nodes: list[Node], parts: Mapping[str, Mapping[str, Any]], input_scale: float) -> None:
        super().__init__()
        self.nodes = nodes
        self.layers, self.norms, self.activations = (
            torch.nn.ModuleDict(parts[kind]) for kind in ("layers", "norms", "activations")
        )
        self.input_scale = input_scale

    def forward(self, x: Any) -> Any:
        """Images (N, C, H, W) -> the output's values."""
        return self.values(x)[self.nodes[-1].name]

    def values(self, x: Any) -> dict[str, Any]:
        """The result of every node by its name."""
        found = {INPUT: torch.clamp(torch.round(x / self.input_scale), -INT8_MOST - 1, INT8_MOST) * self.input_scale}
        for node in self.nodes:
            found[node.name] = self._compute(node, [found[name] for name in node.inputs])
        return found

    def _compute(self, node: Node, x: list[Any]) -> Any:
        if node.kind == LAYER:
            y = self.layers[node.part](x[0])
            y = self.norms[node.part](y) if node.part in self.norms else y
            return self.activations[node.part](y)
        if node.kind == ADD:
            return self.activations[node.part](x[0] + x[1])
        if node.kind == MAX_POOL:
            return F.max_pool2d(x[0], node.window, node.stride)
        if node.kind == MEAN_POOL:
            window = node.window if any(node.window) else x[0].shape[2:]
            mean, scale = F.avg_pool2d(x[0], window, node.stride), self.scale_of(node.inputs[0]).detach()
            return mean + (torch.round(mean / scale) * scale - mean).detach()
        return torch.flatten(x[0], 1)

    def scale_of(self, name: str) -> Any:
        """The step of a node's values, as a tensor; poolings and moves keep that of their input."""
        if name == INPUT:
            return torch.tensor(self.input_scale)
        node = self.node(name)
        return self.activations[node.part].scale if node.part in self.activations else self.scale_of(node.inputs[0])

    def node(self, name: str) -> Node:
        """The node of that name."""
        return next(node for node in self.nodes if node.name == name)

    def mapped(self) -> Iterator[tuple[str, Mapped]]:
        """(name, layer) of the layers that have a choice, in order."""
        for node in self.nodes:
            if node.kind == LAYER and self.layers[node.part].free:
                yield node.name, self.layers[node.part]

    def sizes(self) -> dict[str, int]:
        """The number of output channels of each layer that has a choice."""
        return {name: len(layer.weight) for name, layer in self.mapped()}

    def counts(self) -> dict[str, Any]:
        """The numbers of channels on the units, a tensor (2,) per layer."""
        return {name: layer.counts for name, layer in self.mapped()}

    def ties(self) -> list[list[str]]:
        """Groups of two or more layers whose results are added, directly or through other sums and poolings."""
        roots: dict[str, set[str]] = {INPUT: set()}
        for node in self.nodes:
            if node.kind == LAYER:
                roots[node.name] = {node.name} if self.layers[node.part].grouped else set()
                continue
            group = set().union(*(roots[name] for name in node.inputs))
            roots |= {name: group for name, others in roots.items() if others & group} | {node.name: group}
        return [list(group) for group in {tuple(sorted(group)) for group in roots.values()} if len(group) > 1]

    def preference(self) -> dict[str, np.ndarray]:
        """By layer, (O,): above 0 for the second side of the choice, the ternary unit."""
        return {name: layer.preference.detach().numpy() for name, layer in self.mapped()}

    def wanted(self) -> dict[str, float]:
        """By layer, the number of channels that the search has put on GEMM, the first side; it need not be whole."""
        return {name: layer.wanted for name, layer in self.mapped()}

    def assign(self, mapping: Mapping[str, np.ndarray] | None) -> None:
        """Fix every layer's choice; None frees it again."""
        for name, layer in self.mapped():
            if mapping is None:
                layer.chosen = None
            else:
                layer.assign(mapping[name].copy())

    def anneal(self, temperature: float) -> None:
        """Set the temperature of every layer's shares."""
        for _, layer in self.mapped():
            layer.temperature = temperature

    def split_parameters(self) -> tuple[list[Any], list[Any]]:
        """(weights and what goes with them, the thetas)."""
        named = list(self.named_parameters())
        return [p for n, p in named if not n.endswith("theta")], [p for n, p in named if n.endswith("theta")]
