"""The shape of a convolution: one value for operators, schedules, the tile search, direct kernels and benchmarks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TypeVar

import numpy as np

from ..hw.errors import ScheduleError

Size = TypeVar("Size", int, np.ndarray)  # one number, or one per tile
Pair = tuple[int, int]  # (y, x)
Pads = tuple[int, int, int, int]  # (top, left, bottom, right)
_AXES = dict.fromkeys(("kernel", "strides", "dilations"), ("y", "x")) | {"pads": ("top", "left", "bottom", "right")}


def output_size(size: tuple[int, ...], span: tuple[int, ...], strides: Pair, pads: Pads) -> Pair:
    """Rows and columns of windows that span `span` elements, on `size` elements with padding."""
    h, w = ((n + pads[k] + pads[k + 2] - span[k]) // strides[k] + 1 for k, n in enumerate(size))
    return h, w


@dataclass(frozen=True)
class ConvShape:
    """A convolution of `n` images of `c` channels, `h` rows and `w` columns into `o` channels, NCHW.

    `kernel`, `strides` and `dilations` are (y, x), `pads` is (top, left, bottom, right). The channels form `groups`;
    with as many groups as channels it is a depthwise convolution, or the windows of a pooling operator. A dense layer
    is a convolution of one pixel.
    """

    n: int
    c: int
    h: int
    w: int
    o: int
    kernel: Pair = (1, 1)
    strides: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    groups: int = 1

    @property
    def size(self) -> Pair:
        """Rows and columns of the input."""
        return self.h, self.w

    @cached_property
    def span(self) -> Pair:
        """Rows and columns from the first tap of the kernel to the last one, both included."""
        y, x = ((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations))
        return y, x

    @cached_property
    def output(self) -> Pair:
        """Rows and columns of the output."""
        return output_size(self.size, self.span, self.strides, self.pads)

    @property
    def taps(self) -> int:
        """Weights of one input channel for one output channel."""
        return math.prod(self.kernel)

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates: spatial padding counts, padded channels do not. Operations are twice as many."""
        return self.n * self.o * math.prod(self.output) * self.c // self.groups * self.taps

    def reach(self, rows: Size, columns: Size) -> tuple[Size, Size]:
        """Input rows and columns, padding included, that `rows` and `columns` of the output depend on.

        Arguments and results are numbers or numpy arrays.
        """
        (sy, sx), (y, x) = self.strides, self.span
        return (rows - 1) * sy + y, (columns - 1) * sx + x

    def _check_integers(self, layer: str) -> None:
        for name in ("n", "c", "h", "w", "o"):
            value = getattr(self, name)
            if not isinstance(value, Integral):
                what = type(value).__name__
                raise ScheduleError(f"{layer}: {name} is a {what}: must be an integer, for a tensor x as in x.shape[0]")
            if value < 1:
                raise ScheduleError(f"{layer}: {name} = {value}: must be at least 1")
        for name, axes in _AXES.items():
            value = getattr(self, name)
            if not isinstance(value, Sequence) or [isinstance(v, Integral) for v in value] != [True] * len(axes):
                given = str(value) if isinstance(value, (int, tuple, list)) else type(value).__name__
                example = tuple(value)[:1] if isinstance(value, Sequence) else (value,)
                example = example * len(axes) if isinstance(example[0], int) else (1,) * len(axes)
                allowed = f"must be ({', '.join(axes)}), for example {tuple(example)}"
                raise ScheduleError(f"{layer}: {name.removesuffix('s')} = {given}: {allowed}")

    def checked(self, layer: str) -> ConvShape:
        """Return this shape.

        Raises `ScheduleError`, which names `layer`, for sizes that are not integers or an empty output.
        """
        self._check_integers(layer)
        (kh, kw), pads = self.kernel, self.pads
        dilated = f" with dilation {self.dilations}" if self.dilations != (1, 1) else ""
        if min(self.h, self.w, kh, kw, *self.strides, *self.dilations) < 1 or min(pads) < 0:
            sizes = f"input {self.h}x{self.w}, kernel {kh}x{kw}{dilated}, stride {self.strides}, pad {pads}"
            raise ScheduleError(f"{layer}: {sizes}: pad must be at least 0, everything else at least 1")
        if min(self.output) < 1:
            spans = f"{dilated}, which spans {self.span[0]}x{self.span[1]}" if dilated else ""
            raise ScheduleError(
                f"{layer}: an input of {self.h}x{self.w} with pad {pads} is smaller than the kernel of {kh}x{kw}{spans}"
                "; pad it"
            )
        return self
