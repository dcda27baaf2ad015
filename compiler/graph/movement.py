"""The operators that move values: shapes, orders, slices, padding."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from .host_calls import Kernel
from .operators import Operator, Tensor

Source = tuple[int, int]  # (number of an input, place in it along a dimension)


@dataclass(frozen=True, eq=False)
class Movement(Operator):
    """Base of operators that copy elements unchanged: scale and zero point stay, float32 stays float32."""

    copies = True

    def check(self) -> None:
        self.expect_same_scale()


@dataclass(frozen=True, eq=False)
class Rearrangement(Movement):
    """Base of operators that give all elements of their input another order or shape, as `moved` does."""

    rearranges = True

    @property
    def viewed(self) -> Tensor | None:
        """The input, where each image of input and output is one pixel, with all channels in order."""
        x, y = self.x.shape, self.output.shape
        pixel = all(len(s) in (2, 4) and s[0] * s[1] == self.x.nbytes for s in (x, y)) and x[0] == y[0]
        return self.x if pixel and self.output.dtype == "int8" else None


@dataclass(frozen=True, eq=False)
class Reshape(Rearrangement):
    """The same elements in another shape (Reshape and Flatten of ONNX)."""

    host = (Kernel("reshape", "shape"),)

    def moved(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.output.shape)

    @property
    def renames(self) -> bool:
        """True: the elements stay where they are."""
        return True

    @property
    def viewed(self) -> Tensor | None:
        """Also the output, where pixels of images get another shape, and channels stay."""
        x, y = self.x.shape, self.output.shape
        pixels = min(len(x), len(y)) > 3 and x[:2] == y[:2] and self.output.dtype == "int8"
        return self.output if pixels else super().viewed

    def carried(self, axis: int) -> int:
        if axis == 0 and self.output.shape[0] == self.x.shape[0]:
            return 0
        (before, places), (after, others) = (_wide(t.shape) for t in (self.x, self.output))
        return others[places.index(axis)] if axis in places and before == after else -1

    def check(self) -> None:
        self.expect("the number of elements", math.prod(self.output.shape), math.prod(self.x.shape))
        super().check()


@dataclass(frozen=True, eq=False)
class Transpose(Rearrangement):
    """Dimension k of the output is dimension `axes[k]` of the input.

    With `relayout` it is not an operator of the file, but converts a tensor of a `.tflite` file from the file's NHWC
    to NCHW, or back.
    """

    host = (Kernel("transpose", "axes"),)

    axes: tuple[int, ...]
    relayout: bool = False

    def moved(self, x: np.ndarray) -> np.ndarray:
        return x.transpose(self.axes)

    @property
    def renames(self) -> bool:
        """Whether the file's tensor and its NCHW form are one array."""
        return self.relayout

    def carried(self, axis: int) -> int:
        return self.axes.index(axis)

    def check(self) -> None:
        super().check()
        self.expect("the axes, sorted,", sorted(self.axes), list(range(len(self.x.shape))))
        self.expect("the output's shape", self.output.shape, tuple(self.x.shape[k] for k in self.axes))


@dataclass(frozen=True, eq=False)
class Heads(Movement):
    """Images (N * H, C, 1, W) of images (N, H * C, 1, W), or back: the elements keep their order.

    With `in_place` blocks of channels, of the module that runs it, keep theirs, too.
    """

    host = (Kernel("reshape", "shape"),)

    in_place: bool

    @property
    def viewed(self) -> Tensor | None:
        """The input, where blocks of channels keep their order."""
        return self.x if self.in_place else None

    def check(self) -> None:
        super().check()
        (n, c, *size), (heads, channels, *others) = self.x.shape, self.output.shape
        self.expect("the size of the images", others, size)
        self.expect("the number of channels of all images", heads * channels, n * c)
        self.expect("the number of images that are left over", max(n, heads) % min(n, heads), 0)


