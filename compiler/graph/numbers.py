"""Operators on plain numbers, float32 and integers, beside the quantised ones; kernels: runtime/hostops/numbers.py.

Networks decode positions with them: the largest value's index, its row and column, what lies there; and detections.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .host_calls import Kernel
from .operators import BYTES, Operator, Tensor

NUMBERS = ("float32", "int32", "int64")
PLAIN = (*NUMBERS, "bool")


@dataclass(frozen=True, eq=False)
class NumberFunction(Operator):
    """A `function` of `runtime.hostops.numbers.UNARY` of each value, in the input's type."""

    elementwise = True
    host = (Kernel("number_function", "function"),)

    function: str

    def check(self) -> None:
        """Raise `InputError` unless it is one shape and type of numbers."""
        self.expect("whether the input holds numbers", self.x.dtype in NUMBERS, True)
        self.expect("the output", (self.output.dtype, self.output.shape), (self.x.dtype, self.x.shape))


@dataclass(frozen=True, eq=False)
class NumberBinary(Operator):
    """A `function` of `runtime.hostops.numbers.BINARY` of two operands of one type whose shapes broadcast."""

    elementwise = True
    host = (Kernel("number_binary", "function"),)

    function: str

    def check(self) -> None:
        """Raise `InputError` unless it is one type of numbers, and the shapes broadcast to the output's."""
        self.expect("whether the input holds numbers", self.x.dtype in NUMBERS, True)
        self.expect("the types", {t.dtype for t in (*self.inputs, self.output)}, {self.x.dtype})
        self.expect_broadcast()


@dataclass(frozen=True, eq=False)
class NumberReduce(Operator):
    """A `function` of `runtime.hostops.numbers.REDUCTIONS` over `axes`, 1 or omitted in the output's shape."""

    host = (Kernel("number_reduce", "function axes shape"),)

    function: str
    axes: tuple[int, ...]

    def check(self) -> None:
        """Raise `InputError` unless it is one type of numbers or truth values, and the shapes fit."""
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
        """Raise `InputError` unless all is float32, and the shapes fit."""
        self.expect("the types", {t.dtype for t in (self.x, self.output)}, {"float32"})
        units, features = self.weight.shape
        self.expect("the number of features", self.x.shape[-1], features)
        self.expect("the output's shape", self.output.shape, (*self.x.shape[:-1], units))

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.weight.size * (self.x.nbytes // 4 // self.weight.shape[1])


@dataclass(frozen=True, eq=False)
class NumberResize(Operator):
    """NCHW float32 images of the output's size, each pixel a mean of its four neighbours, weighted by distance."""

    host = (Kernel("resize_bilinear", "size align_corners half_pixel_centers"),)

    align_corners: bool = False
    half_pixel_centers: bool = False

    def check(self) -> None:
        """Raise `InputError` unless all is float32, and images and channels stay."""
        self.expect("the types", {t.dtype for t in (self.x, self.output)}, {"float32"})
        self.expect("the number of dimensions", (len(self.x.shape), len(self.output.shape)), (4, 4))
        self.expect("the numbers of images and channels", self.output.shape[:2], self.x.shape[:2])


@dataclass(frozen=True, eq=False)
class Compare(Operator):
    """bool: whether two operands of one type, whose shapes broadcast, compare as `function` of `COMPARISONS` says.

    int8 values are compared as `R((x - z) << 8)`, R by their scales, contract double: see runtime/hostops/numbers.py.
    """

    elementwise = True

    function: str

    def check(self) -> None:
        """Raise `InputError` unless it is one type of numbers, and the shapes broadcast to the output's."""
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
        """What R of each operand multiplies by."""
        return tuple(t.scale for t in self.inputs)


@dataclass(frozen=True, eq=False)
class Select(Operator):
    """The elements of the second input where the first, bool, holds, else those of the third, as they are stored."""

    elementwise = True
    host = (Kernel("select"),)

    def check(self) -> None:
        """Raise `InputError` unless it is one type of values, and the shapes broadcast to the output's."""
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
        """Whether a table may have its results: those of bytes, which are float32."""
        return self.x.dtype in BYTES and self.output.dtype == "float32"

    def check(self) -> None:
        """Raise `InputError` unless the shape stays."""
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class Gather(Operator):
    """The elements of the first input at the positions in the second, integers, along `axis`."""

    host = (Kernel("gather", "axis"),)

    axis: int

    @property
    def symbol(self) -> tuple[Tensor, int] | None:
        """The positions, where they are those of parts of the first input."""
        return None if self.axis else (self.inputs[1], self.x.shape[0])

    def check(self) -> None:
        """Raise `InputError` if shapes or types are inconsistent."""
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
        """Raise `InputError` if shapes or types are inconsistent."""
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
        """Raise `InputError` if shapes or numbers are inconsistent."""
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
