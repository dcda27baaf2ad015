"""What an exploration may choose: values for fields of a configuration and of the memory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ...hw.config import Config, load_config
from ...hw.errors import ConfigError
from ...hw.foreign import read_json
from ...sim.dram import Dram, load_dram

BLOCK = "block"  # block_in and block_out together
_SHAPE = '{"block": [8, 16], "acc_bytes": [16384, 32768]}'
_DRAM = "dram."  # before fields of the memory
_HALVED = ("inp_bytes", "wgt_bytes", "acc_bytes", "uop_bytes")
Choice = Callable[[str, list[str]], str]  # of a name among texts, as Optuna's trials choose


@dataclass(frozen=True)
class Point:
    """One configuration with its memory, and the `values` that were chosen for them."""

    config: Config
    dram: Dram
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Space:
    """`choices`: for a field of `Config`, for `block` (both blocks) or for `dram.FIELD`, the values that it may have.

    Everything else is as in `base` and `dram`.
    """

    base: Config
    dram: Dram
    choices: Mapping[str, tuple[Any, ...]]

    def __post_init__(self) -> None:
        known = [BLOCK, *(f.name for f in fields(Config) if f.name != "name")]
        known += [_DRAM + f.name for f in fields(Dram) if f.name not in ("name", "seed")]
        for name, values in self.choices.items():
            if name not in known:
                raise ConfigError(f"space: {name!r} is no field; choose among {', '.join(known)}")
            if not values or len({as_text(value) for value in values}) < len(values):
                raise ConfigError(f"space: the values of {name} must be different ones, at least 1")

    @property
    def size(self) -> int:
        """Combinations of values; some of them are no configuration."""
        return math.prod(len(values) for values in self.choices.values())

    def choose(self, choice: Choice, name: str) -> dict[str, Any]:
        """Values that `choice` picks, by name of their field; `name` is the configuration's."""
        found = {key: json.loads(choice(key, [as_text(v) for v in values])) for key, values in self.choices.items()}
        return {"name": name, **found}

    def point(self, values: Mapping[str, Any]) -> Point:
        """The configuration of `values`. Raises `ConfigError` where there is none."""
        chosen = {key: value for key, value in values.items() if not key.startswith(_DRAM)}
        if BLOCK in chosen:
            block = chosen.pop(BLOCK)
            chosen = {"block_in": block, "block_out": block, **chosen}
        config = Config.from_dict({**self.base.to_dict(), **chosen})
        memory = {key.removeprefix(_DRAM): value for key, value in values.items() if key.startswith(_DRAM)}
        if "dram.port_bytes" not in values:  # a port of the memory is as wide as that of the circuit
            width = self.dram.port_bytes * config.axi_bits // self.base.axi_bits
            memory |= {"port_bytes": min(64, max(1, width))}
        return Point(config, self.dram.replace(**memory), dict(values))

    def first(self) -> dict[str, Any]:
        """The values of `base` itself, where the space offers them: what others are compared with."""
        every = {**self.base.every_field(), BLOCK: self.base.block_in}
        every |= {_DRAM + f.name: getattr(self.dram, f.name) for f in fields(Dram)}
        return {key: every[key] for key in self.choices}

    def has(self, values: Mapping[str, Any]) -> bool:
        """True if the space offers all of `values`."""
        return all(as_text(value) in map(as_text, self.choices[key]) for key, value in values.items() if key != "name")


def as_text(value: Any) -> str:
    """`value` as a text that names it: choices may be lists, which studies do not hold."""
    return json.dumps(sorted(value) if isinstance(value, (set, frozenset)) else value)


def default_space(base: Config, dram: Dram) -> Space:
    """Smaller blocks and buffers than those of `base`, other queues, and other lanes of post-processing."""
    block = base.block_in
    choices: dict[str, tuple[Any, ...]] = {BLOCK: tuple(b for b in (block // 4, block // 2, block) if b)}
    for name in _HALVED:
        size = getattr(base, name)
        choices[name] = tuple(size >> k for k in (3, 2, 1, 0))
    lanes = base.ppu_lanes
    choices["ppu_lanes"] = tuple(sorted({max(1, lanes // 4), max(1, lanes // 2), lanes}))
    choices["queue_depth"] = tuple(sorted({8, 32, base.queue_depth}))
    choices["load_ports"] = (1, 2)
    return Space(base, dram, choices)


def read_space(path: str | Path, base: Config, dram: Dram) -> Space:
    """The space in a JSON file: an object of lists by field, and optionally `base` and `dram`, which `load_config` and
    `load_dram` take.

    Raises `FileError` for a file that cannot be read or is no JSON, `ConfigError` for names that are no fields.
    """
    values = read_json(path, f"a space, as {_SHAPE}")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a space is a JSON object, as {_SHAPE}")
    base = load_config(values.pop("base", base))
    dram = load_dram(values.pop("dram", dram))
    wrong = next((key for key, value in values.items() if not isinstance(value, list)), None)
    if wrong is not None:
        raise ConfigError(f"{path}: {wrong} = {values[wrong]!r}: must be a list of values")
    return Space(base, dram, {key: tuple(value) for key, value in values.items()})
