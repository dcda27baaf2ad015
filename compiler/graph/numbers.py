"""Operators on plain numbers, float32 and integers, for the parts of a file between its quantised operators.

The host runs them. runtime/hostops/floats.py defines the functions of float32: sums are in numpy's order, or `ordered`
as in TensorFlow Lite's reference kernels. runtime/hostops/numbers.py defines the others, with which networks decode
positions and detections. Movements (movement.py) take plain numbers, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..conv_shape import ConvShape
from .host_calls import Kernel
from .operators import BYTES, Factored, Operator, Tensor


@dataclass(frozen=True, eq=False)
class FloatOperator(Operator):
    """Base of the float32 operators."""

    tabled = False

    def check(self) -> None:
        self.expect("the conversion", {t.dtype for t in (*self.inputs, self.output)}, {"float32"})


@dataclass(frozen=True, eq=False)
class FloatFunction(FloatOperator):
    """`function` of each value, by ONNX's name, with parameters `alpha` and `beta`, which are the bounds of Clip."""

    elementwise = True
    host = (Kernel("float_function", "function alpha beta"),)

    function: str
    alpha: float = 0.0
    beta: float = 0.0

    def check(self) -> None:
        super().check()
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class FloatBinary(FloatOperator):
    """`function` of two operands, by ONNX's name; they broadcast, and either may be a constant."""

    elementwise = True
    host = (Kernel("float_binary", "function"),)

    function: str

    def check(self) -> None:
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
        super().check()
        self.expect("the output's shape", self.output.shape, self.x.shape)
        self.expect("whether the axis exists", 0 <= self.axis < len(self.x.shape), True)


@dataclass(frozen=True, eq=False)
class FloatMatMul(FloatOperator):
    """Products of matrices, the last two dimensions of two operands; the dimensions before them broadcast."""

    host = (Kernel("float_matmul", "ordered?"),)

    ordered: bool = False

    def check(self) -> None:
        super().check()
        a, b = (t.shape for t in self.inputs)
        self.expect("the number of rows of the second operand", b[-2], a[-1])
        self.expect("the output's shape", self.output.shape, (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1]))

    @property
    def macs(self) -> int:
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
        super().check()
        (count, n, features), hidden = self.x.shape, self.recurrence.shape[1]
        parts = self.weight.shape, self.recurrence.shape, self.bias.shape
        self.expect("the weights' shapes", parts, ((4 * hidden, features), (4 * hidden, hidden), (4 * hidden,)))
        self.expect("the output's shape", self.output.shape, (count, n, hidden))

    @property
    def macs(self) -> int:
        count, n, _ = self.x.shape
        return count * n * (self.weight.size + self.recurrence.size)


@dataclass(frozen=True, eq=False)
class FloatConvolution(FloatOperator):
    """Base of convolutions, NCHW: weights float32 of four dimensions, biases (O,); geometry as in `QConv2d`."""

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
class HybridConv2d(FloatConv2d):
    """Convolution by int8 weights with a float32 scale (O,), of images that are quantised in each run."""

    host = (Kernel("hybrid_conv2d", "strides pads dilations groups", "weight weight_scale bias"),)

    weight_scale: np.ndarray = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class FloatConvTranspose2d(FloatConvolution):
    """Transposed convolution, weights (C, O / groups, KH, KW)."""

    host = (Kernel("float_conv_transpose2d", "strides pads dilations groups ordered?", "weight bias"),)

    def check(self) -> None:
        super().check()
        self.expect("the number of input channels", self.weight.shape[0], self.x.shape[1])
        self.expect("the number of output channels", self.output.shape[1], self.weight.shape[1] * self.groups)

    @property
    def macs(self) -> int:
        """Multiply-accumulates, including cropped pixels."""
        return math.prod(self.x.shape) * math.prod(self.weight.shape[1:])


@dataclass(frozen=True, eq=False)
class FloatPool(FloatOperator):
    """Base of pooling: windows of `kernel` elements (h, w), moved by `strides`, NCHW, with `pads` around."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    def check(self) -> None:
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
    """Mean of each window; padding is 0 and counts, or does not. With `by_columns` columns are added up first."""

    host = (Kernel("float_average_pool", "kernel strides pads padding_counts by_columns?"),)

    padding_counts: bool = False
    by_columns: bool = False


@dataclass(frozen=True, eq=False)
class FloatResize(FloatOperator):
    """Images of another size: sums of four neighbours, as runtime/hostops/resize.py defines them.

    Each row of the result has two neighbours, int32 (H, 2), and their weights, float32; so has each column, (W, 2).
    """

    host = (Kernel("float_resize", constants="row_neighbours column_neighbours row_weights column_weights"),)

    row_neighbours: np.ndarray
    column_neighbours: np.ndarray
    row_weights: np.ndarray
    column_weights: np.ndarray

    def check(self) -> None:
        super().check()
        self.expect(
            "the output's shape",
            self.output.shape,
            (*self.x.shape[:2], len(self.row_weights), len(self.column_weights)),
        )

    @property
    def macs(self) -> int:
        return 4 * math.prod(self.output.shape)


NUMBERS = ("float32", "int32", "int64")
PLAIN = (*NUMBERS, "bool")


@dataclass(frozen=True, eq=False)
class NumberFunction(Operator):
    """A `function` of `runtime.hostops.numbers.UNARY` of each value, in the input's type."""

    elementwise = True
    host = (Kernel("number_function", "function"),)

    function: str

    def check(self) -> None:
        self.expect("whether the input holds numbers", self.x.dtype in NUMBERS, True)
        self.expect("the output", (self.output.dtype, self.output.shape), (self.x.dtype, self.x.shape))


