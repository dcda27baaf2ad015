"""A trained network in integers, the result of training: as JSON, and as a graph of the compiler. It needs no torch.

A network is a list of `IntegerNode`, each with the parameters of one operator of compiler/graph/.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ...compiler import graph as g

INPUT, OUTPUT = "image", "scores"
ARRAYS = {"weight": "int8", "bias": "int32", "weight_scale": "float32"}


@dataclass(frozen=True)
class IntegerNode:
    """One operation: `kind` as in training, inputs by name, and the quantisation of its result of shape (C, H, W).

    `low` clamps below: the zero point behind a rectifier. Layers have int8 weights, int32 biases and a scale per
    channel; `pads` is (h, w) on each side. Of a layer whose last `depthwise` channels are of that type, weights beside
    the diagonal count as zero there.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    scale: float
    zero_point: int
    low: int = -128
    window: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    dilations: tuple[int, int] = (1, 1)
    depthwise: int = 0
    weight: np.ndarray | None = None
    bias: np.ndarray | None = None
    weight_scale: np.ndarray | None = None


@dataclass(frozen=True)
class IntegerNetwork:
    """Nodes in order, the last is the output, and the float32 input (C, H, W) with the step of its integers."""

    input_shape: tuple[int, ...]
    input_scale: float
    nodes: tuple[IntegerNode, ...]

    def to_json(self) -> dict[str, Any]:
        """The network as JSON holds it; arrays are base64."""
        nodes = []
        for node in self.nodes:
            facts = {key: value for key, value in asdict(node).items() if key not in ARRAYS}
            arrays = {key: getattr(node, key) for key in ARRAYS if getattr(node, key) is not None}
            nodes.append(
                facts | {key: [list(a.shape), base64.b64encode(a.tobytes()).decode()] for key, a in arrays.items()}
            )
        return {"input_shape": list(self.input_shape), "input_scale": self.input_scale, "nodes": nodes}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> IntegerNetwork:
        """The inverse of `to_json`."""
        nodes = []
        for facts in value["nodes"]:
            given: dict[str, Any] = {key: _tuple(v) for key, v in facts.items() if key not in ARRAYS}
            given |= {key: _array(facts[key], dtype) for key, dtype in ARRAYS.items() if key in facts}
            nodes.append(IntegerNode(**given))
        return IntegerNetwork(tuple(value["input_shape"]), value["input_scale"], tuple(nodes))


def to_graph(network: IntegerNetwork, name: str) -> g.Graph:
    """The network as a graph of batch 1: float32 `image` -> float32 `scores`, one operator per node.

    Raises `InputError` as the operators do where numbers do not fit.
    """
    image = g.Tensor(INPUT, (1, *network.input_shape), "float32")
    tensors = {"input": g.Tensor(f"{INPUT}.int8", image.shape, "int8", network.input_scale)}
    ops: list[g.Operator] = [g.Quantize("quantize", (image,), tensors["input"])]
    for node in network.nodes:
        x = tuple(tensors[name] for name in node.inputs)
        y = g.Tensor(f"{node.name}.out", (1, *node.shape), "int8", node.scale, node.zero_point)
        ops += _typed(node, x[0], y) if node.depthwise else [_MAKERS[node.kind](node, x, y)]
        tensors[node.name] = y
    last = tensors[network.nodes[-1].name]
    scores = g.Tensor(OUTPUT, last.shape, "float32")
    ops.append(g.Dequantize("dequantize", (last,), scores))
    return g.Graph(name, (image,), (scores,), tuple(ops))


def _layer(node: IntegerNode, x: tuple[g.Tensor, ...], y: g.Tensor) -> g.Operator:
    assert node.weight is not None and node.bias is not None and node.weight_scale is not None
    arrays = node.weight, node.weight_scale, node.bias
    if node.weight.ndim == 2:
        return g.QDense(node.name, x, y, *arrays, node.low)
    (top, left), dilations = node.pads, node.dilations
    return g.QConv2d(node.name, x, y, *arrays, node.low, 127, node.strides, (top, left, top, left), dilations)


def _typed(node: IntegerNode, x: g.Tensor, y: g.Tensor) -> list[g.Operator]:
    """A standard convolution of the first channels, a depthwise one of the last `node.depthwise`, and both joined."""
    count, channels = node.depthwise, len(node.weight) if node.weight is not None else 0
    first = channels - count
    layer = _layer(node, (x,), y)
    assert isinstance(layer, g.QConv2d) and x.shape[1] == channels
    numbers = np.arange(first, channels)
    if not first:
        return [_share(layer, node.name, (x, y), numbers, channels)]
    cut = replace(x, name=f"{node.name}.own", shape=(x.shape[0], count, *x.shape[2:]))
    parts = [
        replace(y, name=f"{node.name}.{kind}.out", shape=(y.shape[0], n, *y.shape[2:]))
        for kind, n in (("conv", first), ("depthwise", count))
    ]
    return [
        _share(layer, f"{node.name}.conv", (x, parts[0]), np.arange(first)),
        g.StridedSlice(f"{node.name}.cut", (x,), cut, (0, first, 0, 0), (1, 1, 1, 1)),
        _share(layer, f"{node.name}.depthwise", (cut, parts[1]), numbers, count),
        g.Concat(node.name, tuple(parts), y, 1),
    ]


def _share(
    op: g.QConv2d, name: str, ends: tuple[g.Tensor, g.Tensor], numbers: np.ndarray, groups: int = 1
) -> g.QConv2d:
    """The output channels `numbers` of `op` from and to the tensors `ends`; of several groups, each reads its own."""
    weight = op.weight[numbers] if groups == 1 else op.weight[numbers, numbers][:, None]
    facts = {"weight": weight, "weight_scale": op.weight_scale[numbers], "bias": op.bias[numbers]}
    return replace(op, name=name, inputs=ends[:1], output=ends[1], groups=groups, **facts)


_MAKERS: dict[str, Callable[[IntegerNode, tuple[g.Tensor, ...], g.Tensor], g.Operator]] = {
    "layer": _layer,
    "add": lambda node, x, y: g.Add(node.name, x, y, node.low),
    "max_pool": lambda node, x, y: g.MaxPool(node.name, x, y, node.window, node.strides),
    "mean_pool": lambda node, x, y: g.AveragePool(node.name, x, y, node.window, node.strides),
    "flatten": lambda node, x, y: g.Reshape(node.name, x, y),
}


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _array(value: list[Any], dtype: str) -> np.ndarray:
    shape, text = value
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape)
