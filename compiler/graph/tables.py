"""int8 functions as tables of 256 entries, by TensorFlow Lite's float32 definitions: entry `q + 128` is f(q)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...hw.errors import InputError
from ...hw.rounding import divide_by_power, quantize_multiplier, rescale
from ...runtime.hostops.fixed_point import inverse_root
from .operators import Tensor

_F = np.float32
_ROOT_BITS = 20  # fractional bits of an inverse root
_MOST_SLOPE = 1 << 23  # differences of up to 255, shifted left by the slope's exponent, are within int32


def _logistic(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp(-x) becomes inf, and the quotient 0
        return _F(1) / (_F(1) + np.exp(-x))


def _gelu(x: np.ndarray) -> np.ndarray:
    return _F(0.5) * x * np.array([math.erfc(-float(v) * math.sqrt(0.5)) for v in x], _F)


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return _F(0.5) * x * (_F(1) + np.tanh(_F(math.sqrt(2 / math.pi)) * (x + _F(0.044715) * x * x * x)))


def _quiet(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """`function` with infinities where it has none; where it has no value, 0."""

    def compute(x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.nan_to_num(function(x), nan=0.0, posinf=np.inf, neginf=-np.inf)

    return compute


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "logistic": _logistic,
    "tanh": np.tanh,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "elu": lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x),
    "exp": _quiet(np.exp),
    "log": _quiet(lambda x: np.log(np.maximum(x, 0))),
    "rsqrt": _quiet(lambda x: _F(1) / np.sqrt(x)),
}


def round_away(x: np.ndarray) -> np.ndarray:
    """Round to the nearest integer, ties away from zero, in the type of `x`."""
    half: Any = x.dtype.type(0.5)
    up: np.ndarray = np.floor(x + half)
    return np.where(x >= 0, up, np.ceil(x - half))


def table(function: str, x: Tensor, y: Tensor) -> np.ndarray:
    """int8 (256,): `clamp(round(f(x.scale * (q - x.zero_point)) / y.scale) + y.zero_point)`, ties away from zero."""
    real = FUNCTIONS[function]((_F(x.scale) * (np.arange(-128, 128) - x.zero_point)).astype(_F)).astype(_F)
    return np.clip(round_away(real / _F(y.scale)) + y.zero_point, -128, 127).astype(np.int8)


def square_root(x: Tensor, y: Tensor) -> np.ndarray:
    """int8 (256,): the square root of `x`, whose fraction the kernel cuts off; 0 below the zero point."""
    real = np.sqrt((_F(x.scale) * np.maximum(np.arange(-128, 128) - x.zero_point, 0)).astype(_F))
    return np.clip(np.floor(real / _F(y.scale)) + y.zero_point, -128, 127).astype(np.int8)


def inverse_square_root(x: Tensor, y: Tensor) -> np.ndarray:
    """int8 (256,): one over the square root, in the fixed point of TensorFlow Lite's reference kernel.

    The largest value at the input's zero point; the output's zero point below it, where the kernel refuses the input.
    """
    d = np.arange(-128, 128) - x.zero_point
    multiplier, exponent = inverse_root(np.maximum(d, 0))
    root = rescale(np.ones_like(d), multiplier, exponent + _ROOT_BITS)
    scale, shift = quantize_multiplier(1 / (math.sqrt(x.scale) * y.scale))
    found = np.where(d > 0, rescale(root, scale, shift - _ROOT_BITS), np.where(d == 0, 255, 0))
    return np.clip(found + y.zero_point, -128, 127).astype(np.int8)


def slopes(alpha: float, x: Tensor, y: Tensor) -> tuple[float, float]:
    """`x.scale / y.scale`, and that times alpha, in float32. Raises `InputError` where a product would leave int32."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = _F(x.scale) / _F(y.scale), _F(x.scale) * _F(alpha) / _F(y.scale)
    for slope in found:
        if not abs(slope) < _MOST_SLOPE:
            raise InputError(f"a slope of {slope:g} output steps per input step; its size must be below {_MOST_SLOPE}")
    return float(found[0]), float(found[1])


