"""Whether a mapping of channels fits a network and a configuration."""

from __future__ import annotations

import difflib
from collections import Counter

import numpy as np

from ...hw.config import Config
from ...hw.errors import InputError, UnsupportedError
from ...hw.units import COMPUTE_UNITS
from ...runtime.schema import shown as _value
from .. import graph as g
from .file import ChannelMapping, Split

GEMM, TERNARY = "gemm", "ternary"  # the units that a layer is split over
_MOST_SHOWN = 4
_LONGEST = 40  # characters of a layer's name in a message


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


def shown(name: str) -> str:
    """The name of a layer as messages have it, in quotes; some files have names of hundreds of characters."""
    return repr(_cut(name))


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}...{name[-_LONGEST // 4 :]}"


def _nearest(name: str, graph: g.Graph) -> str:
    layers = [op.name for op in graph.layers]
    if not layers:
        return "it has no layers with weights"
    near = difflib.get_close_matches(name, layers, _MOST_SHOWN, 0.3)
    if near:
        return f"nearest are {', '.join(map(_cut, near))}"
    return f"its layers are {', '.join(map(_cut, layers[:_MOST_SHOWN]))}{', ...' if len(layers) > _MOST_SHOWN else ''}"