@dataclass(frozen=True, eq=False)
class Lanes(Movement):
    """An image (1, C, H, W) of rows (H, C * W), or rows of an image: a row has W columns for each `block` channels.

    On a module with blocks of as many channels nothing moves. Rows have whole blocks: if C is no multiple of `block`,
    the elements of the missing channels are 0.
    """

    host = (Kernel("lanes", "block shape"),)

    block: int

    @property
    def viewed(self) -> Tensor:
        """The output: nothing moves."""
        return self.output

    def in_lanes(self, block: int) -> bool:
        """Whether its output is the image."""
        return len(self.output.shape) == 4

    def check(self) -> None:
        super().check()
        rows, image = sorted((self.x.shape, self.output.shape), key=len)
        self.expect("the dimensions", (len(rows), len(image), *image[:1]), (2, 4, 1))
        blocks = -(-image[1] // self.block)
        self.expect("the rows", rows, (image[2], blocks * self.block * image[3]))
        self.expect("whether there is one row, or one block", image[2] == 1 or blocks == 1, True)


class Selection(Movement):
    """Base of movements that choose, along each dimension by itself, which elements the output has."""

    def sources(self, axis: int) -> tuple[Source | None, ...]:
        """Where each part of the output along `axis` comes from, in order; None: its elements are `filling`."""
        return tuple((0, k) for k in range(self.x.shape[axis]))

    @property
    def filling(self) -> float:
        """The value of elements that come from no input."""
        return 0

    def whole(self, axis: int) -> bool:
        """Whether the output has every part of an input along `axis`, in order."""
        return self.sources(axis) == Selection.sources(self, axis)

    def carried(self, axis: int) -> int:
        """The dimension of the output that has the parts of dimension `axis`; -1: there is none."""
        return axis if self.whole(axis) and all(t.data is None for t in self.inputs) else -1


@dataclass(frozen=True, eq=False)
class Concat(Selection):
    """The inputs, one after the other along `axis`. Any of them may be a constant."""

    host = (Kernel("concatenate", "axis"),)

    axis: int

    def sources(self, axis: int) -> tuple[Source | None, ...]:
        inputs = enumerate(self.inputs if axis == self.axis else self.inputs[:1])
        return tuple((number, k) for number, t in inputs for k in range(t.shape[axis]))

    @property
    def parts(self) -> tuple[tuple[Tensor, int], ...]:
        """The inputs, where channels are concatenated."""
        starts = accumulate((t.shape[1] for t in self.inputs), initial=0) if self.axis == 1 else ()
        return tuple(zip(self.inputs, starts))

    def permuted(self, inputs: tuple[Tensor, ...], output: Tensor, axes: tuple[int, ...]) -> Concat:
        return replace(self, inputs=inputs, output=output, axis=axes.index(self.axis))

    def check(self) -> None:
        super().check()
        shapes = {t.shape[: self.axis] + t.shape[self.axis + 1 :] for t in (*self.inputs, self.output)}
        self.expect("the number of different shapes around the axis", len(shapes), 1)
        total = sum(t.shape[self.axis] for t in self.inputs)
        self.expect("the output's size along the axis", self.output.shape[self.axis], total)


@dataclass(frozen=True, eq=False)
class Pad(Selection):
    """`value` around the input; `pads` holds (before, after) per dimension."""

    host = (Kernel("pad", "pads value"),)

    pads: tuple[tuple[int, int], ...]
    value: float

    def sources(self, axis: int) -> tuple[Source | None, ...]:
        before, behind = self.pads[axis]
        return (*(None,) * before, *((0, k) for k in range(self.x.shape[axis])), *(None,) * behind)

    @property
    def filling(self) -> float:
        return self.value

    @property
    def behind(self) -> bool:
        """True if it only adds channels after those of the input."""
        return not any(before or (after and k != 1) for k, (before, after) in enumerate(self.pads))

    @property
    def parts(self) -> tuple[tuple[Tensor, int], ...]:
        """The input, if only channels are added after it."""
        return ((self.x, 0),) if self.behind and len(self.pads) in (2, 4) else ()

    def check(self) -> None:
        super().check()
        self.expect("the number of dimensions of the padding", len(self.pads), len(self.x.shape))
        self.expect("the smallest padding", min(0, *(n for pair in self.pads for n in pair)), 0)
        if (dtype := np.dtype(self.x.dtype)).kind in "iu":
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            fits = low <= self.value <= high and self.value == int(self.value)
            self.expect(f"whether the value is a whole number of {low}..{high}", fits, True)
        shape = tuple(n + before + after for n, (before, after) in zip(self.x.shape, self.pads))
        self.expect("the output's shape", self.output.shape, shape)


@dataclass(frozen=True, eq=False)
class StridedSlice(Selection):
    """`output[i] = x[begin + i * stride]` in every dimension; strides may be negative."""

    host = (Kernel("strided_slice", "begin strides shape"),)

    begin: tuple[int, ...]
    strides: tuple[int, ...]

    def sources(self, axis: int) -> tuple[Source | None, ...]:
        return tuple((0, self.begin[axis] + k * self.strides[axis]) for k in range(self.output.shape[axis]))

    def check(self) -> None:
        super().check()
        rank = len(self.x.shape)
        self.expect("the ranks", (len(self.begin), len(self.strides), len(self.output.shape)), (rank,) * 3)
        for k, (first, step, n) in enumerate(zip(self.begin, self.strides, self.output.shape)):
            inside = all(0 <= i < self.x.shape[k] for i in (first, first + (n - 1) * step))
            self.expect(f"whether dimension {k} lies within the input", inside and step != 0, True)


@dataclass(frozen=True, eq=False)
class Take(Selection):
    """`output[i, j, ...] = x[indices[0][i], indices[1][j], ...]`; empty indices keep the whole dimension.

    Used for nearest neighbours, repeated and reflected parts, and gathered rows.
    """

    host = (Kernel("take", "indices"),)

    indices: tuple[tuple[int, ...], ...]

    def sources(self, axis: int) -> tuple[Source | None, ...]:
        return tuple((0, k) for k in self.indices[axis] or range(self.x.shape[axis]))

    def check(self) -> None:
        super().check()
        self.expect("the number of dimensions of the indices", len(self.indices), len(self.x.shape))
        for k, (found, n) in enumerate(zip(self.indices, self.x.shape)):
            inside = all(0 <= i < n for i in found)
            self.expect(f"whether the indices lie within dimension {k}", inside, True)
        shape = tuple(len(found) or n for found, n in zip(self.indices, self.x.shape))
        self.expect("the output's shape", self.output.shape, shape)


def _wide(shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """(sizes, places) of the dimensions of more than 1."""
    places = [k for k, n in enumerate(shape) if n > 1]
    return [shape[k] for k in places], places
