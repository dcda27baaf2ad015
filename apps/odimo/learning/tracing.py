"""Any torch model of convolutions, dense layers, poolings and residual sums as a network in training.

`torch.fx` records the model's operations; batch normalisation and rectifiers join the layer or sum before them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....hw.errors import UnsupportedError
from ..alternatives import TYPE, UNIT
from .backend import torch
from .layers import MappedConv2d, MappedLinear
from .network import ADD, FLATTEN, INPUT, LAYER, MAX_POOL, MEAN_POOL, MappedNetwork, Node
from .quantisers import INT8_MOST, Signed, Unsigned
from .types import TYPES

_LAYERS = {UNIT: {torch.nn.Conv2d: MappedConv2d, torch.nn.Linear: MappedLinear}, TYPE: TYPES}
_RECTIFIERS = (torch.nn.ReLU, torch.nn.ReLU6)
_NOTHING = (torch.nn.Identity, torch.nn.Dropout, torch.nn.Dropout2d)
_FUNCTIONS = {
    "add": ADD,
    "iadd": ADD,
    "relu": "relu",
    "relu_": "relu",
    "flatten": FLATTEN,
    "max_pool2d": MAX_POOL,
    "avg_pool2d": MEAN_POOL,
    "adaptive_avg_pool2d": "global",
}


def trace(model: Any, images: np.ndarray, choice: str = UNIT) -> MappedNetwork:
    """The network of `model`, for float32 images like `images` (N, C, H, W), whose range sets the input's step.

    Its channels choose between the `ALTERNATIVES` of `choice`.

    Raises `UnsupportedError` that names an operation that it cannot have.
    """
    try:
        graph = torch.fx.symbolic_trace(model.float())
    except Exception as exc:  # torch.fx raises errors of many kinds
        text = str(exc).strip().splitlines() or [type(exc).__name__]
        raise UnsupportedError(
            f"torch.fx cannot trace the model ({text[0][:150]}); write it without branches"
        ) from None
    found = _Tracer(graph, _LAYERS[choice])
    for node in graph.graph.nodes:
        found.take(node)
    scale = input_scale(images)
    network = MappedNetwork(found.nodes, found.parts, scale)
    with torch.no_grad():
        for name, value in network.eval().values(torch.from_numpy(images[:1])).items():
            if name != INPUT:
                network.node(name).shape = tuple(value.shape[1:])
    return network


def input_scale(images: np.ndarray) -> float:
    """The power of two whose 127-fold holds every value."""
    most = max(float(np.abs(images).max()), 2.0**-20)
    return float(2.0 ** np.ceil(np.log2(most / INT8_MOST)))


class _Tracer:
    """Takes the nodes of torch.fx one by one; `names` has the node that holds each one's result."""

    def __init__(self, module: Any, layers: Mapping[Any, Callable[[Any], Any]]) -> None:
        self.module, self.layers = module, layers
        self.nodes: list[Node] = []
        self.parts: dict[str, dict[str, Any]] = {"layers": {}, "norms": {}, "activations": {}}
        self.names: dict[Any, str] = {}
        self.rectified: set[str] = set()

    def take(self, node: Any) -> None:
        """Append what `node` is, or join it to the node before."""
        if node.op == "placeholder":
            self._expect(not self.names, node, "is a second input")
            self.names[node] = INPUT
        elif node.op == "call_module":
            self._module(node, self.module.get_submodule(node.target))
        elif node.op in ("call_function", "call_method"):
            self._function(node)
        elif node.op == "output":
            last = self.names.get(node.args[0]) if not isinstance(node.args[0], (tuple, list)) else None
            self._expect(bool(self.nodes) and last == self.nodes[-1].name, node, "must return the last layer alone")
        else:
            self._refuse(node, "is no operation of a layer")

    def _module(self, node: Any, module: Any) -> None:
        source, name = self._source(node), str(node.target)
        made = next((mapped for kind, mapped in self.layers.items() if type(module) is kind), None)
        if made is not None:
            grouped = getattr(module, "groups", 1) != 1 or isinstance(getattr(module, "padding", 0), str)
            self._expect(not grouped, node, "is a convolution with groups, or with padding by name")
            self._expect(getattr(module, "padding_mode", "zeros") == "zeros", node, "pads with other values than zero")
            self._append(node, Node(name, LAYER, (source,), part=_key(name)), made(module))
        elif isinstance(module, (torch.nn.BatchNorm2d, torch.nn.BatchNorm1d)):
            before = self._joined(node, (LAYER,))
            self._expect(
                before.part not in self.parts["norms"] and module.affine, node, "normalises twice, or untrained"
            )
            self.parts["norms"][before.part] = module
        elif isinstance(module, _RECTIFIERS):
            self._rectify(node)
        elif isinstance(module, _NOTHING):
            self.names[node] = source
        elif isinstance(module, (torch.nn.MaxPool2d, torch.nn.AvgPool2d)):
            kind = MAX_POOL if isinstance(module, torch.nn.MaxPool2d) else MEAN_POOL
            self._pool(node, name, kind, module.kernel_size, module.stride, module.padding)
        elif isinstance(module, torch.nn.AdaptiveAvgPool2d):
            self._global(node, name, module.output_size)
        elif isinstance(module, torch.nn.Flatten):
            self._append(node, Node(name, FLATTEN, (source,)))
        else:
            self._refuse(node, f"is a {type(module).__name__}")

    def _function(self, node: Any) -> None:
        called = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        kind, name = _FUNCTIONS.get(called, ""), str(node.name)
        if kind == ADD and all(isinstance(a, torch.fx.Node) for a in node.args):
            self._append(node, Node(name, ADD, tuple(self._name(a) for a in node.args), part=_key(name)))
        elif kind == "relu":
            self._rectify(node)
        elif kind == FLATTEN:
            self._append(node, Node(name, FLATTEN, (self._source(node),)))
        elif kind in (MAX_POOL, MEAN_POOL):
            given = {**dict(zip(("kernel_size", "stride", "padding"), node.args[1:])), **node.kwargs}
            size = given["kernel_size"]
            self._pool(node, name, kind, size, given.get("stride") or size, given.get("padding", 0))
        elif kind == "global":
            self._global(node, name, node.args[1] if len(node.args) > 1 else node.kwargs["output_size"])
        else:
            self._refuse(node, f"is {called or node.target}")

    def _pool(self, node: Any, name: str, kind: str, window: Any, stride: Any, padding: Any) -> None:
        self._expect(_pair(padding) == (0, 0), node, "is a pooling with padding")
        self._append(node, Node(name, kind, (self._source(node),), _pair(window), _pair(stride)))

    def _global(self, node: Any, name: str, size: Any) -> None:
        self._expect(_pair(size) == (1, 1), node, "is a mean of another size than 1")
        self._append(node, Node(name, MEAN_POOL, (self._source(node),), (0, 0), (1, 1)))

    def _append(self, node: Any, made: Node, layer: Any = None) -> None:
        self.nodes.append(made)
        self.names[node] = made.name
        if layer is not None:
            self.parts["layers"][made.part] = layer
        if made.part:
            self.parts["activations"][made.part] = Signed()

    def _rectify(self, node: Any) -> None:
        before = self._joined(node, (LAYER, ADD))
        self.parts["activations"][before.part] = Unsigned()
        self.rectified.add(before.name)

    def _joined(self, node: Any, kinds: tuple[str, ...]) -> Node:
        """The node that `node` becomes a part of, which nothing else reads."""
        source = self._source(node)
        before = next((n for n in self.nodes if n.name == source), None)
        fits = before is not None and before.kind in kinds and len(node.args[0].users) == 1
        self._expect(
            fits and source not in self.rectified, node, f"must follow a {' or '.join(kinds)} that it alone reads"
        )
        assert before is not None
        self.names[node] = source
        return before

    def _source(self, node: Any) -> str:
        return self._name(node.args[0])

    def _name(self, node: Any) -> str:
        return self.names[node]

    def _expect(self, holds: bool, node: Any, what: str) -> None:
        if not holds:
            self._refuse(node, what)

    def _refuse(self, node: Any, what: str) -> None:
        raise UnsupportedError(
            f"model: {node.target} {what}; it may have Conv2d, Linear, BatchNorm, ReLU, sums, MaxPool2d, AvgPool2d, "
            "AdaptiveAvgPool2d(1) and Flatten"
        )


def _pair(value: Any) -> tuple[int, int]:
    return (int(value), int(value)) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _key(name: str) -> str:
    return name.replace(".", "_")
