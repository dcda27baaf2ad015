"""Tiles: the part of a layer that is computed at a time, and the order of the parts."""

from __future__ import annotations

from dataclasses import dataclass

from ..hw.errors import ScheduleError

OUTPUT_DIMS = ("n", "co", "oy", "ox")
ORDERS = (("n", "co", "oy", "ox"), ("n", "oy", "ox", "co"), ("co", "n", "oy", "ox"))
MAX_VTHREADS = 4


@dataclass(frozen=True)
class Tile:
    """Extents of one tile and the order of the loops over tiles.

    `n`, `co` and `ci` count blocks of the packed layout, `oy` and `ox` output pixels; a dense layer has only `n`,
    `co` and `ci`. `order` names the output loops, outermost first; inside them runs the loop over tiles of `ci`. The
    tiles along `thread` are distributed to `vthreads` virtual threads. `inp_slots` and `wgt_slots` limit the tiles of
    that operand on chip; 0 lets the compiler choose.
    """

    n: int = 1
    co: int = 1
    oy: int = 1
    ox: int = 1
    ci: int = 1
    order: tuple[str, ...] = ORDERS[0]
    thread: str = "co"
    vthreads: int = 1
    inp_slots: int = 0
    wgt_slots: int = 0

    def checked(self) -> Tile:
        """Return this tile. Raises `ScheduleError` for values outside their range."""
        least = dict.fromkeys((*OUTPUT_DIMS, "ci"), 1) | {"inp_slots": 0, "wgt_slots": 0}
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise ScheduleError(f"Tile.{name} = {getattr(self, name)}: must be at least {smallest}")
        if sorted(self.order) != sorted(OUTPUT_DIMS):
            raise ScheduleError(f"Tile.order = {self.order}: must name each of {', '.join(OUTPUT_DIMS)} once")
        if self.thread not in OUTPUT_DIMS:
            raise ScheduleError(f"Tile.thread = {self.thread!r}: must be one of {', '.join(OUTPUT_DIMS)}")
        if not 1 <= self.vthreads <= MAX_VTHREADS:
            raise ScheduleError(f"Tile.vthreads = {self.vthreads}: must be 1 to {MAX_VTHREADS}")
        return self
