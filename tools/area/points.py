"""Configurations whose area is counted: some to fit the model of areas, others, drawn before, to test it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import EXTENSIONS, PRESETS, Config
from tilewright.hw.errors import TilewrightError
from tilewright.hw.fields import EXTENSIONS as declared

SEED = 2026
_CHOICES: dict[str, tuple] = {
    "uop_bytes": (1 << 10, 1 << 12, 1 << 14),
    "inp_bytes": (1 << 11, 1 << 13, 1 << 15),
    "wgt_bytes": (1 << 12, 1 << 14, 1 << 16),
    "acc_bytes": (1 << 12, 1 << 14, 1 << 16),
    "par_entries": (8, 32, 64),
    "acc_banks": (1, 2),
    "axi_bits": (32, 64, 128),
    "load_ports": (1, 2),
    "queue_depth": (8, 32, 64),
    "ppu_lanes": (2, 4, 8),
    "dsp_packing": (False, True),
}
_HELD_BLOCKS = ((4, 4), (8, 8)) * 4
_FIT_BLOCKS = ((4, 4), (8, 8), (4, 4), (4, 8), (4, 4), (8, 8), (4, 4), (8, 4)) + ((4, 4), (8, 8)) * 3
_ALL_ON: dict[str, Any] = {
    "uop_bytes": 1 << 12,
    "wgt_bytes": 1 << 12,
    "acc_bytes": 1 << 12,
    "axi_bits": 32,
    "load_ports": 2,
}
_FIRST = 4  # points of the fit that are measured before all of the test
TIMES_OFF = 2  # of each extension, among the points of the test


@dataclass(frozen=True)
class Point:
    """A configuration with its name in the data file; `held` where it tests the fit."""

    name: str
    config: Config
    held: bool


def points(seed: int = SEED) -> list[Point]:
    """The list, in the order in which it is measured: the first ones by turns, small ones of the test first.

    Every extension is off in at least two points of the test.
    """
    draw = random.Random(seed)
    off = _off(draw, len(_HELD_BLOCKS))
    held = [
        Point(f"held{k}", _config(draw, f"held{k}", block, out), True)
        for k, (block, out) in enumerate(zip(_HELD_BLOCKS, off))
    ]
    held.sort(key=lambda point: point.config.macs_per_cycle)
    small = Config(
        name="all_on", block_in=4, block_out=4, par_entries=32, ppu_lanes=4, extensions=EXTENSIONS, **_ALL_ON
    )
    order = [Point("tiny", PRESETS["tiny"], False), Point("all_on", small, False)]
    fit = []
    for k, block in enumerate(_FIT_BLOCKS):
        out = set(draw.sample(sorted(EXTENSIONS), draw.choice((0, 1, 2, 3))))
        fit.append(Point(f"fit{k}", _config(draw, f"fit{k}", block, out), False))
    fit.insert(_FIRST, Point("pynq_z1", PRESETS["pynq_z1"], False))
    for point, test in zip(fit[:_FIRST], held):
        order += [point, test]
    return [*order, *held[_FIRST:], *fit[_FIRST:]]


def _off(draw: random.Random, count: int) -> list[set[str]]:
    """Extensions that each of `count` configurations does without."""
    found: list[set[str]] = [set() for _ in range(count)]
    for name in sorted(EXTENSIONS):
        for place in draw.sample(range(count), TIMES_OFF):
            found[place].add(name)
    return found


def _config(draw: random.Random, name: str, block: Sequence[int], off: set[str]) -> Config:
    """A configuration of that block that can be built, without the extensions `off`."""
    if block[0] != block[1]:
        off = off | {"depthwise"}
    extensions = frozenset(name for name in EXTENSIONS - off if declared[name].extends not in off)
    while True:
        fields = {field: draw.choice(values) for field, values in _CHOICES.items()}
        try:
            config = Config(name=name, block_in=block[0], block_out=block[1], extensions=extensions, **fields)
            check_buildable(config)
            return config
        except TilewrightError:
            continue
