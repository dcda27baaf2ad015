"""Searches for the tile of a layer: `Search` times a few candidates, `KnownTiles` looks up the results of tuning.

`Search` builds programs of the cost model's best tiles, times them in the timing model and caches the fastest on disk.
`known_tiles` reads a database of trials, a `Store` (compiler/jobs.py) with these topics: `tile KEY` of a configuration
and a layer has a record for every trial (tile, cycles or error, device, memory), `network KEY` the tiles that were
chosen for a network by its whole program (compiler/network_tuning.py).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...hw.config import Config
from ...hw.errors import CapacityError, FileError, ScheduleError
from ...runtime.files import cache_folder
from ...sim.dram import ZYNQ_HP, Dram, unshared
from .. import cost
from ..cache import read_json, sources, write_json
from ..cost import memory_facts
from ..jobs import Store, content_key
from ..schedule.layer import Layer, Ready, TileSearch
from ..tile import Tile
from ..tvm_compat import Schedule, structural_hash

if TYPE_CHECKING:
    from ..schedule.layer import Layer
    from ..tvm_compat import Schedule

Record = dict[str, Any]  # a trial in the database: `decisions`, `cycles`, `error`, `first`, `on`, `dram`, `sources`


def circuit(cfg: Config) -> dict[str, object]:
    """Configuration fields except the name, and the memory of the estimates (compiler/cost.py) unless the default."""
    return {name: value for name, value in cfg.to_dict().items() if name != "name"} | memory_facts()


def layer_key(layer: Layer) -> str:
    """Names a layer on a configuration: fingerprint, then a digest of the layer and all fields of the circuit."""
    facts = content_key(structural_hash(layer.func), dataclasses.asdict(layer.work), circuit(layer.cfg))
    return f"{layer.cfg.fingerprint:016x}/{facts}"


def network_key(digest: bytes, cfg: Config, contract: str) -> str:
    """Names a network, by the digest of its file, on a configuration."""
    return f"{cfg.fingerprint:016x}/{content_key(digest.hex(), circuit(cfg), contract)}"


@dataclass(frozen=True)
class KnownTiles:
    """A search, and the `Tiles` of a network: tiles by `layer_key`, else the choice of `otherwise`.

    Without `otherwise` unknown layers get the cost model's choice.
    """

    tiles: Mapping[str, Tile] = field(default_factory=dict)
    otherwise: TileSearch | None = None

    def scheduled(self, ready: Ready) -> Schedule:
        """The schedule that `ready` makes."""
        return ready(search=self)

    def tile(self, layer: Layer, vthreads: int) -> Tile:
        """The known tile of a layer, if it has at most `vthreads` virtual threads."""
        known = self.tiles.get(layer_key(layer))
        if known is not None and known.vthreads <= vthreads:
            return known
        return layer.best(vthreads) if self.otherwise is None else self.otherwise.tile(layer, vthreads)

    @property
    def digest(self) -> str:
        """A digest of the tiles, for caches."""
        return content_key({key: dataclasses.asdict(tile) for key, tile in self.tiles.items()})


def known_tiles(path: str | Path, cfg: Config, network: str = "") -> KnownTiles:
    """The tiles for `cfg` in the database `path`: those chosen for the `network_key`, else the best of each layer.

    Layers whose first tile stayed the fastest have none. Raises `FileError` for a file that is missing or no database
    of tiles.
    """
    if not Path(path).is_file():
        raise FileError(f"{path}: no such database of tiles; make it with tilewright tune MODEL --db {path}")
    with Store(path) as store:
        chosen = store.get(f"network {network}") if network else None
        try:
            if chosen is not None:
                return KnownTiles({key: tile_from(values) for key, values in chosen["tiles"].items()})
            best = {}
            for topic in store.topics(f"tile {cfg.fingerprint:016x}/"):
                for tile in best_tiles((each["value"] for each in store.of(topic)), 1):
                    best[topic.removeprefix("tile ")] = tile
            return KnownTiles(best)
        except (KeyError, TypeError, ValueError, ScheduleError) as exc:
            raise FileError(f"{path}: not a database of tiles ({exc}); give another") from None


def best_tiles(trials: Iterable[Record], count: int, most: float = 1.0) -> list[Tile]:
    """The `count` tiles of the fewest cycles, relative to the first tile by the same measurer, in a layer's `trials`.

    Tiles that take `most` times the cycles of the first tile, or more, are left out.
    """
    groups: dict[str, list[Record]] = {}
    for trial in trials:
        if trial["cycles"] is not None:
            groups.setdefault(json.dumps([trial["on"], trial["dram"], trial["sources"]]), []).append(trial)
    gains: dict[Tile, float] = {}
    for group in groups.values():
        before = next((trial["cycles"] for trial in group if trial["first"]), 0)
        for trial in group:
            if trial["cycles"] < most * before:
                tile = tile_from(trial["decisions"])
                gains[tile] = min(trial["cycles"] / before, gains.get(tile, most))
    return sorted(gains, key=lambda tile: gains[tile])[:count]


def tile_from(values: Mapping[str, Any]) -> Tile:
    """The tile of these values of its fields. Raises `ScheduleError`, TypeError or KeyError for others."""
    return Tile(**{**values, "order": tuple(values["order"])}).checked()


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
