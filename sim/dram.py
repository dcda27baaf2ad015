"""The timing of the DRAM that the accelerator's bus ports access, for the circuit's simulation and the timing model.

`Dram` is one memory: latencies in cycles, bytes per cycle, bursts in flight. `PRESETS` names those of boards and ideal
ones, `load_dram` reads others from text, fields or a file. Contents of memory are not modelled here.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..hw.config import Config, read_fields
from ..hw.errors import ConfigError
from ..hw.foreign import whole_number

MAX_OUTSTANDING = 64  # bursts per port that the simulated memory can hold


@dataclass(frozen=True)
class Dram:
    """One memory; all of its load ports are alike, and all of its store ports.

    A burst's first beat can be taken `latency` cycles after its address, the following ones in the cycles after it; a
    write is answered `response` cycles after its last beat, and only then does its data become visible. A port moves at
    most `port_bytes` per cycle, all ports together `total_bytes`. A load port holds `outstanding` bursts, a store port
    `outstanding_writes`; further addresses wait.

    With a `seed`, for tests, every channel stalls at random with a probability of its own, and latencies vary.
    Raises `ConfigError` for an impossible value.
    """

    name: str = "zynq_hp"
    latency: int = 40
    response: int = 20
    port_bytes: int = 8
    total_bytes: int = 16
    outstanding: int = 8
    outstanding_writes: int = 8
    seed: int | None = None

    def __post_init__(self) -> None:
        limits = {"latency": (1, 1 << 20), "response": (1, 1 << 20), "port_bytes": (1, 64), "total_bytes": (1, 1024)}
        limits |= {"outstanding": (1, MAX_OUTSTANDING), "outstanding_writes": (1, MAX_OUTSTANDING)}
        for key, (low, high) in limits.items():
            value = getattr(self, key)
            if type(value) is not int or not low <= value <= high:
                raise ConfigError(f"Dram.{key} = {value!r}: must be an integer from {low} to {high}")
        if not isinstance(self.name, str) or not self.name.isprintable():
            raise ConfigError(f"Dram.name = {self.name!r}: must be a printable text")
        if self.seed is not None and (type(self.seed) is not int or not 0 <= self.seed < 1 << 62):
            raise ConfigError(f"Dram.seed = {self.seed!r}: must be an integer from 0 on, or null for no stalls")

    def replace(self, **changes: object) -> Dram:
        """A copy with `changes`. Raises `ConfigError` for an unknown field or an impossible value."""
        known = [f.name for f in dataclasses.fields(Dram)]
        for key in changes:
            if key not in known:
                raise ConfigError(f"Dram has no field {key!r}; it has {', '.join(known)}")
        return Dram(**{**dataclasses.asdict(self), **changes})

    @staticmethod
    def random(seed: int) -> Dram:
        """A memory with random parameters and random stalls, the same for the same `seed`."""
        rng = np.random.default_rng(seed)
        values = {
            "latency": int(rng.choice([1, 2, 7, 40, 90])),
            "response": int(rng.choice([1, 3, 20, 100])),
            "port_bytes": int(rng.choice([1, 8, 64])),
            "total_bytes": int(rng.choice([3, 64, 128])),
            "outstanding": int(rng.choice([1, 2, 5, 8, 16])),
            "outstanding_writes": int(rng.choice([1, 2, 8])),
        }
        return Dram(name=f"random {seed}", seed=seed + 1, **values)


# A PYNQ-Z1's high-performance ports: 64 bits at the accelerator's clock, one for loads and one for stores.
ZYNQ_HP = Dram()
DDR_BYTES_PER_SECOND = 2_100_000_000  # that a PYNQ-Z1's memory moves for all ports together


def pynq_z1_ddr(mhz: int = 100) -> Dram:
    """The high-performance ports of a PYNQ-Z1 together, as fast as its DDR memory; `mhz` is the accelerator's clock."""
    return Dram(name="pynq_z1_ddr", total_bytes=DDR_BYTES_PER_SECOND // (mhz * 1_000_000))


PRESETS: dict[str, Dram] = {
    dram.name: dram
    for dram in (
        ZYNQ_HP,
        Dram(name="zynq_hp4", total_bytes=32),
        pynq_z1_ddr(),
        Dram(name="wide", port_bytes=64, total_bytes=1024),
        Dram(
            name="ideal",
            latency=1,
            response=1,
            port_bytes=64,
            total_bytes=1024,
            outstanding=MAX_OUTSTANDING,
            outstanding_writes=MAX_OUTSTANDING,
        ),
    )
}
MEANINGS = {
    "zynq_hp": "two high-performance ports of a PYNQ-Z1, for one load port and one store port",
    "zynq_hp4": "all four of them, for two load ports; with `,total_bytes=40` for four, and a store port beside one",
    "pynq_z1_ddr": "the same behind the board's DDR, 2.1 GB/s: at 100 MHz",
    "wide": "the same latency, and a beat per cycle on every port, however wide",
    "ideal": "a beat per cycle on every port, one cycle after its address",
}


def shared_bytes(cfg: Config, dram: Dram) -> int:
    """Bytes per cycle from which on `dram`'s `total_bytes` delay no port of `cfg`."""
    return (cfg.load_ports + cfg.store_ports) * min(dram.port_bytes, cfg.axi_bits // 8)


def unshared(cfg: Config, dram: Dram = ZYNQ_HP) -> Dram:
    """`dram`, in which the ports of `cfg` do not delay each other: for estimates by the timing model."""
    return dram.replace(total_bytes=max(dram.total_bytes, shared_bytes(cfg, dram)))


def load_dram(spec: str | dict | Dram | None) -> Dram:
    """The memory that `spec` names: a preset, a JSON file, or the fields themselves; of those absent, `zynq_hp`'s.

    None is `zynq_hp`.

    A preset or file may be followed by fields to change, as in `zynq_hp4,latency=80`. Raises `ConfigError` for an
    unknown preset or impossible values, `FileError` for an unreadable file.
    """
    if isinstance(spec, Dram):
        return spec
    if spec is None or isinstance(spec, dict):
        return ZYNQ_HP if spec is None else ZYNQ_HP.replace(**{"name": "custom", **spec})
    if not isinstance(spec, str):
        raise ConfigError(
            f"memory {spec!r}: must be {', '.join(PRESETS)}, a .json file, an object of fields, or a Dram"
        )
    base, *changes = spec.split(",")
    found = PRESETS.get(base) or _read(base)
    return found.replace(name=spec, **dict(_change(spec, text) for text in changes)) if changes else found


def _change(spec: str, text: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    number = whole_number(value.removeprefix("-"))
    if not equals or number is None:
        raise ConfigError(f"memory {spec!r:.80}: {text!r:.80} must be FIELD=NUMBER, as in zynq_hp,latency=80")
    return key, -number if value.startswith("-") else number


def _read(path: str) -> Dram:
    if not path.endswith(".json"):
        raise ConfigError(
            f"unknown memory {path!r:.80}; known are {', '.join(PRESETS)}, or give a .json file of fields"
        )
    return ZYNQ_HP.replace(**{"name": Path(path).stem, **read_fields(path, "memory", PRESETS)})


def bandwidths(cfg: Config, dram: Dram) -> dict[str, int]:
    """Most bytes per cycle of one `port`, of all ports that `load`, of all that `store`, and of `both` kinds."""
    port = min(dram.port_bytes, cfg.axi_bits // 8)
    load, store = cfg.load_ports * port, cfg.store_ports * port
    limits = {"port": port, "load": load, "store": store, "both": load + store}
    return {name: min(limit, dram.total_bytes) for name, limit in limits.items()}
