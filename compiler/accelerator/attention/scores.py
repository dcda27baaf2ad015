"""The plan of attention on chip: what is loaded at a time, and which entries hold what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ....hw.config import Config
from ... import graph as g
from ..direct.on_chip import KEPT
from . import lanes, root

_SLOTS = 4  # of tiles of keys and values: the next are loaded while one is multiplied


@dataclass(frozen=True)
class Plan:
    """`chunks` queries of each of `groups` groups; `tiles` blocks of positions; `keys` and `values` are their parts.

    They are the queries of `rows` tokens, which are together on chip. A key has `wide` blocks, a value `deep`. Keys are
    loaded `wide_at_once` blocks at a time, for all positions, values `tiles_at_once` tiles of positions.
    """

    rows: int
    chunks: int
    groups: int
    tiles: int
    wide: int
    deep: int
    keys: list[lanes.Part] = field(repr=False)
    values: list[lanes.Part] = field(repr=False)
    wide_at_once: int
    tiles_at_once: int

    @property
    def heads(self) -> int:
        """Queries."""
        return self.chunks * self.groups

    @property
    def scores(self) -> int:
        """Entries of scores."""
        return self.heads * self.tiles

    @property
    def slot(self) -> int:
        """Weight entries that are loaded at a time."""
        return max(self.wide_at_once * self.tiles, self.tiles_at_once * self.deep)

    @property
    def slots(self) -> int:
        """How many of them are on chip."""
        return min(_SLOTS, -(-self.wide // self.wide_at_once) + -(-self.tiles // self.tiles_at_once))

    def key_loads(self) -> Iterator[tuple[int, int]]:
        """(first block, blocks) of each load of keys."""
        return ((k, min(self.wide_at_once, self.wide - k)) for k in range(0, self.wide, self.wide_at_once))

    def value_loads(self) -> Iterator[tuple[int, int]]:
        """(first tile, tiles) of each load of values."""
        return ((k, min(self.tiles_at_once, self.tiles - k)) for k in range(0, self.tiles, self.tiles_at_once))

    def masks(self) -> np.ndarray:
        """The distinct masks of keys, int8 (n, lanes)."""
        return np.unique([part.mask for part in self.keys], axis=0)


def plan_of(op: g.Attention, cfg: Config) -> Plan:
    """The plan of `op`, of as many of its tokens together as fit, or of one."""
    plan = _of_rows(op, cfg, op.tokens)
    while plan.rows > 1 and _too_much(plan, cfg):
        plan = _of_rows(op, cfg, -(-plan.rows // 2))
    return plan


def _of_rows(op: g.Attention, cfg: Config, rows: int) -> Plan:
    block, keys, values = cfg.block_in, op.inputs[1].shape, op.inputs[2].shape
    tiles, wide, deep = -(-op.seen // block), -(-keys[1] // block), -(-values[2] // block)
    most = max(1, cfg.wgt_depth // (2 * _SLOTS))
    found = lanes.of_keys(op, block), lanes.of_values(op, block)
    at_once = min(wide, max(1, most // tiles)), min(tiles, max(1, most // deep))
    return Plan(rows, rows * op.chunks, len(lanes.groups_of(op)), tiles, wide, deep, *found, *at_once)


def refusal(op: g.Attention, cfg: Config) -> str:
    """Reason why the accelerator cannot run it; empty if it can."""
    if why := root.needs(cfg):
        return why
    block, keys, values = cfg.block_in, op.inputs[1].shape, op.inputs[2].shape
    if keys[2] % block or values[2] % block:
        return f"{keys[2]} positions, values of {values[2]} elements: must be whole blocks of {block}"
    if op.tokens not in (1, block) or op.tokens > 1 and op.seen % block:
        return f"{op.tokens} tokens, {op.seen} positions: must be one, or {block} and whole blocks of as many"
    if op.tokens * op.chunks > 1 and keys[1] % block:
        many = f"{op.chunks} chunks" if op.chunks > 1 else f"{op.tokens} tokens"
        return f"keys of {keys[1]} elements: must be whole blocks of {block} where there are {many}"
    wrong = _too_much(plan_of(op, cfg), cfg)
    return f"it needs {wrong}" if wrong else ""


def _too_much(plan: Plan, cfg: Config) -> str:
    """What of the plan does not fit the scratchpads; empty if all does."""
    needs = {
        "accumulators": (max(accumulators(plan)), cfg.acc_depth // 2),
        "input entries": (plan.chunks * (plan.wide + len(plan.keys)) + plan.scores, cfg.inp_depth),
        "weight entries": (plan.slots * plan.slot, cfg.wgt_depth - max(len(plan.masks()), cfg.wgt_depth // KEPT)),
    }
    return next((f"{count} {what}: at most {most}" for what, (count, most) in needs.items() if count > most), "")


def accumulators(plan: Plan) -> tuple[int, int]:
    """Entries in each bank."""
    results = plan.chunks * (len(plan.values) + plan.deep)
    queries = plan.chunks * len(plan.keys)
    sums = plan.chunks * (len(plan.values) + root.COPIES * plan.deep) + len(plan.values)
    return plan.scores + results, queries + 2 * plan.heads + plan.rows * plan.tiles + sums
