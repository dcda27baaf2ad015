"""The host CPU as a module of a target: numpy kernels that are exact, and a modelled Cortex-A9's times.

2.5 cycles per multiply-accumulate is the lower end of published runs of scalar int8 C (2.5 to 8.2); MobileNetV1's
depthwise and other layers took 5.7 on one core of a PYNQ-Z1 at 650 MHz. Fields that do not follow from published
figures are marked as assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatchmethod

from ...runtime.hostops import STAGES
from .. import graph as g
from .module import ExecModule, Memory, Pattern
from .steps import Steps
from .tabled import tabled


@dataclass(frozen=True)
class HostModel:
    """Cycles of a CPU at `clock` Hz: per multiply-accumulate, per byte read or written, per operator."""

    clock: float = 650e6
    mac: float = 2.5
    depthwise_mac: float = 5.7
    byte: float = 4.0  # assumed: element-wise integer arithmetic, widened to 32 bits
    moved_byte: float = 1.5  # assumed: change of layout; int8 for uint8 and back, one exclusive or per word
    softmax_byte: float = 150.0  # assumed: exponential and division in fixed point, per byte read or written
    float_mac: float = 4.0  # assumed: the VFP issues one float32 multiply-accumulate in two cycles, operands loaded
    float_value: float = 60.0  # assumed: a function of one float32 value
    dispatch: float = 3000.0  # assumed: call of one operator

    def seconds(self, op: g.Operator) -> float:
        """Predicted time of one operator."""
        return (self._cycles(op) + self.dispatch) / self.clock

    @singledispatchmethod
    def _cycles(self, op: g.Operator) -> float:
        """Cycles of the kernel: those of its arithmetic, and of the bytes that it reads and writes."""
        return self.mac * op.macs + self.byte * _nbytes(op)

    @_cycles.register(g.Movement)
    @_cycles.register(g.Recode)
    def _moves(self, op: g.Operator) -> float:
        return self.moved_byte * _nbytes(op)

    @_cycles.register(g.Cells)
    def _cells(self, op: g.Cells) -> float:
        return self.mac * op.macs + self.byte * _nbytes(op) + self.softmax_byte * op.functions

    @_cycles.register(g.Linear)
    def _layer(self, op: g.Linear) -> float:
        mac = self.depthwise_mac if op.depthwise else self.mac
        return mac * op.macs + self.byte * op.output.nbytes

    @_cycles.register(g.FloatOperator)
    def _reals(self, op: g.FloatOperator) -> float:
        return self.float_mac * op.macs + self.float_value * op.output.nbytes / 4

    @_cycles.register(g.Softmax)
    def _softmax(self, op: g.Softmax) -> float:
        """Cycles of the kernel (runtime/hostops/reductions.py), which reads exponentials from a table made once.

        Three passes over int8 values: the largest; the sum of table entries, int32; entries, products and results. Each
        row needs one reciprocal, as long as an exponential and a division of one value read and one written.
        """
        values = math.prod(op.x.shape)
        touched = values * (1 + 2 * (1 + 4)) + op.output.nbytes
        return self.byte * touched + 2 * self.softmax_byte * values / op.x.shape[op.axis]

    def moved_seconds(self, nbytes: int) -> float:
        """Predicted time of a change of layout that reads and writes `nbytes`."""
        return (self.moved_byte * nbytes + self.dispatch) / self.clock


def _nbytes(op: g.Operator) -> int:
    return sum(t.nbytes for t in op.tensors)


def _without_kernel(op: g.Operator) -> str:
    return "" if op.kernels() else "it has no kernel"


class HostCpu(ExecModule):
    """The CPU beside the accelerator. It runs every operator that has a kernel (compiler/graph/host_calls.py)."""

    name = "host"
    patterns = (Pattern("operator with a kernel", (g.Operator,), _without_kernel),)
    transformations = (tabled,)
    memories = (Memory("DRAM", 512 << 20, 8.0, ("activations", "weights")),)

    def __init__(self, model: HostModel | None = None):
        self.model = model or HostModel()

    def seconds(self, ops: Sequence[g.Operator]) -> float:
        """Predicted time on the modelled CPU."""
        return sum(self.model.seconds(op) for op in ops)

    def transfer_seconds(self, t: g.Tensor) -> float:
        """0: operands are in its memory, in plain layout."""
        return 0.0

    def joined_seconds(self, op: g.Operator) -> float:
        """A call, where the steps of `op` move values or compute each by itself (merge.py)."""
        joins = all(kernel.name in STAGES for kernel in op.kernels()) and len(op.inputs) == 1
        return self.model.dispatch / self.model.clock if joins else 0.0

    def generate(self, steps: Steps, ops: Sequence[g.Operator]) -> None:
        """Append one or two host steps per operator."""
        for op in ops:
            steps.kernels(op)
