"""Limits of a configuration: the largest values of instruction fields, and how networks run on it.

Larger copies are split, operators that need more are refused.
"""

from __future__ import annotations

from functools import lru_cache

from ..hw.config import Config
from ..hw.isa import Isa


@lru_cache
def limits(cfg: Config, name: str) -> dict[str, int]:
    """The largest value of each field of instruction format `name`."""
    return {field.name: field.limits[1] for field in Isa(cfg).formats[name].fields.values()}


def most_padding(cfg: Config) -> int:
    """Most rows or columns of padding that one load adds on any side."""
    return limits(cfg, "LOAD")["x_pad_0"]


def runs_whole_networks(cfg: Config) -> bool:
    """True where networks become one launch with activations that stay packed; else each layer is a launch."""
    whole = {"requant", "acc8", "pad_value", "rescale"} <= cfg.extensions
    # entries of inputs are parts of those that stores write
    blocks = cfg.block_out == cfg.block_in or (cfg.batch == 1 and cfg.block_out % cfg.block_in == 0)
    return whole and blocks and min(cfg.inp_bits, cfg.wgt_bits, cfg.out_bits) == 8


def activations_refused(cfg: Config) -> str:
    """Why `cfg` cannot compute a network's int8 activations; empty if it can."""
    if cfg.inp_bits < 8 or cfg.out_bits < 8:
        return f"inp_bits is {cfg.inp_bits} and out_bits {cfg.out_bits}; int8 activations need 8"
    return ""
