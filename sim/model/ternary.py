"""TERNARY, the fast form of sim/spec.py's: a product of GEMM with one loop more, over the blocks of an entry.

A trip of it goes on by one block of weights and by one plane of accumulators.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...hw.config import Config
from ...hw.errors import AccessError
from ...hw.isa import Mem
from .gemm import Product, multiplied, reset, scaled_weights
from .loops import DST, Axis, Nest, uses
from .state import Action, State, loop_action


class Ternary(Product):
    """A product whose weight index counts blocks of ternary weights."""

    weights = Mem.TWGT

    @classmethod
    def blocks(cls, cfg: Config) -> int:
        """Blocks of an entry of weights."""
        return cfg.ternary_blocks


def ternary_action(state: State, f: dict[str, int]) -> Action:
    """The action of the decoded TERNARY `f`."""
    overwrite = bool(f.get("overwrite"))

    def prepare(nest: Nest) -> Iterator[Action]:
        _check_planes(state, nest)
        whole = _with_blocks(state.cfg, nest)
        return reset(state, whole) if f["reset"] else multiplied(state, whole, Ternary, overwrite)

    return loop_action(state, f, prepare)


def _with_blocks(cfg: Config, nest: Nest) -> Nest:
    """`nest` with the loop over blocks, the innermost, and weights counted by blocks."""
    found = scaled_weights(nest, cfg.ternary_blocks)
    blocks = Axis(cfg.ternary_blocks, (cfg.plane_depth, 0, 1))
    return Nest(found.base, (*found.axes, *([blocks] if blocks.n > 1 else [])))


def _check_planes(state: State, nest: Nest) -> None:
    """Raise `AccessError` unless all accumulators of `nest` are in the first plane of a bank."""
    low, high = nest.limits(DST)
    state.check(Mem.ACC, low, high)
    plane, bank = state.cfg.plane_depth, state.cfg.bank_depth
    entries = np.flatnonzero(uses(nest.axes, DST)) + low
    outside = entries[entries % bank >= plane]
    if len(outside):
        raise AccessError(
            f"ACC entry {outside[0]} is not in the first plane of a bank, {plane} of every {bank} entries"
        )
