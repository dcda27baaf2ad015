"""Compares the tensors of an int8 network with those of its float network, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...hw.errors import InputError
from .result import Comparison, OperatorLoss

EXACT_DB = 200.0  # stands for a tensor without any error


def snr_db(signal: float, noise: float) -> float:
    """10 log10 of the ratio of two sums of squares, at most `EXACT_DB`; 0 without a signal and for endless noise."""
    if noise == 0:
        return EXACT_DB
    if signal == 0 or not math.isfinite(noise):
        return 0.0
    return min(EXACT_DB, 10 * (math.log10(signal) - math.log10(noise)))


@dataclass(frozen=True)
class Node:
    """An operator of the float network, with the names of its tensors."""

    name: str
    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]


class Meter:
    """Sums of squares of values and errors by tensor, and the classes that the first of the `outputs` says."""

    def __init__(self, outputs: Sequence[str]):
        self._outputs = outputs
        self._signal, self._noise = dict[str, float](), dict[str, float]()
        self._classes: list[tuple[int, int]] = []
        self._shape: tuple[int, ...] = ()  # of the first output

    def add(self, wanted: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]) -> None:
        """Take in the tensors of one sample, by name: of the float network, and of the int8 network as real values."""
        for name, value in wanted.items():
            finite = np.isfinite(value)  # a logarithm of 0 counts neither as signal nor as noise
            exact = value[finite].astype(np.float64)
            self._signal[name] = self._signal.get(name, 0.0) + float(np.square(exact).sum())
            self._noise[name] = self._noise.get(name, 0.0) + float(np.square(got[name][finite] - exact).sum())
        first, second = wanted[self._outputs[0]], got[self._outputs[0]]
        self._shape = first.shape
        if first.size > 1 and first.size == max(first.shape):  # a value for each class
            self._classes.append((int(first.argmax()), int(second.argmax())))

    def comparison(self, inputs: Iterable[str], nodes: Iterable[Node], labels: np.ndarray | None) -> Comparison:
        """Of all samples; `inputs` are the network's, `nodes` its operators in order, `labels` those of the samples.

        Raises `InputError` for labels that are no classes.
        """
        classes = np.array(self._classes).reshape(-1, 2)
        if labels is not None and not len(classes):
            raise InputError(
                f"labels need a first output with one number for each class; {self._outputs[0]!r} has shape "
                f"{self._shape}: leave them out"
            )
        count = max(self._shape, default=0)
        if labels is not None and not 0 <= labels.min() <= labels.max() < count:
            raise InputError(
                f"labels are {labels.min()}..{labels.max()}; the network has classes 0..{count - 1}: count from 0"
            )
        return Comparison(
            snr_db=snr_db(sum(self._signal[r] for r in self._outputs), sum(self._noise[r] for r in self._outputs)),
            operators=tuple(self._losses(inputs, nodes)),
            agreement=float((classes[:, 0] == classes[:, 1]).mean()) if len(classes) else None,
            float_accuracy=None if labels is None else float((classes[:, 0] == labels).mean()),
            int8_accuracy=None if labels is None else float((classes[:, 1] == labels).mean()),
        )

    def _losses(self, inputs: Iterable[str], nodes: Iterable[Node]) -> Iterable[OperatorLoss]:
        """Of operators whose results both networks have; what one lacks is as good as what it is made from."""
        ratios = {name: self._ratio(name) for name in inputs if name in self._signal}
        for node in nodes:
            worst = min((ratios[name] for name in node.inputs if name in ratios), default=EXACT_DB)
            ratios |= dict.fromkeys(node.outputs, worst)
            if node.outputs and (name := node.outputs[0]) in self._signal:
                ratios[name] = self._ratio(name)
                yield OperatorLoss(node.name, node.kind, ratios[name], worst - ratios[name])

    def _ratio(self, name: str) -> float:
        return snr_db(self._signal[name], self._noise[name])
