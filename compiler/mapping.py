"""Output channels of layers on several compute units: mappings, their files, checks, costs, and the cheapest one.

A file is JSON: `{"version": 1, "layers": {"conv1": {"gemm": [0, 2], "ternary": [1, 3]}}}`. Every output channel of a
layer that is named runs on one unit; a layer that is not named runs on GEMM. compiler/network.py has the mapping with
the least predicted time of a network, compiler/graph/regroup.py the network that a mapping makes.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..hw.config import Config
from ..hw.errors import InputError, Unfit, UnsupportedError
from ..hw.foreign import read_json
from ..hw.isa import Op, known_isa
from ..hw.units import COMPUTE_UNITS
from ..runtime.files import atomic_write
from ..runtime.launch import Launch
from ..runtime.schema import shown as _value
from . import graph as g
from .accelerator.first_images import brought, cheapest_layout
from .graph.regroup import Ties, capable, cut, grouped, shown, ties
from .kernels import language
from .kernels.conv import folded_conv
from .kernels.fold import may_fold
from .kernels.two_units import Layer, divided

VERSION = 1
_MOST_BYTES = 1 << 23  # of a file; channels are short numbers
_SHAPE = '{"version": 1, "layers": {"conv1": {"gemm": [0], "ternary": [1]}}}'

Split = Mapping[str, Sequence[int]]  # channels by unit


@dataclass(frozen=True)
class ChannelMapping:
    """The channels of each unit, by layer and by the name of the unit in `Config.units`.

    `ternary_channels` says whether it is one for a network and a configuration.
    """

    layers: Mapping[str, Split]

    @classmethod
    def of(cls, value: MappingLike) -> ChannelMapping:
        """A mapping as users give it: one of these, what a file holds, or the path of a file.

        Raises `FileError` for a file that cannot be read, and `InputError` for another structure.
        """
        if isinstance(value, ChannelMapping):
            return value
        if isinstance(value, (str, Path)):
            return read_mapping(value)
        return cls.from_dict(value, "mapping")

    @classmethod
    def from_dict(cls, value: object, name: str) -> ChannelMapping:
        """The mapping that a file's JSON describes; errors begin with `name`. Raises `InputError`."""
        if not isinstance(value, Mapping) or set(value) != {"version", "layers"}:
            raise InputError(f"{name}: must be an object with `version` and `layers`, as {_SHAPE}")
        if value["version"] != VERSION or isinstance(value["version"], bool):
            raise InputError(f"{name}: version is {_value(value['version'])}; this release reads version {VERSION}")
        layers = value["layers"]
        if not isinstance(layers, Mapping) or not all(isinstance(split, Mapping) for split in layers.values()):
            raise InputError(f"{name}: `layers` must give an object of units for each layer, as {_SHAPE}")
        return cls(
            {_text(layer, name): _split(split, f"{name}: layer {_value(layer)}") for layer, split in layers.items()}
        )

    def to_dict(self) -> dict[str, Any]:
        """Contents of the mapping's file."""
        layers = {layer: {unit: list(found) for unit, found in split.items()} for layer, split in self.layers.items()}
        return {"version": VERSION, "layers": layers}

    @property
    def digest(self) -> str:
        """A digest of the mapping, the same for the same layers, units and channels in any order."""
        facts = {name: {unit: sorted(found) for unit, found in split.items()} for name, split in self.layers.items()}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


MappingLike = ChannelMapping | Mapping[str, Any] | str | Path  # how users give one


def _split(split: Mapping[str, object], name: str) -> dict[str, tuple[int, ...]]:
    found = {}
    for unit, channels in split.items():
        numbers = isinstance(channels, (list, tuple, range)) and all(type(c) is int and c >= 0 for c in channels)
        if not isinstance(channels, (list, tuple, range)) or not numbers:
            raise InputError(f"{name}: channels of {_value(unit)} must be a list of whole numbers from 0 on")
        found[_text(unit, name)] = tuple(channels)
    return found


