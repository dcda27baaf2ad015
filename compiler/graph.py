"""Quantised networks: int8 tensors with a scale and a zero point, and the operators between them.

A tensor's real value is `scale * (q - zero_point)`. Activations are NCHW or (N, features); a convolution's weights
are (O, I, kh, kw), a dense layer's (O, I), int8 without zero point, with one scale per output channel. Both compute

    acc = bias + sum((x - x.zero_point) * weight)                 int32, wrapping
    y = clamp(y.zero_point + R(acc), low, high)                   R: hw/rounding.py

R multiplies by `x.scale * weight_scale / y.scale`; an activation function (ReLU, clip) is the clamp. Padding has the
real value 0, that is `x.zero_point`. Front ends make graphs; compiler/reference.py defines what they compute and
compiler/network.py makes executables of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..hw.errors import InputError
from ..hw.rounding import quantize_multiplier


@dataclass(frozen=True)
class Tensor:
    """A named activation: `int8` with scale and zero point, or `float32`. The first dimension is the batch."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "int8"
    scale: float = 1.0
    zero_point: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in ("int8", "float32"):
            raise InputError(f"tensor {self.name!r}: dtype {self.dtype!r} must be int8 or float32")
        if not self.shape or min(self.shape) < 1:
            raise InputError(f"tensor {self.name!r}: shape {self.shape}: every dimension must be at least 1")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"tensor {self.name!r}: scale {self.scale} must be positive and finite")
        if not -128 <= self.zero_point <= 127:
            raise InputError(f"tensor {self.name!r}: zero point {self.zero_point} is outside -128..127")


@dataclass(frozen=True, eq=False)
class Op:
    """An operator: named, with its input tensors and its output."""

    name: str
    inputs: tuple[Tensor, ...]
    output: Tensor

    def __post_init__(self) -> None:
        self.check()

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.inputs[0]

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates: spatial padding counts, padded channels do not."""
        return 0

    def check(self) -> None:
        """Raise `InputError` where parameters and shapes do not fit together."""

    def expect(self, what: str, value: object, allowed: object) -> None:
        """Raise `InputError` unless `value` equals `allowed`."""
        if value != allowed:
            raise InputError(f"{type(self).__name__} {self.name!r}: {what} is {value}, expected {allowed}")


@dataclass(frozen=True, eq=False)
class Quantize(Op):
    """float32 -> int8: `clamp(round_half_even(x / scale) + zero_point, -128, 127)`, in float32."""

    def check(self) -> None:
        """Raise `InputError` unless it is float32 -> int8 of one shape."""
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("float32", "int8"))
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class Dequantize(Op):
    """int8 -> float32: `float32(q - zero_point) * float32(scale)`."""

    def check(self) -> None:
        """Raise `InputError` unless it is int8 -> float32 of one shape."""
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int8", "float32"))
        self.expect("the output's shape", self.output.shape, self.x.shape)


@dataclass(frozen=True, eq=False)
class Linear(Op):
    """What convolutions and dense layers share: int8 weights, int32 biases, requantisation and clamp."""

    weight: np.ndarray
    weight_scale: np.ndarray
    bias: np.ndarray
    low: int = -128
    high: int = 127

    def check(self) -> None:
        """Raise `InputError` where weights, scales and biases do not fit together."""
        channels = self.weight.shape[0]
        self.expect("the weights' dtype", str(self.weight.dtype), "int8")
        self.expect("the biases' dtype", str(self.bias.dtype), "int32")
        self.expect("the scales' shape", self.weight_scale.shape, (channels,))
        self.expect("the biases' shape", self.bias.shape, (channels,))
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int8", "int8"))
        if not -128 <= self.low <= self.high <= 127:
            raise InputError(f"{type(self).__name__} {self.name!r}: clamp {self.low}..{self.high} is not within int8")

    @property
    def folded_bias(self) -> np.ndarray:
        """int32 (O,): `bias - x.zero_point * sum(weight)`, so that `acc = folded_bias + sum(x * weight)`."""
        sums = self.weight.reshape(len(self.weight), -1).sum(1, dtype=np.int64)
        return (self.bias - self.x.zero_point * sums).astype(np.int32)  # wraps as the accumulator does

    @property
    def multipliers(self) -> tuple[np.ndarray, np.ndarray]:
        """(multipliers, exponents), int64 (O,), of the requantisation; see hw/rounding.py."""
        scales = np.float64(self.x.scale) * self.weight_scale.astype(np.float64) / np.float64(self.output.scale)
        pairs = np.array([quantize_multiplier(s) for s in scales], np.int64)
        return pairs[:, 0], pairs[:, 1]


@dataclass(frozen=True, eq=False)
class QConv2d(Linear):
    """Convolution, NCHW. `strides` and `dilations` are (h, w), `pads` (top, left, bottom, right)."""

    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)

    def check(self) -> None:
        """Raise `InputError` where the shapes do not fit together."""
        super().check()
        self.expect("the number of dimensions", (len(self.x.shape), self.weight.ndim), (4, 4))
        n, c, h, w = self.x.shape
        self.expect("the number of input channels", self.weight.shape[1], c)
        kernel = tuple((k - 1) * d + 1 for k, d in zip(self.weight.shape[2:], self.dilations))
        size = pooled((h, w), kernel, self.strides, self.pads)
        self.expect("the output's shape", self.output.shape, (n, self.weight.shape[0], *size))

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates: spatial padding counts, padded channels do not."""
        return math.prod(self.output.shape) * math.prod(self.weight.shape[1:])


