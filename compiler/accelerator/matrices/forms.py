"""Tensors whose last dimension are features, as images: rows are pixels, features are channels.

An image of rows is (matrices, features, 1, rows). In blocks of channels it has the features of a row in lanes, as a
dense layer wants them, and rows one after the other, as weights want them; heads are whole blocks of its channels.
"""

from __future__ import annotations

import math

import numpy as np

from ... import graph as g

TO_NHWC = (0, 2, 3, 1)


def matrices(shape: tuple[int, ...], nchw: bool) -> tuple[int, int, int]:
    """(matrices, rows, features) of a tensor, whose features are its last dimension; with `nchw` its second."""
    if nchw and len(shape) == 4:
        shape = tuple(shape[k] for k in TO_NHWC)
    *outer, rows, features = (1, 1, *shape)[-max(2, len(shape)) :]
    return math.prod(outer), rows, features


def image_shape(shape: tuple[int, ...], nchw: bool = False) -> tuple[int, int, int, int]:
    """The shape of the image of a tensor."""
    count, rows, features = matrices(shape, nchw)
    return count, features, 1, rows


def to_image(x: np.ndarray, nchw: bool = False) -> np.ndarray:
    """The image of an array."""
    x = x.transpose(TO_NHWC) if nchw and x.ndim == 4 else x
    return np.ascontiguousarray(x.reshape(matrices(x.shape, False)).swapaxes(1, 2)[:, :, None])


def from_image(image: np.ndarray, shape: tuple[int, ...], nchw: bool = False) -> np.ndarray:
    """The array of `shape` whose image this is."""
    rows = image[:, :, 0].swapaxes(1, 2)
    if nchw and len(shape) == 4:
        return rows.reshape([shape[k] for k in TO_NHWC]).transpose(0, 3, 1, 2)
    return rows.reshape(shape)


def moved(op: g.Operator, x: np.ndarray) -> np.ndarray:
    """`x` as the movement `op` leaves it."""
    return x.transpose(op.axes) if isinstance(op, g.Transpose) else x.reshape(op.output.shape)
