"""Quantised networks: operators, and their graph.

One set of operators for every file format. The front ends (compiler/frontend/onnx/importer.py for QDQ ONNX,
compiler/frontend/tflite/importer.py) make a `Graph` of them, reference.py computes it, compiler/network.py
makes executables of it. An operator is a dataclass of its inputs, its output and its constants; values derived from
them (multipliers, corrected biases, shapes) are properties, so that every user of an operator computes with the same
integers.

| kind | operators |
|---|---|
| with weights (layers.py) | QConv2d (groups; depthwise), QConvTranspose2d, QDense |
| element-wise | Add, Sub, Mul, Requantize (also ReLUs), Lookup (logistic, tanh, ...), Softmax |
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
| float32 (floats.py) | FloatFunction, FloatBinary, FloatConv2d and others, which the host runs |
"""

from __future__ import annotations

from dataclasses import dataclass

from ...hw.errors import InputError
from .attention.layers import Attention, BatchMatMul, RmsNorm, Rotate, Write, WriteColumns, WriteRows
from .deeploy.layers import (
    IntegerMatMul,
    IntegerNorm,
    IntegerSoftmax,
    RequantShift,
    ShiftAdd,
    ShiftMatMul,
    ShiftMul,
    ShiftRequantize,
)
from .elementwise import Div, LeakyRelu, Maximum, Minimum, PairLookup, Pairwise, Prelu, SquaredDifference
from .floats import (
    FloatAveragePool,
    FloatBinary,
    FloatConv2d,
    FloatConvTranspose2d,
    FloatFunction,
    FloatLstm,
    FloatMatMul,
    FloatMaxPool,
    FloatOperator,
    FloatReduce,
    FloatSoftmax,
)
from .layers import Divisible, Linear, QConv2d, QConvTranspose2d, QDense, StandIn
from .movement import Concat, Heads, Lanes, Movement, Pad, Reshape, StridedSlice, Take, Transpose
from .numbers import (
    Cast,
    Compare,
    Detections,
    Gather,
    GatherNd,
    NumberBinary,
    NumberDense,
    NumberFunction,
    NumberReduce,
    NumberResize,
    Select,
)
from .operators import (
    Add,
    Binary,
    Dequantize,
    Lookup,
    Mul,
    Operator,
    Quantize,
    QuantizeImage,
    Recode,
    Requantize,
    Softmax,
    Sub,
    Tensor,
)
from .recurrent.layers import (
    Cells,
    Dense16,
    Features,
    Filter16,
    Lstm,
    LstmCells,
    LstmOutputs,
    LstmStep,
    Rescale,
    Softmax16,
    TimeFilter,
)
from .recurrent.state import State
from .windows import (
    ArgMax,
    AveragePool,
    ExactAveragePool,
    L2Normalization,
    LogSoftmax,
    MaxPool,
    Mean,
    Pool,
    ReduceMax,
    ReduceMin,
    ResizeBilinear,
    Sum,
    TopK,
)

__all__ = [
    "Add",
    "ArgMax",
    "Attention",
    "AveragePool",
    "BatchMatMul",
    "Binary",
    "Cast",
    "Cells",
    "Compare",
    "Concat",
    "Dense16",
    "Dequantize",
    "Detections",
    "Div",
    "Divisible",
    "ExactAveragePool",
    "Features",
    "Filter16",
    "FloatAveragePool",
    "FloatBinary",
    "FloatConv2d",
    "FloatConvTranspose2d",
    "FloatFunction",
    "FloatLstm",
    "FloatMatMul",
    "FloatMaxPool",
    "FloatOperator",
    "FloatReduce",
    "FloatSoftmax",
    "Gather",
    "GatherNd",
    "Graph",
    "Heads",
    "Lanes",
    "IntegerMatMul",
    "IntegerNorm",
    "IntegerSoftmax",
    "L2Normalization",
    "LeakyRelu",
    "Linear",
    "LogSoftmax",
    "Lookup",
    "Lstm",
    "LstmCells",
    "LstmOutputs",
    "LstmStep",
    "MaxPool",
    "Maximum",
    "Mean",
    "Minimum",
    "Movement",
    "Mul",
    "NumberBinary",
    "NumberDense",
    "NumberFunction",
    "NumberReduce",
    "NumberResize",
    "Operator",
    "Pad",
    "PairLookup",
    "Pairwise",
    "Pool",
    "Prelu",
    "QConv2d",
    "QConvTranspose2d",
    "QDense",
    "Quantize",
    "QuantizeImage",
    "Recode",
    "ReduceMax",
    "ReduceMin",
    "RequantShift",
    "Requantize",
    "Rescale",
    "Reshape",
    "ResizeBilinear",
    "RmsNorm",
    "Rotate",
    "Select",
    "ShiftAdd",
    "ShiftMatMul",
    "ShiftMul",
    "ShiftRequantize",
    "Softmax",
    "Softmax16",
    "SquaredDifference",
    "StandIn",
    "State",
    "StridedSlice",
    "Sub",
    "Sum",
    "Take",
    "Tensor",
    "TimeFilter",
    "TopK",
    "Transpose",
    "Write",
    "WriteColumns",
    "WriteRows",
    "unused",
]


def unused(name: str, names: set[str]) -> str:
    """`name`, with primes until it is not in `names`; it is added to them."""
    while name in names:
        name += "'"
    names.add(name)
    return name


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: operators in an order in which they can run, and what it keeps between inferences (states).

    Raises `InputError` if a tensor is used before an operator produces it, or a name is used twice.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    ops: tuple[Operator, ...]
    states: tuple[State, ...] = ()

    def __post_init__(self) -> None:
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

    @property
    def wanted(self) -> tuple[Tensor, ...]:
        """What an inference is run for: its outputs, and the next values of the states."""
        return (*self.outputs, *(s.next for s in self.states))

    @property
    def readers(self) -> dict[str, list[Operator]]:
        """The operators that read each tensor, by its name; one that reads it twice is there twice."""
        found: dict[str, list[Operator]] = {}
        for op in self.ops:
            for t in op.inputs:
                found.setdefault(t.name, []).append(op)
        return found

    @property
    def constants(self) -> tuple[Tensor, ...]:
        """The constant operands, each once."""
        read = (*(t for op in self.ops for t in op.inputs), *(s.next for s in self.states))
        return tuple({id(t): t for t in read if t.data is not None}.values())

    @property
    def layers(self) -> tuple[Linear, ...]:
        """The convolutions and dense layers."""
        return tuple(op for op in self.ops if isinstance(op, Linear))

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one inference."""
        return sum(op.macs for op in self.ops)
