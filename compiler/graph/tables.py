"""int8 functions as tables of 256 entries, by TensorFlow Lite's float32 definitions: entry `q + 128` is f(q)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...hw.errors import InputError
from ...hw.rounding import quantize_multiplier, rescale
from .operators import Tensor

_F = np.float32
_MOST_SLOPE = 1 << 23  # differences of up to 255, shifted left by the slope's exponent, are within int32


def _logistic(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp(-x) becomes inf, and the quotient 0
        return _F(1) / (_F(1) + np.exp(-x))


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"logistic": _logistic, "tanh": np.tanh}


def round_away(x: np.ndarray) -> np.ndarray:
    """Round to the nearest integer, ties away from zero, in the type of `x`."""
    return np.where(x >= 0, np.floor(x + x.dtype.type(0.5)), np.ceil(x - x.dtype.type(0.5)))


def table(function: str, x: Tensor, y: Tensor) -> np.ndarray:
    """int8 (256,): `clamp(round(f(x.scale * (q - x.zero_point)) / y.scale) + y.zero_point)`, ties away from zero."""
    real = FUNCTIONS[function]((_F(x.scale) * (np.arange(-128, 128) - x.zero_point)).astype(_F)).astype(_F)
    return np.clip(round_away(real / _F(y.scale)) + y.zero_point, -128, 127).astype(np.int8)


def leaky_relu(alpha: float, x: Tensor, y: Tensor) -> np.ndarray:
    """int8 (256,): `y.zero_point + R(q - x.zero_point)`, R by x.scale / y.scale, times alpha below zero.

    Raises `InputError` where R would leave int32.
    """
    d = np.arange(-128, 128) - x.zero_point
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = _F(x.scale) / _F(y.scale), _F(x.scale) * _F(alpha) / _F(y.scale)
    for slope in slopes:
        if not abs(slope) < _MOST_SLOPE:
            raise InputError(f"a slope of {slope:g} output steps per input step; its size must be below {_MOST_SLOPE}")
    above, below = (rescale(d, *quantize_multiplier(slope)) for slope in slopes)
    return np.clip(np.where(d >= 0, above, below) + y.zero_point, -128, 127).astype(np.int8)


def nearest_even(function: str, x: Tensor, y: Tensor, alpha: float = 0.0) -> np.ndarray:
    """int8 (256,): as ONNX defines dequantising, the function in float32, and quantising: ties to even.

    `alpha` is the slope of `leaky_relu` below zero. Raises `InputError` where a value is not a number.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        real = _F(x.scale) * (np.arange(-128, 128) - x.zero_point).astype(_F)
        real = np.where(real < 0, _F(alpha) * real, real) if function == "leaky_relu" else FUNCTIONS[function](real)
        steps = np.rint(real.astype(_F) / _F(y.scale))
    if np.isnan(steps).any():
        raise InputError(f"{function} of input scale {x.scale:g} and slope {alpha:g} below zero gives no number")
    return np.clip(steps + y.zero_point, -128, 127).astype(np.int8)