def _text(key: object, name: str) -> str:
    """`key`, the name of a layer or a unit; a mapping from Python may have others."""
    if not isinstance(key, str):
        raise InputError(f"{name}: {_value(key)} is no name; layers and units are named by texts")
    return key


def read_mapping(path: str | Path) -> ChannelMapping:
    """The mapping in the file `path`. Raises `FileError` where it is no JSON, `InputError` where it is no mapping."""
    wanted = f"a mapping of channels, as {_SHAPE}"
    return ChannelMapping.from_dict(read_json(path, wanted, _MOST_BYTES), str(path))


def write_mapping(mapping: ChannelMapping, path: str | Path) -> None:
    """Write the file of a mapping, a line for each layer. Raises `FileError` where it cannot be written."""
    layers = mapping.to_dict()["layers"]
    lines = ",".join(f"\n  {json.dumps(name)}: {json.dumps(split)}" for name, split in layers.items())
    end = "\n" if layers else ""
    with atomic_write(path) as temporary:
        temporary.write_text(f'{{"version": {VERSION}, "layers": {{{lines}{end}}}}}\n')


GEMM, TERNARY = "gemm", "ternary"  # the units that a layer is split over
_MOST_SHOWN = 4


def ternary_channels(graph: g.Graph, mapping: ChannelMapping, cfg: Config) -> dict[str, frozenset[int]]:
    """The channels of unit `ternary`, by the name of each layer that has some.

    Raises `InputError` for a layer that the network lacks or that cannot be split, and for channels that are missing,
    unknown or given twice; `UnsupportedError` for a unit that the configuration lacks.
    """
    kinds, layers = {op.name: type(op).__name__ for op in graph.ops}, {op.name: op for op in graph.layers}
    found = {}
    for name, split in mapping.layers.items():
        if name not in kinds:
            raise InputError(f"the mapping names layer {shown(name)}, which the network lacks; {_nearest(name, graph)}")
        _check_units(name, split, cfg)
        if name not in layers:
            raise InputError(f"layer {shown(name)}: is a {kinds[name]}, without weights; drop it from the mapping")
        op = layers[name]
        _check_channels(name, split, len(op.weight))
        channels = frozenset(split.get(TERNARY, ()))
        if channels and (why := refusal(op)):
            raise InputError(
                f"layer {shown(name)}: cannot be split over units: {why}; map all of its channels to {GEMM}"
            )
        if channels:
            found[name] = channels
    return found


def regroup(graph: g.Graph, mapping: ChannelMapping, cfg: Config) -> g.Graph:
    """`graph` with the channels of every mapped layer grouped by unit, as `grouped` does for `ternary_channels`.

    Raises `InputError` and `UnsupportedError` for a mapping that does not fit network or configuration, `InputError`
    also for weights that are not ternary, and for layers of one sum whose ternary channels differ.
    """
    return grouped(graph, ternary_channels(graph, mapping, cfg), cfg.block_out)


def refusal(op: g.Linear) -> str:
    """Why unit `ternary` computes no channels of `op`; empty where it can."""
    if op.groups > 1:
        return "a depthwise convolution" if op.depthwise else f"a convolution of {op.groups} groups"
    if type(op) not in (g.QConv2d, g.QDense):
        return f"a {type(op).__name__}"
    return "" if op.weight.dtype == np.int8 else "its weights less their zero point are beyond int8"


def _check_units(name: str, split: Split, cfg: Config) -> None:
    for unit, channels in split.items():
        if unit not in COMPUTE_UNITS:
            raise InputError(f"layer {shown(name)}: unknown unit {_value(unit)}; units are {', '.join(COMPUTE_UNITS)}")
        if channels and unit not in cfg.units:
            raise UnsupportedError(
                f"layer {shown(name)}: is mapped to unit {unit}, which configuration {cfg.name} lacks: it has "
                f"{', '.join(cfg.units)} alone; choose a configuration that has it, as pynq_z1_two"
            )


