"""Tiles by timing: the cost model's best candidates as programs in the timing model, and a cache of results."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...hw.config import Config
from ...hw.errors import CapacityError, ScheduleError
from ...runtime.files import cache_folder
from ...sim.dram import ZYNQ_HP, Dram, unshared
from .. import cost
from ..cache import read_json, sources, write_json
from ..tile import Tile
from .known import KnownTiles, tile_from

if TYPE_CHECKING:
    from ..schedule.layer import Layer
    from ..tvm_compat import Schedule

_MOST_FILES = 4096  # tiles in the cache; the least recently used are removed


@dataclass(frozen=True)
class Search:
    """Times a layer's `candidates` cheapest tiles and some others, with memory `dram`, and chooses the fastest.

    Among the others is the tile that is `known` for the layer.

    Results are cached on disk by all that they depend on: layer, configuration, memory and the compiler's sources. If
    the cache cannot be read or written, tiles are timed again.
    """

    candidates: int = 3
    dram: Dram = ZYNQ_HP
    known: KnownTiles = KnownTiles()

    def tile(self, layer: Layer, vthreads: int) -> Tile:
        """The fastest tile of a layer with at most `vthreads` virtual threads.

        Raises `CapacityError` if no tile fits.
        """
        file = cache_folder("tiles") / f"{self._digest(layer, vthreads)}.json"
        found = _read(file)
        if found is None:
            with cost.on_memory(self.dram, layer.cfg):
                tiles = layer.promising(vthreads, self.candidates)
                if self.known.tiles:
                    tiles = list(dict.fromkeys([*tiles, self.known.tile(layer, vthreads)]))
            found = min(tiles, key=lambda tile: self.cycles(partial(layer.scheduled, tile), layer.cfg))
            write_json(file, dataclasses.asdict(found), _MOST_FILES)
        return found

    def cycles(self, schedule: Callable[[], Schedule], cfg: Config) -> float:
        """Cycles of a schedule's program; infinite if it does not fit the scratchpads."""
        from ...sim.timing import predict
        from ..api import build

        try:
            return predict(build(schedule(), cfg), cfg, unshared(cfg, self.dram)).cycles
        except CapacityError:
            return float("inf")

    def _digest(self, layer: Layer, vthreads: int) -> str:
        from ..tvm_compat import structural_hash

        fields = {name: value for name, value in layer.cfg.to_dict().items() if name != "name"}
        key = [structural_hash(layer.func), dataclasses.asdict(layer.work), fields, vthreads]
        key += [dataclasses.asdict(self.dram), self.candidates, sources(), self.known.digest]
        return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]


def _read(file: Path) -> Tile | None:
    try:
        return tile_from(read_json(file))
    except (ValueError, TypeError, KeyError, AttributeError, ScheduleError):
        return None
