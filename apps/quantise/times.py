"""Predicted time of a network before and after it is quantised, and where its multiply-accumulates run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...compiler.frontend import import_model
from ...compiler.frontend.source import Source
from ...compiler.network import compile_for
from ...compiler.target.host import HostModel
from ...hw.config import Config
from ...runtime.executable import LaunchStep

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class Prediction:
    """Milliseconds of one inference, accelerator (timing model, 100 MHz) and host (modelled Cortex-A9) together.

    `on_device` is the accelerator's share of the multiply-accumulates, None for a network without any.
    """

    ms: float
    on_device: float | None


def predict(network: ModelProto, name: str, cfg: Config) -> Prediction:
    """Compile a network and predict its time. Raises as the importer and the compiler."""
    return placed(network, name, cfg)[0]


def placed(network: ModelProto, name: str, cfg: Config) -> tuple[Prediction, list[dict[str, object]]]:
    """(the time of a network, a row for each kind of operator: how many run where, and their multiply-accumulates)."""
    compiled = compile_for(import_model(Source(Path(name), network.SerializeToString())), cfg)
    steps = compiled.executable.steps
    total = sum(step.macs for step in steps)
    device = sum(step.macs for step in steps if isinstance(step, LaunchStep))
    counts: dict[tuple[str, str], list[int]] = {}
    for choice in compiled.assignment.choices:
        for op in choice.ops:
            found = counts.setdefault((type(op).__name__, choice.module.name), [0, 0])
            found[0] += 1
            found[1] += op.macs
    rows = [dict(zip(("kind", "module", "operators", "MACs"), (*key, *found))) for key, found in sorted(counts.items())]
    return Prediction(1e3 * compiled.seconds(), device / total if total else None), rows


def predict_float(network: ModelProto, name: str) -> Prediction:
    """The time of a float network, all of whose operators the host computes. Raises as the importer."""
    host, graph = HostModel(), import_model(Source(Path(name), network.SerializeToString()))
    return Prediction(
        1e3 * sum(host.seconds(op) for op in graph.ops), 0.0 if any(op.macs for op in graph.ops) else None
    )
