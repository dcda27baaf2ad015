"""Matrix products that stay fast on a busy machine.

The BLAS library behind numpy spreads a large product over threads that wait for each other by spinning. Where another
process holds a core, a product that needs 40 us takes a scheduler's time slice, 8 ms. Products small enough run in the
calling thread alone, so a large one can be cut into such blocks, at about half the speed of two undisturbed threads.
What the products took decides between the two ways; the values are the same.
"""

from __future__ import annotations

import time

import numpy as np

_ALONE = 1 << 18  # multiplications up to which OpenBLAS uses one thread: 4 * 65536
_ALONE_VECTOR = 9000  # the same of a matrix with a vector: below 4 * 2304
_SLOWER = 3  # a whole product that takes this many times what its blocks would take was disturbed
_PENALTY = 64  # products that are cut into blocks after the first disturbance


class Multiplier:
    """`a @ b` of float32 matrices, or of stacks of them."""

    def __init__(self) -> None:
        self._per_blocked = 0.0  # seconds per multiplication in blocks, the best seen; 0: not tried yet
        self._blocked_left, self._penalty = 0, _PENALTY  # products to cut now, and after the next disturbance

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The product, float32 (..., rows of a, columns of b)."""
        rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
        if rows * depth * columns <= (_ALONE if rows > 1 else _ALONE_VECTOR):
            return np.matmul(a, b)
        work = a.size * columns
        began = time.perf_counter()
        if self._blocked_left or not self._per_blocked:
            out = _in_blocks(a, b)
            took = (time.perf_counter() - began) / work
            self._per_blocked = min(took, self._per_blocked) if self._per_blocked else took
            self._blocked_left = max(0, self._blocked_left - 1)
            return out
        out = np.matmul(a, b)
        if time.perf_counter() - began > _SLOWER * work * self._per_blocked:
            self._blocked_left, self._penalty = self._penalty, min(4 * self._penalty, 64 * _PENALTY)
        else:
            self._penalty = max(_PENALTY, self._penalty // 2)
        return out


def _in_blocks(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.ndim == 3:
        return np.stack([_in_blocks(x, y) for x, y in zip(a, b)])
    rows, depth, columns = a.shape[0], a.shape[1], b.shape[1]
    across = min(columns, 64)
    if rows == 1:
        across = min(columns, max(1, _ALONE_VECTOR // depth))
    while across > 16 and across * depth * min(rows, 28) > _ALONE:  # flat blocks are slow
        across //= 2
    down = min(rows, max(1, _ALONE // (across * depth)))
    even = rows - rows % down
    out = np.empty((rows, columns), np.float32)
    for at in range(0, columns, across):
        part = slice(at, at + across)
        blocks = out[:even].reshape(-1, down, columns)[..., part]
        np.matmul(a[:even].reshape(-1, down, depth), b[:, part], out=blocks)
        if even < rows:
            np.matmul(a[even:], b[:, part], out=out[even:, part])
    return out
