"""Collects the steps that modules append to an executable, and the tensors between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...hw.config import Config
from ...runtime.executable import Executable, HostStep, LaunchStep, Tensor
from .. import graph as g
from ..graph.host_calls import host_calls

if TYPE_CHECKING:
    from ..schedule.layer import Tiles


class Steps:
    """The steps of `graph` so far; the graph's tensors are declared under their names.

    `tiles` makes the ready schedules of modules that use some; None: each chooses its tile.
    """

    def __init__(self, graph: g.Graph, cfg: Config, contract: str, tiles: Tiles | None = None):
        self.graph, self.cfg, self.contract, self.tiles = graph, cfg, contract, tiles
        self.tensors: dict[str, Tensor] = {}
        self.steps: list[LaunchStep | HostStep] = []
        for t in graph.inputs:
            self.declare(t.name, t.shape, t.dtype, "input")
        for t in (op.output for op in graph.ops):
            self.declare(t.name, t.shape, t.dtype, "output" if t in graph.outputs else "temp")
        for t in graph.constants:
            self.declare(t.name, t.shape, t.dtype, "constant", t.data)

    def executable(self) -> Executable:
        """The executable of all steps so far, with the tensors that they use."""
        used = {name for step in self.steps for name in _names(step)}
        kept = {name: t for name, t in self.tensors.items() if name in used or t.kind in ("input", "output")}
        return Executable(self.cfg, self.graph.name, kept, self.steps)

    def declare(
        self, name: str, shape: tuple[int, ...], dtype: str, kind: str = "temp", data: np.ndarray | None = None
    ) -> str:
        """Declare a tensor and return its name: `name`, or a variant if the graph uses that."""
        while name in self.tensors:
            name += "'"
        self.tensors[name] = Tensor(name, shape, dtype, kind, data)
        return name

    def host(
        self, name: str, kind: str, attrs: dict, inputs: list[str], shape: tuple[int, ...], dtype: str = "int8"
    ) -> str:
        """Append a host step whose output is a new tensor of the step's name."""
        output = self.declare(name, shape, dtype)
        self.steps.append(HostStep(name, kind, inputs, [output], attrs))
        return output

    def kernels(self, op: g.Operator) -> None:
        """Append the host steps that compute `op`; the last one is named after it and counts its work."""
        inputs, calls = [t.name for t in op.inputs], host_calls(op, self.contract)
        for call in calls[:-1]:  # only layers have several; the first gives the accumulators
            name = self.declare(f"{op.name}.acc", op.output.shape, call.dtype)
            self.steps.append(HostStep(name, call.name, inputs, [name], call.attrs, call.constants))
            inputs = [name]
        last = calls[-1]
        self.steps.append(HostStep(op.name, last.name, inputs, [op.output.name], last.attrs, last.constants, op.macs))


def wanted_from(graph: g.Graph, ops: Sequence[g.Operator]) -> list[g.Tensor]:
    """Tensors that `ops` compute and that are outputs of `graph` or read by others, in order."""
    read = {t.name for op in graph.ops if op not in ops for t in op.inputs} | {t.name for t in graph.outputs}
    return [op.output for op in ops if op.output.name in read]


def _names(step: LaunchStep | HostStep) -> list[str]:
    return [*step.bind.values()] if isinstance(step, LaunchStep) else [*step.inputs, *step.outputs]
