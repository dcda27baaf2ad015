"""Tuning of whole networks: the tasks of a network, and the choice of tiles for its program.

Each layer is a task whose tiles are tried in a program of the layer alone (compiler/tune/tasks.py). In the network the
loads of a layer overlap the end of the previous layer, so `choose` times the best few tiles of each layer again in the
program of the whole network, in the timing model.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..hw.config import Config
from ..hw.errors import TilewrightError
from ..runtime.executable import Executable
from ..sim.dram import Dram
from . import cost
from .cache import sources
from .frontend import import_model
from .frontend.source import read_source
from .graph import Graph
from .jobs import Outcome, Store, content_key, run
from .network import Compiled, compile_for, compile_graph, faster, launch_cycles
from .schedule.layer import Layer, Ready, capture
from .target.steps import Steps
from .tile import Tile
from .tune.search import KnownTiles, best_tiles, layer_key, network_key, tile_from
from .tune.tasks import Task
from .tvm_compat import Schedule

_ALTERNATIVES = 6  # tiles of a layer that are compared in the whole program
_ALMOST = 1.02  # times the cycles of the first tile: slower tiles are not tried in the whole program


@dataclass(frozen=True)
class Network:
    """A network's file, its digest, and how it is compiled; `dram` is its memory, by default `ZYNQ_HP`.

    `shapes` are those of inputs of open sizes.
    """

    path: Path
    cfg: Config
    contract: str
    digest: bytes
    dram: Dram | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def of(
        cls,
        path: str | Path,
        cfg: Config,
        contract: str | None = None,
        dram: Dram | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> Network:
        """The network at `path`, inputs of open sizes with `shapes` by name. Raises as `read_source`."""
        source = read_source(path, shapes=shapes)
        given = tuple((shapes or {}).items())
        return cls(Path(path), cfg, contract or source.contract, source.digest, dram, given)

    @property
    def key(self) -> str:
        """Key of the network in a database."""
        with cost.on_memory(self.dram, self.cfg):
            return network_key(self.digest, self.cfg, self.contract)

    def tasks(self) -> list[Task]:
        """Distinct layers with schedules, in order. Raises the errors of compiling."""
        with cost.on_memory(self.dram, self.cfg):
            return tasks_of(compile_for(_graph(self), self.cfg), self.cfg)


@lru_cache(maxsize=4)
def _graph(network: Network) -> Graph:
    return import_model(read_source(network.path, shapes=dict(network.shapes)), network.contract)


def tasks_of(compiled: Compiled, cfg: Config) -> list[Task]:
    """The distinct layers with schedules of a compiled network, each with its count.

    Operators that are recorded without a schedule (compiler/kernels/) have no tiles to search.
    """
    layers, assignment = _Layers(), compiled.assignment
    steps = Steps(assignment.graph, cfg, layers)
    for module, ops in assignment.parts():
        module.generate(steps, ops)
    return [dataclasses.replace(task, count=layers.counts[key]) for key, task in layers.tasks.items()]


@dataclass
class _Layers:
    """`Tiles` of a network that notes the layers and leaves their tiles as they are."""

    tasks: dict[str, Task] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def scheduled(self, ready: Ready) -> Schedule:
        scheduled, layer = capture(ready)
        key = layer_key(layer)
        self.tasks.setdefault(key, Task(pickle.dumps(ready), key, _describe(ready, layer)))
        self.counts[key] = self.counts.get(key, 0) + 1
        return scheduled


def _describe(ready: Ready, layer: Layer) -> str:
    """A layer in words: "conv2d 3x3 /2, 16 x 32x32 to 32 x 16x16"."""
    kind, shape = getattr(ready.func, "__name__", "schedule").removesuffix("_of"), layer.work.shape
    if kind == "elementwise":
        return f"elementwise, {shape.n} x {shape.c}"
    if kind == "dense":
        return f"dense, {shape.c} to {shape.o}"
    (kh, kw), (sy, sx), (oy, ox) = shape.kernel, shape.strides, shape.output
    stride = "" if (sy, sx) == (1, 1) else f" /{sy}" if sy == sx else f" /{sy}x{sx}"
    return f"{kind} {kh}x{kw}{stride}, {shape.c} x {shape.h}x{shape.w} to {shape.o} x {oy}x{ox}"


@dataclass(frozen=True)
class Whole:
    """A network with these tiles, fields by name, by the keys of their layers."""

    network: Network
    tiles: Mapping[str, Mapping[str, Any]]

    @property
    def key(self) -> str:
        """The key of its result."""
        return content_key("whole", self.network.key, self.tiles, sources())


def whole_cycles(whole: Whole) -> int | None:
    """Cycles of the network's launches in the timing model; None if these tiles change the steps of the program."""
    network, known = whole.network, {key: tile_from(values) for key, values in whole.tiles.items()}
    plain = _plain(network)
    if not known:
        return launch_cycles(plain, network.dram)
    other = compile_graph(_graph(network), network.cfg, tiles=KnownTiles(known), dram=network.dram)
    return launch_cycles(other, network.dram) if faster(plain, other, network.dram) is other else None


@lru_cache(maxsize=4)
def _plain(network: Network) -> Executable:
    return compile_graph(_graph(network), network.cfg, dram=network.dram)


@dataclass(frozen=True)
class Choice:
    """Tiles for a network by the keys of their layers, and cycles of its launches without and with them."""

    tiles: dict[str, Tile]
    before: int
    after: int


def choose(
    network: Network,
    tasks: Sequence[Task],
    store: Store,
    workers: Executor | None = None,
    on_done: Callable[[Outcome], None] | None = None,
) -> Choice:
    """Choose tiles from the whole history in `store`, one layer after the other, and keep the choice there.

    Of each layer the best few alone are tried in the whole program, and the fastest is taken where the
    program becomes faster than it was. Raises the errors of compiling, and of `run`.
    """

    def cycles(options: Sequence[Mapping[str, Tile]]) -> list[int | None]:
        work = [Whole(network, {key: dataclasses.asdict(t) for key, t in tiles.items()}) for tiles in options]
        topic = f"whole {network.key}"
        outcomes = run(
            whole_cycles,
            work,
            key=attrgetter("key"),
            topic=lambda _: topic,
            store=store,
            workers=workers,
            on_done=on_done,
        )
        return [outcomes[each.key].value for each in work]

    chosen: dict[str, Tile] = {}
    (before,) = cycles([chosen])
    if before is None:
        raise TilewrightError(f"{network.path}: could not be compiled and timed without known tiles")
    after = before
    for task in tasks:
        tiles = best_tiles((each["value"] for each in store.of(f"tile {task.key}")), _ALTERNATIVES, _ALMOST)
        for tile, count in zip(tiles, cycles([{**chosen, task.key: tile} for tile in tiles])):
            if count is not None and count < after:
                after, chosen = count, {**chosen, task.key: tile}
    values = {key: dataclasses.asdict(tile) for key, tile in chosen.items()}
    topic = f"network {network.key}"
    store.put(topic, {"tiles": values, "before": before, "after": after, "network": network.path.name}, topic)
    return Choice(chosen, before, after)
