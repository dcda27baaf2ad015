"""Quantised networks: operators, and their graph.

One set of operators for every file format. The front ends (compiler/frontend/onnx/importer.py for QDQ ONNX,
compiler/frontend/tflite/importer.py) make a `Graph` of them, reference.py computes it, compiler/network.py
makes executables of it. An operator is a dataclass of its inputs, its output and its constants; values derived from
them (multipliers, corrected biases, shapes) are properties, so that every user of an operator computes with the same
integers.

| kind | operators |
|---|---|
| with weights (layers.py) | QConv2d (groups; depthwise), QConvTranspose2d, QDense |
| element-wise | Add, Sub, Mul, Requantize (also ReLUs), NearestRequantize, Lookup (logistic, tanh, ...), Softmax |
| element-wise (elementwise.py) | Div, LeakyRelu, Maximum, Minimum, PairLookup, Prelu, SquaredDifference |
| ends | Quantize, Dequantize (float32), Recode (uint8) |
| windows, means (windows.py) | MaxPool, AveragePool (ONNX's), ExactAveragePool (TensorFlow Lite's), Mean, Sum |
| images (windows.py) | ResizeBilinear |
| along axes (windows.py) | ReduceMax, ReduceMin, ArgMax, TopK, L2Normalization, LogSoftmax |
| SVDF, LSTM (recurrent/layers.py) | Features, TimeFilter, Dense16, Filter16, Lstm, LstmStep, LstmOutputs, LstmCells |
| wider integers (recurrent/layers.py) | Rescale, Softmax16 |
| transformers (attention/layers.py) | BatchMatMul, RmsNorm, Rotate, Attention, WriteRows, WriteColumns |
| Deeploy's, with shifts (deeploy/layers.py) | ShiftRequantize, ShiftAdd, ShiftMul, ShiftMatMul, RequantShift |
| Deeploy's others (deeploy/layers.py) | IntegerMatMul, IntegerNorm, IntegerSoftmax |
| movement (movement.py) | Reshape, Transpose, Heads, Lanes, Concat, Pad, StridedSlice, Take (neighbours, rows) |
| numbers (numbers.py) | NumberFunction, NumberBinary, NumberReduce, NumberDense, NumberResize, Cast, Detections |
| choices (numbers.py) | Compare, Select, Gather, GatherNd |
| a user's own (custom.py) | Custom, a base |
| float32 (floats.py) | FloatFunction, FloatBinary, FloatConv2d and others, which the host runs |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from ...hw.errors import InputError
from ...hw.rounding import CONTRACTS
from ..names import Names
from .attention.layers import Attention as Attention
from .attention.layers import BatchMatMul as BatchMatMul
from .attention.layers import RmsNorm as RmsNorm
from .attention.layers import Rotate as Rotate
from .attention.layers import Write as Write
from .attention.layers import WriteColumns as WriteColumns
from .attention.layers import WriteRows as WriteRows
from .custom import Custom as Custom
from .deeploy.layers import IntegerMatMul as IntegerMatMul
from .deeploy.layers import IntegerNorm as IntegerNorm
from .deeploy.layers import IntegerSoftmax as IntegerSoftmax
from .deeploy.layers import RequantShift as RequantShift
from .deeploy.layers import ShiftAdd as ShiftAdd
from .deeploy.layers import ShiftMatMul as ShiftMatMul
from .deeploy.layers import ShiftMul as ShiftMul
from .deeploy.layers import ShiftRequantize as ShiftRequantize
from .elementwise import Div as Div
from .elementwise import LeakyRelu as LeakyRelu
from .elementwise import Maximum as Maximum
from .elementwise import Minimum as Minimum
from .elementwise import PairLookup as PairLookup
from .elementwise import Prelu as Prelu
from .elementwise import SquaredDifference as SquaredDifference
from .floats import FloatAveragePool as FloatAveragePool
from .floats import FloatBinary as FloatBinary
from .floats import FloatConv2d as FloatConv2d
from .floats import FloatConvTranspose2d as FloatConvTranspose2d
from .floats import FloatFunction as FloatFunction
from .floats import FloatLstm as FloatLstm
from .floats import FloatMatMul as FloatMatMul
from .floats import FloatMaxPool as FloatMaxPool
from .floats import FloatOperator as FloatOperator
from .floats import FloatReduce as FloatReduce
from .floats import FloatSoftmax as FloatSoftmax
from .layers import Divisible as Divisible
from .layers import Linear as Linear
from .layers import QConv2d as QConv2d
from .layers import QConvTranspose2d as QConvTranspose2d
from .layers import QDense as QDense
from .layers import StandIn as StandIn
from .movement import Concat as Concat
from .movement import Heads as Heads
from .movement import Lanes as Lanes
from .movement import Movement as Movement
from .movement import Pad as Pad
from .movement import Reshape as Reshape
from .movement import Selection as Selection
from .movement import StridedSlice as StridedSlice
from .movement import Take as Take
from .movement import Transpose as Transpose
from .numbers import Cast as Cast
from .numbers import Compare as Compare
from .numbers import Detections as Detections
from .numbers import Gather as Gather
from .numbers import GatherNd as GatherNd
from .numbers import NumberBinary as NumberBinary
from .numbers import NumberDense as NumberDense
from .numbers import NumberFunction as NumberFunction
from .numbers import NumberReduce as NumberReduce
from .numbers import NumberResize as NumberResize
from .numbers import Select as Select
from .operators import Add as Add
from .operators import Binary as Binary
from .operators import Dequantize as Dequantize
from .operators import Lookup as Lookup
from .operators import Mul as Mul
from .operators import NearestRequantize as NearestRequantize
from .operators import Operator as Operator
from .operators import Pairwise as Pairwise
from .operators import Quantize as Quantize
from .operators import QuantizeImage as QuantizeImage
from .operators import Recode as Recode
from .operators import Requantize as Requantize
from .operators import Softmax as Softmax
from .operators import Sub as Sub
from .operators import Tensor as Tensor
from .recurrent.layers import Cells as Cells
from .recurrent.layers import Dense16 as Dense16
from .recurrent.layers import Features as Features
from .recurrent.layers import Filter16 as Filter16
from .recurrent.layers import Lstm as Lstm
from .recurrent.layers import LstmCells as LstmCells
from .recurrent.layers import LstmOutputs as LstmOutputs
from .recurrent.layers import LstmStep as LstmStep
from .recurrent.layers import Rescale as Rescale
from .recurrent.layers import Softmax16 as Softmax16
from .recurrent.layers import TimeFilter as TimeFilter
from .recurrent.state import State as State
from .windows import ArgMax as ArgMax
from .windows import AveragePool as AveragePool
from .windows import ExactAveragePool as ExactAveragePool
from .windows import L2Normalization as L2Normalization
from .windows import LogSoftmax as LogSoftmax
from .windows import MaxPool as MaxPool
from .windows import Mean as Mean
from .windows import Pool as Pool
from .windows import ReduceMax as ReduceMax
from .windows import ReduceMin as ReduceMin
from .windows import ResizeBilinear as ResizeBilinear
from .windows import Sum as Sum
from .windows import TopK as TopK

T = TypeVar("T", bound=Operator)


class Readers(dict[str, list[Operator]]):
    """The operators that read each tensor, by its name, and the names of those that the graph is run for."""

    def __init__(self, wanted: Iterable[Tensor]):
        super().__init__()
        self.wanted = {t.name for t in wanted}

    def only(self, op: Operator) -> Operator | None:
        """The only reader of what `op` gives, which nobody else wants; None where there is no such one."""
        found = self.get(op.output.name, [])
        return found[0] if len(found) == 1 and op.output.name not in self.wanted else None


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: operators in an order in which they can run, and what it keeps between inferences (states).

    `contract` is the rounding contract of its layers (hw/rounding.py): importers set that of the file's format. Raises
    `InputError` if a tensor is used before an operator produces it, a name is used twice, or the contract is unknown.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    ops: tuple[Operator, ...]
    states: tuple[State, ...] = ()
    contract: str = "double"

    def __post_init__(self) -> None:
        if self.contract not in CONTRACTS:
            raise InputError(f"contract {self.contract!r}: must be one of {', '.join(CONTRACTS)}")
        known: set[str] = set()
        given = (*self.inputs, *self.constants, *(s.tensor for s in self.states))
        for t in (*given, *(op.output for op in self.ops)):
            if t.name in known:
                raise InputError(f"graph {self.name!r}: two tensors are named {t.name!r}")
            known.add(t.name)
        if len({op.name for op in self.ops}) < len(self.ops):
            raise InputError(f"graph {self.name!r}: two operators have the same name")
        ready = {t.name for t in given}
        for op in self.ops:
            for t in op.inputs:
                if t.name not in ready:
                    raise InputError(
                        f"graph {self.name!r}: {op.name!r} reads {t.name!r} before an operator produces it"
                    )
            ready.add(op.output.name)
        for t in self.outputs:
            if t.name not in ready:
                raise InputError(f"graph {self.name!r}: no operator produces output {t.name!r}")
        for s in self.states:
            if s.next.name not in ready:
                raise InputError(
                    f"graph {self.name!r}: no operator produces {s.next.name!r}, the next values of {s.tensor.name!r}"
                )

    def under(self, contract: str | None) -> Graph:
        """The graph in another rounding contract; itself with None. Raises `InputError` for an unknown one."""
        if contract in (None, self.contract):
            return self
        return replace(self, ops=tuple(op.under(contract) for op in self.ops), contract=contract)

    @property
    def wanted(self) -> tuple[Tensor, ...]:
        """What an inference is run for: its outputs, and the next values of the states."""
        return (*self.outputs, *(s.next for s in self.states))

    def of(self, kind: type[T]) -> tuple[T, ...]:
        """The operators of a kind."""
        return tuple(op for op in self.ops if isinstance(op, kind))

    @property
    def readers(self) -> Readers:
        """The operators that read each tensor, by its name; one that reads it twice is there twice."""
        found = Readers(self.wanted)
        for op in self.ops:
            for t in op.inputs:
                found.setdefault(t.name, []).append(op)
        return found

    @property
    def producers(self) -> dict[str, Operator]:
        """The operator that gives each tensor, by its name."""
        return {op.output.name: op for op in self.ops}

    @property
    def names(self) -> Names:
        """The names of tensors and operators."""
        return Names(name for op in self.ops for name in (op.name, op.output.name, *(t.name for t in op.inputs)))

    @property
    def constants(self) -> tuple[Tensor, ...]:
        """The constant operands, each once."""
        read = (*(t for op in self.ops for t in op.inputs), *(s.next for s in self.states))
        return tuple({id(t): t for t in read if t.data is not None}.values())

    @property
    def layers(self) -> tuple[Linear, ...]:
        """The convolutions and dense layers."""
        return self.of(Linear)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one inference."""
        return sum(op.macs for op in self.ops)
