"""A torch model as a network in training: its operations in order, with mapped layers, norms and 8-bit activations.

`trace` takes models of convolutions, dense layers, batch normalisation, ReLU, sums, pooling and flattening, and refuses
others by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...hw.errors import UnsupportedError
from .task import TYPE, UNIT
from .torch_layers import (
    INT8_MOST,
    TYPES,
    F,
    Mapped,
    MappedConv2d,
    MappedLinear,
    Module,
    Signed,
    Tensor,
    Unsigned,
    torch,
)

LAYER, ADD, MAX_POOL, MEAN_POOL, FLATTEN = "layer", "add", "max_pool", "mean_pool", "flatten"
INPUT = "input"
FxNode = Tensor  # torch.fx.Node
Sizes = int | Sequence[int]  # of two dimensions


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

    def __init__(self, nodes: list[Node], parts: Mapping[str, Mapping[str, Module]], input_scale: float) -> None:
        super().__init__()
        self.nodes = nodes
        self.layers, self.norms, self.activations = (
            torch.nn.ModuleDict(parts[kind]) for kind in ("layers", "norms", "activations")
        )
        self.input_scale = input_scale

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, C, H, W) -> the output's values."""
        return self.values(x)[self.nodes[-1].name]

    def values(self, x: Tensor) -> dict[str, Tensor]:
        """The result of every node by its name."""
        found = {INPUT: torch.clamp(torch.round(x / self.input_scale), -INT8_MOST - 1, INT8_MOST) * self.input_scale}
        for node in self.nodes:
            found[node.name] = self._compute(node, [found[name] for name in node.inputs])
        return found

    def _compute(self, node: Node, x: list[Tensor]) -> Tensor:
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

    def scale_of(self, name: str) -> Tensor:
        """The step of a node's values, a scalar tensor; poolings and moves keep the step of their input."""
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

    def counts(self) -> dict[str, Tensor]:
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

    def split_parameters(self) -> tuple[list[Tensor], list[Tensor]]:
        """(parameters of layers, normalisations and activations; thetas)."""
        named = list(self.named_parameters())
        return [p for n, p in named if not n.endswith("theta")], [p for n, p in named if n.endswith("theta")]


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


def trace(model: Module, images: np.ndarray, choice: str = UNIT) -> MappedNetwork:
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

    def __init__(self, module: Module, layers: Mapping[type, Callable[[Module], Module]]) -> None:
        self.module, self.layers = module, layers
        self.nodes: list[Node] = []
        self.parts: dict[str, dict[str, Module]] = {"layers": {}, "norms": {}, "activations": {}}
        self.names: dict[FxNode, str] = {}
        self.rectified: set[str] = set()

    def take(self, node: FxNode) -> None:
        """Append the operation of `node`, or join it to the operation before."""
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

    def _module(self, node: FxNode, module: Module) -> None:
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

    def _function(self, node: FxNode) -> None:
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

    def _pool(self, node: FxNode, name: str, kind: str, window: Sizes, stride: Sizes, padding: Sizes) -> None:
        self._expect(_pair(padding) == (0, 0), node, "is a pooling with padding")
        self._append(node, Node(name, kind, (self._source(node),), _pair(window), _pair(stride)))

    def _global(self, node: FxNode, name: str, size: Sizes) -> None:
        self._expect(_pair(size) == (1, 1), node, "is a mean of another size than 1")
        self._append(node, Node(name, MEAN_POOL, (self._source(node),), (0, 0), (1, 1)))

    def _append(self, node: FxNode, made: Node, layer: Module = None) -> None:
        self.nodes.append(made)
        self.names[node] = made.name
        if layer is not None:
            self.parts["layers"][made.part] = layer
        if made.part:
            self.parts["activations"][made.part] = Signed()

    def _rectify(self, node: FxNode) -> None:
        before = self._joined(node, (LAYER, ADD))
        self.parts["activations"][before.part] = Unsigned()
        self.rectified.add(before.name)

    def _joined(self, node: FxNode, kinds: tuple[str, ...]) -> Node:
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

    def _source(self, node: FxNode) -> str:
        return self._name(node.args[0])

    def _name(self, node: FxNode) -> str:
        return self.names[node]

    def _expect(self, holds: bool, node: FxNode, what: str) -> None:
        if not holds:
            self._refuse(node, what)

    def _refuse(self, node: FxNode, what: str) -> None:
        raise UnsupportedError(
            f"model: {node.target} {what}; it may have Conv2d, Linear, BatchNorm, ReLU, sums, MaxPool2d, AvgPool2d, "
            "AdaptiveAvgPool2d(1) and Flatten"
        )


def _pair(value: Sizes) -> tuple[int, int]:
    return (int(value), int(value)) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _key(name: str) -> str:
    return name.replace(".", "_")
