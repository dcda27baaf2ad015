"""Mappings of output channels to compute units: files, checks, costs of splits, and the cheapest split of each layer.

A file is JSON: `{"version": 1, "layers": {"conv1": {"gemm": [0, 2], "ternary": [1, 3]}}}`. Every output channel of a
layer that is named runs on one unit; a layer that is not named runs on GEMM. Limits: only the units `gemm` and
`ternary` share a layer. `min_cost` in compiler/network.py compares whole programs; compiler/graph/regroup.py rewrites
the network for a mapping.
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
        """The mapping that `value` is, or that it holds as the contents or the path of a file.

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
    split_of = {}
    for unit, channels in split.items():
        numbers = isinstance(channels, (list, tuple, range)) and all(type(c) is int and c >= 0 for c in channels)
        if not isinstance(channels, (list, tuple, range)) or not numbers:
            raise InputError(f"{name}: channels of {_value(unit)} must be a list of whole numbers from 0 on")
        split_of[_text(unit, name)] = tuple(channels)
    return split_of


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
    channels_of = {}
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
            channels_of[name] = channels
    return channels_of


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
    times_of = Counter(c for channels in split.values() for c in channels)
    if twice := [c for c, times in times_of.items() if times > 1]:
        raise InputError(f"layer {shown(name)}: {_channels(twice)} mapped more than once; give each channel one unit")
    if unknown := [c for c in times_of if c >= count]:
        raise InputError(
            f"layer {shown(name)}: {_channels(unknown)} unknown; its {count} channels are 0 to {count - 1}"
        )
    if missing := [c for c in range(count) if c not in times_of]:
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


_BOUND = 0.8  # a unit that computes for this share of the cycles bounds them


@dataclass(frozen=True)
class SplitCost:
    """Predicted cycles of a layer with `ternary` channels on that unit, and the cycles in which each unit computes."""

    ternary: int
    cycles: float
    units: dict[str, float]

    @property
    def bound(self) -> str:
        """The unit that bounds the time, or `transfers` if both mostly wait for the memory."""
        unit = max(self.units, key=lambda name: self.units[name])
        return unit if self.units[unit] >= _BOUND * self.cycles else "transfers"


class Costs:
    """Costs of the layers of `graph` on `cfg` by the timing model, a function of (layer, number of ternary channels).

    Values of weights do not matter. GEMM gets whole blocks of channels. A first layer of few channels may read an
    image that the host lays out for it.
    """

    def __init__(self, graph: g.Graph, cfg: Config):
        self.cfg, self._images = cfg, brought(graph)

    def __call__(self, op: g.Divisible, ternary: int) -> float:
        """Predicted cycles; infinite if no tile fits."""
        return self.split(op, ternary).cycles

    def split(self, op: g.Divisible, ternary: int) -> SplitCost:
        """Predicted cycles, and those of each unit; infinite if no tile fits."""
        layer = _layer(op, ternary, self.cfg)
        fold = None
        if isinstance(layer, g.QConv2d) and op.x.name in self._images:
            fold = cheapest_layout(layer, self.cfg, nhwc=False)
        if fold is not None and not ternary:
            products = Layer.of(layer.shape, 0, fold, self.cfg).products
            return SplitCost(0, language.cycles(folded_conv, layer, self.cfg, fold), _units(float(products)))
        try:
            cycles = language.cycles(divided, layer, self.cfg, fold)
        except Unfit:
            return SplitCost(ternary, math.inf, _units(math.inf, math.inf))
        return SplitCost(ternary, cycles, _issued(language.launch(divided, layer, self.cfg, fold)))

    def least(self, op: g.Divisible, ternary: int) -> float:
        """Lower bound of the cycles: the products of the slower unit; 0 for an image that the host may lay out."""
        layer = _layer(op, ternary, self.cfg)
        if isinstance(layer, g.QConv2d) and op.x.name in self._images and may_fold(layer, self.cfg):
            return 0.0
        return float(Layer.of(layer.shape, ternary, None, self.cfg).products)


def _units(gemm: float, ternary: float = 0.0) -> dict[str, float]:
    return {GEMM: gemm, TERNARY: ternary}


