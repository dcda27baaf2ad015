"""Largest values of the fields of instructions: larger copies are split, operators that need more are refused."""

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
