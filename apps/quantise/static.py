"""Static quantisation of a float ONNX network in several ways, of which the most accurate one is taken.

Ways differ in how ranges are measured (minimum and maximum, a percentile, entropy), in the form of the float network
(scales equalised between layers, biases corrected), and in the operators that stay in float.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...compiler.frontend.source import Source
from ...hw.errors import UnsupportedError
from .accuracy import compare, input_means, nodes_of
from .forms import correct, equalise
from .onnx_network import METHODS, Quantiser, inputs_of, prepare
from .ranges import wide
from .result import Comparison, Quantised, Way
from .samples import Samples
from .search import Search, Tell, digest, split, tell_no_one, working_folder

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_WITH_WEIGHTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


class OnnxNetwork:
    """A float ONNX model of the file `path`, with sizes fixed by `shapes`. Raises as `prepare`."""

    def __init__(self, model: ModelProto, path: str, shapes: Mapping[str, Sequence[int]]):
        self._path = path
        self._whole = prepare(model, path, shapes)
        self.inputs = inputs_of(self._whole)

    def quantise(
        self,
        samples: Samples,
        keep: Sequence[str] = (),
        quick: bool = False,
        folder: Path | None = None,
        tell: Tell = tell_no_one,
    ) -> Quantised:
        """Quantise on `samples`: the best way has the most labels right, without labels the highest signal to noise.

        Operators named in `keep` stay in float. With `quick` only minimum and maximum are tried. `folder` is for
        intermediate results, as `working_folder` has it. Raises `UnsupportedError` for unknown operators.
        """
        names = {node.name for node in self._whole.graph.node}
        if unknown := [name for name in keep if name not in names]:
            raise UnsupportedError(f"{self._path}: has no operator {unknown[0]!r} to keep in float")
        methods = METHODS[:1] if quick else METHODS
        measured, judged = split(samples)
        in_float = sorted(wide(nodes_of(self._whole), [value.name for value in self._whole.graph.output]))
        content = self._whole.SerializeToString()
        with working_folder(folder, digest(content, samples, methods, keep, quick)) as work:
            candidates = _Candidates(self._whole, samples, measured, judged, work, in_float)
            search = Search(candidates, len(measured), len(judged), work, tell)
            search.run(methods, keep, not quick, self._path)
        path = Path(self._path)
        return Quantised(
            network=Source(path.with_suffix(".int8.onnx"), search.network),
            float_network=Source(path, content),
            way=search.best,
            tried=search.tried,
            refused=search.refused,
            in_float=in_float,
            samples=len(samples),
            notes=samples.notes,
        )


class _Candidates:
    """The networks that ways give: `measured` and `judged` are numbers of samples, `in_float` names of operators."""

    forms = ("equalised", "corrected")

    def __init__(
        self,
        whole: ModelProto,
        samples: Samples,
        measured: Sequence[int],
        judged: Sequence[int],
        folder: Path,
        in_float: Sequence[str],
    ):
        self.whole, self.samples, self.folder, self.in_float = whole, samples, folder, in_float
        self.measured, self.judged = measured, judged
        self.labels = None if samples.labels is None else samples.labels[list(judged)]
        self._quantisers: dict[bool, Quantiser] = {}

    def network(self, way: Way, done: Callable[[], None]) -> bytes | None:
        """The network of a way; None where no layers can be equalised."""
        form = self.whole
        if way.equalised:
            form, pairs = equalise(self.whole)
            if not pairs:
                return None
        if way.equalised not in self._quantisers:
            folder = self.folder / ("equalised" if way.equalised else "plain")
            self._quantisers[way.equalised] = Quantiser(form, folder)
        quantiser = self._quantisers[way.equalised]
        quantiser.measure(way.method, (self.samples[k] for k in self.measured), done)
        kept = {*way.kept, *self.in_float}
        network = quantiser.network(way.method, kept)
        if way.corrected:
            means = input_means(form, (self.samples[k] for k in self.measured), done)
            network = quantiser.network(way.method, kept, correct(form, network, means))
        return network.SerializeToString()

    def compare(self, network: bytes, done: Callable[[], None]) -> Comparison:
        """The network against the float network on the samples that judge."""
        import onnx

        samples = (self.samples[k] for k in self.judged)
        return compare(self.whole, onnx.load_model_from_string(network), samples, self.labels, done)

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