@dataclass(frozen=True, eq=False)
class NumberBinary(Operator):
    """A `function` of `runtime.hostops.numbers.BINARY` of two operands of one type whose shapes broadcast."""

    elementwise = True
    host = (Kernel("number_binary", "function"),)

    function: str

    def check(self) -> None:
        self.expect("whether the input holds numbers", self.x.dtype in NUMBERS, True)
        self.expect("the types", {t.dtype for t in (*self.inputs, self.output)}, {self.x.dtype})
        self.expect_broadcast()


@dataclass(frozen=True, eq=False)
class Rfft(Operator):
    """float32 (..., length // 2 + 1, 2): real and imaginary parts of the discrete Fourier transforms of the rows."""

    host = (Kernel("rfft", "length"),)

    length: int

    def check(self) -> None:
        self.expect("the types", (self.x.dtype, self.output.dtype), ("float32", "float32"))
        self.expect("the output's shape", self.output.shape, (*self.x.shape[:-1], self.length // 2 + 1, 2))


@dataclass(frozen=True, eq=False)
class NumberReduce(Operator):
    """A `function` of `runtime.hostops.numbers.REDUCTIONS` over `axes`, 1 or omitted in the output's shape."""

    host = (Kernel("number_reduce", "function axes shape"),)

    function: str
    axes: tuple[int, ...]

    def check(self) -> None:
        self.expect("whether the input holds numbers", self.x.dtype in PLAIN, True)
        self.expect("the output's type", self.output.dtype, self.x.dtype)
        self.expect_reduced(self.axes)


@dataclass(frozen=True, eq=False)
class NumberDense(Operator):
    """float32 `x @ weight.T + bias`, each sum in the order of the features; weights (units, features)."""

    host = (Kernel("number_dense", constants="weight bias"),)

    weight: np.ndarray
    bias: np.ndarray

    def check(self) -> None:
        self.expect("the types", {t.dtype for t in (self.x, self.output)}, {"float32"})
        units, features = self.weight.shape
        self.expect("the number of features", self.x.shape[-1], features)
        self.expect("the output's shape", self.output.shape, (*self.x.shape[:-1], units))

    @property
    def macs(self) -> int:
        return self.weight.size * (self.x.nbytes // 4 // self.weight.shape[1])


@dataclass(frozen=True, eq=False)
class HybridDense(NumberDense):
    """Dense layer by int8 weights with a float32 scale (O,), of rows (N, I) that are quantised in each run.

    With `asymmetric` their quantisation has a zero point.
    """

    host = (Kernel("hybrid_dense", "asymmetric", "weight weight_scale bias"),)

    weight_scale: np.ndarray
    asymmetric: bool = False


@dataclass(frozen=True, eq=False)
class NumberResize(Operator):
    """NCHW float32 images of the output's size, each pixel a mean of its four neighbours, weighted by distance."""

    host = (Kernel("resize_bilinear", "size align_corners half_pixel_centers"),)

    align_corners: bool = False
    half_pixel_centers: bool = False

    def check(self) -> None:
        self.expect("the types", {t.dtype for t in (self.x, self.output)}, {"float32"})
        self.expect("the number of dimensions", (len(self.x.shape), len(self.output.shape)), (4, 4))
        self.expect("the numbers of images and channels", self.output.shape[:2], self.x.shape[:2])


@dataclass(frozen=True, eq=False)
class Compare(Factored):
    """bool: whether two operands of one type, whose shapes broadcast, compare as `function` of `COMPARISONS` says.

    int8 values are compared as `R((x - z) << 8)`, R by their scales, contract double: see runtime/hostops/numbers.py.
    """

    elementwise = True

    function: str

    def check(self) -> None:
        self.expect("whether the input holds numbers", self.x.dtype in (*PLAIN, "int8"), True)
        self.expect("the types", ({t.dtype for t in self.inputs}, self.output.dtype), ({self.x.dtype}, "bool"))
        self.expect_broadcast()

    def kernels(self) -> tuple[Kernel, ...]:
        """The kernel on the host; int8 values have one of their own."""
        if self.x.dtype != "int8":
            return (Kernel("compare", "function"),)
        return (Kernel("compare_int8", "function zero_points=inputs.*.zero_point multipliers exponents"),)

    @property
    def factors(self) -> tuple[float, ...]:
        return tuple(t.scale for t in self.inputs)


@dataclass(frozen=True, eq=False)
class Select(Operator):
    """The elements of the second input where the first, bool, holds, else of the third, as they are stored."""

    elementwise = True
    host = (Kernel("select"),)

    def check(self) -> None:
        self.expect("the number of operands", len(self.inputs), 3)
        condition, *values = self.inputs
        self.expect("the condition's type", condition.dtype, "bool")
        self.expect("the types", {t.dtype for t in values}, {self.output.dtype})
        self.expect("the output's shape", self.output.shape, self.together(*(t.shape for t in self.inputs)))


@dataclass(frozen=True, eq=False)
class Cast(Operator):
    """The stored values in another type: fractions are cut off, integers wrap."""

    elementwise = True
    host = (Kernel("cast", "dtype"),)

    @property
    def tabled(self) -> bool:
        """Whether a table may hold its results: float32 values of bytes."""
        return self.x.dtype in BYTES and self.output.dtype == "float32"

    def check(self) -> None:
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class Gather(Operator):
    """The elements of the first input at the positions in the second, integers, along `axis`.

    With `from_end` negative positions count from the end.
    """

    host = (Kernel("gather", "axis from_end?"),)

    axis: int
    from_end: bool = False

    @property
    def symbol(self) -> tuple[Tensor, int] | None:
        """The positions, if they count along dimension 0 of the first input."""
        return None if self.axis else (self.inputs[1], self.x.shape[0])

    def check(self) -> None:
        x, where = self.inputs
        self.expect("whether positions are integers", where.dtype in ("int32", "int64"), True)
        self.expect("whether the axis exists", 0 <= self.axis < len(x.shape), True)
        shape = (*x.shape[: self.axis], *where.shape, *x.shape[self.axis + 1 :])
        facts = (x.dtype, x.scale, x.zero_point, shape)
        self.expect("the output", (*_kind(self), self.output.shape), facts)


@dataclass(frozen=True, eq=False)
class GatherNd(Operator):
    """The parts of the first input at the positions that are the last dimension of the second, integers."""

    host = (Kernel("gather_nd"),)

    def check(self) -> None:
        x, where = self.inputs
        self.expect("whether positions are integers", where.dtype in ("int32", "int64"), True)
        self.expect("whether positions fit the input", where.shape[-1] <= len(x.shape), True)
        shape = (*where.shape[:-1], *x.shape[where.shape[-1] :]) or (1,)
        facts = (x.dtype, x.scale, x.zero_point, shape)
        self.expect("the output", (*_kind(self), self.output.shape), facts)


@dataclass(frozen=True, eq=False)
class Detections(Operator):
    """Detections of boxes and scores, float32, with `anchors` (N, 4): runtime/hostops/detection.py is the definition.

    The output is (1, rows + 1, 6): ymin, xmin, ymax, xmax, class, score; the last row begins with their number.
    """

    host = (
        Kernel(
            "detections",
            "most classes classes_per_box per_class each_class score overlap scales",
            "anchors",
        ),
    )

    anchors: np.ndarray
    scales: tuple[float, ...]
    most: int
    classes: int
    classes_per_box: int
    per_class: int
    each_class: bool
    score: float
    overlap: float

    @property
    def rows(self) -> int:
        """The most detections."""
        return self.most * (1 if self.each_class else min(self.classes_per_box, self.classes))

    def check(self) -> None:
        boxes, scores = self.inputs
        self.expect("the types", {t.dtype for t in (*self.inputs, self.output)}, {"float32"})
        self.expect("the smallest count", min(1, self.most, self.classes, self.classes_per_box, self.per_class), 1)
        count = boxes.shape[1] if len(boxes.shape) == 3 else 0
        self.expect("the boxes' shape", boxes.shape, (1, count, 4))
        self.expect("the anchors", (str(self.anchors.dtype), self.anchors.shape), ("float32", (count, 4)))
        self.expect("the scores' shape", scores.shape[:-1], (1, count))
        self.expect("whether there are scores of all classes", scores.shape[-1] >= self.classes, True)
        finite = np.isfinite([*self.scales, self.score, self.overlap]).all() and min(map(abs, self.scales)) > 0
        self.expect("whether scales and thresholds are finite, and scales not 0", bool(finite), True)
        self.expect("the output's shape", self.output.shape, (1, self.rows + 1, 6))


def _kind(op: Operator) -> tuple[str, float, int]:
    return op.output.dtype, op.output.scale, op.output.zero_point