@dataclass(frozen=True, eq=False)
class QDense(Linear):
    """Dense layer on (N, I)."""

    def check(self) -> None:
        """Raise `InputError` where the shapes do not fit together."""
        super().check()
        self.expect("the number of dimensions", (len(self.x.shape), self.weight.ndim), (2, 2))
        self.expect("the number of input features", self.weight.shape[1], self.x.shape[1])
        self.expect("the output's shape", self.output.shape, (self.x.shape[0], self.weight.shape[0]))

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates: padded channels do not count."""
        return self.x.shape[0] * self.weight.size


@dataclass(frozen=True, eq=False)
class Pool(Op):
    """What pooling operators share: windows of `kernel` elements (h, w), moved by `strides`, NCHW."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    def check(self) -> None:
        """Raise `InputError` where the shapes do not fit together."""
        self.expect("the conversion", (self.x.dtype, self.output.dtype), ("int8", "int8"))
        self.expect("the number of dimensions", len(self.x.shape), 4)
        size = pooled(self.x.shape[2:], self.kernel, self.strides, self.pads)
        self.expect("the output's shape", self.output.shape, (*self.x.shape[:2], *size))


@dataclass(frozen=True, eq=False)
class MaxPool(Pool):
    """The largest element of each window; padding never wins. Scale and zero point stay."""

    def check(self) -> None:
        """Raise `InputError` where shapes or scales do not fit together."""
        super().check()
        expect_same_scale(self)


@dataclass(frozen=True, eq=False)
class AveragePool(Pool):
    """Mean of each window, padding excluded by having none:
    `clamp(y.zero_point + R(sum(x - x.zero_point)))`, R by `x.scale / (y.scale * window size)`."""

    def check(self) -> None:
        """Raise `InputError` where the shapes do not fit together, or there is padding."""
        super().check()
        self.expect("the padding", self.pads, (0, 0, 0, 0))

    @property
    def multipliers(self) -> tuple[int, int]:
        """(multiplier, exponent) of the requantisation."""
        return quantize_multiplier(np.float64(self.x.scale) / np.float64(self.output.scale) / math.prod(self.kernel))


@dataclass(frozen=True, eq=False)
class Reshape(Op):
    """The same elements in another shape (also what ONNX calls Flatten)."""

    def check(self) -> None:
        """Raise `InputError` where element counts or scales differ."""
        self.expect("the number of elements", math.prod(self.output.shape), math.prod(self.x.shape))
        expect_same_scale(self)


def pooled(
    size: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, int], pads: tuple[int, int, int, int]
) -> tuple[int, int]:
    """Output (h, w) of windows of `kernel` elements on `size` elements with padding (top, left, bottom, right)."""
    h, w = ((n + pads[k] + pads[k + 2] - kernel[k]) // strides[k] + 1 for k, n in enumerate(size))
    return h, w


def expect_same_scale(op: Op) -> None:
    """Raise `InputError` where the output is not quantised as the input is."""
    facts = [(t.dtype, t.scale, t.zero_point) for t in (op.output, op.x)]
    op.expect("the output's quantisation (dtype, scale, zero point)", facts[0], facts[1])


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: operators in an order in which they can run.

    Raises `InputError` where a tensor is used before something produces it, or a name is used twice.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    ops: tuple[Op, ...]

    def __post_init__(self) -> None:
        known: set[str] = set()
        for t in (*self.inputs, *(op.output for op in self.ops)):
            if t.name in known:
                raise InputError(f"graph {self.name!r}: two tensors are called {t.name!r}")
            known.add(t.name)
        if len({op.name for op in self.ops}) < len(self.ops):
            raise InputError(f"graph {self.name!r}: two operators have the same name")
        ready = {t.name for t in self.inputs}
        for op in self.ops:
            for t in op.inputs:
                if t.name not in ready:
                    raise InputError(f"graph {self.name!r}: {op.name!r} needs {t.name!r} before anything produces it")
            ready.add(op.output.name)
        for t in self.outputs:
            if t.name not in ready:
                raise InputError(f"graph {self.name!r}: nothing produces output {t.name!r}")

    @property
    def layers(self) -> tuple[Linear, ...]:
        """The convolutions and dense layers."""
        return tuple(op for op in self.ops if isinstance(op, Linear))

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one run."""
        return sum(op.macs for op in self.ops)
