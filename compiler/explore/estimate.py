"""What a configuration takes and does, without synthesis and without a device: area, clock, bandwidth, cycles."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...hw.config import Config
from ...sim.dram import Dram
from ..cost import bandwidths
from .area import AVAILABLE, area_of, clock_of, model, outside
from .evaluate import misfit, network_figures


def estimate(config: Config, dram: Dram, mhz: int, network: str | None = None) -> dict[str, Any]:
    """The figures of `config` at `mhz` with the memory `dram`, and of one inference of the file `network`.

    `area` by the rules and the fit of area.py, with `area_error`, the largest relative error at configurations that
    were held out of the fit; `outside` names fields beyond it. `fmax_estimate_mhz` with `fmax_error_mhz`.
    `bandwidth`: bytes per second that one port, loads, stores and both can move, and that the network does move.
    `cycles`, `latency_us` and `host_us` are None without a network. Raises `UnsupportedError` where there is no circuit
    of `config`, and the errors of the compiler.
    """
    area = area_of(config)
    mhz_of, mhz_error = clock_of(config)
    found = {
        "config": config.to_dict(),
        "area": asdict(area),
        "area_error": {**model()["error"], "bram": 0.0, "dsp": 0.0},
        "available": asdict(AVAILABLE),
        "outside": outside(config),
        "misfit": misfit(config, area),
        "fmax_estimate_mhz": mhz_of,
        "fmax_error_mhz": mhz_error,
        "mhz": mhz,
        "bandwidth": {name: n * mhz * 1e6 for name, n in bandwidths(config, dram).items()},
        "network": network,
        "cycles": None,
        "host_us": None,
        "latency_us": None,
    }
    if network is not None:
        figures = network_figures(network, config, dram, mhz)
        found |= {key: figures[key] for key in ("cycles", "host_us", "latency_us")}
        found["bandwidth"]["used"] = figures["dram_bytes"] / figures["cycles"] * mhz * 1e6 if figures["cycles"] else 0.0
    return found
