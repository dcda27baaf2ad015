"""The float32 operators, for what a file leaves between quantised operators. The host runs them.

Their definitions are the functions of runtime/hostops/floats.py; sums are in float32, in numpy's order, or `ordered`
one after the other, as TensorFlow Lite's reference kernels have them. Inputs and outputs are float32. Movements
(movement.py) take float32 tensors, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..conv_shape import ConvShape
from .host_calls import Kernel
from .operators import Operator


@dataclass(frozen=True, eq=False)
class FloatOperator(Operator):
    """Base of the float32 operators."""

    tabled = False

    def check(self) -> None:
        """Raise `InputError` unless inputs and output are float32."""
        self.expect("the conversion", {t.dtype for t in (*self.inputs, self.output)}, {"float32"})


@dataclass(frozen=True, eq=False)
class FloatFunction(FloatOperator):
    """`function` of each value, by ONNX's name, with its parameters; those of Clip are its bounds."""

    elementwise = True
    host = (Kernel("float_function", "function alpha beta"),)

    function: str
    alpha: float = 0.0
    beta: float = 0.0

    def check(self) -> None:
        """Raise `InputError` if the shapes differ."""
        super().check()
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class FloatBinary(FloatOperator):
    """`function` of two operands, by ONNX's name; they broadcast, and either may be a constant."""

    elementwise = True
    host = (Kernel("float_binary", "function"),)

    function: str

    def check(self) -> None:
        """Raise `InputError` unless there are two operands that broadcast to the output's shape."""
        super().check()
        self.expect("the number of operands", len(self.inputs), 2)
        self.expect("the output's shape", self.output.shape, np.broadcast_shapes(*(t.shape for t in self.inputs)))


@dataclass(frozen=True, eq=False)
class FloatReduce(FloatOperator):
    """`function`, by ONNX's name, over `axes`, which are 1 or omitted in the output's shape."""

    host = (Kernel("float_reduce", "function axes shape"),)

    function: str
    axes: tuple[int, ...]

    def check(self) -> None:
        """Raise `InputError` if the element counts are inconsistent."""
        super().check()
        left = math.prod(n for k, n in enumerate(self.x.shape) if k not in self.axes)
        self.expect("the number of elements of the output", math.prod(self.output.shape), left)


@dataclass(frozen=True, eq=False)
class FloatSoftmax(FloatOperator):
    """Softmax along `axis`, or its logarithm."""

    host = (Kernel("float_softmax", "axis logarithm"),)

    axis: int
    logarithm: bool = False

    def check(self) -> None:
        """Raise `InputError` if the shapes differ, or the axis does not exist."""
        super().check()
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("whether the axis exists", 0 <= self.axis < len(self.x.shape), True)


@dataclass(frozen=True, eq=False)
class FloatMatMul(FloatOperator):
    """Products of matrices, the last two dimensions of two operands; the dimensions before them broadcast."""

    host = (Kernel("float_matmul", "ordered?"),)

    ordered: bool = False

    def check(self) -> None:
        """Raise `InputError` if the shapes are inconsistent."""
        super().check()
        a, b = (t.shape for t in self.inputs)
        self.expect("the number of rows of the second operand", b[-2], a[-1])
        self.expect("the output's shape", self.output.shape, (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]))

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return math.prod(self.output.shape) * self.x.shape[-1]


@dataclass(frozen=True, eq=False)
class FloatLstm(FloatOperator):
    """The hidden values (steps, n, hidden) of an LSTM on (steps, n, features), forwards or backwards, from zeros on.

    Gates are input, output, forget and cell: weights (4 * hidden, features), of the hidden values (4 * hidden, hidden).
    """

    host = (Kernel("float_lstm", "reverse", "weight recurrence bias"),)

    weight: np.ndarray
    recurrence: np.ndarray
    bias: np.ndarray
    reverse: bool = False

    def check(self) -> None:
        """Raise `InputError` if the shapes are inconsistent."""
        super().check()
        (count, n, features), hidden = self.x.shape, self.recurrence.shape[1]
        parts = self.weight.shape, self.recurrence.shape, self.bias.shape
        self.expect("the weights' shapes", parts, ((4 * hidden, features), (4 * hidden, hidden), (4 * hidden,)))
        self.expect("the output's shape", self.output.shape, (count, n, hidden))

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        count, n, _ = self.x.shape
        return count * n * (self.weight.size + self.recurrence.size)


@dataclass(frozen=True, eq=False)
class FloatConvolution(FloatOperator):
    """Base of convolutions, NCHW: weights float32 of four dimensions, biases (O,); geometry as that of `QConv2d`."""

    weight: np.ndarray
    bias: np.ndarray
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    ordered: bool = False


@dataclass(frozen=True, eq=False)
class FloatConv2d(FloatConvolution):
    """Convolution, weights (O, C / groups, KH, KW)."""

    host = (Kernel("float_conv2d", "strides pads dilations groups ordered?", "weight bias"),)

    def check(self) -> None:
        """Raise `InputError` if the shapes are inconsistent."""
        super().check()
        self.expect("the number of input channels", self.weight.shape[1] * self.groups, self.x.shape[1])
        self.expect("the output's shape", self.output.shape, (self.x.shape[0], len(self.weight), *self.shape.output))

    @property
    def shape(self) -> ConvShape:
        """The extents of input, kernel and output."""
        (n, c, h, w), (o, _, kh, kw) = self.x.shape, self.weight.shape
        return ConvShape(n, c, h, w, o, (kh, kw), self.strides, self.pads, self.dilations, self.groups)

    @property
    def macs(self) -> int:
        """Multiply-accumulates, spatial padding included."""
        return self.shape.macs


@dataclass(frozen=True, eq=False)
class FloatConvTranspose2d(FloatConvolution):
    """Transposed convolution, weights (C, O / groups, KH, KW)."""

    host = (Kernel("float_conv_transpose2d", "strides pads dilations groups ordered?", "weight bias"),)

    def check(self) -> None:
        """Raise `InputError` if the channels are inconsistent."""
        super().check()
        self.expect("the number of input channels", self.weight.shape[0], self.x.shape[1])
        self.expect("the number of output channels", self.output.shape[1], self.weight.shape[1] * self.groups)

    @property
    def macs(self) -> int:
        """Multiply-accumulates, cropped ones included."""
        return math.prod(self.x.shape) * math.prod(self.weight.shape[1:])


@dataclass(frozen=True, eq=False)
class FloatPool(FloatOperator):
    """Base of pooling: windows of `kernel` elements (h, w), moved by `strides`, NCHW, with `pads` around."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    def check(self) -> None:
        """Raise `InputError` if the shapes are inconsistent."""
        super().check()
        n, c, h, w = self.x.shape
        shape = ConvShape(n, c, h, w, c, self.kernel, self.strides, self.pads, groups=c)
        self.expect("the output's shape", self.output.shape, (n, c, *shape.output))


@dataclass(frozen=True, eq=False)
class FloatMaxPool(FloatPool):
    """The largest element of each window; padding never wins."""

    host = (Kernel("float_max_pool", "kernel strides pads"),)


@dataclass(frozen=True, eq=False)
class FloatAveragePool(FloatPool):
    """Mean of each window; padding is 0 and counts, or does not."""

    host = (Kernel("float_average_pool", "kernel strides pads padding_counts"),)

    padding_counts: bool = False