def _issued(launch: Launch) -> dict[str, float]:
    """Cycles in which each unit that computes products issues a micro-op."""
    cycles = _units(0.0)
    for fields in known_isa(launch.cfg).decode(launch.insn):
        if "wgt_out" in fields:
            unit = TERNARY if fields["op"] == Op.TERNARY else GEMM
            cycles[unit] += (fields["uop_end"] - fields["uop_bgn"]) * fields["iter_out"] * fields["iter_in"]
    return cycles


def _layer(op: g.Divisible, ternary: int, cfg: Config) -> g.Divisible:
    """`op` with zero weights, of `ternary` channels on that unit and whole blocks of others."""
    others = len(op.weight) - ternary
    count = others + (-others % cfg.block_out if ternary else 0) + ternary
    y = replace(op.output, shape=(op.output.shape[0], count, *op.output.shape[2:]))
    weight, scale = np.zeros((count, *op.weight.shape[1:]), np.int8), np.ones(count, np.float32)
    facts = {"weight_scale": scale, "bias": np.zeros(count, np.int32), "steps": None}
    return replace(op, output=y, weight=weight, ternary=ternary, **facts)


Cost = Callable[[g.Divisible, int], float]  # (layer, number of its ternary channels) -> cycles


def candidates(count: int, able: int, block: int) -> list[int]:
    """Numbers of ternary channels to compare, for `count` channels of which `able` can be ternary.

    They are 0, `able`, and the numbers that leave whole blocks of `block` channels to GEMM.
    """
    whole = [count - first for first in range(0, count, block)]
    return sorted({0, able, *(number for number in whole if number <= able)})


def cheapest(op: g.Divisible, able: int, cfg: Config, cost: Cost, least: Cost) -> int:
    """The number of ternary channels, up to `able`, of the least `cost`; the lowest of several.

    `least` is a lower bound of `cost`, cheaper to compute: numbers whose bound is too high are skipped.
    """
    best = (math.inf, able)
    numbers = candidates(len(op.weight), able, cfg.block_out)
    for bound, ternary in sorted((least(op, ternary), ternary) for ternary in numbers):
        if bound > best[0]:
            break
        best = min(best, (cost(op, ternary), ternary))
    return best[1]


def by_layer(graph: g.Graph, cfg: Config, cost: Cost, least: Cost) -> ChannelMapping:
    """The mapping that gives every layer its `cheapest` split by `cost`, of which `least` is a lower bound.

    The last of a layer's channels with ternary weights (`ternary_channels_of`) go to unit `ternary`. The mapping names
    the layers that have such channels.
    """
    if TERNARY not in cfg.units:
        return ChannelMapping({})
    layers = {}
    for op, channels in ternary_channels_of(graph):
        number = cheapest(op, len(channels), cfg, cost, least)
        layers[op.name] = split(len(op.weight), channels[len(channels) - number :])
    return ChannelMapping(layers)


def split(count: int, ternary: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The entry of a layer of `count` channels in a mapping."""
    chosen = set(ternary)
    return {GEMM: tuple(c for c in range(count) if c not in chosen), TERNARY: tuple(sorted(chosen))}


def ternary_channels_of(graph: g.Graph) -> list[tuple[g.Divisible, list[int]]]:
    """(layer, channels that unit `ternary` may compute) of each layer that can be split, where there are any.

    The weights of these channels are ternary under the graph's rounding contract, in every layer that shares the
    layer's order of channels (compiler/graph/regroup.py) and has any.
    """
    able = {op.name: capable(op, graph.contract) for op in graph.of(g.Divisible) if not refusal(op)}
    layers = [op for op in graph.of(g.Divisible) if op.name in able and able[op.name].any()]
    tied: Ties = ties(graph)
    common: dict[str, np.ndarray] = {}
    for op in layers:
        root = tied.root(op.output.name)
        common[root] = common.get(root, True) & able[op.name]
    shared = [(op, common[tied.root(op.output.name)]) for op in layers]
    return [(op, np.flatnonzero(channels).tolist()) for op, channels in shared if channels.any()]
