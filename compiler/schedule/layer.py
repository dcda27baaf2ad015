"""Base of the ready schedules: an expression, and its schedule for any tile that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypedDict

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ..tile import Tile
from ..tvm_compat import PrimFunc, Schedule, te
from . import epilogue as ep
from .tiling import best_tile, best_tiles, largest_tile, ranked_tiles
from .work import Work


@dataclass(frozen=True)
class Layer:
    """A layer before its tile is chosen.

    `func` computes it, `arrange(sch, tile)` schedules it, `work` describes it to the cost model.
    """

    cfg: Config
    func: PrimFunc
    work: Work
    arrange: Callable[[Schedule, Tile], None]

    def best(self, vthreads: int) -> Tile:
        """The tile to use without a search. Raises `CapacityError` if none fits."""
        return best_tile(self.work, self.cfg, vthreads)

    def ranked(self, vthreads: int) -> Iterable[tuple[Tile, float]]:
        """(tile, estimated cycles) of the tiles that fit, the cheapest first.

        They have `vthreads` virtual threads, or as many as fit. Raises `CapacityError` if no tile fits.
        """
        return ranked_tiles(self.work, self.cfg, vthreads)

    def promising(self, vthreads: int, count: int) -> list[Tile]:
        """The `count` cheapest tiles, no two alike in extents and threads, `best` and the largest.

        Raises `CapacityError` if no tile fits.
        """
        others = self.best(vthreads), largest_tile(self.work, self.cfg, vthreads)
        return list(dict.fromkeys([*best_tiles(self.work, self.cfg, vthreads, count), *others]))

    def scheduled(
        self, tile: Tile | None = None, vthreads: int | None = None, search: TileSearch | None = None
    ) -> Schedule:
        """The schedule for `tile`, with `vthreads` where both are given.

        Without a tile it is the choice of `search` for at most `vthreads` virtual threads (default 2), else the
        cheapest. Raises `CapacityError` if no tile fits, `ScheduleError` for an impossible one.
        """
        if tile is None:
            threads = 2 if vthreads is None else vthreads
            tile = self.best(threads) if search is None else search.tile(self, threads)
        elif vthreads is not None:
            tile = replace(tile, vthreads=vthreads)
        sch = Schedule(self.func)
        self.arrange(sch, tile)
        return sch


class OnAlu(Layer):
    """A layer whose data the ALU reads and writes, so that tiles are in accumulators; it ranks its tiles itself."""

    def best(self, vthreads: int) -> Tile:
        """The cheapest tile."""
        return self.promising(vthreads, 1)[0]

    def promising(self, vthreads: int, count: int) -> list[Tile]:
        """The `count` cheapest tiles."""
        return [tile for tile, _ in islice(self.ranked(vthreads), count)]


class Options(TypedDict, total=False):
    """The options of `conv2d`, `depthwise`, `dense` and `pool`: the arguments of `Expression.scheduled`."""

    epilogue: Sequence[ep.Stage]
    planes: bool | int
    tile: Tile | None
    vthreads: int | None
    search: TileSearch | None


class PaddedOptions(Options, total=False):
    """The options of `conv2d` and `depthwise`: also the value of the padding, by default 0."""

    pad_value: int


@dataclass(frozen=True)
class Expression:
    """The expression of a layer, from the tensors `inputs` to its accumulators `acc`, and how to schedule it.

    `arrange(epilogue, sch, tile)` schedules it together with the blocks that an epilogue adds; `kind` is the class of
    its layer.
    """

    cfg: Config
    work: Work
    inputs: tuple[Any, ...]
    acc: Any
    arrange: Callable[[ep.Epilogue, Schedule, Tile], None]
    kind: type[Layer] = Layer

    def scheduled(
        self,
        epilogue: Sequence[ep.Stage] = (),
        planes: bool | int = False,
        tile: Tile | None = None,
        vthreads: int | None = None,
        search: TileSearch | None = None,
    ) -> Schedule:
        """The schedule with an epilogue; `tile`, `vthreads` and `search` are those of `Layer.scheduled`.

        Also raises `ScheduleError` for an impossible epilogue.
        """
        ep.check(epilogue, [tensor.op.name for tensor in self.inputs], planes)
        after = ep.build(self.acc, epilogue, planes, self.cfg, self.work.co)
        func = te.create_prim_func([*self.inputs, *after.operands, *after.outputs])
        work = ep.with_epilogue(self.work, epilogue, planes)
        return self.kind(self.cfg, func, work, partial(self.arrange, after)).scheduled(tile, vthreads, search)


Ready = partial[Schedule]  # a ready schedule with its arguments, but for its tile


class TileSearch(Protocol):
    """Chooses a tile, as `compiler.tune.search.Search` does."""

    def tile(self, layer: Layer, vthreads: int) -> Tile:
        """The tile to use, with at most `vthreads` virtual threads."""
        ...


class Tiles(Protocol):
    """Makes the ready schedules of a network, with tiles that it knows."""

    def scheduled(self, ready: Ready) -> Schedule:
        """The schedule that `ready` makes."""
        ...


def scheduled_by(tiles: Tiles | None, ready: Callable[..., Schedule], *args: Any, **options: Any) -> Schedule:
    """The schedule that `ready` makes of these arguments, by `tiles` if there are any."""
    return ready(*args, **options) if tiles is None else tiles.scheduled(partial(ready, *args, **options))


def layer_of(ready: Callable[..., Schedule], *args, **kwargs) -> Layer:
    """The layer that a ready schedule makes of these arguments: `layer_of(conv2d, config, 1, 56, 56, 64, 64, 3, 3)`.

    Raises the errors of `ready`, and `ScheduleError` if a tile is given.
    """
    return capture(partial(ready, *args, **kwargs))[1]


def capture(ready: Ready) -> tuple[Schedule, Layer]:
    """(the schedule of `ready`, its layer). Raises as `layer_of` does."""
    search = _LayerCapture()
    scheduled = ready(search=search)
    if not search.layers:
        raise ScheduleError(f"{ready.func.__name__}: the tile is to be searched; leave tile out")
    return scheduled, search.layers[0]


class _LayerCapture:
    """A search that records the layers it is called with."""

    def __init__(self):
        self.layers: list[Layer] = []

    def tile(self, layer: Layer, vthreads: int) -> Tile:
        self.layers.append(layer)
        return layer.best(vthreads)
