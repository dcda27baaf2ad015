"""int16 functions as tables of 65,536 entries, by TensorFlow Lite's reference kernels: entry `q + 2**15` is f(q).

Zero points are 0, as everywhere in 16-bit quantisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...hw.errors import InputError
from ...hw.rounding import quantize_multiplier, rescale
from ...runtime.hostops.int16 import HIGH, LOW, interpolated, interpolation_table
from ...runtime.hostops.numbers import UNARY
from .operators import Tensor
from .tables import slopes

_F = np.float32
_EVERY = np.arange(LOW, HIGH + 1)
_UNITS = 24  # steps of the logistic table in one
_LAST = 255  # its last step, from which on the function is 1
# the entries that TensorFlow Lite's logistic table has one step above the nearest value
_RAISED = (
    "4 8 12 14 15 16 17 19 20 21 22 25 27 28 29 30 31 33 34 35 37 39 40 41 43 44 45 46 49 "
    "50 54 62 63 64 66 82 86 93 100 103 112 116 135 255"
)
_POSITIONS = 4096 * 3  # positions in one: 512 between two steps of the logistic table
_LARGEST_SHIFT = 31


def _clamped(values: np.ndarray) -> np.ndarray:
    return np.clip(values, LOW, HIGH).astype(np.int16)


def rescaled(x: Tensor, y: Tensor, low: int = LOW, high: int = HIGH) -> np.ndarray:
    """`clamp(R(q), low, high)`, R by x.scale / y.scale, contract double: a rectifier of its own."""
    return np.clip(rescale(_EVERY, *quantize_multiplier(x.scale / y.scale)), low, high).astype(np.int16)


def absolute(x: Tensor, y: Tensor) -> np.ndarray:
    """`clamp(R(|q|))`, R by x.scale / y.scale where these differ."""
    values = np.abs(_EVERY)
    return _clamped(values if x.scale == y.scale else rescale(values, *quantize_multiplier(x.scale / y.scale)))


def leaky_relu(alpha: float, x: Tensor, y: Tensor) -> np.ndarray:
    """`R(q)`, R by the first of the `slopes`, below zero by the second, which may be negative."""
    above, below = slopes(alpha, x, y)
    falling = np.sign(below).astype(int) * rescale(_EVERY, *quantize_multiplier(abs(below)))
    return _clamped(np.where(_EVERY >= 0, rescale(_EVERY, *quantize_multiplier(above)), falling))


def _logistic_table() -> np.ndarray:
    """logistic(k / 24) in steps of 2**-16, for k from 0 to 255."""
    nearest = np.rint((1 << 16) / (1 + np.exp(-np.arange(_LAST + 1) / _UNITS))).astype(np.int64)
    nearest[[int(k) for k in _RAISED.split()]] += 1
    return nearest


def _positions(x: Tensor, exact_shifts: tuple[int, ...]) -> np.ndarray:
    """Inputs in steps of 1 / 12,288: by a multiplier of 15 bits, or exactly where a scale of 2**-12 is shifted so."""
    fraction, exponent = math.frexp(x.scale)
    shift = exponent - 1 + 12
    if fraction == 0.5 and shift in exact_shifts:
        return _EVERY * (3 << shift)
    multiplier, right = x.scale * _POSITIONS, 0
    while multiplier <= HIGH / 2 and right < _LARGEST_SHIFT:
        multiplier, right = multiplier * 2, right + 1
    if multiplier >= 1 << 15:
        raise InputError(f"an input scale of {x.scale:g}; at most {(1 << 15) / _POSITIONS:g} is allowed")
    return (_EVERY * int(multiplier) + ((1 << right) >> 1)) >> right


def _interpolated(positions: np.ndarray, bits: int, largest: int) -> np.ndarray:
    """The logistic table at |positions| / 2**bits, times 2**bits; `largest` beyond its end."""
    table, size = _logistic_table(), np.abs(positions)
    step, offset = np.minimum(size >> bits, _LAST - 1), size & (1 << bits) - 1
    between = (table[step] << bits) + offset * (table[step + 1] - table[step])
    return np.where(size >> bits >= _LAST, largest, between)


def logistic(x: Tensor, y: Tensor) -> np.ndarray:
    """The logistic function in steps of 2**-15."""
    _expect_unit("logistic", y)
    positions = _positions(x, (0,))
    value = _interpolated(positions, 9, HIGH << 10)
    return _clamped(np.where(positions >= 0, value + (1 << 9), (1 << 25) - value + (1 << 9) - 1) >> 10)


def tanh(x: Tensor, y: Tensor) -> np.ndarray:
    """The hyperbolic tangent in steps of 2**-15: twice the logistic function of twice the input, less 1."""
    _expect_unit("tanh", y)
    positions = _positions(x, (0, 1))
    value, one, half = _interpolated(positions, 8, 0xFFFF << 8), 1 << 23, 1 << 7
    return _clamped(np.where(positions >= 0, value - one + half, one - value + half - 1) >> 8)


def _expect_unit(name: str, y: Tensor) -> None:
    if y.scale != 2.0**-15:
        raise InputError(f"{name} of output scale {y.scale:g}; 16-bit results have {2.0**-15:g}")


def _reciprocal_root(unit: np.float32) -> Callable[[np.ndarray], np.ndarray]:
    """One over the square root; the largest result up to 0."""

    def compute(x: np.ndarray) -> np.ndarray:
        positive = np.where(x > 0, x, _F(1))
        return np.where(x > 0, _F(1) / np.sqrt(positive), _F(HIGH) * unit)

    return compute


def real(name: str, x: Tensor, y: Tensor) -> np.ndarray:
    """A function of real values, `exp`, `rsqrt`, `gelu` or `gelu_tanh`, by a table of 513 entries in float32.

    C's libraries may differ in the last bit of a float32 value, and then a result in its last step.
    """
    ends = [(unit * _F(LOW), unit * _F(HIGH)) for unit in (_F(x.scale), _F(y.scale))]

    def plain(values: np.ndarray) -> np.ndarray:
        return UNARY[name].numpy(values, _F(0), _F(0))

    function = _reciprocal_root(_F(y.scale)) if name == "rsqrt" else plain
    with np.errstate(over="ignore", invalid="ignore"):
        return interpolated(_EVERY, interpolation_table(function, *ends)).astype(np.int16)
