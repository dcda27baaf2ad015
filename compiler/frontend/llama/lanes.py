"""Which lane each element of queries, keys and values is in: attention on the accelerator moves no lanes."""

from __future__ import annotations

import numpy as np

from .checkpoint import Sizes

BLOCK = 16  # lanes: halves of keys, and values, are padded to multiples; values wait for as many positions


def padded(count: int) -> int:
    """`count`, or what is above it, as a multiple of 16."""
    return -(-count // BLOCK) * BLOCK


class Lanes:
    """Which row of a matrix gives each lane of queries, keys and values, int; -1 where a lane is padding.

    Keys are two halves: first the even elements of all heads, then the odd ones, so that a rotation turns lanes with
    lanes. Queries are a chunk of that form for each query head that shares a head of keys. `half` and `value_groups`
    are the heads of keys that lanes of half a key, and of values, belong to.
    """

    def __init__(self, sizes: Sizes):
        groups, head = sizes.kv_heads, sizes.head
        chunks = sizes.heads // groups
        starts = np.arange(groups)[:, None] * head
        half = [_filled((starts + np.arange(odd, head, 2)).reshape(-1)) for odd in (0, 1)]
        natural = _filled(np.arange(groups * head))
        self.keys, self.values = np.concatenate(half), natural
        self.queries = np.concatenate([self._shared(self.keys, k, chunks, head) for k in range(chunks)])
        self.outputs = np.concatenate([self._shared(natural, k, chunks, head) for k in range(chunks)])
        self.half, self.value_groups = (tuple(_groups(rows, head)) for rows in (half[0], natural))
        self.pairs = np.where(half[0] < 0, -1, half[0] % head // 2)

    @staticmethod
    def _shared(rows: np.ndarray, chunk: int, chunks: int, head: int) -> np.ndarray:
        """Rows of the query head `chunk` of each head of keys, in place of `rows` of that."""
        return np.where(rows < 0, -1, (rows // head * chunks + chunk) * head + rows % head)


def _filled(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, np.full(padded(len(rows)) - len(rows), -1)])


def _groups(rows: np.ndarray, head: int) -> list[int]:
    return np.where(rows < 0, -1, rows // head).tolist()
