"""Random legal configurations and memories, the same for the same seed: every field over all of its range."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...hw.config import STANDARD_EXTENSIONS, Config
from ...hw.errors import ConfigError
from ...hw.fields import EXTENSIONS, Parameter, parameters
from ...sim.dram import MAX_OUTSTANDING, Dram

_WIDTHS = ("inp_bits", "wgt_bits", "out_bits")  # networks need 8 bits, which most configurations have
_SIZES = ("uop_bytes", "inp_bytes", "wgt_bytes", "acc_bytes")
_OFTEN = 0.75  # how often a width is 8, a size is stated
_TERNARY = 0.2  # how often there is the second unit


def random_config(seed: int) -> Config:
    """A legal configuration: fields are drawn until they go together."""
    rng = np.random.default_rng([seed, 0])
    while True:
        values = _drawn(rng)
        try:
            return Config.from_dict({"name": f"random_{seed}", **values})
        except ConfigError:
            continue


def random_memory(seed: int) -> Dram:
    """A memory without random stalls: latencies, widths and bursts in flight."""
    rng = np.random.default_rng([seed, 1])
    return Dram(
        name=f"random_{seed}",
        latency=_number(rng, 1, 1000),
        response=_number(rng, 1, 1000),
        port_bytes=_number(rng, 1, 64),
        total_bytes=_number(rng, 1, 1024),
        outstanding=_number(rng, 1, MAX_OUTSTANDING),
        outstanding_writes=_number(rng, 1, MAX_OUTSTANDING),
    )


def _drawn(rng: np.random.Generator) -> dict[str, Any]:
    """A value for every field; they need not go together.

    Half of the configurations have the extensions that networks want, a batch of 1; most have blocks of one size.
    """
    values: dict[str, Any] = {name: _value(rng, p) for name, p in parameters(Config).items() if p.high}
    values |= {name: 8 for name in _WIDTHS if rng.random() < _OFTEN}
    values |= {name: None for name in _SIZES if rng.random() > _OFTEN}
    values |= {"dsp_packing": bool(rng.random() < 0.5), "extensions": _extensions(rng)}
    if rng.random() < 0.5:
        values["batch"] = 1
    if rng.random() < 0.9:
        values["store_ports"] = 1  # the circuit has no more
    if rng.random() < 0.5:
        values["axi_bits"] = int(rng.choice([32, 64]))  # with which it has as many load ports as one likes
    if rng.random() < _TERNARY:
        values |= {"units": ["gemm", "ternary"], "acc_banks": 4}
    if rng.random() < 0.7:
        values["block_out"] = values["block_in"]
    else:
        values["extensions"] = [name for name in values["extensions"] if not name.startswith("depthwise")]
    return values


def _extensions(rng: np.random.Generator) -> list[str]:
    """Names of extensions with those that they need."""
    found = set(STANDARD_EXTENSIONS) if rng.random() < 0.5 else set()
    found |= {name for name in EXTENSIONS if rng.random() < 0.5}
    if "requant" not in found and rng.random() < 0.5:
        found.add("requant")
    if "requant" not in found:
        found -= {name for name, row in EXTENSIONS.items() if row.extends == "requant"}
    found |= {EXTENSIONS[name].extends for name in found} - {""}
    return sorted(found)


def _value(rng: np.random.Generator, parameter: Parameter) -> int:
    low, high = parameter.low, parameter.high
    if parameter.powers:
        return 1 << int(rng.integers(low.bit_length() - 1, high.bit_length()))
    return _number(rng, low, high)


def _number(rng: np.random.Generator, low: int, high: int) -> int:
    """A number within the limits; each doubling is as likely."""
    return int(np.clip(np.exp2(rng.uniform(np.log2(low), np.log2(high + 1))), low, high))
