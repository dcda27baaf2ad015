"""Tiles by timing: the cost model's best candidates as programs in the timing model, and a cache of what was found."""

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

from ..hw import config as hw_config
from ..hw.config import Config
from ..hw.errors import CapacityError, FileError, ScheduleError
from ..runtime.files import atomic_write
from ..sim.dram import ZYNQ_HP, Dram
from .tile import Tile, Work, best_tiles, largest_tile

if TYPE_CHECKING:
    from .tvm_compat import Schedule

_KEPT = 4096  # tiles in the cache; those that were not used for longest go


def cache_folder() -> Path:
    """Where tiles are kept: `$XDG_CACHE_HOME/tilewright/tiles`, or ~/.cache/tilewright/tiles."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright" / "tiles"


@dataclass(frozen=True)
class Search:
    """Times the `candidates` tiles that cost least by the model, and the largest, with memory `dram`: the fastest wins.

    What was found is kept on disk, by all that it depends on: layer, configuration, memory and the compiler's sources.
    A cache that cannot be read or written costs time, nothing else.
    """

    candidates: int = 3
    dram: Dram = ZYNQ_HP

    def tile(self, work: Work, cfg: Config, vthreads: int | None, schedule: partial[Schedule]) -> Tile:
        """The fastest tile of `schedule(tile=...)`, whose keyword arguments describe the layer.

        Raises `CapacityError` where no tile fits.
        """
        threads = 2 if vthreads is None else vthreads
        file = cache_folder() / f"{self._digest(work, cfg, threads, schedule)}.json"
        found = _read(file)
        if found is None:
            tiles = [*best_tiles(work, cfg, threads, self.candidates), largest_tile(work, cfg, threads)]
            found = self._fastest(tiles, cfg, schedule)
            _write(file, found)
        return found

    def _fastest(self, tiles: list[Tile], cfg: Config, schedule: Callable[..., Schedule]) -> Tile:
        return min(tiles, key=lambda tile: self.cycles(partial(schedule, tile=tile), cfg))

    def cycles(self, schedule: Callable[[], Schedule], cfg: Config) -> float:
        """Cycles of a schedule's program; infinite where it does not fit the scratchpads after all."""
        from ..sim.timing import predict
        from .api import build

        try:
            return predict(build(schedule(), cfg), cfg, self.dram).cycles
        except CapacityError:
            return float("inf")

    def _digest(self, work: Work, cfg: Config, threads: int, schedule: partial[Schedule]) -> str:
        fields = {name: value for name, value in cfg.to_dict().items() if name != "name"}
        key = [schedule.func.__name__, schedule.keywords, dataclasses.asdict(work), fields, threads]
        key += [dataclasses.asdict(self.dram), self.candidates, _sources()]
        return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]


@functools.cache
def _sources() -> str:
    """A digest of what turns a tile into cycles: compiler, recorder, timing model, and the circuit's constants."""
    top = Path(hw_config.__file__).parents[1]
    files = [
        file
        for folder in ("compiler", "compiler/schedule", "hw", "runtime", "sim")
        for file in (top / folder).glob("*.py")
    ]
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


def _read(file: Path) -> Tile | None:
    try:
        values: Any = json.loads(file.read_text())
        tile = Tile(**{**values, "order": tuple(values["order"])}).checked()
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
    if len(files) > _KEPT:
        for old in sorted(files, key=lambda file: file.stat().st_mtime)[:-_KEPT]:
            old.unlink(missing_ok=True)