def leaky_relu(alpha: float, x: Tensor, y: Tensor) -> np.ndarray:
    """int8 (256,): `y.zero_point + R(q - x.zero_point)`, R by the first of the `slopes`, below zero by the second."""
    d = np.arange(-128, 128) - x.zero_point
    above, below = (rescale(d, *quantize_multiplier(slope)) for slope in slopes(alpha, x, y))
    return np.clip(np.where(d >= 0, above, below) + y.zero_point, -128, 127).astype(np.int8)


def copied(x: Tensor, y: Tensor) -> np.ndarray:
    """int8 (256,): the same real value in another quantisation, as a uint8 file's CONCATENATION computes it.

    In float32, by values and zero points as the file has them: `round(q * s - z * s)`, s the ratio of the scales.
    """
    ratio = _F(x.scale) * (_F(1) / _F(y.scale))
    steps = np.arange(256, dtype=_F) * ratio + _F(-(x.zero_point + 128)) * ratio
    return np.clip(round_away(steps) + y.zero_point, -128, 127).astype(np.int8)


def absolute(x: Tensor, y: Tensor) -> np.ndarray:
    """int8 (256,): `clamp(y.zero_point + R(|q - x.zero_point|))`, R by x.scale / y.scale where these differ."""
    d = np.abs(np.arange(-128, 128) - x.zero_point)
    if x.scale != y.scale:
        d = rescale(d, *quantize_multiplier(float(np.float64(x.scale) / np.float64(y.scale))))
    return np.clip(d + y.zero_point, -128, 127).astype(np.int8)


def negative(x: Tensor, y: Tensor) -> np.ndarray:
    """int8 (256,): `-q`, where -128 stays.

    Raises `InputError` unless both zero points are 0 and the scales are equal: TensorFlow Lite's kernel ignores them.
    """
    if (x.scale, x.zero_point, y.zero_point) != (y.scale, 0, 0):
        raise InputError(
            f"neg of scale {x.scale:g} and zero point {x.zero_point} to {y.scale:g} and {y.zero_point}; the kernel "
            "negates the bytes: scales must be equal and zero points 0"
        )
    return (-np.arange(-128, 128)).astype(np.int8)


def _short_multiplier(factor: np.float32) -> tuple[int, int]:
    """(multiplier of 15 bits after the point, exponent)."""
    multiplier, exponent = quantize_multiplier(float(factor))
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1), exponent


def _short_product(a: np.ndarray, b: np.ndarray | int, nudge: bool) -> np.ndarray:
    """`a * b / 2**15` of 16-bit values, towards zero, or with `nudge` to the nearest, ties away from zero."""
    product = np.asarray(a, np.int64) * b
    whole = np.abs(product) + ((1 << 14) - (product < 0) if nudge else 0)
    return np.clip(np.sign(product) * (whole >> 15), -(1 << 15), (1 << 15) - 1)


def hard_swish(x: Tensor, y: Tensor) -> np.ndarray:
    """int8 (256,): `x * clamp(x + 3, 0, 6) / 6` in the 16-bit fixed point of TensorFlow Lite's reference kernel.

    Raises `InputError` where the output's scale is below the input's by 128 times or more.
    """
    fine = _F(1 / 128) * _F(x.scale)
    by_output, by_slope = _short_multiplier(fine / _F(y.scale)), _short_multiplier(fine / _F(3 / 32768))
    if by_output[1] > 0:
        raise InputError(f"hard_swish of input scale {x.scale:g} to output scale {y.scale:g}: too small")
    value = (np.arange(-128, 128) - x.zero_point) << 7
    scaled, slope = _short_product(value, by_output[0], True), value
    low, high = -(1 << 15), (1 << 15) - 1
    if by_slope[1] > 0:
        slope = np.clip(slope << by_slope[1] - 1, low, high)
    slope = _short_product(slope, by_slope[0], True)
    if by_slope[1] > 0:
        slope = np.clip(slope << 1, low, high)
    if by_slope[1] < 0:
        slope = divide_by_power(slope, -by_slope[1])
    slope = (slope + (1 << 15)) >> 1
    result = divide_by_power(_short_product(slope, scaled, False), -by_output[1])
    return np.clip(result + y.zero_point, -128, 127).astype(np.int8)