def _check_channels(name: str, split: Split, count: int) -> None:
    given = Counter(c for channels in split.values() for c in channels)
    if twice := [c for c, times in given.items() if times > 1]:
        raise InputError(f"layer {shown(name)}: {_channels(twice)} mapped more than once; give each channel one unit")
    if unknown := [c for c in given if c >= count]:
        raise InputError(
            f"layer {shown(name)}: {_channels(unknown)} unknown; its {count} channels are 0 to {count - 1}"
        )
    if missing := [c for c in range(count) if c not in given]:
        raise InputError(
            f"layer {shown(name)}: {_channels(missing)} not mapped; give each of its {count} channels a unit"
        )


def _channels(numbers: list[int]) -> str:
    shown = ", ".join(map(_value, sorted(numbers)[:_MOST_SHOWN])) + (", ..." if len(numbers) > _MOST_SHOWN else "")
    return f"channel {shown} is" if len(numbers) == 1 else f"channels {shown} are"


def _nearest(name: str, graph: g.Graph) -> str:
    layers = [op.name for op in graph.layers]
    if not layers:
        return "it has no layers with weights"
    near = difflib.get_close_matches(name, layers, _MOST_SHOWN, 0.3)
    if near:
        return f"nearest are {', '.join(map(cut, near))}"
    return f"its layers are {', '.join(map(cut, layers[:_MOST_SHOWN]))}{', ...' if len(layers) > _MOST_SHOWN else ''}"


_BOUND = 0.8  # a unit that works for this part of the cycles bounds them


@dataclass(frozen=True)
class SplitCost:
    """Predicted cycles of a layer with `ternary` channels on that unit, and those in which each unit computes."""

    ternary: int
    cycles: float
    units: dict[str, float]

    @property
    def bound(self) -> str:
        """The unit that bounds the time, or `transfers` where both wait for the memory most of it."""
        unit = max(self.units, key=lambda name: self.units[name])
        return unit if self.units[unit] >= _BOUND * self.cycles else "transfers"


class Costs:
    """The cost of the layers of `graph` on `cfg`, a function of layer and number of ternary channels for `min_cost`.

    Weights do not matter. GEMM has whole blocks of channels. A first layer may read an image that the host lays out for
    it, as those of few channels do.
    """

    def __init__(self, graph: g.Graph, cfg: Config):
        self.cfg, self._given = cfg, brought(graph)

    def __call__(self, op: g.Divisible, ternary: int) -> float:
        """Predicted cycles; infinite where no tile fits."""
        return self.split(op, ternary).cycles

    def split(self, op: g.Divisible, ternary: int) -> SplitCost:
        """Predicted cycles, also of each unit; infinite where no tile fits."""
        layer = _layer(op, ternary, self.cfg)
        first = layer if isinstance(layer, g.QConv2d) and op.x.name in self._given else None
        if first is not None and not ternary and (fold := cheapest_layout(first, self.cfg, nhwc=False)) is not None:
            products = Layer.of(first.shape, 0, fold, self.cfg).products
            total = language.cycles(folded_conv, first, self.cfg, fold)
            return SplitCost(0, total, {"gemm": float(products), "ternary": 0.0})
        fold = None if first is None else cheapest_layout(first, self.cfg, nhwc=False)
        try:
            found = language.cycles(divided, layer, self.cfg, fold)
        except Unfit:
            return SplitCost(ternary, float("inf"), dict.fromkeys(self.cfg.units, float("inf")))
        return SplitCost(ternary, found, _issued(language.launch(divided, layer, self.cfg, fold)))

    def least(self, op: g.Divisible, ternary: int) -> float:
        """Cycles that `split` has at least: those in which a unit computes; 0 for images that may be laid out."""
        layer = _layer(op, ternary, self.cfg)
        if isinstance(layer, g.QConv2d) and op.x.name in self._given and may_fold(layer, self.cfg):
            return 0.0
        return float(Layer.of(layer.shape, ternary, None, self.cfg).products)


