"""Tiles by timing: the cost model's best candidates as programs in the timing model, and a cache of results."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...hw.config import Config
from ...hw.errors import CapacityError, FileError, ScheduleError
from ...runtime.files import atomic_write, sources_digest
from ...sim.dram import ZYNQ_HP, Dram, unshared
from .. import cost
from ..tile import Tile
from .known import KnownTiles, tile_from

if TYPE_CHECKING:
    from ..schedule.layer import Layer
    from ..tvm_compat import Schedule

SOURCES = ("compiler", "hw", "runtime", "sim")  # top folders that determine a program and its cycles
_MOST_FILES = 4096  # tiles in the cache; the least recently used are removed


def cache_folder() -> Path:
    """Folder of cached tiles: `$XDG_CACHE_HOME/tilewright/tiles`, or ~/.cache/tilewright/tiles."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright" / "tiles"


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
        file = cache_folder() / f"{self._digest(layer, vthreads)}.json"
        found = _read(file)
        if found is None:
            with cost.on_memory(self.dram, layer.cfg):
                tiles = layer.promising(vthreads, self.candidates)
                if self.known.tiles:
                    tiles = list(dict.fromkeys([*tiles, self.known.tile(layer, vthreads)]))
            found = min(tiles, key=lambda tile: self.cycles(partial(layer.scheduled, tile), layer.cfg))
            _write(file, found)
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


@functools.cache
def sources() -> str:
    """Digest of the sources that determine the cycles of a tile: compiler, recorder, timing model, and circuit."""
    return sources_digest(*SOURCES)


def _read(file: Path) -> Tile | None:
    try:
        values: Any = json.loads(file.read_text())
        tile = tile_from(values)
        os.utime(file)
        return tile
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ScheduleError):
        return None


def _write(file: Path, tile: Tile) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as temporary:
            temporary.write_text(json.dumps(dataclasses.asdict(tile)))
        _prune(file.parent)
    except (OSError, FileError):
        return


def _prune(folder: Path) -> None:
    files = list(folder.glob("*.json"))
    if len(files) > _MOST_FILES:
        for old in sorted(files, key=lambda file: file.stat().st_mtime)[:-_MOST_FILES]:
            old.unlink(missing_ok=True)
