"""Predicted time of a network before and after it is quantised, and where its multiply-accumulates run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...compiler.frontend import import_model
from ...compiler.frontend.source import Source
from ...compiler.network import compile_for
from ...compiler.target.host import HostModel
from ...hw.config import Config
from ...runtime.executable import LaunchStep


@dataclass(frozen=True)
class Prediction:
    """Milliseconds of one inference, accelerator (timing model, 100 MHz) and host (modelled Cortex-A9) together.

    `on_device` is the accelerator's share of the multiply-accumulates, None for a network without any.
    """

    ms: float
    on_device: float | None


def predict(network: Source, cfg: Config) -> tuple[Prediction, list[dict[str, Any]]]:
    """(the time of a network, a row for each kind of operator: how many run where, and their multiply-accumulates).

    Raises as the importer and the compiler.
    """
    compiled = compile_for(import_model(network), cfg)
    steps = compiled.executable.steps
    total = sum(step.macs for step in steps)
    device = sum(step.macs for step in steps if isinstance(step, LaunchStep))
    counts: dict[tuple[str, str], list[int]] = {}
    for choice in compiled.assignment.choices:
        for op in choice.ops:
            count = counts.setdefault((type(op).__name__, choice.module.name), [0, 0])
            count[0] += 1
            count[1] += op.macs
    columns = ("kind", "module", "operators", "MACs")
    rows: list[dict[str, Any]] = [dict(zip(columns, (*key, *count))) for key, count in sorted(counts.items())]
    return Prediction(1e3 * compiled.seconds(), device / total if total else None), rows


def predict_float(network: Source) -> Prediction:
    """The time of a float network, all of whose operators the host computes. Raises as the importer."""
    host, graph = HostModel(), import_model(network)
    has_macs = any(op.macs for op in graph.ops)
    return Prediction(1e3 * sum(host.seconds(op) for op in graph.ops), 0.0 if has_macs else None)
