"""Static quantisation of a float ONNX network: several ways are tried, and the most accurate one is taken.

Ways differ in how ranges are measured (minimum and maximum, a percentile, entropy), in the form of the float network
(scales equalised between layers, biases corrected), and in the operators that stay in float.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...hw.errors import UnsupportedError
from .accuracy import Comparison, compare, input_means
from .forms import correct, equalise
from .onnx_network import METHODS, Quantiser, prepare
from .samples import Samples

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_LEAST_GAIN_DB = 0.3  # of a form that is taken in place of the plain one
_WORTH_DB = 1.0  # of operators that stay in float, which the host computes
_GOOD_DB = 25.0  # of a network whose operators all become integers
_LOST_DB = 3.0  # of an operator that may stay in float
_MOST_MACS = 0.01  # of the network's, in operators that stay in float
_MOST_KEPT = 8


@dataclass(frozen=True)
class Way:
    """One way to quantise: `method` of the ranges, forms of the network, names of operators that stay in float."""

    method: str
    equalised: bool = False
    corrected: bool = False
    kept: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = [name for name, there in (("equalised", self.equalised), ("corrected", self.corrected)) if there]
        more += [f"{len(self.kept)} in float"] if self.kept else []
        return " + ".join([self.method, *more])


@dataclass(frozen=True)
class Quantised:
    """An int8 network, how it was made, and how it and the other ways compare with the float network `whole`."""

    network: ModelProto
    whole: ModelProto
    way: Way
    comparison: Comparison
    tried: Mapping[Way, Comparison]
    refused: Mapping[str, str]  # method -> why it cannot be used


def split(samples: Samples) -> tuple[Sequence[int], Sequence[int]]:
    """(numbers of the samples that ranges are measured on, those that networks are judged by).

    Every fourth sample judges; fewer than eight do both.
    """
    every = range(len(samples))
    if len(samples) < 8:
        return every, every
    return [k for k in every if k % 4 != 3], [k for k in every if k % 4 == 3]


def quantise(
    model: ModelProto,
    samples: Samples,
    source: str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    methods: Sequence[str] = METHODS,
    keep: Sequence[str] = (),
    search: bool = True,
    tell: Callable[[str], None] = lambda text: None,
) -> Quantised:
    """Quantise the float network `model`, of the file `source`, on `samples`.

    The best way has the most labels right, or without labels the highest signal to noise. Operators named in `keep`
    stay in float. Without `search` only the methods are tried. `tell` is called before each step. Raises as `prepare`, and `UnsupportedError` for unknown operators.
    """
    whole = prepare(model, source, shapes or {})
    names = {node.name for node in whole.graph.node}
    if unknown := [name for name in keep if name not in names]:
        raise UnsupportedError(f"{source}: has no operator {unknown[0]!r} to keep in float")
    measured, judged = split(samples)
    labels = None if samples.labels is None else samples.labels[list(judged)]
    with tempfile.TemporaryDirectory() as folder:
        ways = _Search(whole, samples, measured, judged, labels, Path(folder), tell)
        for method in methods:
            ways.try_way(Way(method, kept=tuple(keep)))
        if not ways.tried:
            raise UnsupportedError(f"{source}: {'; '.join(ways.refused.values())}")
        if search:
            for change in ({"equalised": True}, {"corrected": True}):
                ways.try_way(replace(ways.best(), **change), _LEAST_GAIN_DB)
            ways.keep_worst()
        best = ways.best()
        return Quantised(ways.networks[best], whole, best, ways.tried[best], ways.tried, ways.refused)


class _Search:
    """Ways tried so far. `chosen` are those good enough to be taken, the best last."""

    def __init__(
        self,
        whole: ModelProto,
        samples: Samples,
        measured: Sequence[int],
        judged: Sequence[int],
        labels: object,
        folder: Path,
        tell: Callable[[str], None],
    ):
        self.whole, self.samples, self.measured, self.judged = whole, samples, measured, judged
        self.labels, self.folder, self.tell = labels, folder, tell
        self.tried: dict[Way, Comparison] = {}
        self.networks: dict[Way, ModelProto] = {}
        self.refused: dict[str, str] = {}
        self._chosen: list[Way] = []
        self._quantisers: dict[bool, Quantiser] = {}

    def best(self) -> Way:
        return self._chosen[-1]

    def _score(self, way: Way) -> tuple[float, float]:
        found = self.tried[way]
        return found.int8_accuracy or 0.0, found.snr_db

    def try_way(self, way: Way, gain_db: float = 0.0) -> bool:
        """Quantise so, compare, and take it where it is better by `gain_db`, with no fewer labels right."""
        self.tell(str(way))
        try:
            network = self._network(way)
        except UnsupportedError as exc:
            self.refused[way.method] = str(exc)
            return False
        if network is None:
            return False
        found = compare(self.whole, network, (self.samples[k] for k in self.judged), self.labels)
        self.tried[way], self.networks[way] = found, network
        if self._chosen:
            labels, snr = self._score(self.best())
            own = self._score(way)
            if not (own[0] > labels or (own[0] == labels and own[1] > snr + gain_db)):
                del self.networks[way]
                return False
        self._chosen.append(way)
        return True

    def _network(self, way: Way) -> ModelProto | None:
        """The network of a way; None where its form is the plain one."""
        form = self.whole
        if way.equalised:
            form, pairs = equalise(self.whole)
            if not pairs:
                return None
        if way.equalised not in self._quantisers:
            folder = self.folder / ("equalised" if way.equalised else "plain")
            folder.mkdir()
            self._quantisers[way.equalised] = Quantiser(form, folder)
        quantiser = self._quantisers[way.equalised]
        quantiser.measure(way.method, (self.samples[k] for k in self.measured), lambda: None)
        if not way.corrected:
            return quantiser.network(way.method, way.kept)
        plain = quantiser.network(way.method, way.kept)
        means = input_means(form, (self.samples[k] for k in self.measured))
        return quantiser.network(way.method, way.kept, correct(form, plain, means))

    def keep_worst(self) -> None:
        """Leave the operators that lose most in float, as long as that raises the accuracy of a poor network."""
        macs = {node.name: _weights_of(node, self.whole) for node in self.whole.graph.node}
        total = sum(macs.values()) or 1
        while self.tried[self.best()].snr_db < _GOOD_DB and len(self.best().kept) < _MOST_KEPT:
            best = self.best()
            losses = sorted(self.tried[best].operators, key=lambda loss: -loss.lost_db)
            kept = sum(macs[name] for name in best.kept)
            more = [
                loss.name
                for loss in losses
                if loss.lost_db > _LOST_DB
                and loss.name not in best.kept
                and kept + macs[loss.name] <= _MOST_MACS * total
            ]
            if not more or not self.try_way(replace(best, kept=(*best.kept, more[0])), _WORTH_DB):
                return


def _weights_of(node: NodeProto, model: ModelProto) -> int:
    """Multiply-accumulates of a layer with weights; 0 of other operators."""
    if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        return 0
    sizes = {c.name: c.dims for c in model.graph.initializer}
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*model.graph.value_info, *model.graph.output)
    }
    weight = next((sizes[name] for name in node.input[1:2] if name in sizes), None)
    if weight is None:
        return 0
    count = 1
    for size in weight:
        count *= size
    positions = 1
    for size in shapes.get(node.output[0], [])[2:]:
        positions *= max(1, size)
    return count * positions
