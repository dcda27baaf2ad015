"""Mappings of output channels to compute units, and their files.

A file is JSON: `{"version": 1, "layers": {"conv1": {"gemm": [0, 2], "ternary": [1, 3]}}}`. Every output channel of a
layer that is named runs on one unit; a layer that is not named runs on GEMM.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...hw.errors import InputError
from ...hw.foreign import read_json
from ...runtime.files import atomic_write
from ...runtime.schema import shown

VERSION = 1
_MOST_BYTES = 1 << 23  # of a file; channels are short numbers
_SHAPE = '{"version": 1, "layers": {"conv1": {"gemm": [0], "ternary": [1]}}}'

Split = Mapping[str, Sequence[int]]  # channels by unit


@dataclass(frozen=True)
class ChannelMapping:
    """The channels of each unit, by layer and by the name of the unit in `Config.units`.

    compiler/mapping/check.py says whether it is one for a network and a configuration.
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
            raise InputError(f"{name}: version is {shown(value['version'])}; this release reads version {VERSION}")
        layers = value["layers"]
        if not isinstance(layers, Mapping) or not all(isinstance(split, Mapping) for split in layers.values()):
            raise InputError(f"{name}: `layers` must give an object of units for each layer, as {_SHAPE}")
        return cls(
            {_text(layer, name): _split(split, f"{name}: layer {shown(layer)}") for layer, split in layers.items()}
        )

    def to_dict(self) -> dict[str, Any]:
        """What its file holds."""
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
            raise InputError(f"{name}: channels of {shown(unit)} must be a list of whole numbers from 0 on")
        found[_text(unit, name)] = tuple(channels)
    return found


def _text(key: object, name: str) -> str:
    """`key`, the name of a layer or a unit; a mapping from Python may have others."""
    if not isinstance(key, str):
        raise InputError(f"{name}: {shown(key)} is no name; layers and units are named by texts")
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
