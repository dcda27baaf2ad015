"""Quantised networks: operators, and their graph.

One set of operators for every file format, in a module per subject. Importers (compiler/frontend/) make a `Graph` of
them, reference.py computes it, compiler/network.py makes executables of it. An operator is a dataclass of its inputs,
output and constants; derived values (multipliers, corrected biases, shapes) are properties, so that every user of an
operator computes with the same integers. `Custom` is the base of a user's own operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from ...hw.errors import InputError
from ...hw.rounding import CONTRACTS
from .attention import Attention as Attention
from .attention import BatchMatMul as BatchMatMul
from .attention import RmsNorm as RmsNorm
from .attention import Rotate as Rotate
from .attention import Write as Write
from .attention import WriteColumns as WriteColumns
from .attention import WriteRows as WriteRows
from .deeploy import IntegerMatMul as IntegerMatMul
from .deeploy import IntegerNorm as IntegerNorm
from .deeploy import IntegerSoftmax as IntegerSoftmax
from .deeploy import RequantShift as RequantShift
from .deeploy import ShiftAdd as ShiftAdd
from .deeploy import ShiftMatMul as ShiftMatMul
from .deeploy import ShiftMul as ShiftMul
from .deeploy import ShiftRequantize as ShiftRequantize
from .dynamic import IntegerConv2d as IntegerConv2d
from .dynamic import PadBy as PadBy
from .dynamic import QuantizeBy as QuantizeBy
from .dynamic import RangeScale as RangeScale
from .dynamic import RangeZeroPoint as RangeZeroPoint
from .dynamic import ScaleSums as ScaleSums
from .dynamic import SubtractZeroPoint as SubtractZeroPoint
from .dynamic import ValueRange as ValueRange
from .elementwise import Add as Add
from .elementwise import Binary as Binary
from .elementwise import Dequantize as Dequantize
from .elementwise import Div as Div
from .elementwise import HostImage as HostImage
from .elementwise import LeakyRelu as LeakyRelu
from .elementwise import Lookup as Lookup
from .elementwise import Maximum as Maximum
from .elementwise import Minimum as Minimum
from .elementwise import Mul as Mul
from .elementwise import NearestPrelu as NearestPrelu
from .elementwise import NearestRequantize as NearestRequantize
from .elementwise import PairLookup as PairLookup
from .elementwise import Pairwise as Pairwise
from .elementwise import Prelu as Prelu
from .elementwise import Quantize as Quantize
from .elementwise import QuantizeImage as QuantizeImage
from .elementwise import Recode as Recode
from .elementwise import RecodeImage as RecodeImage
from .elementwise import Requantize as Requantize
from .elementwise import SquaredDifference as SquaredDifference
from .elementwise import Sub as Sub
from .int16 import WideConv2d as WideConv2d
from .int16 import WideConvTranspose2d as WideConvTranspose2d
from .int16 import WideDense as WideDense
from .int16 import WideLookup as WideLookup
from .int16 import WideSoftmax as WideSoftmax
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
from .numbers import FloatAveragePool as FloatAveragePool
from .numbers import FloatBinary as FloatBinary
from .numbers import FloatConv2d as FloatConv2d
from .numbers import FloatConvTranspose2d as FloatConvTranspose2d
from .numbers import FloatFunction as FloatFunction
from .numbers import FloatLstm as FloatLstm
from .numbers import FloatMatMul as FloatMatMul
from .numbers import FloatMaxPool as FloatMaxPool
from .numbers import FloatOperator as FloatOperator
from .numbers import FloatReduce as FloatReduce
from .numbers import FloatResize as FloatResize
from .numbers import FloatSoftmax as FloatSoftmax
from .numbers import Gather as Gather
from .numbers import GatherNd as GatherNd
from .numbers import HybridConv2d as HybridConv2d
from .numbers import HybridDense as HybridDense
from .numbers import NumberBinary as NumberBinary
from .numbers import NumberDense as NumberDense
from .numbers import NumberFunction as NumberFunction
from .numbers import NumberReduce as NumberReduce
from .numbers import NumberResize as NumberResize
from .numbers import Rfft as Rfft
from .numbers import Select as Select
from .operators import Custom as Custom
from .operators import Operator as Operator
from .operators import Tensor as Tensor
from .recurrent import Cells as Cells
from .recurrent import Dense16 as Dense16
from .recurrent import Features as Features
from .recurrent import Filter16 as Filter16
from .recurrent import Lstm as Lstm
from .recurrent import LstmCells as LstmCells
from .recurrent import LstmOutputs as LstmOutputs
from .recurrent import LstmStep as LstmStep
from .recurrent import Rescale as Rescale
from .recurrent import Softmax16 as Softmax16
from .recurrent import State as State
from .recurrent import TimeFilter as TimeFilter
from .token_scales import CacheAttention as CacheAttention
from .token_scales import EmbedTokens as EmbedTokens
from .token_scales import GatedProduct as GatedProduct
from .token_scales import RotatePairs as RotatePairs
from .token_scales import ScaleTokenSums as ScaleTokenSums
from .token_scales import TokenBytes as TokenBytes
from .token_scales import TokenLogits as TokenLogits
from .token_scales import TokenScales as TokenScales
from .token_scales import WriteTokens as WriteTokens
from .two_bytes import ScaleBytes as ScaleBytes
from .two_bytes import SplitBytes as SplitBytes
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
from .windows import Softmax as Softmax
from .windows import Sum as Sum
from .windows import TopK as TopK

T = TypeVar("T", bound=Operator)


class Names(set[str]):
    """Names of tensors and operators that are taken, each given once."""

    def __init__(self, names: Iterable[str] = ()):
        super().__init__(names)
        self._variants: dict[str, int] = {}  # number of the last variant, by name

    def unused(self, name: str) -> str:
        """Take `name`, or the first of `name'`, `name'2`, `name'3`, ... that is free, and return it."""
        found, k = name, self._variants.get(name, 0)
        while found in self:
            k += 1
            found = f"{name}'{k if k > 1 else ''}"
            self._variants[name] = k
        self.add(found)
        return found


class Readers(dict[str, list[Operator]]):
    """The operators that read each tensor, by its name, and the names of those that the graph is run for."""

    def __init__(self, wanted: Iterable[Tensor]):
        super().__init__()
        self.wanted = {t.name for t in wanted}

    def only(self, op: Operator) -> Operator | None:
        """The only reader of the output of `op`; None for several readers, or if the graph is run for the output."""
        found = self.get(op.output.name, [])
        return found[0] if len(found) == 1 and op.output.name not in self.wanted else None


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: operators in an order in which they can run, and states that it keeps between inferences.

    `contract` is the rounding contract of its layers (hw/rounding.py): importers set the contract of the file's format.
    Raises `InputError` if a tensor is used before an operator produces it, a name is used twice, or the contract is
    unknown.
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
        """Tensors that an inference is run for: outputs, and the next values of the states."""
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
