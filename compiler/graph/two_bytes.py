"""int16 activations with int8 weights: layers are those of both bytes of each value, whose int32 sums are joined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .host_calls import Kernel
from .operators import Operator


@dataclass(frozen=True, eq=False)
class SplitBytes(Operator):
    """int16 (N, ...) -> int8 (2 * N, ...): the high bytes of all values, then the low bytes, less 128."""

    host = (Kernel("split_bytes"),)

    def check(self) -> None:
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int16", "int8"))
        self.expect("the output's shape", self.output.shape, (2 * self.x.shape[0], *self.x.shape[1:]))


@dataclass(frozen=True, eq=False)
class ScaleBytes(Operator):
    """float32 (N, C, ...) results of a layer from the int32 sums (2 * N, C, ...) of the bytes that `SplitBytes` gives.

    `(256 * high + low + (128 - zero_point) * sums) * (scale * weight_scale) + bias`, in float64, rounded once. `scale`
    and the zero point are those of the values, `sums` int32 (C,) those of the weights; the others are float32 (C,).
    """

    host = (Kernel("scale_bytes", "scale zero_point=values_zero_point", "weight_scale bias sums"),)

    scale: float
    values_zero_point: int
    weight_scale: np.ndarray
    bias: np.ndarray
    sums: np.ndarray

    def check(self) -> None:
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int32", "float32"))
        n, *others = self.output.shape
        self.expect("the input's shape", self.x.shape, (2 * n, *others))
        parameters = self.weight_scale, self.bias, self.sums
        expected = [(dtype, (others[0],)) for dtype in ("float32", "float32", "int32")]
        self.expect("the parameters", [(str(each.dtype), each.shape) for each in parameters], expected)
