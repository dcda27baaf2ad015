"""Which lanes of which blocks belong to a group of attention: a product of a whole block is masked to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ... import graph as g


@dataclass(frozen=True)
class Part:
    """The lanes of group number `group` in block `block`: `mask` is int8 (lanes,), 1 where one belongs to it."""

    group: int
    block: int
    mask: np.ndarray


def parts(lanes: Sequence[int], groups: Sequence[int], block: int) -> list[Part]:
    """The parts of each of `groups` in blocks of `block` lanes, lane k of group `lanes[k]`: by group, then block."""
    padded = np.concatenate([np.asarray(lanes), np.full(-len(lanes) % block, -1)]).reshape(-1, block)
    found = [(k, b, padded[b] == group) for k, group in enumerate(groups) for b in range(len(padded))]
    return [Part(k, b, mask.astype(np.int8)) for k, b, mask in found if mask.any()]


def groups_of(op: g.Attention) -> list[int]:
    """The groups whose values are means."""
    return sorted(set(op.value_groups) - {-1})


def of_keys(op: g.Attention, block: int) -> list[Part]:
    """The parts of keys."""
    return parts(op.key_groups * 2, groups_of(op), block)


def of_values(op: g.Attention, block: int) -> list[Part]:
    """The parts of values."""
    return parts(op.value_groups, groups_of(op), block)