def _issued(launch: Launch) -> dict[str, float]:
    """Cycles in which each unit that computes products issues a micro-op."""
    found = {"gemm": 0.0, "ternary": 0.0}
    for fields in known_isa(launch.cfg).decode(launch.insn):
        if "wgt_out" in fields:
            name = "ternary" if fields["op"] == Op.TERNARY else "gemm"
            found[name] += (fields["uop_end"] - fields["uop_bgn"]) * fields["iter_out"] * fields["iter_in"]
    return found


def _layer(op: g.Divisible, ternary: int, cfg: Config) -> g.Divisible:
    """`op` with `ternary` channels on that unit and whole blocks of others, all of whose weights are 0."""
    others = len(op.weight) - ternary
    count = others + (-others % cfg.block_out if ternary else 0) + ternary
    y = replace(op.output, shape=(op.output.shape[0], count, *op.output.shape[2:]))
    weight, scale = np.zeros((count, *op.weight.shape[1:]), np.int8), np.ones(count, np.float32)
    return replace(op, output=y, weight=weight, weight_scale=scale, bias=np.zeros(count, np.int32), ternary=ternary)


Cost = Callable[[g.Divisible, int], float]  # (layer, how many of its channels are ternary) -> cycles


def candidates(count: int, able: int, block: int) -> list[int]:
    """The numbers of ternary channels worth a look, of `count` channels of which `able` can be ternary.

    Those that leave GEMM whole blocks of `block` channels, and none or all that can be.
    """
    whole = [count - first for first in range(0, count, block)]
    return sorted({0, able, *(found for found in whole if found <= able)})


def cheapest(op: g.Divisible, able: int, cfg: Config, cost: Cost, least: Cost) -> int:
    """The number of ternary channels, up to `able`, with the least `cost`; of equal ones the lowest.

    Only those are looked at whose cost is not too high by `least`, which says what it is at least.
    """
    best = (math.inf, able)
    numbers = candidates(len(op.weight), able, cfg.block_out)
    for bound, ternary in sorted((least(op, ternary), ternary) for ternary in numbers):
        if bound > best[0]:
            break
        best = min(best, (cost(op, ternary), ternary))
    return best[1]


def by_layer(graph: g.Graph, cfg: Config, cost: Cost, least: Cost) -> ChannelMapping:
    """The mapping whose layers take the fewest cycles by `cost`; of equal ones that with more channels on GEMM.

    `least` is what the cost of a layer is at least, as of `Costs.least`.

    Ternary are a layer's last channels of those whose weights are ternary (compiler/graph/regroup.py, for the
    graph's rounding contract), in every layer that shares its order and has any. The mapping names the layers that have
    some. Every layer's number is the best there is.
    """
    if TERNARY not in cfg.units:
        return ChannelMapping({})
    found = {}
    for op, channels in ternary_channels_of(graph):
        best = cheapest(op, len(channels), cfg, cost, least)
        found[op.name] = split(len(op.weight), channels[len(channels) - best :])
    return ChannelMapping(found)


def split(count: int, ternary: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The entry of a layer of `count` channels in a mapping."""
    chosen = set(ternary)
    return {GEMM: tuple(c for c in range(count) if c not in chosen), TERNARY: tuple(sorted(chosen))}


def ternary_channels_of(graph: g.Graph) -> list[tuple[g.Divisible, list[int]]]:
    """Each layer that can be split with the channels that unit `ternary` may compute, in order, the same for all layers
    that share one order.
    """
    layers = [op for op in graph.of(g.Divisible) if not refusal(op)]
    able = {op.name: capable(op, graph.contract) for op in layers}
    tied: Ties = ties(graph)
    common: dict[str, np.ndarray] = {}
    for op in layers:
        if able[op.name].any():
            root = tied.root(op.output.name)
            common[root] = common.get(root, True) & able[op.name]
    found = [(op, common[tied.root(op.output.name)]) for op in layers if able[op.name].any()]
    return [(op, np.flatnonzero(channels).tolist()) for op, channels in found if channels.any()]
