"""Static quantisation of a float ONNX network in several ways, of which the most accurate one is taken.

Ways differ in how ranges are measured (minimum and maximum, a percentile, entropy), in the form of the float network
(scales equalised between layers, biases corrected), and in the operators that stay in float.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .accuracy import compare, input_means, nodes_of
from .forms import correct, equalise
from .onnx_network import METHODS, Quantiser, inputs_of, prepare
from .result import Comparison, Way
from .search import Candidates, FloatNetwork, Work

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_WITH_WEIGHTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


class OnnxNetwork(FloatNetwork):
    """A float ONNX model of the file `path`, with sizes fixed by `shapes`. Raises as `prepare`."""

    methods = METHODS
    suffix = ".int8.onnx"

    def __init__(self, model: ModelProto, path: str, shapes: Mapping[str, Sequence[int]]):
        self.path = path
        self._whole = prepare(model, path, shapes)
        self.content = self._whole.SerializeToString()
        self.inputs, self.nodes = inputs_of(self._whole), nodes_of(self._whole)
        self.outputs = [value.name for value in self._whole.graph.output]

    def candidates(self, work: Work) -> Candidates:
        """The networks that ways give."""
        return _Candidates(self._whole, work)


class _Candidates:
    """The networks that ways give."""

    forms = ("equalised", "corrected")

    def __init__(self, whole: ModelProto, work: Work):
        self.whole, self.work = whole, work
        self._quantisers: dict[bool, Quantiser] = {}

    def network(self, way: Way, done: Callable[[], None]) -> bytes | None:
        """The network of a way; None where no layers can be equalised."""
        form = self.whole
        if way.equalised:
            form, pairs = equalise(self.whole)
            if not pairs:
                return None
        if way.equalised not in self._quantisers:
            folder = self.work.folder / ("equalised" if way.equalised else "plain")
            self._quantisers[way.equalised] = Quantiser(form, folder)
        quantiser = self._quantisers[way.equalised]
        quantiser.measure(way.method, self._measured(), done)
        kept = {*way.kept, *self.work.in_float}
        network = quantiser.network(way.method, kept)
        if way.corrected:
            means = input_means(form, self._measured(), done)
            network = quantiser.network(way.method, kept, correct(form, network, means))
        return network.SerializeToString()

    def _measured(self) -> Iterator[Mapping[str, np.ndarray]]:
        return (self.work.samples[k] for k in self.work.measured)

    def compare(self, way: Way, network: bytes, done: Callable[[], None]) -> Comparison:
        """The network against the float network, in the same form, on the samples that judge."""
        import onnx

        form = equalise(self.whole)[0] if way.equalised else self.whole
        samples = (self.work.samples[k] for k in self.work.judged)
        return compare(form, onnx.load_model_from_string(network), samples, self.work.labels, done)

    def macs(self) -> dict[str, int]:
        """Multiply-accumulates of the layers with weights, by operator."""
        sizes = {c.name: [*c.dims] for c in self.whole.graph.initializer}
        values = (*self.whole.graph.value_info, *self.whole.graph.output)
        shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
        return {node.name: _macs(node, sizes, shapes) for node in self.whole.graph.node}


def _macs(node: NodeProto, sizes: Mapping[str, Sequence[int]], shapes: Mapping[str, Sequence[int]]) -> int:
    if node.op_type not in _WITH_WEIGHTS or node.input[1] not in sizes:
        return 0
    weights, result = sizes[node.input[1]], shapes.get(node.output[0], [])
    matrix = node.op_type in ("Gemm", "MatMul")
    positions = result[:-1] if matrix else result[2:]
    return math.prod(weights) * math.prod(max(1, size) for size in positions)
