"""Heads that are no whole blocks of channels: their lanes move, and those left over become zeros."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ....hw.config import Config
from ... import graph as g
from ...kernels import language
from ...kernels.channels import Move, Moved, move_channels
from ..recording import Recording


def refusal(op: g.Heads, cfg: Config) -> str:
    """Reason why the accelerator cannot move the heads; empty if it can."""
    if cfg.batch > 1:
        return "images of a batch share blocks"
    return language.why_not(move_channels, _move(op, cfg), cfg)


def cycles(op: g.Heads, cfg: Config) -> float:
    """Cycles of the move, by the timing model."""
    return language.cycles(move_channels, _move(op, cfg), cfg)


def lower(rec: Recording, op: g.Heads) -> None:
    """Append the move."""
    language.lower(move_channels, rec, _move(op, rec.cfg))


@lru_cache(maxsize=64)
def _move(op: g.Heads, cfg: Config) -> Moved:
    """The heads as channels of one image, where each begins a block, from or to channels that follow one another."""
    (n, c, *size), (heads, width, *_) = op.x.shape, op.output.shape
    block, images = cfg.block_in, min(n, heads)
    each, count = min(c, width), max(n, heads) // images
    whole = -(-each // block) * block
    apart = (images, count * whole, *size)
    if heads > n:
        places = tuple((0, k * each + j) if j < each else None for k in range(count) for j in range(whole))
        x, y = op.x, replace(op.output, shape=apart)
    else:
        places = tuple((0, k * whole + j) for k in range(count) for j in range(each))
        x, y = replace(op.x, shape=apart), op.output
    return Moved(op.name, (x,), y, Move(places))
