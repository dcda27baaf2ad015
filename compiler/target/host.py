"""The host CPU as a module of a target: numpy kernels that are exact, and a modelled Cortex-A9's times.

2.5 cycles per multiply-accumulate is the lower end of published runs of scalar int8 C (2.5 to 8.2); MobileNetV1's
depthwise and other layers took 5.7 on one core of a PYNQ-Z1 at 650 MHz. Fields that do not follow from published
figures are marked as assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .. import graph as g
from ..graph.host_calls import KINDS
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
        nbytes = op.output.nbytes + sum(t.nbytes for t in op.inputs)
        if isinstance(op, g.Softmax):
            cycles = self._softmax(op)
        elif isinstance(op, (g.Movement, g.Recode)):
            cycles = self.moved_byte * nbytes
        elif isinstance(op, (g.Dense16, g.Filter16, g.Cells)):
            cycles = op.macs * self.mac + self.byte * nbytes
            cycles += self.softmax_byte * op.functions if isinstance(op, g.Cells) else 0
        elif isinstance(op, g.Linear):
            slow = isinstance(op, g.QConv2d) and op.depthwise
            cycles = op.macs * (self.depthwise_mac if slow else self.mac) + self.byte * op.output.nbytes
        elif isinstance(op, g.FloatOperator):
            cycles = self.float_mac * op.macs + self.float_value * op.output.nbytes / 4
        else:
            cycles = self.mac * op.macs + self.byte * nbytes
        return (cycles + self.dispatch) / self.clock

    def _softmax(self, op: g.Softmax) -> float:
        """Cycles of the kernel of runtime/softmax.py, which reads exponentials from a table that is made once.

        Three passes over int8 values: the largest; the sum of table entries, int32; entries, products and results. Each
        row needs one reciprocal, as long as an exponential and a division of one value read and one written.
        """
        values = math.prod(op.x.shape)
        touched = values * (1 + 2 * (1 + 4)) + op.output.nbytes
        return self.byte * touched + 2 * self.softmax_byte * values / op.x.shape[op.axis]

    def moved_seconds(self, nbytes: int) -> float:
        """Predicted time of a change of layout that reads and writes `nbytes`."""
        return (self.moved_byte * nbytes + self.dispatch) / self.clock


class HostCpu(ExecModule):
    """The CPU beside the accelerator. It runs every operator that has a kernel (compiler/graph/host_calls.py)."""

    name = "host"
    patterns = tuple(Pattern(kind.__name__, (kind,)) for kind in KINDS)
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

    def generate(self, steps: Steps, ops: Sequence[g.Operator]) -> None:
        """Append one or two host steps per operator."""
        for op in ops:
            steps.kernels(op)
