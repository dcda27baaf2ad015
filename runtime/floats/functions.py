"""float32 functions of one and of two values, as ONNX defines them, by the names of its operators."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

Unary = Callable[[np.ndarray, np.float32, np.float32], np.ndarray]
_F = np.float32
_ONE, _HALF = _F(1), _F(0.5)
_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # of ONNX, where a file leaves them out
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return _ONE / (_ONE + np.exp(-x))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def _hard_sigmoid(x: np.ndarray, alpha: np.float32, beta: np.float32) -> np.ndarray:
    return np.clip(alpha * x + beta, 0, 1)


def _error_function(x: np.ndarray) -> np.ndarray:
    return _erf(x.astype(np.float64)).astype(np.float32)


def _gelu(x: np.ndarray) -> np.ndarray:
    return _HALF * x * (_ONE + _error_function(x / _F(math.sqrt(2))))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return _HALF * x * (_ONE + np.tanh(_F(math.sqrt(2 / math.pi)) * (x + _F(0.044715) * x * x * x)))


def _plain(function: Callable[[np.ndarray], np.ndarray]) -> Unary:
    return lambda x, alpha, beta: function(x)


UNARY: dict[str, Unary] = {
    "Abs": _plain(np.abs),
    "Ceil": _plain(np.ceil),
    "Clip": lambda x, alpha, beta: np.minimum(np.maximum(x, alpha), beta),
    "Cos": _plain(np.cos),
    "Elu": lambda x, alpha, beta: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
    "Erf": _plain(_error_function),
    "Exp": _plain(np.exp),
    "Floor": _plain(np.floor),
    "Gelu": _plain(_gelu),
    "GeluTanh": _plain(_gelu_tanh),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda x, alpha, beta: x * _hard_sigmoid(x, _F(1 / 6), _HALF),
    "LeakyRelu": lambda x, alpha, beta: np.where(x < 0, alpha * x, x),
    "Log": _plain(np.log),
    "Mish": _plain(lambda x: x * np.tanh(_softplus(x))),
    "Neg": _plain(np.negative),
    "Reciprocal": _plain(lambda x: _ONE / x),
    "Relu": _plain(lambda x: np.maximum(x, 0)),
    "Round": _plain(np.rint),
    "Selu": lambda x, alpha, beta: beta * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "Sigmoid": _plain(_sigmoid),
    "Sign": _plain(np.sign),
    "Sin": _plain(np.sin),
    "Softplus": _plain(_softplus),
    "Softsign": _plain(lambda x: x / (_ONE + np.abs(x))),
    "Sqrt": _plain(np.sqrt),
    "Tanh": _plain(np.tanh),
    "ThresholdedRelu": lambda x, alpha, beta: np.where(x > alpha, x, 0),
}
# (alpha, beta) of ONNX where a node leaves them out
DEFAULTS: dict[str, tuple[float, float]] = {
    "Elu": (1.0, 0.0),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01, 0.0),
    "Selu": (_SELU_ALPHA, _SELU_GAMMA),
    "ThresholdedRelu": (1.0, 0.0),
}
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "PRelu": lambda x, slope: np.where(x < 0, slope * x, x),
    "Pow": np.power,
    "Sub": np.subtract,
}
REDUCTIONS: dict[str, Callable[[np.ndarray, tuple[int, ...]], np.ndarray]] = {
    "ReduceL1": lambda x, axes: np.abs(x).sum(axes),
    "ReduceL2": lambda x, axes: np.sqrt(np.square(x).sum(axes)),
    "ReduceMax": lambda x, axes: x.max(axes),
    "ReduceMean": lambda x, axes: x.mean(axes),
    "ReduceMin": lambda x, axes: x.min(axes),
    "ReduceProd": lambda x, axes: x.prod(axes),
    "ReduceSum": lambda x, axes: x.sum(axes),
    "ReduceSumSquare": lambda x, axes: np.square(x).sum(axes),
}


def unary(x: np.ndarray, function: str, alpha: float = 0.0, beta: float = 0.0) -> np.ndarray:
    """float32 `function(x)` of float32 `x`; results that are not finite are those of IEEE 754, without warnings."""
    with np.errstate(all="ignore"):
        return np.asarray(UNARY[function](x, _F(alpha), _F(beta)), np.float32)


def binary(x: np.ndarray, y: np.ndarray, function: str) -> np.ndarray:
    """float32 `function(x, y)`, broadcast; as `unary` for results that are not finite."""
    with np.errstate(all="ignore"):
        return np.asarray(BINARY[function](x, y), np.float32)


def reduced(x: np.ndarray, function: str, axes: tuple[int, ...]) -> np.ndarray:
    """float32 `function` over `axes`, which are dropped."""
    with np.errstate(all="ignore"):
        return np.asarray(REDUCTIONS[function](x, axes), np.float32)
