"""The timing of the memory behind the accelerator's bus ports, for the circuit's simulation and the timing model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from ..hw.errors import ConfigError

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

PRESETS: dict[str, Dram] = {ZYNQ_HP.name: ZYNQ_HP}
