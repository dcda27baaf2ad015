"""Weights of 4 bits: integers from -8 to 7, times a 4-bit scale for each group of 16 inputs of an output channel.

The products are int8, so that a matrix of such weights is a `Matrix` like any other. They are rounded as in GPTQ (arXiv
2210.17323): the inputs of a matrix one after the other, the error of each made good by those that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....hw.errors import FileError
from .checkpoint import Checkpoint, Layer
from .floats import FloatLlama, Observe
from .quantise import MATRICES, Matrix
from .step import BLOCK, Lanes, padded

WEIGHT_BITS = 4
_LOW, _HIGH, _MOST_SCALE = -8, 7, 15
_TRIED = 6  # integer scales of a group: the one that holds all its weights, and those below
_DAMPING = (
    0.01  # times the mean of the diagonal, added to it: inputs that calibration hardly saw stay nearly as they are
)
_LEAST = 1e-9  # that a row's largest weight counts as
# the value that matrices read, with those matrices, and the residual to which these add
_READERS = {
    "attention_in": ("queries", "keys", "values"),
    "attention": ("attention_out",),
    "hidden_in": ("gate", "up"),
    "hidden": ("hidden_out",),
}
_RESIDUAL = {"middle": "attention", "end": "hidden"}  # after the value that is added to it


def few_bit_matrices(model: Checkpoint, texts: Sequence[Sequence[int]], static: bool) -> dict[str, Matrix]:
    """The matrices of all layers, by name, (layers, outputs, inputs), rounded for the inputs that `texts` give them.

    Groups are of neighbouring inputs as the form's graph has them: with `static`, attention's outputs are in the order
    of `Lanes`, and inputs that a norm multiplies by a gain below 0 have the opposite sign. Each layer is rounded for
    the outputs of the rounded layers before it. Raises `FileError` where float32 overflows.
    """
    rounded_layers = list[dict[str, Matrix]]()
    rows = [model.embedding[np.asarray(text)] for text in texts if len(text)]
    lanes = Lanes(model.sizes).outputs.reshape(-1, BLOCK)
    for layer in model.layers:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
            moments, matrices = _moments(model, layer, rows), dict[str, Matrix]()
        if not all(np.isfinite(moment).all() for moment in moments.values()):
            raise FileError(f"{model.name}: its values overflow float32; the weights are too large, or damaged")
        gains = {"attention_in": layer.attention_norm, "hidden_in": layer.hidden_norm}
        for value, names in _READERS.items():
            width = len(moments[value])
            natural = np.append(np.arange(width), np.full(padded(width) - width, -1)).reshape(-1, BLOCK)
            groups = lanes if static and value == "attention" else natural
            signs = np.where(gains[value] < 0, -1, 1) if static and value in gains else np.ones(width, np.int64)
            weight = np.concatenate([getattr(layer, name) for name in names])
            found = rounded(weight, moments[value], groups, signs)
            ends = np.cumsum([len(getattr(layer, name)) for name in names])
            for name, end in zip(names, ends):
                start = end - len(getattr(layer, name))
                matrices[name] = Matrix(found.values[start:end], found.scales[start:end])
        rounded_layers.append(matrices)
        real = {name: matrix.values * matrix.scales[:, None] for name, matrix in matrices.items()}
        rows = [_one_layer(model, replace(layer, **real), len(x)).layer(0, x) for x in rows]
    return {
        name: Matrix(
            *(np.stack([getattr(each[name], part) for each in rounded_layers]) for part in ("values", "scales"))
        )
        for name in MATRICES
    }


def _one_layer(model: Checkpoint, layer: Layer, context: int, *observe: Observe) -> FloatLlama:
    return FloatLlama(replace(model, layers=(layer,), sizes=replace(model.sizes, layers=1)), context, *observe)


def _moments(model: Checkpoint, layer: Layer, rows: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """float32 (inputs, inputs): sums over tokens of products of each two inputs, of each value in `_READERS`.

    Inputs of matrices that add to the residual are divided by its root mean square: all that reads it is a norm.
    """
    moments, inputs = dict[str, np.ndarray](), dict[str, np.ndarray]()

    def add(name: str, x: np.ndarray) -> None:
        moments[name] = moments.get(name, 0) + x.T @ x

    def observe(name: str, layer: int, x: np.ndarray) -> None:
        if name in _RESIDUAL.values():
            inputs[name] = x
        elif name in _READERS:
            add(name, x)
        elif name in _RESIDUAL:
            value = _RESIDUAL[name]
            add(value, inputs.pop(value) / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(model.epsilon)))

    for x in rows:
        _one_layer(model, layer, len(x), observe).layer(0, x)
    return moments


def rounded(weight: np.ndarray, moments: np.ndarray, groups: np.ndarray, signs: np.ndarray) -> Matrix:
    """The matrix of few bits for float32 `weight` (outputs, inputs) whose inputs have these second `moments`.

    `groups` are the inputs of each group, int (groups, 16), -1 for none. Weights times `signs` (inputs,) are on the
    grid. Groups with the largest inputs are rounded first, so that the others can make good their errors.
    """
    diagonal = np.diagonal(moments).astype(np.float64)
    damped = moments.astype(np.float64) + np.eye(len(diagonal)) * (_DAMPING * diagonal.mean() + _LEAST)
    order = np.argsort([-diagonal[group[group >= 0]].sum() for group in groups], kind="stable")
    parts = [group[group >= 0] for group in groups[order]]
    inputs = np.concatenate(parts)
    # row k says by how much the inputs behind k change for an error of 1 in input k, times the diagonal
    carry = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(inputs, inputs)])).T.astype(np.float32)
    left = np.ascontiguousarray((weight * signs.astype(np.float32)).T[inputs])  # (inputs, outputs)
    step = np.maximum(_scale(left), np.float32(_LEAST)) / np.float32(_MOST_SCALE)  # of the products
    values, at = np.zeros((len(diagonal), len(weight)), np.int8), 0
    for part in parts:
        end = at + len(part)
        factors = carry[at:end, at:end]
        scale = _scales(left[at:end] / step, np.diagonal(factors))
        errors = np.zeros((len(part), len(step)), np.float32)
        for k, number in enumerate(part):
            x = left[at + k] / step
            found = np.clip(np.rint(x / scale), _LOW, _HIGH) * scale
            values[number], errors[k] = found, (x - found) * step / factors[k, k]
            left[at + k + 1 : end] -= np.outer(factors[k, k + 1 :], errors[k])
        left[end:] -= carry[at:end, end:].T @ errors
        at = end
    return Matrix(np.ascontiguousarray((values * signs.astype(np.int8)[:, None]).T), step)


def _scale(x: np.ndarray) -> np.ndarray:
    """float32 (outputs,): the least scale that holds the weights `x` (inputs, outputs)."""
    return np.maximum(x.max(0) / np.float32(_HIGH), x.min(0) / np.float32(_LOW))


def _scales(x: np.ndarray, carry: np.ndarray) -> np.ndarray:
    """float32 (outputs,): the integer scales with the least error of a group's weights `x` (inputs, outputs).

    An error weighs as much as the inputs that follow cannot make good: it is divided by the diagonal of `carry`.
    """
    most = np.clip(np.ceil(_scale(x)), 1, _MOST_SCALE)
    best, least = most, np.full(len(most), np.inf, np.float32)
    for below in range(_TRIED):
        scale = np.maximum(most - below, 1)
        values = np.clip(np.rint(x / scale), _LOW, _HIGH) * scale
        loss = (((x - values) / carry[:, None]) ** 2).sum(0)
        best, least = np.where(loss < least, scale, best), np.minimum(loss, least)
    return best
